"""Exchange over links between silos: who knows what of the nodes that they join."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from graphsilo.data.silos.silo import Silo
from graphsilo.errors import FederationError, MessageError, UnsupportedError
from graphsilo.types import ClientId


class Named(Protocol):
    """What a client says of the nodes that links between silos join: ids of its own, and of those at the other ends."""

    @property
    def own(self) -> Tensor:
        """[b] int64."""

    @property
    def beyond(self) -> Tensor:
        """[m] int64."""


def check_border(border: Named) -> None:
    """Refuse nodes that do not ascend.

    Raises:
        MessageError: Some do not.
    """
    if any(bool((ids[1:] <= ids[:-1]).any()) for ids in (border.own, border.beyond)):
        raise MessageError("the nodes of a border must ascend, each named once.")


def values_beyond(borders: Mapping[ClientId, Named], values: Mapping[ClientId, Tensor]) -> dict[ClientId, Tensor]:
    """What is known of the nodes beyond each client's border, [m], 0 where nobody says it.

    Args:
        borders: Of every client.
        values: [b] of its own nodes there.

    Raises:
        FederationError: Two clients call nodes of their own by one id.
    """
    ids, order = torch.cat([border.own for border in borders.values()]).sort()
    if bool((ids[1:] == ids[:-1]).any()):
        raise FederationError(
            "two clients call nodes of their own by one id, and links between silos need each node to be in one "
            "silo only. Choose another partition rule, or other ids in the tables."
        )
    known = torch.cat([values[client] for client in borders])[order]
    found = {}
    for client, border in borders.items():
        place = torch.searchsorted(ids, border.beyond).clamp_(max=max(len(ids) - 1, 0))
        found[client] = known[place] * (ids[place] == border.beyond) if len(ids) else torch.zeros_like(border.beyond)
    return found


def check_cut(silo: Silo, name: str, does: str, setting: str) -> None:
    """Refuse a silo that does not know its links to others, or is first scored on another graph than it trains on.

    Args:
        silo: Whose links are asked for.
        name: Of the method, for the message.
        does: What it does over these links.
        setting: Which one is 0 to do without.

    Raises:
        UnsupportedError: It is one.
    """
    if silo.cut is None or silo.evaluations[0].graph is not silo.graph:
        raise UnsupportedError(
            f"client {silo.client}: {does} over links between silos, on a graph both trained "
            f"on and scored: one undirected graph cut into silos, any scenario but 'inductive', nothing under "
            f"perturb; tables that all name their links to other silos (outside); or silos that `graphsilo silo "
            f"export` wrote for {name}. --set method.{setting}=0 does without, and is FedAvg."
        )
