"""Trees and forests: gradients as whole numbers, histograms, the best splits, and what a forest says of rows.

A tree of depth d is as wide as it can be: node k of a level has the children 2k and 2k + 1 of the next, and a row goes
to the second one where its number is not below the threshold. A node that is not split sends all rows to the first
child. So a forest of T trees for each of C' outputs is

- ``columns``, ``thresholds`` [T, C', 2^d - 1], level after level,
- ``values`` [T, C', 2^d] of the leaves,
- ``base`` [C'], what it says before the first tree.

C' is 1 for two classes and the number of classes for more; of targets it is their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.message import Tensors
from graphsilo.methods.fedtrees.bins import LARGEST
from graphsilo.random import numpy_generator
from graphsilo.types import CLASS_TASKS, Task

Whole: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"

_FINEST = 1 << 20
"""Steps of a gradient of 1, at most."""
LARGEST_SUM = (1 << 31) - 1
"""Sums of gradients stay below, and so do those of hessians, which are sent in 32 bits."""


FAR = 16.0
"""Standard deviations: of a number that is further off a gradient grows no more, so that it has a bound."""


def outputs_of(schema: Schema) -> int:
    """C', the numbers that a forest says of a row."""
    return 1 if schema.num_classes == 2 and schema.task in CLASS_TASKS else schema.num_classes


def heaviest_of(schema: Schema, weights: Floats) -> float:
    """How large a gradient of one row is at most.

    Args:
        schema: Of the run.
        weights: [C] of the classes.
    """
    return FAR if schema.task == "regression" else float(weights.max(initial=0.0))


def base_of(counts: Floats) -> Floats:
    """[C'] what is said of every row before the first tree: logarithms of the classes' (weighted) shares."""
    if not counts.any():
        return np.zeros(1 if len(counts) == 2 else len(counts))
    shares: Floats = np.log(np.maximum(counts, 1e-3) / counts.sum())
    return shares[1:] - shares[:1] if len(counts) == 2 else shares


def scale_of(rows: int, heaviest: float) -> int:
    """Steps of a gradient of 1: a power of two with which the sum over so many rows of such a weight has 31 bits."""
    steps = _FINEST
    while steps > 1 and not fits(steps, rows, heaviest):
        steps //= 2
    return steps


def fits(steps: int, rows: int, heaviest: float) -> bool:
    """Whether sums over so many rows of at most this weight have 31 bits."""
    return steps <= _FINEST and steps * rows * max(heaviest, 1.0) <= LARGEST_SUM


def largest_of(scale: int, heaviest: float) -> int:
    """Steps that a gradient of one row of at most this weight has at most."""
    return int(np.ceil(scale * heaviest))


