"""Which client lives in which process, and how many of a process's clients have room in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Silo
from graphsilo.runtime.machine import memory
from graphsilo.types import ClientId

_SHARE = 0.5
"""Of the memory that is free, what clients may take before some are offloaded."""
_PER_STATE = 4
"""A client's memory per byte of its fresh state: weights, two moments of Adam, the weights of the best round."""
_PER_GRAPH = 6
"""A client's memory per byte of its graphs: normalised adjacencies, their transposes, propagated features."""

_FIXED = 40_000
"""What a round costs a client whatever its size, in the units of ``expected_work``: calls, decoding, encoding."""
_ANSWER = 15_000
"""What a client's answers of a round cost the process that coordinates: reading, decoding, summing, scoring."""


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
    return sum(_bytes_of(graph) for graph in _own_graphs(silo))


def expected_work(silo: Silo) -> int:
    """What a silo costs per round, in units of one row operation per hidden unit: entries of the features, edges,
    nodes, and rows of the first layer's weights, which the optimiser goes through; and what does not depend on size.

    The constants are from FedAvg with 64 hidden units on Cora (0.95 ms a client), CiteSeer (1.3), PubMed (2.9).
    """
    own = [graph.union for graph in _own_graphs(silo)]
    return (
        sum(
            int(graph.features.nnz if sp.issparse(graph.features) else graph.features.size)
            + graph.num_edges
            + graph.num_nodes
            for graph in own
        )
        + silo.schema.num_features
        + _FIXED
    )


def beside_coordinator(work: Mapping[ClientId, int], processes: int) -> list[tuple[ClientId, ...]]:
    """Clients spread over processes of which the first coordinates as well, and has fewer of them for that.

    Returns:
        Each process's clients; none for the first where coordinating is a full share.
    """
    return balanced(work, processes, before=_ANSWER * len(work))


def balanced(work: Mapping[ClientId, int], places: int, *, before: int = 0) -> list[tuple[ClientId, ...]]:
    """Clients spread over places so that the fullest has little more than its share.

    The largest first, each to where the least is (Graham, 1969: at most 4/3 of the best possible); the same work
    always gives the same places.

    Args:
        work: Of each client.
        places: How many; at most as many as clients.
        before: What the first place has to do apart from that.

    Example:
        >>> balanced({0: 5, 1: 3, 2: 3, 3: 1}, 2)
        [(0, 3), (1, 2)]
    """
    loads = np.zeros(places)
    loads[0] = before
    chosen: list[list[ClientId]] = [[] for _ in range(places)]
    for client in sorted(work, key=lambda one: (-work[one], one)):
        # Of equally full places the one with the fewest clients: silos without work are spread, too.
        place = min(range(places), key=lambda one: (loads[one], len(chosen[one])))
        loads[place] += work[client]
        chosen[place].append(client)
    return [tuple(sorted(clients)) for clients in chosen]


def graphs_of(silo: Silo) -> dict[int, Graph | GraphCollection]:
    """Every graph of a silo, by identity."""
    graphs = [silo.graph, *(evaluation.graph for evaluation in silo.evaluations)]
    return {id(graph): graph for graph in graphs}


def _own_graphs(silo: Silo) -> list[Graph | GraphCollection]:
    shared = {id(evaluation.graph) for evaluation in silo.evaluations if evaluation.name in ("global", "new_client")}
    return [graph for number, graph in graphs_of(silo).items() if number not in shared]


def _bytes_of(graph: Graph | GraphCollection) -> int:
    plain = graph.union
    features = plain.features
    held = features.data.nbytes + features.indices.nbytes if sp.issparse(features) else features.nbytes
    weights = 0 if plain.edge_weights is None else plain.edge_weights.nbytes
    return int(held + plain.edges.nbytes + plain.labels.nbytes + weights)
