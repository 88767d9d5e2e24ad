"""What a model sees of a graph: constant tensors, computed once, for all rows or only for those asked for.

A full-batch step needs the loss on training nodes only, hence the last layer only on these, the layer before on
their neighbours, and so on. A View holds exactly those rows, so that restricting the work changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.models.operators import (
    DenseOperator,
    Operator,
    SparseOperator,
    entries_of,
    operator,
    product,
)


class Relation(NamedTuple):
    """The mean over the links of one relation, see :func:`graphsilo.models.relations.relation_matrix`."""

    number: int
    turned: bool = False


Norm: TypeAlias = Literal["gcn", "mean", "sum", "row", "loops", "relations"] | Relation
"""gcn: D̃^-1/2 (A+I) D̃^-1/2; mean: D^-1 A; sum: A; row: D̃^-1 (A+I); loops: A + I (attention); relations: 1 where the
tables of links have a row, in either direction."""

Matrix: TypeAlias = "sp.csr_matrix | NDArray[np.float32]"

T = TypeVar("T")

_MARKED = 64
"""Marking one number of so many is faster than sorting them, ten times or more where each comes several times."""


def normalise(adjacency: sp.csr_matrix, norm: Norm) -> sp.csr_matrix:
    """[n, n] float32 CSR ready to multiply embeddings by; ``adjacency``: [target, source].

    Weights of edges enter as they are: degrees are sums of weights, ``mean`` is the weighted mean. Existing self-loops
    count once, with their own weight, as in PyG's ``gcn_norm``; under ``mean`` and ``sum`` they do not count. An
    isolated node keeps its own row under ``gcn`` and ``row`` (weight 1), and has an empty row under ``mean`` and
    ``sum``.

    Example:
        >>> import scipy.sparse as sp
        >>> path = sp.csr_matrix(([1.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2))
        >>> normalise(path, "gcn").toarray().tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    own = adjacency.diagonal()
    bare = adjacency - _diagonal(own)
    bare.eliminate_zeros()
    loops = np.where(own > 0, own, 1.0)  # float64, so that degrees are added up in it
    matrix = bare + _diagonal(loops) if norm in ("gcn", "row", "loops") else bare
    if norm in ("sum", "loops"):
        return _sort_columns(matrix)
    degree = np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()
    with np.errstate(divide="ignore"):
        inverse = np.where(degree > 0, 1.0 / degree, 0.0)
    scale = np.sqrt(inverse) if norm == "gcn" else inverse
    data = np.repeat(scale, np.diff(matrix.indptr)) * matrix.data
    if norm == "gcn":
        data *= scale[matrix.indices]
    return _sort_columns(sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape))


def _diagonal(values: NDArray[np.floating]) -> sp.csr_matrix:
    count = len(values)
    return sp.csr_matrix(
        (values, np.arange(count, dtype=np.int32), np.arange(count + 1, dtype=np.int32)), (count, count)
    )