def gradients(margins: Floats, labels: Whole, weights: Floats) -> tuple[Floats, Floats]:
    """[n, C'] first and second derivatives of the loss: logistic, of several classes softmax.

    Args:
        margins: [n, C'] what the forest says so far.
        labels: [n] classes.
        weights: [n] of the rows.
    """
    if margins.shape[1] == 1:
        shares = 1 / (1 + np.exp(-margins.clip(-500, 500)))
        truth = (labels == 1)[:, None]
    else:
        shares = np.exp(margins - margins.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        truth = labels[:, None] == np.arange(margins.shape[1])
    return weights[:, None] * (shares - truth), weights[:, None] * shares * (1 - shares)


def target_gradients(margins: Floats, targets: Floats, task: Task) -> tuple[Floats, Floats]:
    """[n, m] the same of targets: of numbers half the squared error, of labels the logistic loss of each.

    Args:
        margins: [n, m].
        targets: [n, m].
        task: ``regression`` or ``multilabel``.
    """
    if task == "regression":
        return (margins - targets).clip(-FAR, FAR), np.ones_like(margins)
    shares = 1 / (1 + np.exp(-margins.clip(-500, 500)))
    return shares - targets, shares * (1 - shares)


def logits(margins: Floats) -> Floats:
    """[n, C] of [n, C']."""
    return np.hstack([np.zeros_like(margins), margins]) if margins.shape[1] == 1 else margins


# -- forests ---------------------------------------------------------------------------------------------------------


def empty(base: Floats, depth: int) -> dict[str, Tensor]:
    """A forest without a tree."""
    nodes = {"columns": 2**depth - 1, "thresholds": 2**depth - 1, "values": 2**depth}
    return {"base": torch.from_numpy(base).float(), **{name: torch.zeros(0, len(base), n) for name, n in nodes.items()}}


def extend(forest: Tensors, trees: Tensors) -> dict[str, Tensor]:
    """A forest with more trees, [T, C', ...]; its base stays."""
    return {name: each if name == "base" else torch.cat([each, trees[name]]) for name, each in forest.items()}


def trees(forest: Tensors, first: int, end: int | None = None) -> dict[str, Tensor]:
    """The trees of a forest from ``first`` to before ``end``."""
    return {name: each if name == "base" else each[first:end] for name, each in forest.items()}


def count_common_trees(one: Tensors, other: Tensors) -> int:
    """With how many of the same trees two forests begin."""
    count = min(len(one["columns"]), len(other["columns"]))
    differs = torch.stack([
        (each[:count] != other[name][:count]).flatten(1).any(1) for name, each in one.items() if name != "base"
    ]).any(0)  # fmt: skip
    return int(differs.nonzero()[0]) if bool(differs.any()) else count


def leaves_of(rows: NDArray[np.float32], columns: Tensor, thresholds: Tensor, known: Whole | None = None) -> Whole:
    """[n, C'] in which node of the lowest level each row is.

    Args:
        rows: [n, p].
        columns, thresholds: [C', 2^d - 1] of one tree, or of its upper levels.
        known: [n, C'] in which node of the level above the lowest one, where that is known.
    """
    which, limits = columns.numpy().astype(np.int64), thresholds.numpy()
    outputs, width = which.shape
    first, number = width * np.arange(outputs), rows.shape[1] * np.arange(len(rows))[:, None]
    levels = (width + 1).bit_length() - 1
    nodes = np.zeros((len(rows), outputs), dtype=np.int64) if known is None else known
    for level in range(0 if known is None else levels - 1, levels):
        places = nodes + (first + (2**level - 1))
        nodes = 2 * nodes + (rows.take(number + which.take(places)) >= limits.take(places))
    return nodes


def has_valid_splits(columns: Tensor, thresholds: Tensor, width: int) -> bool:
    """Whether nodes of trees look at columns that there are, and at numbers."""
    return bool((columns == columns.floor()).all() and (columns >= 0).all() and (columns < width).all()) and not bool(
        thresholds.isnan().any()
    )


def add_trees(margins: Floats, rows: NDArray[np.float32], forest: Tensors, trees: range) -> None:
    """Add what some trees say of rows [n, p], one after the other, to [n, C']."""
    outputs = np.arange(margins.shape[1])
    for tree in trees:
        leaves = leaves_of(rows, forest["columns"][tree], forest["thresholds"][tree])
        margins += forest["values"][tree].numpy()[outputs, leaves]


# -- histograms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layout:
    """What stands where in a histogram: first all rows, then the bins of the columns of a tree, one after the other.

    Attributes:
        columns: [q] those that were drawn for the tree.
        edges: [q, bins - 1] between their bins.
        ends: [q] where each column's bins end; the last: B.
    """

    columns: Whole
    edges: NDArray[np.float32]
    ends: Whole

    @property
    def starts(self) -> Whole:
        """[q] where each column's bins begin."""
        return np.concatenate([[1], self.ends[:-1]])

    @property
    def size(self) -> int:
        """B, entries."""
        return int(self.ends[-1])

    @classmethod
    def draw(cls, edges: NDArray[np.float32], count: int, seed: int, step: int) -> Layout:
        """The columns of a step, the same at every party that draws them."""
        columns = np.sort(numpy_generator(seed, "trees", "columns", step).permutation(len(edges))[:count])
        kept = edges[columns]
        return cls(columns, kept, 1 + (1 + (kept < LARGEST).sum(axis=1)).cumsum())

    def places(self, codes: NDArray[np.uint8]) -> NDArray[np.int32]:
        """[n, 1 + q] the entries that each row counts in. ``codes``: [n, p]."""
        found = np.zeros((len(codes), 1 + len(self.columns)), dtype=np.int32)
        np.add(codes[:, self.columns], self.starts.astype(np.int32), out=found[:, 1:])
        return found


def histograms(
    places: NDArray[np.int32], size: int, nodes: Whole, wanted: Whole, first: Whole, second: Whole
) -> Floats:
    """[3, W, B] sums of gradients, sums of hessians and numbers of rows, whole numbers, of some nodes of a level.

    A product with a sparse matrix adds all three at once: measured, half to a tenth of the time of scatter_add_ or
    numpy's bincount.

    Args:
        places: [n, 1 + q] the entries that a row counts in.
        size: B.
        nodes: [n, C'] where each row is.
        wanted: [W, 2] output and node.
        first, second: [n, C'] gradients and hessians, whole numbers.
    """
    slots = np.full((nodes.shape[1], 1 + max(nodes.max(initial=0), wanted[:, 1].max())), -1, dtype=np.int32)
    slots[wanted[:, 0], wanted[:, 1]] = np.arange(len(wanted))
    slot = slots[np.arange(nodes.shape[1]), nodes].T
    output, row = np.nonzero(slot >= 0)
    entries = np.add(places[row], size * slot[output, row][:, None], dtype=np.int32).ravel()
    starts = np.arange(0, len(entries) + 1, places.shape[1], dtype=np.int32)
    counted = sp.csc_array((np.ones(len(entries)), entries, starts), shape=(len(wanted) * size, len(row)))
    each = np.stack([first[row, output], second[row, output], np.ones_like(row)], axis=1, dtype=np.float64)
    return np.ascontiguousarray((counted @ each).T).reshape(3, len(wanted), size)


# -- growing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """How a tree grows.

    Attributes:
        depth: d.
        lr: What leaves are multiplied by.
        l2, gamma: λ and γ.
        min_child: Fewest rows of a leaf.
        l2_per_row: What each row adds to λ.
    """

    depth: int
    lr: float
    l2: float
    gamma: float
    min_child: int
    l2_per_row: float = 0.0

    def for_rows(self, count: float) -> Rule:
        """The rule of a tree of so many rows."""
        return replace(self, l2=self.l2 + self.l2_per_row * count, l2_per_row=0.0)

    def _add_penalty(self, hessian: Floats) -> Floats:
        """What is divided by. No rows have a sum below 0; what a silo says that lies may leave one to a node's other
        child, and nearly nothing with λ."""
        return np.maximum(hessian, 0.0) + self.l2

    def value(self, gradient: Floats, hessian: Floats) -> Floats:
        """Of a leaf."""
        below = self._add_penalty(hessian)
        return np.divide(-self.lr * gradient, below, out=np.zeros_like(gradient), where=below > 0)

    def score(self, gradient: Floats, hessian: Floats) -> Floats:
        """Twice what leaves with these sums take off the loss."""
        below = self._add_penalty(hessian)
        return np.divide(gradient * gradient, below, out=np.zeros_like(gradient), where=below > 0)


LEAST_GAIN = 1e-9
"""A split that gains less is none: nothing but rounding says that it helps."""


class Growing:
    """One tree of each output, which grow a level at a time.

    Attributes:
        columns, thresholds: [C', 2^level - 1] so far.
        values: [C', 2^d] of the leaves so far.
        wanted: [W, 2] output and node of which the next level needs histograms; empty: the tree is grown.
    """

    def __init__(self, rule: Rule, layout: Layout, outputs: int, scale: int):
        self.rule, self.layout, self.scale = rule, layout, scale
        self.columns = np.zeros((outputs, 0), dtype=np.float32)
        self.thresholds = np.zeros((outputs, 0), dtype=np.float32)
        self.values = np.zeros((outputs, 2**rule.depth), dtype=np.float32)
        self.wanted = np.stack([np.arange(outputs), np.zeros(outputs, dtype=np.int64)], axis=1)
        self._level = 0
        self._parents: Floats | None = None  # histograms of the nodes whose smaller child is wanted

    def grow(self, sums: Floats) -> None:
        """One level, from the histograms [3, W, B] of ``wanted``."""
        nodes: Whole = self.wanted
        if not self._level:  # the first entry is all rows
            self.rule = self.rule.for_rows(float(sums[2, :, 0].max(initial=0)))
        if self._parents is not None:  # the other child has what is left
            sums = np.concatenate([sums, self._parents - sums], axis=1)
            nodes = np.concatenate([nodes, nodes ^ [0, 1]])
        gains, best, lower, rest = self._find_best(sums)
        split = gains > LEAST_GAIN
        self._end(nodes[~split], (lower + rest)[:, ~split])
        nodes, lower, rest = nodes[split], lower[:, split], rest[:, split]
        self._split(nodes, best[split])
        self._level += 1
        if self._level == self.rule.depth or not len(nodes):
            children = nodes * np.array([1, 2])
            self._end(children, lower)
            self._end(children + np.array([0, 1]), rest)
            self.wanted = nodes[:0]
            self._level = self.rule.depth
            return
        second = lower[2] > rest[2]
        self.wanted = nodes * [1, 2] + np.stack([np.zeros_like(second), second], axis=1)
        self._parents = sums[:, split]

    def _find_best(self, sums: Floats) -> tuple[Floats, Whole, Floats, Floats]:
        """The best split of nodes with the histograms [3, L, B]: [L] what it gains and the entry after which it is, and
        [3, L] sums of either side. Of a node that cannot be split they are of all its rows and of none."""
        starts = np.concatenate([[0], self.layout.starts])
        units = np.array([self.scale, self.scale, 1.0])[:, None, None]
        totals = np.add.reduceat(sums, starts, axis=2) / units  # [3, L, 1 + q] all rows, then those of each column
        left = sums / units
        left[:, :, starts[1:]] -= totals[:, :, :-1]
        left = left.cumsum(axis=2, out=left)  # starts again with each column
        total, whole = (
            np.repeat(each, np.diff(starts, append=self.layout.size), axis=-1)
            for each in (totals, self.rule.score(totals[0], totals[1]))
        )
        right = total - left
        gains = self.rule.score(left[0], left[1]) + self.rule.score(right[0], right[1])
        gains -= whole
        gains /= 2
        gains -= self.rule.gamma
        gains[np.minimum(left[2], right[2]) < self.rule.min_child] = -np.inf  # and so behind a column's last bin
        best = gains.argmax(axis=1)  # the first of equals: all rows, where there is none
        place = np.arange(len(best)), best
        return gains[place], best, left[:, *place], right[:, *place]

    def _split(self, nodes: Whole, best: Whole) -> None:
        columns = np.zeros((len(self.columns), 2**self._level), dtype=np.float32)
        thresholds = np.full_like(columns, LARGEST)
        place = np.searchsorted(self.layout.ends, best, side="right")
        edge = best - self.layout.starts[place]
        columns[nodes[:, 0], nodes[:, 1]] = self.layout.columns[place]
        thresholds[nodes[:, 0], nodes[:, 1]] = self.layout.edges[place, edge]
        self.columns = np.concatenate([self.columns, columns], axis=1)
        self.thresholds = np.concatenate([self.thresholds, thresholds], axis=1)

    def _end(self, nodes: Whole, sums: Floats) -> None:
        """These are leaves, of a level that is not yet or just grown, with these sums [3, n]."""
        level = self.columns.shape[1].bit_length()
        values = self.rule.value(sums[0], sums[1])
        self.values[nodes[:, 0], nodes[:, 1] << (self.rule.depth - level)] = values

    def tree(self) -> dict[str, Tensor]:
        """The grown tree, [1, C', ...]."""
        missing = 2**self.rule.depth - 1 - self.columns.shape[1]
        found = {
            "columns": np.pad(self.columns, ((0, 0), (0, missing))),
            "thresholds": np.pad(self.thresholds, ((0, 0), (0, missing)), constant_values=LARGEST),
            "values": self.values,
        }
        return {name: torch.from_numpy(each)[None] for name, each in found.items()}


def correct_leaves(tree: Mapping[str, Tensor], sums: Floats, rule: Rule, weight: float) -> dict[str, Tensor]:
    """A tree whose leaves lie between the common ones and those of a silo's own rows.

    Args:
        tree: [1, C', ...].
        sums: [2, C', 2^d] gradients and hessians of the own rows in each leaf.
        weight: Of the common value, in hessians.
    """
    own = (weight * tree["values"][0].numpy() - rule.lr * sums[0]) / (weight + sums[1])
    return {**tree, "values": torch.from_numpy(own.astype(np.float32))[None]}
