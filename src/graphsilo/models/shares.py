"""Why a score is what it is: shares of columns and of nodes that add up to it.

A score is split twice, each time without rest: among the columns that a model looks at, and among the nodes that they
came from, the node itself and its neighbours. What it is held against is the mean score of ``usual`` nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.models.node_columns import list_classified
from graphsilo.models.view import GraphTensors, Matrix

Floats: TypeAlias = "NDArray[np.float64]"

TRAINED = "the mean of the silo's training nodes"
PLACES = ("", "around it", "two links away")
"""Where the numbers of a column stand that is a mean over nodes so many links away."""


@dataclass(frozen=True, eq=False)
class Part:
    """One column's share.

    Attributes:
        name: What the column is, in words.
        share: What it adds to the score.
        feature: Number of the raw feature that it is a number of; None where it is of none.
        spread: Whether it is a standard deviation of that feature, which no mean was taken off.
        read: Gives the column of all nodes, [n], in the units of the model.
    """

    name: str
    share: float
    feature: int | None = None
    spread: bool = False
    read: Callable[[], Floats] | None = None


@dataclass(frozen=True, eq=False)
class Shares:
    """Why an item's score is what it is: ``base`` and the shares of all parts add up to it, and so do ``base`` and
    those of all nodes.

    Attributes:
        base: The score that this one is held against.
        parts: Shares of columns.
        nodes: [q] numbers of the nodes that the score came from, the item among them.
        node_shares: [q] what each adds to the score.
        gap: What the score has beyond their sum; 0 where shares are exact.
        against: What has ``base`` for a score, in words.
    """

    base: float
    parts: tuple[Part, ...]
    nodes: NDArray[np.int64]
    node_shares: Floats
    gap: float = 0.0
    against: str = TRAINED

    @property
    def score(self) -> float:
        """Of the item."""
        return self.base + sum(part.share for part in self.parts) + self.gap


def add_shares(found: Sequence[Shares], factor: float = 1.0) -> Shares:
    """Shares of the sum of several scores, times a factor."""
    parts: dict[str, Part] = {}
    for part in (part for each in found for part in each.parts):
        before = parts[part.name].share if part.name in parts else 0.0
        parts[part.name] = replace(part, share=before + factor * part.share)
    nodes, place = np.unique(np.concatenate([each.nodes for each in found]), return_inverse=True)
    every = np.concatenate([each.node_shares for each in found])
    shares: Floats = np.bincount(place, every, minlength=len(nodes)).astype(np.float64)
    base, gap = (factor * sum(getattr(each, name) for each in found) for name in ("base", "gap"))
    return Shares(base, tuple(parts.values()), nodes, factor * shares, gap, found[-1].against)


def list_usual(data: GraphTensors, train: NDArray[np.int64]) -> tuple[NDArray[np.int64], str]:
    """The nodes whose mean score others are held against, and that mean in words: training nodes, or where there are
    none, all that are classified."""
    if len(train):
        return train, TRAINED
    return np.arange(data.num_nodes)[list_classified(data)], "the mean of the silo's nodes, none of which is trained on"


@dataclass(frozen=True, eq=False)
class Linear:
    """A part of a score that is linear in numbers of nodes: s_i Σ_h Σ_j (A^h)_ij l_j x_j ω.

    Attributes:
        numbers: [n, d] x.
        weights: [d] ω.
        operator: [n, n] A.
        hops: The h that are added up.
        inner, outer: [n] l and s.
        names: Of the d columns, in words.
        features: Whether these are the raw features, in their order.
        without_self: Whether nothing comes back to a node of itself.
    """

    numbers: Matrix
    weights: Floats
    operator: sp.csr_matrix
    hops: tuple[int, ...]
    inner: Floats
    outer: Floats
    names: Sequence[str]
    features: bool = True
    without_self: bool = False

    def _rows(self, items: NDArray[np.int64]) -> sp.csr_matrix:
        """[m, n] what each node's numbers count in the items' scores."""
        shape = (len(items), len(self.outer))
        step = sp.csr_matrix((self.outer[items], (np.arange(len(items)), items)), shape=shape)
        total = sp.csr_matrix(shape)
        for hop in range(max(self.hops) + 1):
            step = step @ self.operator if hop else step
            total = total + step if hop in self.hops else total
        found = sp.csr_matrix(total)
        if self.without_self:
            found = found - sp.csr_matrix((np.asarray(found[np.arange(len(items)), items]).ravel(),
                                    (np.arange(len(items)), items)), shape=shape)  # fmt: skip
        return found

    def _mean_row(self, items: NDArray[np.int64]) -> Floats:
        """[n] the mean of ``_rows`` of some items, which may be many."""
        step = np.bincount(items, self.outer[items], minlength=len(self.outer)) / max(len(items), 1)
        total, turned = np.zeros(len(step)), self.operator.T
        for hop in range(max(self.hops) + 1):
            step = turned @ step if hop else step
            if hop in self.hops:
                total += step
        return total

    def _mean(self, usual: NDArray[np.int64]) -> Floats:
        """[d] the columns' mean shares over usual nodes."""
        if self.without_self:  # sums that have it all, less what comes back
            rows = [self._rows(usual[start : start + 4096]).sum(axis=0) for start in range(0, len(usual), 4096)]
            mean = np.asarray(sum(rows)).ravel() / max(len(usual), 1) if rows else np.zeros(len(self.outer))
        else:
            mean = self._mean_row(usual)
        return np.asarray((mean * self.inner) @ self.numbers).ravel() * self.weights

    def _column(self, column: int) -> Floats:
        """[n] the mean of a column over the nodes that count."""
        values = self.numbers[:, column]
        found: Floats = np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64).ravel()
        if self.hops == (0,):
            return found
        top, below, ones = np.zeros(len(found)), np.zeros(len(found)), np.ones(len(found))
        for hop in range(max(self.hops) + 1):
            if hop:
                found, ones = np.asarray(self.operator @ found).ravel(), np.asarray(self.operator @ ones).ravel()
            if hop in self.hops:
                top, below = top + found, below + ones
        return np.divide(top, below, out=np.zeros(len(top)), where=below > 0)

    def explain(self, items: NDArray[np.int64], usual: NDArray[np.int64], against: str) -> list[Shares]:
        """Shares of each item, held against the mean over ``usual`` nodes."""
        rows, mean = self._rows(items), self._mean(usual)
        weighted = rows @ sp.diags(self.inner)
        columns = weighted @ self.numbers
        each_column = np.asarray(columns.toarray() if sp.issparse(columns) else columns) * self.weights - mean
        said = self.inner * np.asarray(self.numbers @ self.weights).ravel()
        found, base = list[Shares](), float(mean.sum())
        for item, row, each in zip(items, rows_of(rows), each_column, strict=True):
            total = row.data.sum()
            nodes, shares = row.indices.astype(np.int64), row.data * said[row.indices]
            if total > 0:
                shares = shares - base * row.data / total
            else:
                nodes, shares = np.append(nodes, item), np.append(shares, -base)
            parts = tuple(
                Part(self.names[k], float(each[k]), k if self.features else None, read=partial(self._column, k))
                for k in np.flatnonzero(each).tolist()
            )
            found.append(Shares(base, parts, nodes, shares, against=against))
        return found


