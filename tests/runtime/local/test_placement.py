"""How many clients fit into memory, and who runs them."""

from __future__ import annotations

from graphsilo.runtime.local.placement import MemoryBudget, free_memory


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
