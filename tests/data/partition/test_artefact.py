from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition
from graphsilo.data.silos.scenarios import partition_for_scenario
from graphsilo.errors import PartitionError, RunError
from kit.silos import ids


@pytest.mark.parametrize(("rule", "scenario"), [("topology", "seen"), ("metis", "unseen"), ("random", "open")])
def test_what_is_saved_comes_back(blocks: Graph, tmp_path: Path, rule: str, scenario: str) -> None:
    made = partition_for_scenario(blocks, rule, clients=3, scenario=scenario, seed=5)
    made.save(tmp_path / "deep" / "p.npz")
    read = Partition.load(tmp_path / "deep" / "p.npz")
    assert read.content_hash == made.content_hash
    for name in ("rule", "seed", "data", "num_nodes", "options", "split", "ratios", "kind"):
        assert getattr(read, name) == getattr(made, name)
    for name, array in made._arrays().items():
        np.testing.assert_array_equal(read._arrays()[name], array)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["p.npz"]


def test_the_file_holds_the_four_documented_arrays_and_no_pickle(small: Partition, tmp_path: Path) -> None:
    small.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as stored:
        assert stored["nodes_0"].tolist() == [2, 0, 1]
        assert {"nodes_1", "train_1", "val_1", "test_1", "header"} <= set(stored.files)
        assert stored["nodes_0"].dtype == np.int64


def test_the_hash_sees_every_part(small: Partition) -> None:
    others = [
        replace(small, seed=2),
        replace(small, options={"path": "y"}),
        replace(small, nodes=(ids(0, 2, 1), small.nodes[1])),
        replace(small, test=(small.val[0], small.test[1]), val=(small.test[0], small.val[1])),
        replace(small, cropped=ids()),
        replace(small, added_edges=(np.array([[0], [1]]), np.zeros((2, 0), dtype=np.int64))),
    ]
    assert len({small.content_hash, *(other.content_hash for other in others)}) == 7
    assert replace(small).content_hash == small.content_hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_nodes": 7}, "made for 7 nodes"),
        ({"nodes": (ids(2, 0, 1), ids(3, 4, 6)), "test": (ids(1), ids())}, "nodes_1 names 6"),
        ({"nodes": (ids(2, 0, 1, 1), ids(3, 4, 5))}, "client 0 holds node 1 twice"),
        ({"train": (ids(3), ids(3))}, "client 0 has node 3 in a split but does not hold it"),
        ({"test": (ids(2), ids(5))}, "client 0 uses node 2 in two of train, val and test"),
        ({"new_part": ids(5)}, "held-out"),
    ],
)
def test_check_refuses_contradictions(two_triangles: Graph, small: Partition, change, message: str) -> None:
    small.check(two_triangles)
    with pytest.raises(PartitionError, match=message):
        replace(small, **change).check(two_triangles)


def test_a_partition_without_clients_is_refused() -> None:
    with pytest.raises(PartitionError, match="at least one client"):
        Partition("metis", 0, "x", 3, (), (), (), ())


def test_writing_where_no_folder_can_be_is_an_error(small: Partition, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        small.save(tmp_path / "file" / "p.npz")


def test_a_full_disk_leaves_the_old_file(small: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    small.save(tmp_path / "p.npz")
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(RunError, match=r"No space left on device.*unharmed; free some space") as caught:
        replace(small, seed=99).save(tmp_path / "p.npz")
    assert caught.value.exit_code == 1
    assert Partition.load(tmp_path / "p.npz").seed == small.seed
