"""Which client lives in which process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from graphsilo.data.silos.silo import Silo
from graphsilo.runtime.local.placement import own_graphs
from graphsilo.types import ClientId

_FIXED = 40_000
"""What a round costs a client whatever its size, in the units of ``expected_work``: calls, decoding, encoding."""
_ANSWER = 15_000
"""What a client's answers of a round cost the process that coordinates: reading, decoding, summing, scoring."""


def expected_work(silo: Silo) -> int:
    """What a silo costs per round, in units of one row operation per hidden unit: entries of the features, edges,
    nodes, and rows of the first layer's weights, which the optimiser goes through; and what does not depend on size.

    The constants are from FedAvg with 64 hidden units on Cora (0.95 ms a client), CiteSeer (1.3), PubMed (2.9).
    """
    own = [graph.union for graph in own_graphs(silo)]
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


def spread_clients(work: Mapping[ClientId, int], processes: int) -> list[tuple[ClientId, ...]]:
    """Clients spread over processes of which the first coordinates as well, and has fewer of them for that.

    Returns:
        Each process's clients; none for the first where coordinating is a full share.
    """
    return balance(work, processes, before=_ANSWER * len(work))


def balance(work: Mapping[ClientId, int], places: int, *, before: int = 0) -> list[tuple[ClientId, ...]]:
    """Clients spread over places so that the fullest has little more than its share.

    The largest first, each to where the least is (Graham, 1969: at most 4/3 of the best possible); the same work
    always gives the same places.

    Args:
        work: Of each client.
        places: How many; at most as many as clients.
        before: What the first place has to do apart from that.

    Example:
        >>> balance({0: 5, 1: 3, 2: 3, 3: 1}, 2)
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
