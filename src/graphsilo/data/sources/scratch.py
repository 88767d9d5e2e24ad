"""Room for large dense matrices: in memory first, in files of the cache once they are more than a process should keep.

A file has no name any more as soon as it is mapped, so that nothing is left behind, however the process ends. The
numbers are the same in either place.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources import cache
from graphsilo.data.sources.sizes import in_words
from graphsilo.errors import DataError

IN_MEMORY = 1 << 30
"""Bytes of such matrices that a process keeps in memory; what comes on top is mapped from files."""

_in_use = 0


def empty(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A float32 array to be filled; its room is free again when nobody holds it any more.

    Raises:
        DataError: It has to go to disk, and there is no room in the cache.
    """
    global _in_use
    size = 4 * math.prod(shape)
    if not size or _in_use + size <= IN_MEMORY:
        array = np.empty(shape, dtype=np.float32)
        _in_use += size
        weakref.finalize(array, _give_back, size)
        return array
    return map_to_file(shape, cache.cache_root() / "scratch")


def map_to_file(shape: tuple[int, ...], folder: Path) -> NDArray[np.float32]:
    """The same in a file, whatever else is in memory.

    Raises:
        DataError: The folder cannot be written, or the disk is full.
    """
    # numpy's own mapping keeps the file open, and there may be more matrices than files that a process may open.
    import torch

    count = math.prod(shape)
    name = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".f32")
        with contextlib.closing(os.fdopen(handle, "r+b")) as file:
            if hasattr(os, "posix_fallocate"):
                # Reserved now: a mapped file that outgrows the disk later would end the process without a word.
                os.posix_fallocate(file.fileno(), 0, 4 * count)
            else:
                file.truncate(4 * count)
        tensor = torch.from_file(name, shared=True, size=count, dtype=torch.float32)
    except OSError as error:
        raise DataError(
            f"a matrix of {' × '.join(map(str, shape))} numbers ({in_words(4 * count)}) was to be kept in a file of "
            f"{folder}, which does not work ({error.strerror or error}); free some space there, or let GRAPHSILO_CACHE "
            f"name a folder with more."
        ) from error
    finally:
        if name is not None:
            with contextlib.suppress(OSError):  # some systems keep the name of a file that is in use
                Path(name).unlink()
    array: NDArray[np.float32] = tensor.numpy().reshape(shape)
    return array


def _give_back(size: int) -> None:
    global _in_use
    _in_use -= size
