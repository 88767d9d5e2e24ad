"""What a checkpoint keeps, and what it refuses."""

from __future__ import annotations

import hashlib

import pytest
import torch

from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.storage.checkpoint import Checkpoints
from graphsilo.runtime.local.offloading import OffloadedState

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
    clients = {0: OffloadedState(one, ()), 1: OffloadedState(two, ("own",)), 2: OffloadedState(None, ())}
    kept.save(0, {**TREE, "clients": clients}, {})
    beside = tmp_path / "checkpoints" / "seed-0.clients"
    assert {path.name for path in beside.iterdir()} == {
        hashlib.sha256(data).hexdigest() for data in (b"first", b"second")
    }
    assert one.stat().st_nlink == 2  # another name, not a copy
    newer = tmp_path / "client-1.2"
    newer.write_bytes(b"third")
    two.unlink()
    kept.save(0, {**TREE, "clients": {**clients, 1: OffloadedState(newer, ())}}, {})
    found = Checkpoints(tmp_path / "checkpoints", "print").load(0)["clients"]
    assert [state.path and state.path.read_bytes() for state in found.values()] == [b"first", b"third", None]
    assert [state.remember for state in found.values()] == [(), (), ()]
    assert len(list(beside.iterdir())) == 2
    kept.save(0, TREE, {})
    assert not beside.exists()


def test_another_runs_checkpoint_is_refused(tmp_path):
    Checkpoints(tmp_path, "print").save(0, TREE, {})
    with pytest.raises(ConfigError, match="belongs to another configuration, data set or partition"):
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
        with pytest.raises(RunError, match=r"seed-3\.ckpt is damaged\. Delete it to start seed 3 again"):
            kept.load(3)
    for length in (0, 10, 32, 33, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(RunError, match="is damaged"):
            kept.load(3)
    path.write_bytes(good)
    kept.load(3)


def test_a_later_format_is_refused(tmp_path, monkeypatch):
    from graphsilo.experiments.storage import checkpoint

    monkeypatch.setattr(checkpoint, "FORMAT", 8)
    Checkpoints(tmp_path, "print").save(0, TREE, {})
    monkeypatch.undo()
    with pytest.raises(RunError, match="has format 8; this graphsilo reads 7"):
        Checkpoints(tmp_path, "print").load(0)


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, request):
    kept = Checkpoints(tmp_path, "print")
    kept.save(0, TREE, {})
    request.getfixturevalue("full")
    with pytest.raises(RunError, match="could not be written"):
        kept.save(0, {**TREE, "number": 0.2}, {})
    assert kept.load(0)["number"] == 0.1
