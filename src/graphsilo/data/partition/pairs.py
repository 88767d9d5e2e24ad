"""Uniform draws of node pairs that are not linked, without ever listing all pairs of a large graph."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.sources.generated import contains
from graphsilo.errors import PartitionError

PairKind: TypeAlias = Literal["any", "same", "different"]
"""Any two nodes, two of one class, or two of different classes."""


def pair_keys(pairs: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """One number per unordered pair: smaller · n + larger."""
    return np.asarray(pairs.min(axis=0) * np.int64(num_nodes) + pairs.max(axis=0), dtype=np.int64)


class PairSpace:
    """The unordered pairs of ``n`` nodes of one kind, numbered so that they can be drawn uniformly.

    Node u takes part in w_u ordered pairs; ordered pair number r belongs to the node whose cumulated count passes
    r, and the remainder is the rank of the partner.

    Args:
        num_nodes: n.
        kind: Which pairs count.
        labels: [n] classes, needed for ``same`` and ``different``.
    """

    def __init__(self, num_nodes: int, kind: PairKind = "any", labels: NDArray[np.int64] | None = None) -> None:
        self.num_nodes = num_nodes
        self.kind = kind
        classes = np.zeros(num_nodes, dtype=np.int64)
        if kind != "any":
            if labels is None:
                raise ValueError("pairs by class need labels")
            classes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        self.classes = classes
        counts = np.bincount(classes, minlength=1)
        self.order = np.argsort(classes, kind="stable")
        self.starts = np.cumsum(counts) - counts
        self.counts = counts
        rank = np.empty(num_nodes, dtype=np.int64)
        rank[self.order] = np.arange(num_nodes) - self.starts[classes[self.order]]
        self.rank = rank
        own = counts[classes]
        self.ends = np.cumsum(num_nodes - own if kind == "different" else own - 1)

    @property
    def ordered(self) -> int:
        """Number of ordered pairs: twice the number of unordered ones."""
        return int(self.ends[-1]) if self.num_nodes else 0

    def pairs(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """[2, m] the ordered pairs with these numbers."""
        first = np.searchsorted(self.ends, numbers, side="right")
        before = np.where(first > 0, self.ends[first - 1], 0)
        offset = numbers - before
        own = self.classes[first]
        if self.kind == "different":
            position = np.where(offset < self.starts[own], offset, offset + self.counts[own])
        else:
            position = self.starts[own] + offset + (offset >= self.rank[first])
        return np.stack([first, self.order[position]])

    def contains(self, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pairs are of this kind."""
        same = self.classes[pairs[0]] == self.classes[pairs[1]]
        proper = pairs[0] != pairs[1]
        return np.asarray(proper & (~same if self.kind == "different" else same), dtype=bool)


def sample_unlinked(
    space: PairSpace,
    links: NDArray[np.int64],
    count: int,
    generator: np.random.Generator,
    *,
    at_most: bool = False,
) -> NDArray[np.int64]:
    """Draw distinct pairs that are not linked, uniformly and without replacement.

    Args:
        space: The pairs to draw from.
        links: [2, m] pairs that must not be drawn, in either order; repeats and self-loops are allowed.
        count: How many.
        generator: Source of randomness.
        at_most: Give fewer when there are not enough, instead of failing.

    Returns:
        [2, count], smaller end first, in the order of drawing.

    Raises:
        PartitionError: Fewer than ``count`` such pairs exist.
    """
    n = space.num_nodes
    forbidden = np.unique(pair_keys(links[:, space.contains(links)], n)) if links.size else np.zeros(0, dtype=np.int64)
    available = space.ordered // 2 - len(forbidden)
    if count > available:
        if not at_most:
            raise PartitionError(
                f"{count} unlinked node pairs were wanted, but {n} nodes leave only {available}: lower the ratio."
            )
        count = available
    if count <= 0:
        return np.zeros((2, 0), dtype=np.int64)
    if 2 * count > available or 4 * available < space.ordered:
        # Most free pairs are wanted, or most pairs are linked: listing them all costs no more than what is there.
        pairs = space.pairs(np.arange(space.ordered))
        keys = pair_keys(pairs[:, pairs[0] < pairs[1]], n)
        keys = generator.choice(keys[~contains(forbidden, keys)], size=count, replace=False)
    else:
        keys = np.zeros(0, dtype=np.int64)
        while len(keys) < count:
            drawn = generator.integers(space.ordered, size=2 * (count - len(keys)) + 16)
            fresh = pair_keys(space.pairs(drawn), n)
            keys = np.concatenate([keys, fresh[~contains(forbidden, fresh)]])
            keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
        keys = keys[:count]
    return np.stack([keys // n, keys % n])
