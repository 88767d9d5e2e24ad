from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import partition
from graphsilo.data.partition.rules.files import FilesOptions, cut
from graphsilo.errors import ConfigError, PartitionError


def test_a_table_of_client_numbers(two_triangles: Graph, tmp_path: Path) -> None:
    path = tmp_path / "owner.csv"
    path.write_text("client\n1\n1\n0\n0\n-1\n0\n")
    found = cut(two_triangles, 2, 0, FilesOptions(path=str(path)))
    assert [part.tolist() for part in found.nodes] == [[2, 3, 5], [0, 1]]
    np.save(tmp_path / "owner.npy", np.array([1, 1, 0, 0, -1, 0], dtype=np.int8))
    again = cut(two_triangles, 2, 0, FilesOptions(path=str(tmp_path / "owner.npy")))
    assert [part.tolist() for part in again.nodes] == [[2, 3, 5], [0, 1]]


def test_a_stored_partition_keeps_its_splits_unless_others_are_asked_for(blocks: Graph, tmp_path: Path) -> None:
    made = partition(blocks, "random", clients=4, seed=3)
    made.save(tmp_path / "p.npz")
    options = {"path": str(tmp_path / "p.npz")}
    stored = partition(blocks, "files", clients=4, seed=9, options=options)
    assert all(np.array_equal(a, b) for a, b in zip(stored.train, made.train, strict=True))
    assert stored.split == "stored"
    redrawn = partition(blocks, "files", clients=4, seed=9, options=options, split="stratified")
    assert any(not np.array_equal(a, b) for a, b in zip(redrawn.train, made.train, strict=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1\n", "names a client for 2 nodes, but tiny has 6"),
        ("0\n0\n0\n0\n0\n2\n", "names client 2, but 2 clients"),
        ("0\n0\n0\n0\n0\n0\n", "gives client 1 of 2 no node"),
        ("0\n0.5\n0\n0\n0\n0\n", r"row 2 \(line 2\) is '0\.5', where one whole client number was wanted"),
        ("client\n\n0\nnone\n", r"owner\.txt: row 2 \(line 4\) is 'none'"),
        ("node,client\nq1,0\nq2,1\n", r"row 1 \(line 2\) is 'q1,0'.*Keep the column of client numbers only"),
        ("é".encode("latin-1") + b"\n0\n", "no text in UTF-8"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    two_triangles: Graph, tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "owner.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PartitionError, match=message):
        cut(two_triangles, 2, 0, FilesOptions(path=str(path)))


def test_files_that_are_absent_or_hold_other_clients(blocks: Graph, two_triangles: Graph, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="path"):
        cut(blocks, 2, 0, FilesOptions())
    for name in ("absent.npz", "absent.npy", "absent.txt"):
        with pytest.raises(PartitionError, match=f"{name} does not exist"):
            cut(blocks, 2, 0, FilesOptions(path=str(tmp_path / name)))
    partition(blocks, "random", clients=4).save(tmp_path / "p.npz")
    with pytest.raises(PartitionError, match="holds 4 clients, 2 were asked for"):
        cut(blocks, 2, 0, FilesOptions(path=str(tmp_path / "p.npz")))
    with pytest.raises(PartitionError, match=r"made for 80 nodes .* has 6"):
        cut(two_triangles, 4, 0, FilesOptions(path=str(tmp_path / "p.npz")))
