"""FedRidge's features φ: a node's own, and those of its neighbourhood, by fixed rules that all clients share.

Nothing is trained. Rows are scaled to length 1, so that silos of any size and unit speak of the same thing. What is
wider than a bound is projected at random before it is propagated (both are linear), so that wide sparse features never
become dense. What is small is dense from the start, since that is faster: at most ``SMALL`` numbers.

Sources: Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019 (propagated features); Zhu et al., "Beyond
Homophily in Graph Neural Networks", NeurIPS 2020 (own and neighbours' features apart); Kane and Nelson, "Sparser
Johnson-Lindenstrauss Transforms", JACM 2014 (the projection); Rahimi and Recht, "Random Features for Large-Scale Kernel
Machines", NeurIPS 2007.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.sources import scratch
from graphsilo.errors import UnsupportedError
from graphsilo.models.colours import colour_counts
from graphsilo.models.columns import BLOCK, inverse_lengths, projection, unit_rows
from graphsilo.models.hops import add_weighted, dense_if_filled, hop_cost, step
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import GraphTensors, Matrix, Norm
from graphsilo.random import numpy_generator

Kind: TypeAlias = Literal["mean", "sgc", "separate", "wl", "columns"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HOPS: dict[Kind, int] = {"mean": 3, "sgc": 2, "separate": 2, "wl": 3, "columns": 2}

CONSTANT = 0.1
"""The last column of φ, whose weight is a bias."""
COLOURS = 4096
"""Columns of ``wl`` where nothing bounds them."""
_KEY = "ridge features"
SMALL = 1 << 22
"""Numbers of a matrix that is dense however few of them are not zero: 16 MB."""
_AT_ONCE, _FEWEST = 1 << 17, 16
"""Numbers that are propagated at once (512 kB), and columns, whatever they take."""
_DENSE_PROJECTION = 1 << 20
"""Numbers of a projection that is multiplied as a dense matrix: what a processor's cache holds."""


