"""Temporary folders of this machine's runtimes, and the removal of what killed processes left."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "graphsilo-"
_LOCK = "owner.lock"


def make_folder() -> tuple[Path, int | None]:
    """A new temporary folder, and the lock on it, which holds until it is closed or the process ends.

    None in place of the lock where the file system has no locks; such a folder is never taken for an abandoned one.
    """
    fresh = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    handle = os.open(fresh / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    lock: int | None = handle
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        os.close(handle)
        (fresh / _LOCK).unlink()
        lock = None
    # Only now under the name that others look for: nobody ever sees it before it is locked.
    return fresh.rename(fresh.with_name(fresh.name.removeprefix("."))), lock


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process has gone without doing so (killed, out of memory).

    The lock says whether it has gone, which ends with the process. A process number would not do: it may have
    been given to another, or belong to another container that shares the temporary folder.
    """
    try:
        import fcntl
    except ImportError:
        return  # no such locks on this system: nobody can say whose a folder is
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # not of this kind, or just removed by another process
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # its process lives
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def remove_folder(folder: Path, lock: int | None) -> None:
    """Remove what ``make_folder`` made, and let go of its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)
