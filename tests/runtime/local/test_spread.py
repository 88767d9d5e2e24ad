"""Which client lives in which process."""

from __future__ import annotations

from graphsilo.runtime.local.placement import graph_bytes
from graphsilo.runtime.local.spread import balance, expected_work, spread_clients


def test_clients_are_spread_by_work(simulation_of):
    assert balance({0: 5, 1: 3, 2: 3, 3: 1}, 2) == [(0, 3), (1, 2)]
    assert balance(dict.fromkeys(range(5), 0), 2) == [(0, 2, 4), (1, 3)]
    assert balance({0: 10, 1: 1, 2: 1, 3: 1}, 2) == [(0,), (1, 2, 3)]
    silo = simulation_of.silos[0]
    size, edges = silo.graph.num_nodes, silo.graph.num_edges
    entries = silo.graph.features.size if not silo.graph.is_sparse else silo.graph.features.nnz
    assert expected_work(silo) == entries + edges + size + silo.schema.num_features + 40_000
    assert graph_bytes(silo) > silo.graph.edges.nbytes


def test_the_process_that_coordinates_has_fewer_clients():
    assert spread_clients(dict.fromkeys(range(4), 45_000), 2) == [(2,), (0, 1, 3)]
    assert spread_clients(dict.fromkeys(range(10), 400_000), 2) == [(1, 3, 5, 7, 9), (0, 2, 4, 6, 8)]
    # Of many processes one does nothing else.
    assert spread_clients(dict.fromkeys(range(16), 50_000), 8)[0] == ()
    assert spread_clients({3: 7}, 1) == [(3,)]
