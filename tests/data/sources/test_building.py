"""Building an entry of the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphsilo.data import Graph, load
from graphsilo.errors import DataError


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