@dataclass(frozen=True)
class Recipe:
    """How φ is made.

    Attributes:
        kind: ``mean``: of X, ÂX, …, Â^h X; ``sgc``: Â^h X; ``separate``: X, NX, …, N^h X side by side; ``wl``, of
            graphs: counts of neighbourhoods that look alike (``colours``); ``columns``: those of tables, on one scale.
        hops: h.
        dim: Most columns before the constant and the random ones; 0 for no bound.
        random: Random ReLU features of these, appended.
        seed: Of the projection and the random features.
        centred: ``mean``, ``sgc``, of nodes: whether a row loses most of the mean of its own entries, before its length
            is 1: what rows of many positive entries have in common.
        columns: ``columns``: how many, and ``largest`` what the squared length of a row of them is at most.
    """

    kind: Kind
    hops: int
    dim: int
    random: int
    seed: int
    centred: bool = False
    columns: int = 0
    largest: float = 1.0

    def _whole(self, num_features: int) -> int:
        """Columns of a node's row that nothing bounds."""
        return num_features * (self.hops + 1 if self.kind == "separate" else 1)

    def base_width(self, num_features: int, *, graphs: bool = False) -> int:
        """Columns of a node's row; of ``wl``, a graph's."""
        if self.kind == "columns":
            return self.columns
        if self.kind == "wl":
            return self.dim or COLOURS
        widest = max(1, self.dim // 2) if graphs else self.dim
        return min(self._whole(num_features), widest) if self.dim else self._whole(num_features)

    def projects(self, num_features: int, *, graphs: bool = False) -> bool:
        """Whether rows are projected onto fewer columns: they depend on how many, and on the seed."""
        fixed = self.kind in ("wl", "columns")
        return fixed or self.base_width(num_features, graphs=graphs) < self._whole(num_features)

    def width(self, num_features: int, *, graphs: bool = False) -> int:
        """p, columns of φ: the node's (a graph's: their mean and their sum), the constant, the random ones."""
        return self.constant(num_features, graphs=graphs) + 1 + self.random

    def constant(self, num_features: int, *, graphs: bool = False) -> int:
        """The number of the constant column."""
        return self.base_width(num_features, graphs=graphs) * (2 if graphs and self.kind != "wl" else 1)

    def blocks(self, num_features: int, sums: float | None = None) -> list[list[float]]:
        """Columns that belong together: how many, and their largest squared length in a row.

        Args:
            num_features: Raw features.
            sums: Graphs: the largest squared length of the part that is a sum over nodes; None for nodes.
        """
        width = self.base_width(num_features, graphs=sums is not None)
        found = [[float(width), self.largest], *([] if sums is None or self.kind == "wl" else [[float(width), sums]])]
        base, length = width * len(found), sum(bound for _, bound in found)
        found.append([1.0, CONSTANT**2])
        if self.random:
            # The largest stretch of a Gaussian matrix; 6 deviations beyond it come once in 10^8 seeds.
            stretch = 1.0 + np.sqrt(base / self.random) + 6.0 / np.sqrt(self.random)
            found.append([float(self.random), float(2.0 * length * stretch**2)])
        return found


def require_plain(recipe: Recipe) -> None:
    """Refuse to export random features.

    Raises:
        UnsupportedError: There are some.
    """
    if recipe.random:
        raise UnsupportedError("a ridge with random features (method.random_features) has no export without graphsilo.")


class Features:
    """φ of all items of a graph or a collection, [items, p]; made once.

    Args:
        data: The graph.
        recipe: How.
        size: Graphs: nodes of a usual one, which their sums are divided by.
        base: [n, ...] φ without the constant and the random ones, where it was made already.
    """

    def __init__(self, data: GraphTensors, recipe: Recipe, size: float = 1.0, base: Matrix | None = None):
        self.recipe = recipe
        self._graphs = data.collection is not None
        self.base: Matrix = base if base is not None else data.cached(
            key_of(data, recipe, size), lambda: _graphs(data, recipe, size) if self._graphs else _nodes(data, recipe)
        )  # fmt: skip
        self.width = recipe.width(data.num_features, graphs=self._graphs)

    @staticmethod
    def forget_others(data: GraphTensors, recipes: Iterable[Recipe], size: float = 1.0) -> None:
        """Drop what was made for a graph but by these recipes."""
        data.forget(_KEY, but={key_of(data, recipe, size) for recipe in recipes})

    def times(self, weights: Tensor, items: NDArray[np.int64] | None = None) -> Tensor:
        """φ @ weights for some items, or for all, [items, C] float32. ``weights``: [p, C]."""
        columns, right = self.base.shape[1], weights.float()
        found = torch.empty(self.base.shape[0] if items is None else len(items), right.shape[1])
        draw = self._directions() if self.recipe.random else None
        for start in range(0, len(found), BLOCK):
            place = slice(start, start + BLOCK)
            part = self.base[place if items is None else items[place]]
            if sp.issparse(part) and draw is None:
                found[place] = torch.from_numpy(part @ right[:columns].numpy())
                continue
            base = dense(part)
            found[place] = torch.from_numpy(base) @ right[:columns]
            if draw is not None:
                found[place] += torch.from_numpy(self._random(base, draw)) @ right[columns + 1 :]
        return found.add_(right[columns], alpha=CONSTANT)

    def blocks(
        self, items: NDArray[np.int64], dtype: type[np.floating[Any]] = np.float64
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Some items and their rows, [at most ``BLOCK``, p], until all were there."""
        draw = self._directions() if self.recipe.random else None
        for start in range(0, len(items), BLOCK):
            part = items[start : start + BLOCK]
            base = dense(self.base[part])
            columns = [base, np.full((len(part), 1), CONSTANT)]
            if draw is not None:
                columns.append(self._random(base, draw))
            yield part, torch.from_numpy(np.concatenate(columns, axis=1, dtype=dtype))

    def _directions(self) -> NDArray[np.float32]:
        draw = numpy_generator(self.recipe.seed, "ridge", "random features")
        return draw.standard_normal((self.base.shape[1], self.recipe.random), dtype=np.float32)

    def _random(self, base: NDArray[np.float32], directions: NDArray[np.float32]) -> NDArray[np.float32]:
        found = base @ directions
        return np.asarray(np.maximum(found, 0.0, out=found) * np.sqrt(2.0 / self.recipe.random), dtype=np.float32)


def dense(matrix: Matrix) -> NDArray[np.float32]:
    """The same with its zeros."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def key_of(data: GraphTensors, recipe: Recipe, size: float = 1.0) -> tuple[Any, ...]:
    """Under which a graph keeps φ."""
    graphs = data.collection is not None
    # What is not projected is the same for every bound and every seed.
    narrow = (recipe.dim, recipe.seed) if recipe.projects(data.num_features, graphs=graphs) else None
    return (_KEY, recipe.kind, recipe.hops, narrow, size if graphs else None, recipe.centred)


def project(matrix: Matrix, width: int, seed: int, block: int = 0) -> Matrix:
    """Rows projected at random onto ``width`` columns; ``block`` says by which of the draws."""
    thrown = projection(matrix.shape[1], width, seed, block)
    if not sp.issparse(matrix):
        found = scratch.empty((len(matrix), width))
        across = SparseOperator(thrown.T.tocsr())
        for start in range(0, len(matrix), BLOCK):
            part = torch.from_numpy(matrix[start : start + BLOCK]).t().contiguous()
            torch.from_numpy(found[start : start + BLOCK]).copy_(across.mm(part).t())
        return found
    if matrix.shape[0] * width > SMALL or matrix.shape[1] * width > _DENSE_PROJECTION:
        return _small_or_filled(matrix @ thrown)
    return SparseOperator(matrix).mm(torch.from_numpy(thrown.toarray())).numpy()


def _small_or_filled(matrix: sp.csr_matrix) -> Matrix:
    return np.asarray(matrix.toarray()) if matrix.shape[0] * matrix.shape[1] <= SMALL else dense_if_filled(matrix)


def start_rows(data: GraphTensors, recipe: Recipe) -> Matrix:
    """Rows of length 1 of the nodes as they are before propagation; projected and centred where the recipe says so, but
    those of ``separate``, whose hops are projected each in another way."""
    features = data.graph.features
    own = unit_rows(features, data.cached(("ridge lengths",), lambda: inverse_lengths(features)))
    narrow = recipe.projects(data.num_features, graphs=data.collection is not None)
    if not narrow and sp.issparse(own):
        # Where one hop fills it, products of sparse matrices would be the dearer way there.
        fills = recipe.hops and hop_cost(data, 1, "gcn") >= data.num_features
        own = np.asarray(own.toarray()) if fills else _small_or_filled(own)
    if recipe.kind == "separate":
        return own
    projected = project(own, _width(data, recipe), recipe.seed) if narrow else own
    return unit_rows(_centre(data, recipe, own, projected), in_place=True) if recipe.centred else projected


def _width(data: GraphTensors, recipe: Recipe) -> int:
    return recipe.base_width(data.num_features, graphs=data.collection is not None)


def _centre(data: GraphTensors, recipe: Recipe, raw: Matrix, own: Matrix) -> NDArray[np.float32]:
    # Projecting is linear: what a row loses is projected, too, and nothing sparse becomes dense before.
    width, narrow = _width(data, recipe), own is not raw
    even = projection(data.num_features, width, recipe.seed).sum(axis=0) if narrow else np.ones((1, width))
    lost = np.asarray(raw.sum(axis=1)).reshape(-1, 1) * ((1 - CONSTANT) / data.num_features)
    return np.asarray(dense(own) - lost * np.asarray(even), dtype=np.float32)


def centring_lengths(data: GraphTensors, recipe: Recipe) -> NDArray[np.float64]:
    """[n] what a centred row is multiplied by to have length 1."""
    raw = start_rows(data, replace(recipe, dim=0, centred=False))
    narrow = recipe.projects(data.num_features)
    own = project(raw, _width(data, recipe), recipe.seed) if narrow else raw
    return inverse_lengths(_centre(data, recipe, raw, own)).astype(np.float64)


def _nodes(data: GraphTensors, recipe: Recipe) -> Matrix:
    """φ of the nodes without the constant, rows of length 1."""
    own = start_rows(data, recipe)
    if recipe.kind == "separate":
        narrow = recipe.projects(data.num_features, graphs=data.collection is not None)
        width = _width(data, recipe)
        return _project_hops(data, own, recipe, width) if narrow else _join_hops(data, own, recipe.hops)
    return unit_rows(propagate(data, own, "gcn", recipe.hops, again=recipe.kind == "mean"), in_place=True)


def propagate(data: GraphTensors, matrix: Matrix, norm: Norm, hops: int, *, again: bool = False) -> Matrix:
    """A^hops X; ``again``: X + A (X + A (X + …)), the sum over all hops."""
    current = matrix
    while hops and sp.issparse(current):  # until a hop fills it
        current, hops = step(data, current, norm), hops - 1
        if again:
            current = add_weighted(current, matrix, 1.0)
    if not hops:
        return current
    # A few columns at a time: they stay in the processor's cache for all hops, and nothing else takes room.
    found, operator = scratch.empty(current.shape), SparseOperator(data.matrix(norm))
    rows, columns = current.shape
    own: Any = matrix.tocsc() if sp.issparse(matrix) else matrix
    few = max(_FEWEST, _AT_ONCE // max(rows, 1))
    for start in range(0, columns, few):
        place = slice(start, start + few)
        first = torch.from_numpy(np.ascontiguousarray(dense(own[:, place])))
        part = first if current is matrix else torch.from_numpy(np.ascontiguousarray(dense(current[:, place])))
        for _ in range(hops):
            part = operator.mm(part)
            if again:
                part += first
        found[:, place] = part.numpy()
    return found


def _project_hops(data: GraphTensors, own: Matrix, recipe: Recipe, width: int) -> Matrix:
    """X, NX, …, N^h X of unit rows, each projected by a matrix of its own, added up: their projection side by side."""
    total: Matrix | None = None
    for level in range(recipe.hops, -1, -1):  # a dense one first: it is what the others are added to
        block = propagate(data, project(own, width, recipe.seed, level), "mean", level)
        block = unit_rows(block, in_place=True)
        total = block if total is None else add_weighted(total, block, 1.0)
    assert total is not None
    return unit_rows(total, in_place=True)


def _join_hops(data: GraphTensors, own: Matrix, hops: int) -> Matrix:
    """X, NX, …, N^h X of unit rows."""
    blocks = [own]
    for _ in range(hops):
        blocks.append(propagate(data, blocks[-1], "mean", 1))
    if all(sp.issparse(block) for block in blocks):
        return unit_rows(sp.csr_matrix(sp.hstack([sp.csr_matrix(unit_rows(block)) for block in blocks])))
    rows, columns = own.shape
    found = scratch.empty((rows, columns * len(blocks)))
    for place in range(len(blocks)):
        block = blocks.pop(0)
        part = found[:, place * columns : (place + 1) * columns]
        for start in range(0, rows, BLOCK):
            part[start : start + BLOCK] = dense(block[start : start + BLOCK])
        unit_rows(part, in_place=True)
    return unit_rows(found, in_place=True)


def _graphs(data: GraphTensors, recipe: Recipe, size: float) -> Matrix:
    if recipe.kind != "wl":
        return _pool(data, recipe, size)
    assert data.collection is not None
    return colour_counts(data.collection, recipe.hops, recipe.base_width(data.num_features, graphs=True), recipe.seed)


def _pool(data: GraphTensors, recipe: Recipe, size: float) -> Matrix:
    """φ of graphs without the constant: the mean of a graph's nodes, and their sum over ``size``."""
    assert data.collection is not None
    pointer = data.collection.pointer
    sizes = np.diff(pointer)
    ones = np.ones(int(pointer[-1]), dtype=np.float32)
    total = sp.csr_matrix((ones, np.arange(len(ones)), pointer), shape=(len(sizes), len(ones))) @ _nodes(data, recipe)
    sums = np.asarray(dense(total), dtype=np.float32)
    return np.concatenate([sums / np.maximum(sizes, 1)[:, None], sums / size], axis=1, dtype=np.float32)
