"""Data sets that were converted before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphsilo.data import Graph, GraphCollection, load
from graphsilo.errors import DataError
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


@pytest.mark.data
@pytest.mark.slow
def test_two_processes_fill_one_cache(own_cache: Path, data_root: Path) -> None:
    code = "from graphsilo.data import load; print(load('MUTAG').union.num_edges)"
    environment = os.environ | {"GRAPHSILO_DATA": str(data_root)}
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in both] == ["7442", "7442"]
    assert [path.suffix for path in (own_cache / "converted").iterdir()] == [".npz"]


@pytest.mark.data
def test_download_into_the_cache(own_cache: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG's download is replaced by a copy from the data root; it fails once half-way."""
    from torch_geometric.datasets import Planetoid

    stop_after = [3, None]

    def download(self: Planetoid) -> None:
        for name in self.raw_file_names[: stop_after.pop(0)]:
            shutil.copyfile(data_root / "planetoid" / "CiteSeer" / "raw" / name, Path(self.raw_dir) / name)
        if len(stop_after) == 1:
            raise OSError("connection lost")

    monkeypatch.setattr(Planetoid, "download", download)
    with pytest.raises(DataError, match="OSError: connection lost"):
        load("CiteSeer")
    assert not (own_cache / "raw").exists()
    graph = load("CiteSeer")
    assert isinstance(graph, Graph)
    assert graph.num_edges == 9104
    assert not stop_after
    assert len(list((own_cache / "raw" / "planetoid" / "CiteSeer" / "raw").iterdir())) == 8
    load("CiteSeer")  # would pop from an empty list if it downloaded again
