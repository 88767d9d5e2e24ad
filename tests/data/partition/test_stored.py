"""Partitions that are read from files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.partition import Partition
from graphsilo.errors import PartitionError
from kit.silos import ids


def test_a_bare_file_can_be_read(small: Partition, tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", **small._arrays())
    read = Partition.load(tmp_path / "bare.npz")
    assert (read.num_clients, read.num_nodes, read.split) == (2, 6, "stored")
    np.savez(tmp_path / "nodes.npz", nodes_0=ids(0, 1), nodes_1=ids(2))
    assert not Partition.load(tmp_path / "nodes.npz", num_nodes=9).has_splits


def test_a_changed_file_is_refused(small: Partition, tmp_path: Path) -> None:
    small.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["train_0"] = ids(0)
    np.savez(tmp_path / "p.npz", **arrays)
    with pytest.raises(PartitionError, match="changed after it was written"):
        Partition.load(tmp_path / "p.npz")


def test_damaged_and_foreign_files_are_refused(small: Partition, tmp_path: Path) -> None:
    small.save(tmp_path / "p.npz")
    whole = (tmp_path / "p.npz").read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "lacks.npz", nodes_0=ids(0), nodes_1=ids(1), train_0=ids(0), val_0=ids(), test_0=ids())
    np.savez(tmp_path / "floats.npz", nodes_0=np.array([0.5]))
    np.savez(tmp_path / "objects.npz", nodes_0=np.array([{}], dtype=object))
    np.savez(tmp_path / "header.npz", nodes_0=ids(0), header=np.array("{"))
    np.savez(tmp_path / "newer.npz", nodes_0=ids(0), header=np.array('{"format": 99}'))
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    for name in ("short", "text", "lacks", "floats", "objects", "header", "newer", "empty", "absent"):
        with pytest.raises(PartitionError):
            Partition.load(tmp_path / f"{name}.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"hello\n0\n", r"x\.txt is not a stored partition: an \.npz was wanted.*partition\.path="),
        ("x.npz", b"PK\x03\x04 and nothing more", "damaged, or not an .npz of plain arrays"),
        ("x.npz", b"", "is not a stored partition"),
    ],
)
def test_a_file_that_is_no_partition(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PartitionError, match=message) as caught:
        Partition.load(tmp_path / name)
    assert "pickle" not in str(caught.value)
    with pytest.raises(PartitionError, match="is a folder"):
        Partition.load(tmp_path)
