from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.links import Owners
from graphsilo.data.partition import partition
from graphsilo.data.sources.bank import Bank
from graphsilo.errors import PartitionError


def chain(owner: list[int], labels: list[int] | None = None, names: tuple[str, ...] = ("a", "b")) -> Graph:
    """Nodes in a row, each linked with the next."""
    first = np.arange(len(owner) - 1)
    edges = np.stack([np.concatenate([first, first + 1]), np.concatenate([first + 1, first])])
    known = np.zeros(len(owner), dtype=np.int64) if labels is None else np.array(labels)
    graph = Graph(np.zeros((len(owner), 1), dtype=np.float32), edges, known, 2, name="chain")
    return replace(graph, owners=Owners(names, np.array(owner)))


def test_each_bank_has_its_accounts_and_copies_of_merchants() -> None:
    graph = Bank.of({"transfers": 10_000}).generate()
    assert graph.owners is not None
    assert graph.types is not None
    found = partition(graph, "natural")
    accounts = [nodes[graph.types.targets[nodes]] for nodes in found.nodes]
    assert [len(own) for own in accounts] == np.bincount(graph.owners.of_node[graph.owners.of_node >= 0]).tolist()
    assert all((graph.owners.of_node[own] == client).all() for client, own in enumerate(accounts))
    shops = [set(nodes[~graph.types.targets[nodes]].tolist()) for nodes in found.nodes]
    paid = [
        {int(node) for node in graph.edges[1][graph.owners.of_node[graph.edges[0]] == client]
         if not graph.types.targets[node]}
        for client in range(4)
    ]  # fmt: skip
    assert shops == paid
    assert shops[0] & shops[1]
    alone = partition(graph, "natural", options={"unowned": "left_out"})
    assert all(graph.types.targets[nodes].all() for nodes in alone.nodes)


def test_what_is_nobodys_goes_to_its_neighbours_alone_and_never_with_a_label() -> None:
    found = partition(chain([0, -1, 1, -1, -1, 1], [0, -1, 0, -1, 1, 0]), "natural")
    assert [nodes.tolist() for nodes in found.nodes] == [[0, 1], [1, 2, 3, 5]]


@pytest.mark.parametrize(
    ("graph", "clients", "told"),
    [
        (replace(chain([0, 1]), owners=None), None, "names none"),
        (chain([0, 1, 1]), 3, "has 2 institutions, and 3 clients"),
        (chain([0, 0]), None, "institution 'b' has no node"),
    ],
)
def test_bad_input_is_refused(graph: Graph, clients: int | None, told: str) -> None:
    with pytest.raises(PartitionError, match=told):
        partition(graph, "natural", clients=clients)
