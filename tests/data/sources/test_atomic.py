"""Files that are written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphsilo.data.sources.atomic import atomic_files, remove_unfinished


@pytest.mark.parametrize("count", [3, 40])
def test_files_written_together_take_their_places_together(tmp_path: Path, count: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0").write_bytes(b"old")

    def write_all(fails: bool) -> None:
        with atomic_files() as write:
            for number in range(count):
                write(tmp_path / "a" / str(number), b"%d" % number)
            assert (tmp_path / "a" / "0").read_bytes() == b"old"
            if fails:
                raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_all(True)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["0"]
    write_all(False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == {
        str(number): b"%d" % number for number in range(count)
    }


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from graphsilo.data.sources.atomic import atomic_file\n"
        "with atomic_file(pathlib.Path(sys.argv[1])) as file:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    (tmp_path / "checkpoints").mkdir()
    for path in (tmp_path / "rounds.parquet", tmp_path / "checkpoints" / "seed-0.ckpt"):
        assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode != 0
    others = [tmp_path / ".lock", tmp_path / ".mine.tmp", tmp_path / "result.json"]
    for path in others:
        path.touch()
    assert len(list(tmp_path.rglob("*.tmp"))) == 3
    remove_unfinished(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(others)
