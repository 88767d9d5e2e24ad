"""The user's cache of converted data sets: where it is, and how entries are named."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path


def cache_root() -> Path:
    """``GRAPHSILO_CACHE``, else ``XDG_CACHE_HOME/graphsilo``, else ``~/.cache/graphsilo``."""
    named = os.environ.get("GRAPHSILO_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache").absolute() / "graphsilo"


def fingerprint(files: Sequence[Path], *parts: str) -> str:
    """Sixteen hex digits that change when a file's path, size or time of change, or any of ``parts``, changes.

    Raises:
        OSError: A file is missing.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode() + b"\0")
    for path in sorted(files):
        status = path.stat()
        digest.update(f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