def rows_of(matrix: sp.csr_matrix) -> Iterator[sp.csr_matrix]:
    """Its rows, one after the other."""
    return (matrix[place] for place in range(matrix.shape[0]))


def apportion(shares: Floats, moved: Floats, counts: Floats) -> Floats:
    """[q] what nodes have in shares of columns that are means over them: those that moved a column the way it went, as
    far as they did; where nothing moved, all as far as they count.

    Args:
        shares: [p] of the columns.
        moved: [q, p] what each node moved each column by, away from its usual value.
        counts: [q] what each node counts in the means, not negative.
    """
    along = np.maximum(moved * np.sign(moved.sum(axis=0)), 0.0)
    sums = along.sum(axis=0)
    plain = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / max(len(counts), 1))
    weights = np.divide(along, sums, out=np.repeat(plain[:, None], moved.shape[1], axis=1), where=sums > 0)
    return np.asarray(weights @ shares)


def name_columns(names: Sequence[str] | None, count: int, place: str) -> list[str]:
    """Features, and where their numbers stand."""
    known = names if names else [f"feature {k}" for k in range(count)]
    return [f"{name}, {place}" if place else name for name in known]


def explain_sum(
    terms: Iterable[Linear], bias: float, items: NDArray[np.int64], usual: NDArray[np.int64], against: str
) -> list[Shares]:
    """Shares of scores that are a sum of linear parts and a number."""
    each = [term.explain(items, usual, against) for term in terms]
    none = Shares(bias, (), np.zeros(0, dtype=np.int64), np.zeros(0))
    return [add_shares([none, *(found[place] for found in each)]) for place in range(len(items))]
