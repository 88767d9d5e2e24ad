"""Whom a run is carried out with: what the runner knows of data and cut, wherever the data is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from graphsilo.data.scaling import UNSCALED, FeatureScale, Scaling
from graphsilo.data.silo import Schema
from graphsilo.types import ClientId, Task

if TYPE_CHECKING:
    from graphsilo.federation.client import ModelSpec
    from graphsilo.federation.ledger import Ledger
    from graphsilo.federation.registry import Method
    from graphsilo.federation.settings import MethodConfig
    from graphsilo.runtime.in_process import LocalFederation
    from graphsilo.runtime.remote_sites import StateLost

_MOST = 8
"""Classes that are named before the rest is only counted."""


class Cohort(ABC):
    """Everything a run, its checks and its result need of the participants' data, without the data itself.

    Attributes:
        task: node, graph or link.
        schema: What all clients agree on.
        models: Backbone of each client.
        data_hash: sha256 over what is known of the data.
        cut: Counts per client, and where the data was cut here, what the cut did to the graph.
        scaling: How features are scaled before a model sees them.
    """

    # Read-only here, so that a frozen dataclass may hold them.
    @property
    @abstractmethod
    def clients(self) -> tuple[ClientId, ...]:
        """Numbers of the clients, ascending; one for data pooled in one place."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """By which rule the data came to the clients."""

    @property
    @abstractmethod
    def num_holders(self) -> int:
        """How many clients the data was cut for, pooled afterwards or not."""

    @property
    @abstractmethod
    def cut_facts(self) -> dict[str, Any]:
        """Rule, number of clients, seed and hash of the cut, and what else the result says of it."""

    @property
    @abstractmethod
    def cut_hash(self) -> str:
        """Stands for the cut in a fingerprint."""

    @property
    def cut_options(self) -> Mapping[str, Any]:
        """Settings of the rule, complete."""
        return {}

    @property
    def has_data(self) -> bool:
        """Whether the data itself is here."""
        return False

    @property
    @abstractmethod
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Name and counts of the data."""

    @abstractmethod
    def warnings(self) -> list[str]:
        """What a person should know of this cut before believing a number."""

    @abstractmethod
    def keep(self, folder: Path) -> None:
        """Write into a run's folder what is needed to know the cut again."""

    task: Task
    schema: Schema
    models: Mapping[ClientId, ModelSpec]
    data_hash: str
    cut: dict[str, Any]
    scaling: Scaling


def per_client_warnings(rows: list[dict[str, Any]]) -> list[str]:
    """What counts per client say that a person should know."""
    found = []
    untrained = [row["client"] for row in rows if row["train"] == 0]
    untested = [row["client"] for row in rows if row["test"] == 0]
    if untrained:
        found.append(f"{_clients(untrained)} no training item: nothing is learned there, only received.")
    if untested:
        found.append(f"{_clients(untested)} no test item, and left out of the means.")
    return found


def _clients(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"client {shown} has" if len(numbers) == 1 else f"clients {shown}{more} have"


class Federations(Protocol):
    """Where the clients of a run live: makes a federation for each seed."""

    def federation(
        self,
        method: Method,
        config: MethodConfig,
        models: Mapping[ClientId, ModelSpec],
        seed: int,
        device: str,
        ledger: Ledger | None = None,
        scaling: Scaling = UNSCALED,
        scale: FeatureScale | None = None,
    ) -> LocalFederation:
        """All clients, made anew for one seed.

        Args:
            method, config, models, seed, device, ledger: What they are made from.
            scaling: How their features are scaled.
            scale: By what, where they agreed on it.
        """

    def for_reference(self, name: str) -> Federations:
        """The same clients for a reference row, apart from the run that it stands beside."""

    def recovering(self, lost: StateLost) -> None:
        """Clients have lost their state, and the seed begins again from its last checkpoint."""


def untrained_words(lost: Sequence[Sequence[int]], names: Sequence[str] | None) -> str:
    """A warning of such classes, given as [class, items] each."""
    shown = [f"'{names[label]}'" if names else str(label) for label, _ in lost[:_MOST]]
    more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
    return (
        f"no client trains the {'class' if len(lost) == 1 else 'classes'} {', '.join(shown)}{more}, and "
        f"{sum(items for _, items in lost)} items of {'it' if len(lost) == 1 else 'them'} are asked for at test time: "
        f"they cannot be found."
    )
