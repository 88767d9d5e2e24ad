"""Who knows what of nodes that links between silos join."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.federation.borders import values_beyond


def border_of(own, beyond):
    return SimpleNamespace(own=torch.tensor(own, dtype=torch.int64), beyond=torch.tensor(beyond, dtype=torch.int64))


def test_values_are_found_by_the_ids_of_nodes():
    """Client 4 has nodes 7 and 20, client 9 node 3; nobody has node 8 or 21."""
    borders = {4: border_of([7, 20], [3, 8]), 9: border_of([3], [7, 20, 21]), 11: border_of([], [])}
    values = {4: torch.tensor([5, 6]), 9: torch.tensor([2]), 11: torch.tensor([], dtype=torch.int64)}
    found = values_beyond(borders, values)
    assert {client: each.tolist() for client, each in found.items()} == {4: [2, 0], 9: [5, 6, 0], 11: []}
    nobody = values_beyond({4: border_of([], [3])}, {4: torch.tensor([], dtype=torch.int64)})
    assert nobody[4].tolist() == [0]


def test_a_node_is_in_one_silo_only():
    borders = {0: border_of([1, 2], []), 1: border_of([2], [])}
    with pytest.raises(FederationError, match="two clients call nodes of their own by one id"):
        values_beyond(borders, {0: torch.ones(2), 1: torch.ones(1)})
