"""Bins of columns from sums: counts of numbers on a fixed grid, twice, and edges between the bins.

The grid is that of float32 itself: a number's sign, exponent and first bits of its fraction, in the order of numbers.
It fits columns of any size without anybody's smallest and largest number, and its counts add up over silos.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

COARSE = 12
"""Bits of a number that say its cell at first: sign, exponent and three of the fraction."""
FINE = 6
"""Bits more within the cells in which an edge may lie: numbers are told apart that differ by 0.2 %."""
_CELLS, _PARTS = 1 << COARSE, 1 << FINE
_SHIFT = 32 - COARSE - FINE
_AT_ONCE = 32
LARGEST = float(np.finfo(np.float32).max)
"""A threshold that no number reaches."""


def keys(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Whole numbers in the order of float32 numbers."""
    bits = (values + np.float32(0.0)).view(np.uint32)  # -0.0 becomes 0.0
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _values(found: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers of some keys; what is beyond the finite ones is the last of them."""
    unsigned = found.clip(0, (1 << 32) - 1).astype(np.uint32)
    bits = np.where(unsigned >> 31, unsigned & np.uint32((1 << 31) - 1), ~unsigned)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(bits.view(np.float32).astype(np.float64), posinf=LARGEST, neginf=-LARGEST)


def coarse_places(columns: NDArray[np.float32]) -> NDArray[np.int64]:
    """[n, p] the entry of flattened ``coarse_counts`` that each number counts in."""
    return (keys(columns) >> (32 - COARSE)).astype(np.int64) + _CELLS * np.arange(columns.shape[1])


def coarse_counts(columns: NDArray[np.float32]) -> NDArray[np.int64]:
    """[p, 2^12] how many rows have their number in each cell."""
    found = np.empty((columns.shape[1], _CELLS), dtype=np.int64)
    for place in _few(columns):
        size = found[place].size
        found[place] = np.bincount(coarse_places(columns[:, place]).ravel(), minlength=size).reshape(-1, _CELLS)
    return found


def _few(columns: NDArray[np.float32]) -> Iterator[slice]:
    """Columns whose counts fit into a processor's cache."""
    return (slice(start, start + _AT_ONCE) for start in range(0, columns.shape[1], _AT_ONCE))


def cells_to_refine(counts: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """[p, bins - 1] cells in which a quantile lies, ascending; -1 behind the last."""
    found = np.full((len(counts), bins - 1), -1, dtype=np.int64)
    total = counts.cumsum(axis=1)
    for column, each in enumerate(total):
        if each[-1]:
            cells = np.unique(np.searchsorted(each, _targets(each[-1], bins), side="left"))
            found[column, : len(cells)] = cells
    return found


def fine_places(columns: NDArray[np.float32], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n, p] the entry of flattened ``fine_counts`` that each number counts in; -1 outside these cells."""
    width, count = cells.shape
    found = keys(columns)
    coarse, part = (found >> (32 - COARSE)).astype(np.int64), (found >> _SHIFT).astype(np.int64) % _PARTS
    places = np.full((width, _CELLS + 1), -1, dtype=np.int64)
    np.put_along_axis(places, np.where(cells < 0, _CELLS, cells), np.arange(count)[None], axis=1)
    place = places[np.arange(width), coarse]
    return np.where(place >= 0, (np.arange(width) * count + place) * _PARTS + part, -1)


def fine_counts(columns: NDArray[np.float32], cells: NDArray[np.int64]) -> NDArray[np.int64]:
    """[p, cells, 2^6] how many rows have their number in each part of these cells."""
    found = np.empty((*cells.shape, _PARTS), dtype=np.int64)
    for part in _few(columns):
        places, shape = fine_places(columns[:, part], cells[part]), found[part].shape
        found[part] = np.bincount(places[places >= 0], minlength=math.prod(shape)).reshape(shape)
    return found


def edges_of(
    coarse: NDArray[np.int64], cells: NDArray[np.int64], fine: NDArray[np.int64], bins: int
) -> NDArray[np.float32]:
    """[p, bins - 1] the edges between the bins of each column, ascending, with as equal bins as can be.

    A number equal to an edge is above it. Behind the last edge stands ``LARGEST``.

    Args:
        coarse: [p, 2^12] counts of all cells.
        cells: [p, q] those that were refined.
        fine: [p, q, 2^6] counts of their parts.
        bins: Most bins.
    """
    found = np.full((len(coarse), bins - 1), LARGEST, dtype=np.float32)
    for column, each in enumerate(zip(coarse, cells, fine, strict=True)):
        edges = _edges(*each, bins)
        found[column, : len(edges)] = edges
    return found


def _edges(
    coarse: NDArray[np.int64], cells: NDArray[np.int64], fine: NDArray[np.int64], bins: int
) -> NDArray[np.float32]:
    known = cells[cells >= 0]
    whole = np.setdiff1d(np.flatnonzero(coarse), known)
    which, part = np.nonzero(fine[: len(known)])
    starts = np.concatenate([whole << (32 - COARSE), (known[which] << (32 - COARSE)) + (part << _SHIFT)])
    sizes = np.repeat([1 << (32 - COARSE), 1 << _SHIFT], [len(whole), len(which)])
    counts = np.concatenate([coarse[whole], fine[which, part]])
    order = np.argsort(starts)
    starts, ends, counts = starts[order], (starts + sizes)[order], counts[order]
    if len(starts) < 2:
        return np.zeros(0, dtype=np.float32)
    total = counts.cumsum()
    after = (
        np.arange(len(starts))
        if len(starts) <= bins
        else np.unique(np.searchsorted(total, _targets(total[-1], bins), side="left"))
    )
    after = after[after < len(starts) - 1]
    middles = (_values(ends[after]) + _values(starts[after + 1])) / 2
    return np.unique(middles.astype(np.float32))


def _targets(total: int, bins: int) -> NDArray[np.float64]:
    return np.arange(1, bins, dtype=np.float64) * (float(total) / bins)


def codes_of(columns: NDArray[np.float32], edges: NDArray[np.float32]) -> NDArray[np.uint8]:
    """[n, p] the bin of each number: how many edges of its column are not above it."""
    found = np.empty(columns.shape, dtype=np.uint8)
    for column, each in enumerate(edges):
        found[:, column] = np.searchsorted(each, columns[:, column], side="right")
    return found
