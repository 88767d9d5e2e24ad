"""Rows of arrays; and arrays from ``.npy`` and ``.npz`` files of others: what a file claims is compared with what it
holds.

numpy makes room for whatever a header claims, and unpacks whatever a small file blows up to, before it looks.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

MAX_PACKED = 100
"""How many times its size a file may unpack to; numbers of nodes and masks pack to a tenth or a fiftieth."""
SLACK = 1 << 26
"""Bytes that any file may unpack to."""


def pick_rows(array: NDArray[Any], chosen: NDArray[np.bool_] | NDArray[np.int64]) -> NDArray[Any]:
    """Some rows of an array, ascending or not: without a copy where they follow one another, as those of one
    institution in several institutions' tables do. Nobody writes to a graph's arrays."""
    rows = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    first = int(rows[0]) if len(rows) else 0
    if len(rows) and rows[-1] - first == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return array[first : first + len(rows)]
    return array[rows]


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file, by name.

    Raises:
        ValueError: It claims other sizes than it has, unpacks to too much, or needs pickle.
        OSError, EOFError, zipfile.BadZipFile, zlib.error: As reading does.
    """
    found: dict[str, NDArray[Any]] = {}
    limit = MAX_PACKED * path.stat().st_size + SLACK
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > limit:
            raise ValueError(f"it unpacks to {total} bytes, and a file of its size may unpack to {limit}")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"'{name[:80]}' is in it twice")
            with archive.open(member) as stream:
                _check(stream, member.file_size, name[:80])
            # From its beginning once more: an archive checks sums only of what is read without going back.
            with archive.open(member) as stream:
                found[name] = np.lib.format.read_array(stream, allow_pickle=False)
    return found


def read_npy(path: Path) -> NDArray[Any]:
    """The array of an ``.npy`` file.

    Raises:
        ValueError: It claims another size than it has, or needs pickle.
        OSError, EOFError: As reading does.
    """
    with path.open("rb") as stream:
        _check(stream, path.stat().st_size, path.stem)
        stream.seek(0)
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _check(stream: IO[bytes], size: int, name: str) -> None:
    """Compare what the header of an array claims with the bytes that are there."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"'{name}' has the npy format {version[0]}.{version[1]}, and 1.0 and 2.0 are known")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(stream)
    if dtype.hasobject:
        raise ValueError(f"'{name}' holds Python objects, which need pickle")
    held, claimed = size - stream.tell(), math.prod(shape) * dtype.itemsize
    if held != claimed:
        raise ValueError(f"'{name}' claims to hold {claimed} bytes and holds {held}")
