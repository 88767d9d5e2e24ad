"""How many of a process's clients have room in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Silo
from graphsilo.runtime.machine import memory

_SHARE = 0.5
"""Of the memory that is free, what clients may take before some are offloaded."""
_PER_STATE = 4
"""A client's memory per byte of its fresh state: weights, two moments of Adam, the weights of the best round."""
_PER_GRAPH = 6
"""A client's memory per byte of its graphs: normalised adjacencies, their transposes, propagated features."""


@dataclass(frozen=True)
class MemoryBudget:
    """How much memory the clients of one process have.

    Attributes:
        wanted: Clients in memory at once, over all processes; None for as many as fit.
        graph_bytes: Of the graphs of this process's clients.
        folder: Where others can be offloaded; called once, when some have to be.
        processes: Among how many the memory is shared.
    """

    wanted: int | None
    graph_bytes: int
    folder: Callable[[], Path]
    processes: int = 1

    def limit(self, clients: int, state_bytes: int) -> int | None:
        """How many of the clients stay in memory; None for all of them."""
        if self.wanted is not None:
            limit = max(1, self.wanted // self.processes)
            return None if limit >= clients else limit
        each = _PER_STATE * state_bytes + _PER_GRAPH * self.graph_bytes / max(clients, 1)
        budget = _SHARE * free_memory() / self.processes
        return None if each * clients <= budget else max(1, int(budget / each))


def free_memory() -> int:
    """Bytes that this process can still take: of the machine, or of the container that it runs in."""
    found = memory()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if found is None else found.free


def graph_bytes(silo: Silo) -> int:
    """Bytes of a silo's own graphs; what all clients are asked about together is not counted."""
    return sum(_bytes_of(graph) for graph in own_graphs(silo))


def graphs_of(silo: Silo) -> dict[int, Graph | GraphCollection]:
    """Every graph of a silo, by identity."""
    graphs = [silo.graph, *(evaluation.graph for evaluation in silo.evaluations)]
    return {id(graph): graph for graph in graphs}


def own_graphs(silo: Silo) -> list[Graph | GraphCollection]:
    shared = {id(evaluation.graph) for evaluation in silo.evaluations if evaluation.name in ("global", "new_client")}
    return [graph for number, graph in graphs_of(silo).items() if number not in shared]


def _bytes_of(graph: Graph | GraphCollection) -> int:
    plain = graph.union
    features = plain.features
    held = features.data.nbytes + features.indices.nbytes if sp.issparse(features) else features.nbytes
    weights = 0 if plain.edge_weights is None else plain.edge_weights.nbytes
    return int(held + plain.edges.nbytes + plain.labels.nbytes + weights)
