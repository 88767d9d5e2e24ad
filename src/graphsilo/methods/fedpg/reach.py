"""Who lies within h hops of whom in a large graph, as bits: for FedPG's neighbours at two and more hops.

In a graph of small diameter most nodes lie within three hops of each other. To list these pairs in order to draw a
few takes hundreds of times the arithmetic of a round. Here a set of nodes is a row of bits, the nodes within h hops are
the union of the neighbours' sets within h - 1, and a draw looks up the r-th bit of a row: n² · degree / 64 operations
on words per hop, and no list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Bits: TypeAlias = "NDArray[np.uint64]"
"""[n, words] sets of nodes, 64 nodes a word, the lowest bit first."""
Pairs: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Items v and, beside each, one of its neighbours j; sorted by v, then j."""

_WORD = 64
_WORDS = 1 << 22
"""Words of one block of columns, 32 MB."""


def draw_pairs(
    pattern: sp.csr_matrix, hops: int, *, within: bool, limit: int, draw: np.random.Generator
) -> list[Pairs]:
    """Pairs per hop 1 to L: all at hop 1, beyond it at most so many per node, uniform and without replacement.

    Args:
        pattern: [n, n] CSR, row v names the neighbours of v.
        hops: L, at least 1.
        within: A neighbour at hop h is at distance 1 to h instead of h.
        limit: Neighbours of a node at a hop beyond the first.
        draw: Source of the draws.

    Returns:
        Pairs (v, j), v ≠ j, sorted by v, then j.
    """
    n = pattern.shape[0]
    blocks = list(_blocks(n))
    first = [_sets(pattern, hops, within, *blocks[0])]
    # Which of its neighbours a node keeps follows from how many it has, which is known when all columns were seen.
    sizes = np.stack([_counts(first[0])] + [_counts(_sets(pattern, hops, within, *block)) for block in blocks[1:]])
    ranks = [_choose(total, limit, draw) for total in sizes.sum(axis=0)]
    before = np.cumsum(sizes, axis=0) - sizes
    found: list[list[Pairs]] = [[] for _ in ranks]
    for number, block in enumerate(blocks):
        sets = first.pop() if number == 0 else _sets(pattern, hops, within, *block)
        for hop, (items, places) in enumerate(ranks):
            own = places - before[number, hop, items]
            here = (own >= 0) & (own < sizes[number, hop, items])
            columns = _WORD * block[0] + _locate(sets[hop], items[here], own[here])
            found[hop].append((items[here], columns))
    return [_direct(pattern), *(_join_pairs(parts) for parts in found)]


def count_pairs(pattern: sp.csr_matrix, hops: int, *, within: bool) -> int:
    """How many pairs there are at hops 2 to L together."""
    return sum(int(_counts(_sets(pattern, hops, within, *block)).sum()) for block in _blocks(pattern.shape[0]))


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    """First and last word of blocks of columns."""
    words = -(-n // _WORD)
    step = max(1, _WORDS // max(n, 1))
    for start in range(0, words, step):
        yield start, min(start + step, words)


def _sets(pattern: sp.csr_matrix, hops: int, within: bool, start: int, end: int) -> list[Bits]:
    """For hops 2 to L, who of the nodes in these words is a neighbour of each node."""
    n = pattern.shape[0]
    itself = np.zeros((n, end - start), dtype=np.uint64)
    mine = np.arange(_WORD * start, min(_WORD * end, n))
    itself[mine, mine // _WORD - start] = np.left_shift(np.uint64(1), (mine % _WORD).astype(np.uint64))
    known, found = itself, []
    for hop in range(1, hops + 1):
        wider = _widen(pattern, known)
        if hop > 1:
            found.append(wider & ~(itself if within else known))
        known = wider
    return found


def _widen(pattern: sp.csr_matrix, sets: Bits) -> Bits:
    """Each node's set with those of its neighbours: first neighbours of all nodes at once, then second ones, …"""
    degree = np.diff(pattern.indptr)
    order = np.argsort(-degree, kind="stable")
    starts = pattern.indptr[:-1][order]
    having = len(degree) - np.cumsum(np.bincount(degree))  # nodes with more neighbours than 0, 1, …
    total = sets[order]
    for place, count in enumerate(having[:-1].tolist()):
        total[:count] |= sets[pattern.indices[starts[:count] + place]]
    wider = np.empty_like(sets)
    wider[order] = total
    return wider


def _ones(words: Bits) -> Bits:
    """How many bits of each word are set: pairs of bits added up, then fours, then bytes."""
    two, four, eight = (np.uint64(int(byte * 8, 16)) for byte in ("55", "33", "0f"))
    sums = words - ((words >> np.uint64(1)) & two)
    sums = (sums & four) + ((sums >> np.uint64(2)) & four)
    sums = (sums + (sums >> np.uint64(4))) & eight
    counts: Bits = (sums * np.uint64(int("01" * 8, 16))) >> np.uint64(56)
    return counts


def _counts(sets: list[Bits]) -> NDArray[np.int64]:
    """[hops - 1, n] sizes of sets."""
    return np.stack([_ones(each).sum(axis=1, dtype=np.int64) for each in sets])


def _choose(total: NDArray[np.int64], limit: int, draw: np.random.Generator) -> Pairs:
    """At most so many different numbers below each total: owners, and the numbers, ascending for each owner.

    Source: Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987), for all owners at once.
    """
    many = np.flatnonzero(total > limit)
    chosen = np.empty((len(many), limit), dtype=np.int64)
    for place in range(limit):
        last = total[many] - limit + place
        number = (draw.random(len(many)) * (last + 1)).astype(np.int64)
        taken = (chosen[:, :place] == number[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, number)
    chosen.sort(axis=1)
    few = np.flatnonzero((total > 0) & (total <= limit))
    sizes = total[few]
    owners = np.concatenate([np.repeat(many, limit), np.repeat(few, sizes)])
    all_of_few = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    numbers = np.concatenate([chosen.ravel(), all_of_few])
    order = np.argsort(owners, kind="stable")
    return owners[order], numbers[order]


def _locate(sets: Bits, items: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of the r-th bit of an item's set, r from 0."""
    ends = np.cumsum(_ones(sets), axis=1, dtype=np.int64)
    base = _WORD * sets.shape[1] + 1  # more than a row can hold: all rows are one ascending list
    keys = (ends + base * np.arange(len(sets))[:, None]).ravel()
    place = np.searchsorted(keys, ranks + base * items, side="right")
    words = np.ascontiguousarray(sets.ravel()[place])
    inside = ranks - ends.ravel()[place] + _ones(words).astype(np.int64)
    bits = np.unpackbits(words.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    bit = (np.cumsum(bits, axis=1, dtype=np.uint8) > inside[:, None]).argmax(axis=1)
    found: NDArray[np.int64] = _WORD * (place % sets.shape[1]) + bit
    return found


def _direct(pattern: sp.csr_matrix) -> Pairs:
    links = pattern.tocoo()
    apart = links.row != links.col
    v, j = links.row[apart].astype(np.int64), links.col[apart].astype(np.int64)
    order = np.lexsort((j, v))
    return v[order], j[order]


def _join_pairs(parts: list[Pairs]) -> Pairs:
    v, j = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    order = np.lexsort((j, v))
    return v[order], j[order]
