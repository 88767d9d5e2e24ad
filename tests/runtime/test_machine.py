"""What the machine tells of its memory, read from files as Linux writes them; how processes compute on it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from graphsilo.runtime import machine
from graphsilo.runtime.local import worker
from graphsilo.runtime.machine import Memory, free_disk, memory

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def test_memory_of_a_machine_without_containers(tmp_path):
    (tmp_path / "meminfo").write_text(MEMINFO)
    assert memory(tmp_path, tmp_path / "none") == Memory(1000 * 1024, 600 * 1024)


def test_a_container_with_a_limit_has_no_more_and_its_cached_files_count_as_free(tmp_path):
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "memory.max").write_text(f"{500 * 1024}\n")
    (tmp_path / "memory.current").write_text(f"{450 * 1024}\n")
    (tmp_path / "memory.stat").write_text(f"anon 7\ninactive_file {30 * 1024}\n")
    assert memory(tmp_path, tmp_path) == Memory(500 * 1024, 80 * 1024)


def test_a_container_without_a_limit_has_the_machine(tmp_path):
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(tmp_path, tmp_path) == Memory(1000 * 1024, 600 * 1024)


def test_a_system_that_does_not_tell(tmp_path):
    assert memory(tmp_path, tmp_path) is None


def test_room_is_asked_of_a_folder_that_is_still_to_be_made(tmp_path):
    assert free_disk(tmp_path / "a" / "b") == pytest.approx(free_disk(tmp_path), rel=0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process's peak may be that of its parent")
def test_the_peak_of_a_process_is_its_own_and_not_that_of_who_started_it():
    inner = "from graphsilo.runtime.machine import peak; print(peak())"
    outer = (
        "import subprocess, sys; held = bytearray(300_000_000); held[::4096] = b'x' * len(held[::4096]);"
        f"subprocess.run([sys.executable, '-c', {inner!r}], check=True, close_fds=False)"
    )
    told = subprocess.run([sys.executable, "-c", outer], check=True, capture_output=True, text=True).stdout
    assert 1_000_000 < int(told) < 300_000_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc is glibc's")
def test_freed_memory_is_used_again():
    # Five times 64 MB are 81 920 pages of 4 KB, where each time they come from the kernel.
    code = """
import resource
from graphsilo.runtime.machine import keep_freed_memory
keep_freed_memory()
def touch():
    bytes([1]) * (64 << 20)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2000


def test_a_process_that_computes_on_a_gpu_repeats_itself(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        machine.make_repeatable("cpu")
        assert not torch.are_deterministic_algorithms_enabled()
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
        machine.make_repeatable("cuda:0")
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_worker_processes_do_so_too(monkeypatch):
    asked = []

    class Enough(Exception):
        pass

    def noted(device):
        asked.append(device)
        raise Enough

    monkeypatch.setattr(worker, "make_repeatable", noted)
    with pytest.raises(Enough):
        worker._start({"device": "cuda"}, [])
    assert asked == ["cuda"]