def _sort_columns(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """With ascending columns from the start: operators sort in place, and what is drawn must not depend on that."""
    found = sp.csr_matrix(matrix, dtype=np.float32)
    found.sort_indices()
    return found


class _Cache:
    """Keeps what is computed once."""

    def __init__(self) -> None:
        self._cache: dict[tuple[Any, ...], object] = {}

    def cached(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """The value under ``key``, made at first use. Models keep their own constants here."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]  # type: ignore[return-value]

    def find(self, key: tuple[Any, ...]) -> object | None:
        """The value under ``key``; None where it was not made yet."""
        return self._cache.get(key)


class GraphTensors(_Cache):
    """The constant tensors of one graph or collection on one device. Everything derived is computed once.

    Args:
        graph: A graph, or many small ones.
        device: Where the tensors live.
        dtype: float32 in training; float64 in tests of gradients.
    """

    def __init__(
        self,
        graph: Graph | GraphCollection,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        self.collection = graph if isinstance(graph, GraphCollection) else None
        self.graph: Graph = graph.union
        self.device, self.dtype = torch.device(device), dtype
        self.num_nodes, self.num_features = self.graph.num_nodes, self.graph.num_features

    def clear(self) -> None:
        """Forget everything derived; it is made again when it is asked for."""
        self._cache.clear()

    def forget(self, name: str, but: Collection[tuple[Any, ...]] = ()) -> None:
        """Forget what is kept under keys that begin with this name."""
        for key in [key for key in self._cache if key[0] == name and key not in but]:
            del self._cache[key]

    def matrix(self, norm: Norm) -> sp.csr_matrix:
        """The normalised adjacency of the whole graph, [n, n] scipy CSR."""
        if pattern_of(norm) == "relations":
            from graphsilo.models.relations import matrix_of

            return matrix_of(self, norm)
        return self.cached(("matrix", norm), lambda: normalise(self.graph.adjacency(), norm))

    @property
    def full(self) -> View:
        """All rows."""
        return self.cached(("full",), lambda: View(self, None, kept=True))

    def view(self, items: NDArray[np.int64] | None) -> View:
        """Only what is needed to compute these items (nodes; graphs of a collection), in this order."""
        return self.full if items is None else View(self, np.asarray(items, dtype=np.int64))

    def kept_view(self, items: NDArray[np.int64]) -> View:
        """The same, remembered: for items that are asked for again and again, such as the training nodes."""
        items = np.asarray(items, dtype=np.int64)
        return self.cached(("view", items.tobytes()), lambda: View(self, items, kept=True))


def tensors_of(graph: Graph | GraphCollection, *, device: torch.device | str = "cpu") -> GraphTensors:
    """The tensors of a graph, made once in a process and kept as long as the graph is."""
    # On the graph itself, so that both go together; a frozen dataclass still has a dictionary.
    kept: dict[str, GraphTensors] = graph.__dict__.setdefault("_tensors", {})
    key = str(device)
    if key not in kept:
        kept[key] = GraphTensors(graph, device=device)
    return kept[key]


def forget_tensors(graph: Graph | GraphCollection) -> None:
    """Drop what ``tensors_of`` made, at once: tensors and views hold each other, and would wait for the collector."""
    for tensors in graph.__dict__.pop("_tensors", {}).values():
        tensors.clear()


class View(_Cache):
    """Some rows of a graph, and what it takes to compute a model's output on them.

    Attributes:
        data: The graph's tensors.
        items: Numbers of the rows (nodes, or graphs of a collection), or None for all.
        kept: Whether it is used many times, so that what is made for it once pays.
        live: Whether its features need a gradient (``models.generated``).
    """

    live = False

    def __init__(self, data: GraphTensors, items: NDArray[np.int64] | None, *, kept: bool = False):
        super().__init__()
        self.data, self.items, self.kept = data, items, kept
        collection = data.collection
        if collection is None or items is None:
            self._nodes = items
            pointer = None if collection is None else collection.pointer
        else:
            self._nodes, sizes = entries_of(collection.pointer, items)
            pointer = np.concatenate([[0], np.cumsum(sizes)])
        self._pointer = pointer

    @property
    def device(self) -> torch.device:
        return self.data.device

    @property
    def is_full(self) -> bool:
        """Whether all rows of the graph are computed, so that every layer has the same ones."""
        return self._nodes is None

    @property
    def nodes(self) -> NDArray[np.int64]:
        """[rows] their numbers in the graph."""
        return np.arange(self.data.num_nodes) if self._nodes is None else self._nodes

    @property
    def num_rows(self) -> int:
        """Nodes whose embedding the last layer computes."""
        return self.data.num_nodes if self._nodes is None else len(self._nodes)

    @property
    def num_items(self) -> int:
        """Rows of the model's output."""
        return self.num_rows if self._pointer is None else len(self._pointer) - 1

    def _frontier(self, norm: Norm, depth: int) -> list[NDArray[np.int64] | None]:
        """Rows per layer, outermost first; the last entry is the view's own rows. None means all rows."""
        norm = pattern_of(norm)

        def make() -> list[NDArray[np.int64] | None]:
            if self._nodes is None:
                return [None] * (depth + 1)
            if self.data.collection is not None:
                return [self._nodes] * (depth + 1)  # whole components: no neighbour lies outside
            rows: list[NDArray[np.int64] | None] = [self._nodes]
            matrix = self.data.matrix(norm)
            inner = self._nodes
            for _ in range(depth):
                # Rows needed below: neighbours, and the row itself for models with a self term.
                wider = distinct(self.data.num_nodes, matrix[inner].indices, inner)
                # Once nothing is added the rows are shared, and with them the operators of all deeper layers.
                inner = inner if np.array_equal(wider, inner) else wider
                rows.insert(0, inner)
            return rows

        return self.cached(("frontier", norm, depth), make)

    def blocks(self, norm: Norm, depth: int) -> list[SparseOperator]:
        """One operator per layer, first layer first: block l maps rows of layer l to rows of layer l + 1."""

        def make() -> list[SparseOperator]:
            rows = self._frontier(norm, depth)
            matrix = self.data.matrix(norm)
            made: dict[int, SparseOperator] = {}
            blocks: list[SparseOperator] = []
            for source, target in pairwise(rows):
                key = id(source) if source is target else -len(blocks) - 1
                if key not in made:
                    part = matrix if target is None else matrix[target]
                    part = part if source is None else part[:, source]
                    made[key] = SparseOperator(part, device=self.data.device, dtype=self.data.dtype)
                blocks.append(made[key])
            return blocks

        if self._nodes is None:
            shared = self.data.cached(("blocks", norm), lambda: self._one_block(norm))
            return [shared] * depth
        if self.of_graphs:
            return [self.cached(("block", norm), lambda: self.data.full.blocks(norm, 1)[0].block(self.nodes))] * depth
        return self.cached(("blocks", norm, depth), make)

    @property
    def of_graphs(self) -> bool:
        """Whether these are some graphs of a collection, which no link leaves."""
        return self.data.collection is not None and self._nodes is not None

    def _one_block(self, norm: Norm) -> SparseOperator:
        return SparseOperator(self.data.matrix(norm), device=self.data.device, dtype=self.data.dtype)

    def own_rows(self, norm: Norm, depth: int) -> list[Tensor | None]:
        """Per layer, where its output rows stand among its input rows (for self terms); None means the same rows."""

        def make() -> list[Tensor | None]:
            rows = self._frontier(norm, depth)
            return [
                None
                if source is None or target is None or source is target
                else torch.from_numpy(np.searchsorted(source, target)).to(self.data.device)
                for source, target in pairwise(rows)
            ]

        return self.cached(("own", norm, depth), make)

    def needed_rows(self, norm: Norm, depth: int) -> NDArray[np.int64] | None:
        """Numbers of the rows that ``depth`` layers below the view's own need, ascending; None for all."""
        return self._frontier(norm, depth)[0]

    def item_rows(self, norm: Norm, depth: int) -> Tensor | None:
        """Where the view's own rows stand among the rows that ``depth`` layers below need; None: they are the same."""

        def make() -> Tensor | None:
            needed = self._frontier(norm, depth)[0]
            if needed is None or self._nodes is None or needed is self._nodes:
                return None
            return torch.from_numpy(np.searchsorted(needed, self._nodes)).to(self.data.device)

        return self.cached(("item rows", norm, depth), make)

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        """X for the rows that ``depth`` more layers will need, [rows, d]."""
        norm = pattern_of(norm)

        def make() -> Operator:
            rows = self._frontier(norm, depth)[0] if depth else self._nodes
            matrix = self.data.graph.features
            return operator(matrix if rows is None else matrix[rows], self.data.device, self.data.dtype)

        if self._nodes is None:
            return self.data.cached(("features",), make)
        return self.cached(("features", norm, depth), make)

    def first_layer(self, norm: Norm, depth: int) -> Operator:
        """Block 0 times X as one operator, [rows of layer 1, d]: the constant part of a model's first layer."""
        place, key = self.first_layer_at(norm, depth)

        def make() -> Operator:
            if self.of_graphs and isinstance(self.data.full.features(), DenseOperator):
                whole = self.data.full.first_layer(norm, depth)  # no link leaves a graph: some of its rows
                return DenseOperator(whole.dense()[torch.from_numpy(self.nodes).to(self.data.device)])
            return product(self.blocks(norm, depth)[0], self.features(norm, depth))

        return place.cached(key, make)

    def first_layer_at(self, norm: Norm, depth: int) -> tuple[GraphTensors | View, tuple[Any, ...]]:
        """Who keeps a first layer's operator, under which key."""
        return (self.data, ("first", norm)) if self._nodes is None else (self, ("first", norm, depth))

    def hops(self, levels: int, norm: Norm = "gcn") -> list[Operator]:
        """[X, ÂX, …, Â^levels X] on the view's rows: what decoupled models precompute."""

        return [self.hop(level, norm) for level in range(levels + 1)]

    def hop(self, level: int, norm: Norm = "gcn") -> Operator:
        """Â^level X on the view's rows, without keeping the lower levels; factors where that is less work.

        Propagation fills sparse features: each further hop of a text's words costs more memory and more time in every
        step. With factors a step propagates W's columns instead, X W first, and nothing is ever filled.
        """
        if level == 0:
            return self.features()
        from graphsilo.models.hops import hop

        return hop(self, level, norm)

    def constant(self, key: tuple[Any, ...], make: Callable[[GraphTensors], Matrix]) -> Operator:
        """The view's rows of a [n, d] matrix that ``make`` computes once for the whole graph."""
        return self.of_links(key, make, "gcn", 0)

    def mixed(self, key: tuple[Any, ...], weights: Sequence[float], make: Callable[[GraphTensors], Matrix]) -> Operator:
        """Σ_k weights[k] Â^k X, which ``make`` computes where features and links are constant."""
        return self.constant(key, make)

    def of_links(
        self, key: tuple[Any, ...], make: Callable[[GraphTensors], Matrix], norm: Norm, depth: int
    ) -> Operator:
        """The rows that ``depth`` more layers will need of a [n, d] matrix that ``make`` computes once from links."""

        def rows() -> Operator:
            matrix, wanted = self.data.cached(key, lambda: make(self.data)), self._frontier(norm, depth)[0]
            return operator(matrix if wanted is None else matrix[wanted], self.data.device, self.data.dtype)

        return self.cached((*key, norm, depth), rows)

    def pool(self, embeddings: Tensor, how: Literal["sum", "mean"] = "sum") -> Tensor:
        """Node embeddings [rows, p] to graph embeddings [graphs, p]."""
        if self._pointer is None:
            raise ValueError("pool needs a view of a graph collection")
        pointer = self._pointer

        def make() -> SparseOperator:
            graphs, nodes = len(pointer) - 1, int(pointer[-1])
            sizes = np.diff(pointer)
            values = np.ones(nodes) if how == "sum" else np.repeat(1.0 / np.maximum(sizes, 1), sizes)
            matrix = sp.csr_matrix((values.astype(np.float32), np.arange(nodes), pointer), shape=(graphs, nodes))
            return SparseOperator(matrix, device=self.data.device, dtype=self.data.dtype)

        return self.cached(("pool", how), make) @ embeddings


def pattern_of(norm: Norm) -> Norm:
    """By which matrix it is told what rows a layer needs: of a relation's, those that any of them does."""
    return "relations" if isinstance(norm, Relation) else norm


def distinct(count: int, *numbers: NDArray[np.integer]) -> NDArray[np.int64]:
    """Numbers below ``count``, ascending and each once."""
    if sum(map(len, numbers)) * _MARKED < count:
        return np.unique(np.concatenate(numbers)).astype(np.int64)
    marks = np.zeros(count, dtype=bool)
    for each in numbers:
        marks[each] = True
    return np.flatnonzero(marks)
