"""How many clients fit into memory, and who runs them."""

from __future__ import annotations

from graphsilo.runtime.local.placement import (
    MemoryBudget,
    balanced,
    beside_coordinator,
    expected_work,
    free_memory,
    graph_bytes,
)


def test_how_many_fit(tmp_path, monkeypatch):
    from graphsilo.runtime.local import placement

    monkeypatch.setattr(placement, "free_memory", lambda: 1000)
    room = MemoryBudget(None, 100, lambda: tmp_path)
    # 500 bytes to use; a client: 4 · 10 of state, 6 · 100 / 10 of graphs
    assert room.limit(10, 10) == 5
    assert MemoryBudget(None, 50, lambda: tmp_path).limit(5, 0) is None
    assert MemoryBudget(None, 100, lambda: tmp_path, processes=4).limit(10, 10) == 1
    assert MemoryBudget(8, 100, lambda: tmp_path, processes=2).limit(10, 10) == 4
    assert MemoryBudget(8, 100, lambda: tmp_path, processes=2).limit(4, 10) is None
    monkeypatch.undo()
    assert 1_000_000 < free_memory() < 1 << 50


def test_clients_are_spread_by_work(simulation_of):
    assert balanced({0: 5, 1: 3, 2: 3, 3: 1}, 2) == [(0, 3), (1, 2)]
    assert balanced(dict.fromkeys(range(5), 0), 2) == [(0, 2, 4), (1, 3)]
    assert balanced({0: 10, 1: 1, 2: 1, 3: 1}, 2) == [(0,), (1, 2, 3)]
    silo = simulation_of.silos[0]
    size, edges = silo.graph.num_nodes, silo.graph.num_edges
    entries = silo.graph.features.size if not silo.graph.is_sparse else silo.graph.features.nnz
    assert expected_work(silo) == entries + edges + size + silo.schema.num_features + 40_000
    assert graph_bytes(silo) > silo.graph.edges.nbytes


def test_the_process_that_coordinates_has_fewer_clients():
    assert beside_coordinator(dict.fromkeys(range(4), 45_000), 2) == [(2,), (0, 1, 3)]
    assert beside_coordinator(dict.fromkeys(range(10), 400_000), 2) == [(1, 3, 5, 7, 9), (0, 2, 4, 6, 8)]
    # Of many processes one does nothing else.
    assert beside_coordinator(dict.fromkeys(range(16), 50_000), 8)[0] == ()
    assert beside_coordinator({3: 7}, 1) == [(3,)]
