"""FedRidge's features φ: a node's own, and those of its neighbourhood, by fixed rules that all clients share.

Nothing is trained. Rows are scaled to length 1, so that silos of any size and unit speak of the same thing. What is
wider than a bound is projected at random before it is propagated (both are linear), so that wide sparse features never
become dense.

Sources: Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019 (propagated features); Zhu et al., "Beyond
Homophily in Graph Neural Networks", NeurIPS 2020 (own and neighbours' features apart); Kane and Nelson, "Sparser
Johnson-Lindenstrauss Transforms", JACM 2014 (the projection); Rahimi and Recht, "Random Features for Large-Scale Kernel
Machines", NeurIPS 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.models.view import GraphTensors, Matrix, add_weighted, dense_if_filled, weighted
from graphsilo.random import numpy_generator

Kind: TypeAlias = Literal["mean", "sgc", "separate"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HOPS: dict[Kind, int] = {"mean": 3, "sgc": 2, "separate": 2}

CONSTANT = 0.1
"""The last column of φ, whose weight is a bias."""
BLOCK = 4096
"""Rows that are dense at once."""
_SPREAD = 4
"""Entries of the projection that a raw feature has."""


@dataclass(frozen=True)
class Recipe:
    """How φ is made.

    Attributes:
        kind: ``mean``: of X, ÂX, …, Â^h X; ``sgc``: Â^h X; ``separate``: X, NX, …, N^h X side by side.
        hops: h.
        dim: Most columns before the constant and the random ones; 0 for no bound.
        random: Random ReLU features of these, appended.
        seed: Of the projection and the random features.
    """

    kind: Kind
    hops: int
    dim: int
    random: int
    seed: int

    def base_width(self, num_features: int, *, graphs: bool = False) -> int:
        """Columns of a node's row."""
        whole = num_features * (self.hops + 1 if self.kind == "separate" else 1)
        most = max(1, self.dim // 2) if graphs else self.dim
        return min(whole, most) if self.dim else whole

    def width(self, num_features: int, *, graphs: bool = False) -> int:
        """p, columns of φ: the node's (a graph's: their mean and their sum), the constant, the random ones."""
        return self.base_width(num_features, graphs=graphs) * (2 if graphs else 1) + 1 + self.random


class Features:
    """φ of all items of a graph or a collection, [items, p]; made once.

    Args:
        data: The graph.
        recipe: How.
        size: Graphs: nodes of a usual one, which their sums are divided by.
    """

    def __init__(self, data: GraphTensors, recipe: Recipe, size: float = 1.0):
        self.recipe = recipe
        self._graphs = data.collection is not None
        key = ("ridge features", recipe.kind, recipe.hops, recipe.dim, recipe.seed, size if self._graphs else None)
        self.base: Matrix = data.cached(
            key, lambda: _pooled(data, recipe, size) if self._graphs else _nodes(data, recipe)
        )
        self.width = recipe.width(data.num_features, graphs=self._graphs)

    def times(self, weights: Tensor) -> Tensor:
        """φ @ weights, [items, C] float32. ``weights``: [p, C]."""
        columns = self.base.shape[1]
        right = weights.float().numpy()
        found = np.asarray(self.base @ right[:columns], dtype=np.float32) + np.float32(CONSTANT) * right[columns]
        if self.recipe.random:
            draw = self._directions()
            for start in range(0, len(found), BLOCK):
                rows = slice(start, start + BLOCK)
                found[rows] += self._random(self._dense(rows), draw) @ right[columns + 1 :]
        return torch.from_numpy(found)

    def blocks(
        self, items: NDArray[np.int64], dtype: type[np.floating[Any]] = np.float64
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Some items and their rows, [at most ``BLOCK``, p], until all were there."""
        draw = self._directions() if self.recipe.random else None
        for start in range(0, len(items), BLOCK):
            part = items[start : start + BLOCK]
            base = self._dense(part)
            columns = [base, np.full((len(part), 1), CONSTANT)]
            if draw is not None:
                columns.append(self._random(base, draw))
            yield part, torch.from_numpy(np.concatenate(columns, axis=1, dtype=dtype))

    def _dense(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        part = self.base[rows]
        return np.asarray(part.toarray() if sp.issparse(part) else part)

    def _directions(self) -> NDArray[np.float32]:
        draw = numpy_generator(self.recipe.seed, "ridge", "random features")
        return draw.standard_normal((self.base.shape[1], self.recipe.random), dtype=np.float32)

    def _random(self, base: NDArray[np.float32], directions: NDArray[np.float32]) -> NDArray[np.float32]:
        found = base @ directions
        return np.asarray(np.maximum(found, 0.0, out=found) * np.sqrt(2.0 / self.recipe.random), dtype=np.float32)


def unit_rows(matrix: Matrix) -> Matrix:
    """A matrix with rows of length 1; a row of zeros stays."""
    if sp.issparse(matrix):
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64)).ravel()
        return sp.csr_matrix(sp.diags(_inverse(lengths)) @ matrix, dtype=np.float32)
    scaled = np.empty_like(matrix, dtype=np.float32)
    for start in range(0, len(matrix), BLOCK):
        rows = slice(start, start + BLOCK)
        part = np.asarray(matrix[rows], dtype=np.float64)
        scaled[rows] = part * _inverse(np.sqrt(np.einsum("ij,ij->i", part, part)))[:, None]
    return scaled


def projection(num_features: int, width: int, seed: int, block: int = 0) -> sp.csr_matrix:
    """[num_features, width] random signs, a few in each row: rows keep their lengths and angles, roughly."""
    draw = numpy_generator(seed, "ridge", "projection", block)
    columns = draw.integers(0, width, size=(num_features, _SPREAD))
    signs = draw.integers(0, 2, size=(num_features, _SPREAD)) * 2.0 - 1.0
    rows = np.repeat(np.arange(num_features), _SPREAD)
    values = (signs / np.sqrt(_SPREAD)).ravel().astype(np.float32)
    return sp.csr_matrix((values, (rows, columns.ravel())), shape=(num_features, width))


def _projected(matrix: Matrix, width: int, seed: int, block: int = 0) -> Matrix:
    found: Matrix = matrix @ projection(matrix.shape[1], width, seed, block)
    return dense_if_filled(found) if sp.issparse(found) else found


def _inverse(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def _nodes(data: GraphTensors, recipe: Recipe) -> Matrix:
    """φ of the nodes without the constant, rows of length 1."""
    own = unit_rows(data.graph.features)
    width = recipe.base_width(data.num_features, graphs=data.collection is not None)
    narrow = width < data.num_features * (recipe.hops + 1 if recipe.kind == "separate" else 1)
    if not narrow and sp.issparse(own) and recipe.hops and data.hop_cost(1, "gcn") >= data.num_features:
        own = np.asarray(own.toarray())  # one hop fills it: products of sparse matrices would be the dearer way there
    if recipe.kind == "separate":
        return unit_rows(_apart(data, own, recipe, width) if narrow else _beside(data, own, recipe.hops))
    current = _projected(own, width, recipe.seed) if narrow else own
    total = weighted(current, 1.0)
    for _ in range(recipe.hops):
        current = data.step(current)
        total = current if recipe.kind == "sgc" else add_weighted(total, current, 1.0)
    return unit_rows(total)


def _apart(data: GraphTensors, own: Matrix, recipe: Recipe, width: int) -> Matrix:
    """X, NX, …, N^h X of unit rows, each projected by a matrix of its own, added up: their projection side by side."""
    total: Matrix | None = None
    for level in range(recipe.hops, -1, -1):  # a dense one first: it is what the others are added to
        block = _projected(own, width, recipe.seed, level)
        for _ in range(level):
            block = data.step(block, "mean")
        block = unit_rows(block)
        total = block if total is None else add_weighted(total, block, 1.0)
    assert total is not None
    return total


def _beside(data: GraphTensors, own: Matrix, hops: int) -> Matrix:
    current, blocks = own, [own]
    for _ in range(hops):
        current = data.step(current, "mean")
        blocks.append(unit_rows(current))
    if all(sp.issparse(block) for block in blocks):
        return sp.csr_matrix(sp.hstack([sp.csr_matrix(block) for block in blocks]))
    return np.concatenate([block.toarray() if sp.issparse(block) else block for block in blocks], axis=1)


def _pooled(data: GraphTensors, recipe: Recipe, size: float) -> Matrix:
    """φ of graphs without the constant: the mean of a graph's nodes, and their sum over ``size``."""
    assert data.collection is not None
    pointer = data.collection.pointer
    sizes = np.diff(pointer)
    ones = np.ones(int(pointer[-1]), dtype=np.float32)
    total = sp.csr_matrix((ones, np.arange(len(ones)), pointer), shape=(len(sizes), len(ones))) @ _nodes(data, recipe)
    sums = np.asarray(total.toarray() if sp.issparse(total) else total, dtype=np.float32)
    return np.concatenate([sums / np.maximum(sizes, 1)[:, None], sums / size], axis=1, dtype=np.float32)
