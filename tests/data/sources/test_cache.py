"""Data sets that were converted before."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.data import GraphCollection, load
from kit.raw_files import copy_raw, run_python


@pytest.mark.data
def test_cache_serves_without_torch_and_leaves_the_root_alone(own_cache: Path, data_root: Path, tmp_path: Path) -> None:
    root = copy_raw(data_root, tmp_path / "root", "planetoid/Cora/raw")
    before = sorted(path.relative_to(root) for path in root.rglob("*"))
    load("Cora", root=root)
    assert sorted(path.relative_to(root) for path in root.rglob("*")) == before
    assert not list((own_cache / "building").iterdir())
    code = (
        "import sys; from graphsilo.data import load; g = load('Cora'); "
        "print(g.num_edges, [m for m in ('torch', 'torch_geometric', 'pyarrow', 'pandas') if m in sys.modules])"
    )
    assert run_python(code, GRAPHSILO_DATA=str(root)) == "10556 []"


@pytest.mark.data
def test_cache_notices_damage_and_changed_files(own_cache: Path, data_root: Path, tmp_path: Path) -> None:
    folder = "tu/MUTAG/raw"
    root = copy_raw(data_root, tmp_path / "root", folder)
    load("MUTAG", root=root)
    (converted,) = (own_cache / "converted").iterdir()
    whole = converted.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:2000] + bytes([whole[2000] ^ 255]) + whole[2001:], b""):
        converted.write_bytes(damaged)
        graphs = load("MUTAG", root=root)
        assert isinstance(graphs, GraphCollection)
        assert len(graphs) == 188
        assert converted.read_bytes() == whole
    labels = root / folder / "MUTAG_graph_labels.txt"
    labels.write_text("1\n-1\n" * 94)
    changed = load("MUTAG", root=root)
    assert isinstance(changed, GraphCollection)
    assert changed.labels.tolist() == [1, 0] * 94
    assert len(list((own_cache / "converted").iterdir())) == 2
