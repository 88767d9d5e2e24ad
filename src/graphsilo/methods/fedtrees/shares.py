"""What columns add to what a forest says of a row: exact Shapley values.

A tree whose split on a column is not looked at follows both children, each with the share of the training rows that
went there (Lundberg et al., "From Local Explanations to Global Understanding with Explainable AI for Trees", Nature
Machine Intelligence 2020, path-dependent). One leaf is reached with the product over its path of o, whether the row
goes that way, for columns that are known, and of the share z for those that are not. A column's Shapley value in such
a product is (o - z) times the integral over t from 0 to 1 of the product over the other columns of t o + (1 - t) z
(Owen, "Multilinear Extensions of Games", 1972), a polynomial that Gauss's rule integrates exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.message import Tensors
from graphsilo.methods.fedtrees.forest import Floats, leaves_of
from graphsilo.models.node_columns import portable_columns


def tree_shares(
    rows: NDArray[np.float32], trained: NDArray[np.float32], forest: Tensors, output: Floats
) -> tuple[float, Floats]:
    """The mean over training rows of a forest's score, and [m, p] what each column adds to it.

    Args:
        rows: [m, p] those that are asked about.
        trained: [n, p] training rows.
        forest: Of C' outputs.
        output: [C'] a score is what the forest says times these.
    """
    base, shares = float(forest["base"].double().numpy() @ output), np.zeros(rows.shape)
    for tree in range(len(forest["columns"])):
        columns, thresholds = forest["columns"][tree], forest["thresholds"][tree]
        leaves = leaves_of(trained, columns, thresholds)
        for place in np.flatnonzero(output):
            values = output[place] * forest["values"][tree, place].double().numpy()
            if not values.any():
                continue
            counts = np.bincount(leaves[:, place], minlength=len(values))
            which = columns[place].numpy().astype(np.int64)
            usual, each, looked_at = _one_tree(rows, counts, which, thresholds[place].numpy(), values)
            base += usual
            for column, share in zip(looked_at.reshape(-1, looked_at.shape[-1]).T, each, strict=True):
                np.add.at(shares.T, column, share)
    return base, shares


def _one_tree(
    rows: NDArray[np.float32],
    counts: NDArray[np.int64],
    columns: NDArray[np.int64],
    thresholds: NDArray[np.float32],
    values: Floats,
) -> tuple[float, Floats, NDArray[np.int64]]:
    """The tree's mean, [d, 2^d, m] shares of the columns at each place of each leaf's path, and [2^d, d] these."""
    width = len(values)
    depth = width.bit_length() - 1
    leaf = np.arange(width)
    goes, share, looked_at = np.ones((depth, width, len(rows))), np.ones((depth, width)), np.zeros((width, depth), int)
    for level in range(depth):
        node = leaf >> (depth - level)
        child = leaf >> (depth - level - 1)
        place = 2**level - 1 + node
        below = counts.reshape(2 ** (level + 1), -1).sum(axis=1)
        both = below.reshape(-1, 2).sum(axis=1)[node]
        share[level] = np.divide(below[child], both, out=np.full(width, 0.5), where=both > 0)
        looked_at[:, level] = columns[place]
        goes[level] = ((rows[:, columns[place]] >= thresholds[place]) == (child & 1)[None]).T
    usual = float(values @ share.prod(axis=0))
    for level in range(depth):  # a column that was met before counts at the first place
        for before in range(level):
            same = looked_at[:, level] == looked_at[:, before]
            goes[before, same] *= goes[level, same]
            share[before, same] *= share[level, same]
            goes[level, same], share[level, same] = 1.0, 1.0
    points, weights = np.polynomial.legendre.leggauss((depth + 1) // 2)
    found = np.zeros(goes.shape)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        mixed = point * goes + (1 - point) * share[:, :, None]
        # Products of all others, without dividing by what may be 0.
        first = np.concatenate([np.ones_like(mixed[:1]), mixed[:-1].cumprod(axis=0)])
        rest = np.concatenate([mixed[:0:-1].cumprod(axis=0)[::-1], np.ones_like(mixed[:1])])
        found += weight * first * rest
    return usual, found * (goes - share[:, :, None]) * values[:, None], looked_at


def portable_forest(
    forest: Tensors, principal: NDArray[np.float32], schema: Schema, dim: int, seed: int
) -> dict[str, Any]:
    """A forest, and how its columns are made, as plain values and arrays; arguments as of ``portable_columns``."""
    graphs = {"columns": "graphs", "dim": dim, "seed": seed}
    return {
        **(graphs if schema.task == "graph" else portable_columns(principal, schema, dim, seed)),
        "kind": "trees", "forest": {name: each.numpy() for name, each in forest.items()},
        "two": len(forest["base"]) < schema.num_classes, "classes": schema.num_classes,
    }  # fmt: skip
