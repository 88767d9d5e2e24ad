"""Folders that go with their process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from graphsilo.runtime.local.temporary import make_folder, remove_abandoned
from graphsilo.runtime.local.workers import WorkerPool


def test_what_a_killed_coordinator_left_is_removed_at_the_next_start(simulation_of, monkeypatch, tmp_path):
    code = (
        "import os, signal, sys; from graphsilo.runtime.local.temporary import make_folder;"
        "folder, _ = make_folder(); (folder / 'silo.npy').write_bytes(b'x'); print(folder, flush=True);"
        "sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    other = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    left = Path(other.stdout.readline().strip())
    assert left.parent == tmp_path
    foreign = tmp_path / "graphsilo-notes"  # somebody's own folder that happens to be called so
    foreign.mkdir()
    (foreign / "notes.txt").write_text("keep")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "owner.lock").touch()
    (tmp_path / "graphsilo-link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pool = WorkerPool(simulation_of.silos[:1], 1)
    try:
        assert (left / "silo.npy").exists()  # its process lives
        other.communicate("die\n")
        assert other.returncode == -signal.SIGKILL
        remove_abandoned()
        assert not left.exists()
        assert pool.folder.exists()
    finally:
        pool.close()
    assert {path.name for path in tmp_path.iterdir()} == {"graphsilo-notes", "elsewhere", "graphsilo-link"}
    assert (foreign / "notes.txt").exists()
    assert (tmp_path / "elsewhere" / "owner.lock").exists()


def test_without_locks_a_folder_is_never_abandoned(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as inner:
        inner.setattr(fcntl, "flock", refuse)
        folder, lock = make_folder()
    assert lock is None
    remove_abandoned()
    assert folder.exists()
