"""Room for large matrices, in memory and in files, and sizes in words."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.sources import scratch
from graphsilo.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHSILO_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_past_the_limit_is_mapped_and_leaves_no_file(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_in_use", 0)
    monkeypatch.setattr(scratch, "IN_MEMORY", 100)
    first = scratch.empty((5, 4))
    assert scratch._in_use == 80
    assert not (own_cache / "scratch").exists()
    second = scratch.empty((5, 2))
    assert scratch._in_use == 80
    second[:] = np.arange(10).reshape(5, 2)
    assert list((own_cache / "scratch").iterdir()) == []
    assert second.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert first.flags.writeable
    assert second.dtype == np.float32
    del first
    gc.collect()
    assert scratch._in_use == 0


def test_empty_matrices_need_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "IN_MEMORY", -1)
    assert scratch.empty((0, 7)).shape == (0, 7)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"a matrix of 3 × 2 numbers \(24 bytes\).*GRAPHSILO_CACHE"):
        scratch.map_to_file((3, 2), tmp_path / "file" / "scratch")
