"""Files that are old or new and never half; checkpoints that are whole or refused."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys

import pytest
import torch

from graphsilo.errors import RunError
from graphsilo.experiments.storage import disk
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.runtime.local.parking import ParkedState


@pytest.fixture
def full(monkeypatch):
    """Every synchronisation says that the disk is full."""

    def refuse(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "sub" / "a.txt"
    disk.write_text(path, "one")
    disk.write_text(path, "two")
    assert path.read_text() == "two"
    assert [item.name for item in path.parent.iterdir()] == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_full_disk_leaves_the_old_file(tmp_path, request):
    path = tmp_path / "a.txt"
    disk.write_text(path, "old")
    request.getfixturevalue("full")
    with pytest.raises(RunError, match=r"could not be written \(No space left on device\).*unharmed.*--resume"):
        disk.write_text(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_limit_on_file_size_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    disk.write_bytes(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(RunError, match="could not be written"):
            disk.write_bytes(path, bytes(3 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.bin"]


def test_a_place_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="could not be written"):
        disk.write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(RunError, match="cannot be written"), disk.owned(tmp_path / "file" / "run"):
        pass


def test_json_has_no_nan(tmp_path):
    with pytest.raises(ValueError):
        disk.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()
    disk.write_json(tmp_path / "a.json", {"x": None})
    assert disk.read_json(tmp_path / "a.json", "the result") == {"x": None}


def test_json_that_is_missing_or_damaged(tmp_path):
    with pytest.raises(RunError, match=r"the result was looked for at .*Is this the folder of a run\?"):
        disk.read_json(tmp_path / "a.json", "the result")
    (tmp_path / "a.json").write_text('{"x": ')
    with pytest.raises(RunError, match="cannot be read"):
        disk.read_json(tmp_path / "a.json", "the result")


def test_one_owner_at_a_time(tmp_path):
    with (
        disk.owned(tmp_path / "run"),
        pytest.raises(RunError, match="another process is writing"),
        disk.owned(tmp_path / "run"),
    ):
        pass
    with disk.owned(tmp_path / "run"):
        pass


def test_another_process_is_kept_out(tmp_path):
    code = (
        "import sys; from pathlib import Path; from graphsilo.experiments.storage import disk\n"
        "from graphsilo.errors import RunError\n"
        "try:\n    disk.owned(Path(sys.argv[1])).__enter__()\nexcept RunError:\n    print('kept out')\n"
    )
    with disk.owned(tmp_path / "run"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=True
        )
    assert done.stdout.strip() == "kept out"


def test_tables_and_tensors_are_whole(tmp_path):
    import pyarrow.parquet as pq
    from safetensors.torch import load_file

    disk.write_parquet(tmp_path / "a.parquet", {"x": [1, 2], "y": [None, 0.5]})
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"x": [1, 2], "y": [None, 0.5]}
    disk.write_tensors(tmp_path / "a.safetensors", {"w": torch.arange(6.0).view(2, 3).t()})
    assert torch.equal(load_file(tmp_path / "a.safetensors")["w"], torch.arange(6.0).view(2, 3).t())


TREE = {"result": None, "server": {"w": torch.arange(3.0)}, "number": 0.1}


def test_a_checkpoint_comes_back(tmp_path):
    kept = Checkpoints(tmp_path, "print")
    assert kept.load(0) is None
    kept.save(0, TREE, {})
    tree = kept.load(0)
    assert torch.equal(tree["server"]["w"], TREE["server"]["w"])
    assert tree["number"] == 0.1
    assert kept.load(1) is None


def test_parked_clients_keep_their_files_and_only_these(tmp_path):
    kept = Checkpoints(tmp_path / "checkpoints", "print")
    one, two = tmp_path / "client-0.1", tmp_path / "client-1.1"
    one.write_bytes(b"first")
    two.write_bytes(b"second")
    clients = {0: ParkedState(one, False), 1: ParkedState(two, True), 2: ParkedState(None, False)}
    kept.save(0, {**TREE, "clients": clients}, {})
    beside = tmp_path / "checkpoints" / "seed-0.clients"
    assert {path.name for path in beside.iterdir()} == {
        hashlib.sha256(data).hexdigest() for data in (b"first", b"second")
    }
    assert one.stat().st_nlink == 2  # another name, not a copy
    newer = tmp_path / "client-1.2"
    newer.write_bytes(b"third")
    two.unlink()
    kept.save(0, {**TREE, "clients": {**clients, 1: ParkedState(newer, False)}}, {})
    found = Checkpoints(tmp_path / "checkpoints", "print").load(0)["clients"]
    assert [state.path and state.path.read_bytes() for state in found.values()] == [b"first", b"third", None]
    assert [state.remember for state in found.values()] == [False, False, False]
    assert len(list(beside.iterdir())) == 2
    kept.save(0, TREE, {})
    assert not beside.exists()


def test_another_runs_checkpoint_is_refused(tmp_path):
    Checkpoints(tmp_path, "print").save(0, TREE, {})
    with pytest.raises(RunError, match="belongs to another configuration, data set or partition"):
        Checkpoints(tmp_path, "other").load(0)


def test_damage_anywhere_is_seen(tmp_path):
    kept = Checkpoints(tmp_path, "print")
    kept.save(3, TREE, {})
    path = tmp_path / "seed-3.ckpt"
    good = path.read_bytes()
    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))
        with pytest.raises(RunError, match=r"seed-3\.ckpt is damaged\. Delete it to start seed 3 anew"):
            kept.load(3)
    for length in (0, 10, 32, 33, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(RunError, match="is damaged"):
            kept.load(3)
    path.write_bytes(good)
    kept.load(3)


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    from graphsilo.experiments.storage import checkpoint

    monkeypatch.setattr(checkpoint, "FORMAT", 4)
    Checkpoints(tmp_path, "print").save(0, TREE, {})
    monkeypatch.undo()
    with pytest.raises(RunError, match="has format 4; this graphsilo reads 3"):
        Checkpoints(tmp_path, "print").load(0)


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, request):
    kept = Checkpoints(tmp_path, "print")
    kept.save(0, TREE, {})
    request.getfixturevalue("full")
    with pytest.raises(RunError, match="could not be written"):
        kept.save(0, {**TREE, "number": 0.2}, {})
    assert kept.load(0)["number"] == 0.1
