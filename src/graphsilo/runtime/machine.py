"""What this machine has: memory that a process may still take, and room on a disk."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphsilo.errors import UnsupportedError

_CGROUP = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, in version 2 and version 1 of control groups."""

LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Environment of a process that is started to move messages: its large blocks of memory then come in pages of 2 MiB,
where the system has them. Handing out new pages of 4 KiB is most of what moving a large message costs."""


def is_unix() -> bool:
    """Whether processes here have the sockets, signals and locks by which graphsilo's find and watch each other."""
    return hasattr(os, "killpg")


def require_unix(what: str) -> None:
    """Refuse what takes processes that talk to each other, where the system cannot do it.

    Raises:
        UnsupportedError: This is Windows.
    """
    if not is_unix():
        raise UnsupportedError(
            f"{what} needs Linux or macOS. On Windows, install graphsilo in the Windows Subsystem for Linux "
            f"(`wsl --install`) and run the same command there."
        )


@dataclass(frozen=True)
class Memory:
    """Bytes of memory.

    Attributes:
        total: What the machine has, or the container's limit where that is less.
        free: What can be taken now without anything being moved to disk.
    """

    total: int
    free: int


def memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Memory | None:
    """Memory of this machine or container; None where the system does not say."""
    table = _table(proc / "meminfo")
    if "MemTotal" not in table:
        return None
    total, free = table["MemTotal"], table.get("MemAvailable", table.get("MemFree", 0))
    for limit_name, used_name in _CGROUP:
        limit, used = _number(groups / limit_name), _number(groups / used_name)
        if limit is not None and limit < total:
            total = limit
            # What the container's files take of it is given back when it is needed.
            kept = _table(groups / limit_name.replace(limit_name.split("/")[-1], "memory.stat")).get("inactive_file", 0)
            free = min(free, max(0, limit - (used or 0) + kept))
    return Memory(total, free)


LEAST_FREE = 1_000_000_000
"""Bytes on a disk below which it is nearly full."""


def free_disk(folder: Path) -> int:
    """Free bytes on the disk on which a folder is, or will be made."""
    place = folder.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return shutil.disk_usage(place).free


class MemoryUse(NamedTuple):
    """Bytes of memory that a process has: now, and at most so far."""

    now: int
    peak: int


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's settings, of malloc.h."""


def make_repeatable(device: str) -> None:
    """Have this process compute the same numbers each time on a GPU, where torch can.

    For each process that computes: torch remembers it per process. Where it has no such kernel it warns.
    """
    if device.startswith("cuda"):
        import torch

        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)


def keep_freed_memory() -> None:
    """Let this process use the memory that it has freed again, instead of handing it back; with glibc alone.

    Where a person has set malloc by the environment, that stays. Blocks above 32 MB, such as the hidden rows of a silo
    of 131,000 nodes, would come from the kernel again in every step, page by page and filled with zeros
    (docs/decisions/018-freed-memory-is-kept.md). No number depends on it.
    """
    if not sys.platform.startswith("linux"):
        return
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None and not any(name.startswith("MALLOC_") for name in os.environ):
        setting(_TRIM_THRESHOLD, 2**31 - 1)
        setting(_MMAP_MAX, 0)


def memory_use(process: int | str = "self") -> MemoryUse:
    """Memory of a process; zeros where the system does not say.

    The most that ``getrusage`` reports is no use here: a process started by another begins with the other's.
    """
    table = _table(Path(f"/proc/{process}/status"))
    return MemoryUse(table.get("VmRSS", 0), table.get("VmHWM", 0))


def peak() -> int:
    """Most bytes of memory this process had so far; where the system reports no better, its parent's count, too."""
    return memory_use().peak or _largest("RUSAGE_SELF")


class Ended(NamedTuple):
    """What processes that this one started, and that have ended, took; zeros where the system does not say."""

    cpu_seconds: float
    peak: int


def measure_ended() -> Ended:
    """Processor seconds of all of them, and most bytes of memory of the largest."""
    try:
        import resource  # not on Windows
    except ImportError:
        return Ended(0.0, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Ended(used.ru_utime + used.ru_stime, _largest("RUSAGE_CHILDREN"))


def _largest(who: str) -> int:
    """Most bytes of memory that ``getrusage`` knows of."""
    try:
        import resource
    except ImportError:
        return 0
    largest = resource.getrusage(getattr(resource, who)).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _table(path: Path) -> dict[str, int]:
    """Lines of ``name: number [kB]`` or ``name number``, in bytes."""
    found = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    for line in lines:
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0]] = int(words[1]) * (1024 if words[-1] == "kB" else 1)
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
