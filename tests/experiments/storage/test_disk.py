"""Files that are old or new and never half; checkpoints that are whole or refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch

from graphsilo.errors import ConfigError, RunError
from graphsilo.experiments.storage import disk
from kit.damage import small_files


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
    with small_files(1 << 20), pytest.raises(RunError, match="could not be written"):
        disk.write_bytes(path, bytes(3 << 20))
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.bin"]


def test_a_place_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is to be written where a file is"):
        disk.write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(RunError, match="cannot be written"), disk.hold_folder(tmp_path / "file" / "run"):
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
        disk.hold_folder(tmp_path / "run"),
        pytest.raises(RunError, match="another process is writing"),
        disk.hold_folder(tmp_path / "run"),
    ):
        pass
    with disk.hold_folder(tmp_path / "run"):
        pass


def test_another_process_is_kept_out(tmp_path):
    code = (
        "import sys; from pathlib import Path; from graphsilo.experiments.storage import disk\n"
        "from graphsilo.errors import RunError\n"
        "try:\n    disk.hold_folder(Path(sys.argv[1])).__enter__()\nexcept RunError:\n    print('kept out')\n"
    )
    with disk.hold_folder(tmp_path / "run"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=True
        )
    assert done.stdout.strip() == "kept out"


def test_tables_and_tensors_are_whole(tmp_path):
    import pyarrow.parquet as pq
    from safetensors.torch import load_file

    two = disk.Repeated(["é", "b"], [1, 2])
    parts = [{"x": [1, 2], "y": [None, 0.5]}, {"x": np.array([3, -4]), "y": [1.5, 2.5]}]
    disk.write_parquet(tmp_path / "a.parquet", parts)
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"x": [1, 2, 3, -4], "y": [None, 0.5, 1.5, 2.5]}
    disk.write_parquet(tmp_path / "b.parquet", [{"x": two, "y": ["c", "", "dé"], "z": [True, None, False]}])
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == {
        "x": ["é", "b", "b"], "y": ["c", "", "dé"], "z": [True, None, False]
    }  # fmt: skip
    disk.write_tensors(tmp_path / "a.safetensors", {"w": torch.arange(6.0).view(2, 3).t()})
    assert torch.equal(load_file(tmp_path / "a.safetensors")["w"], torch.arange(6.0).view(2, 3).t())


def test_a_link_to_a_folder_elsewhere_is_no_part_of_a_runs(tmp_path):
    """What stood there was removed as if it were the run's own."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("all of it")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "seed-0.clients").symlink_to(tmp_path / "thesis")
    with pytest.raises(RunError, match="is a link that leads out of"), disk.hold_folder(tmp_path / "run"):
        pass
    assert (tmp_path / "thesis" / "chapter.tex").exists()
    (tmp_path / "other").symlink_to(tmp_path / "thesis")
    with disk.hold_folder(tmp_path / "other"):  # which a person has named
        pass
    (tmp_path / "run" / "checkpoints" / "seed-0.clients").unlink()
    (tmp_path / "run" / "wandb" / "run-1").mkdir(parents=True)
    (tmp_path / "run" / "wandb" / "latest-run").symlink_to("run-1", target_is_directory=True)
    (tmp_path / "run" / "wandb" / "debug.log").symlink_to(tmp_path / "thesis" / "chapter.tex")  # as W&B does
    with disk.hold_folder(tmp_path / "run"):  # which stays within
        pass


@pytest.mark.parametrize("place", ["state", "sent/north.jsonl", "run/site.log"])
def test_a_kit_leads_nowhere_else(tmp_path, place):
    """A coordinator who hands over kits had what stood there removed or written into."""
    (tmp_path / "kit" / "run").mkdir(parents=True)
    (tmp_path / "kit" / place).parent.mkdir(exist_ok=True)
    (tmp_path / "kit" / place).symlink_to(tmp_path)
    with (
        pytest.raises(RunError, match=rf"{place} is a link or no file at all, and a kit holds files and folders"),
        disk.hold_folder(tmp_path / "kit" / "run", within=tmp_path / "kit"),
    ):
        pass


def test_a_kit_holds_no_link_at_all(tmp_path):
    """What is removed of one run's state would be another's, or the log; and what waits for a reader never ends."""
    kit = tmp_path / "kit"
    (kit / "run").mkdir(parents=True)
    (kit / "state" / "first").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(kit / "run" / "engine.sock"))
    with disk.hold_folder(kit / "run", within=kit):
        pass
    for make in (lambda place: place.symlink_to(kit / "state" / "first"), os.mkfifo):
        make(kit / "sent")
        with pytest.raises(RunError, match="sent is a link or no file"), disk.hold_folder(kit / "run", within=kit):
            pass
        (kit / "sent").unlink()
