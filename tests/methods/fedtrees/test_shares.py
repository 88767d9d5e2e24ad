"""Shares of a forest are its Shapley values."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest
import torch

from graphsilo.methods.fedtrees.shares import tree_shares


def test_shapley_values_of_a_tree_are_those_of_the_definition():
    draw = np.random.default_rng(0)
    depth, width = 3, 4
    columns = torch.from_numpy(draw.integers(0, width, (2, 1, 2**depth - 1)).astype(np.float32))
    forest = {
        "base": torch.tensor([0.5]), "columns": columns, "thresholds": torch.randn(2, 1, 7) * 0.5,
        "values": torch.randn(2, 1, 8),
    }  # fmt: skip
    rows, trained = draw.normal(size=(5, width)).astype(np.float32), draw.normal(size=(60, width)).astype(np.float32)

    def expect(tree: int, row: np.ndarray, known: tuple[int, ...], node: int, level: int, here: np.ndarray) -> float:
        if level == depth:
            return float(forest["values"][tree, 0, node])
        place = 2**level - 1 + node
        column, limit = int(columns[tree, 0, place]), forest["thresholds"][tree, 0, place].numpy()
        right = here[:, column] >= limit
        if column in known:
            turn = int(row[column] >= limit)
            return expect(tree, row, known, 2 * node + turn, level + 1, here[right == bool(turn)])
        share = right.mean() if len(here) else 0.5
        left = expect(tree, row, known, 2 * node, level + 1, here[~right])
        return (1 - share) * left + share * expect(tree, row, known, 2 * node + 1, level + 1, here[right])

    base, found = tree_shares(rows, trained, forest, np.array([2.0]))
    for row, each in zip(rows, found, strict=True):
        value = {
            known: 1.0 + 2.0 * sum(expect(tree, row, known, 0, 0, trained) for tree in range(2))
            for size in range(width + 1)
            for known in combinations(range(width), size)
        }
        wanted = [
            sum(
                factorial(len(s)) * factorial(width - len(s) - 1) / factorial(width)
                * (value[tuple(sorted((*s, k)))] - value[s])
                for s in value if k not in s
            )
            for k in range(width)
        ]  # fmt: skip
        assert each == pytest.approx(wanted, abs=1e-9)
        assert base + each.sum() == pytest.approx(value[tuple(range(width))], abs=1e-9)
