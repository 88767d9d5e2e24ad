"""Raw files of data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.tables import EDGES, NODES, YAML


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("GRAPHSILO_CACHE", str(folder))
    monkeypatch.delenv("GRAPHSILO_DATA", raising=False)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    (tmp_path / "a.yaml").write_text(YAML)
    return tmp_path
