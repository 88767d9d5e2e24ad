"""Building an entry of the user's cache, with writers out of each other's way.

Nothing here is ever written into a data root. Every file appears by an atomic rename, so two processes that build the
same entry at once both succeed; the lock only spares them the double work.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from graphsilo.errors import DataError

ABANDONED_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def make_folder(root: Path) -> Iterator[Path]:
    """A private empty folder inside the cache, gone afterwards whatever happens.

    Raises:
        DataError: The cache cannot be written.
    """
    try:
        parent = root / "building"
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
    except OSError as error:
        raise DataError(
            f"converted data sets are kept in {root}, which cannot be written ({error.strerror or error}); set "
            f"GRAPHSILO_CACHE to a folder of your own."
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Removes what killed processes left behind more than a day ago."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Waits until no other process builds ``name``; does nothing where files cannot be locked."""
    try:
        import fcntl

        folder = root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except (ImportError, OSError):
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def link_folder(source: Path, target: Path) -> None:
    """Makes ``target`` show the files of ``source``; copies them where links are not allowed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.symlink_to(source.resolve(), target_is_directory=True)
    except OSError:
        shutil.copytree(source, target)


def keep_folder(source: Path, target: Path) -> None:
    """Moves a finished folder of files to its place, file by file where the place is taken already.

    Raises:
        DataError: The place cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source.rename(target)
        except OSError:
            target.mkdir(exist_ok=True)
            for path in source.iterdir():
                path.replace(target / path.name)
    except OSError as error:
        raise DataError(
            f"the downloaded files could not be moved to {target} ({error.strerror or error}); is the cache folder "
            f"writable? GRAPHSILO_CACHE names another one."
        ) from error
