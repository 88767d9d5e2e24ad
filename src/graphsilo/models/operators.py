"""Constant matrices that a model multiplies trainable ones by: features, adjacency, propagated features.

Each operator keeps its transpose, so that a backward pass transposes nothing, and needs no gradient itself.
"""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.models.dense import matmul
from graphsilo.models.precision import is_reduced, keep_precision, match_forward, widen

# One stored entry of a sparse product counts as this many entries of a dense one. On one core it takes as long as 1 to
# 2.5 of them with 64 columns and 2.5 to 5 with 16, depending on the processor. With 3 in place of 5 a round of FedAvg
# with GCN takes a quarter less on PubMed, and within 3 % as long on Cora, Photo, Computers and Physics. The choice is
# by count, never by clock, so that every run makes the same one.
SPARSE_COST = 3.0
SAMPLED = 64
"""How many rows tell how filled a product is, before it is made."""


class Operator(ABC):
    """A constant matrix M [rows, columns]."""

    shape: tuple[int, int]
    cost: float
    """Work of one product, in dense entries per column of the right-hand side."""
    live = False
    """Whether the matrix itself needs a gradient: then ``@`` alone may be used."""

    @abstractmethod
    def mm(self, right: Tensor) -> Tensor:
        """M @ right, without gradient. ``right``: [columns, k]; result: [rows, k], never shared."""

    @abstractmethod
    def tmm(self, left: Tensor) -> Tensor:
        """Mᵀ @ left, without gradient. ``left``: [rows, k]; result: [columns, k], never shared."""

    def __matmul__(self, right: Tensor) -> Tensor:
        """M @ right with a gradient for ``right``."""
        result: Tensor = _Product.apply(right, self)  # type: ignore[no-untyped-call]
        return result

    @abstractmethod
    def dense(self) -> Tensor:
        """M as an ordinary tensor [rows, columns]."""


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, right: Tensor, operator: Operator) -> Tensor:
        ctx.operator, ctx.reduced = operator, is_reduced(right)
        return operator.mm(right)

    @staticmethod
    @match_forward
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.tmm(gradient.contiguous()), None


class SparseOperator(Operator):
    """A sparse matrix in compressed rows, with its transpose (made at first use).

    Args:
        matrix: [rows, columns].
        device: Where it multiplies.
        dtype: Of its numbers there.
        symmetric: Whether it is known to be its own transpose, bit for bit.
    """

    def __init__(
        self,
        matrix: sp.csr_matrix,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        symmetric: bool = False,
    ):
        self.matrix = matrix.tocsr()
        self.matrix.sort_indices()
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.nnz = int(self.matrix.nnz)
        self.cost = SPARSE_COST * self.nnz
        self._device, self._dtype = torch.device(device), dtype
        self._by_rows = _Compressed(self.matrix, self._device, dtype)
        self._by_columns = self._by_rows if symmetric else None

    @property
    def symmetric(self) -> bool:
        """Whether it is its own transpose, bit for bit."""
        return self._transpose() is self._by_rows

    @functools.cached_property
    def entries(self) -> tuple[Tensor, Tensor]:
        """Row and column of each stored entry, [nnz] int64 each, row by row."""
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.matrix.indptr))
        columns = self.matrix.indices.astype(np.int64)
        return torch.from_numpy(rows).to(self._device), torch.from_numpy(columns).to(self._device)

    def mm(self, right: Tensor) -> Tensor:
        return self._by_rows.mm(right)

    def tmm(self, left: Tensor) -> Tensor:
        return self._transpose().mm(left)

    def block(self, rows: NDArray[np.int64]) -> SparseOperator:
        """The entries at [rows, rows], where all entries of these rows are, and those of a component lie side by side.

        Args:
            rows: Whole components of the matrix, each as a run of its rows in their order.
        """
        taken, sizes = entries_of(self.matrix.indptr, rows)
        # A row and the columns of its component have moved by the same number of places.
        moved = self.matrix.indices[taken] + np.repeat(np.arange(len(rows)) - rows, sizes)
        pointer = np.concatenate([[0], np.cumsum(sizes)])
        part = sp.csr_matrix((self.matrix.data[taken], moved, pointer), shape=(len(rows), len(rows)))
        return SparseOperator(part, device=self._device, dtype=self._dtype, symmetric=self.symmetric)

    def _transpose(self) -> _Compressed:
        if self._by_columns is None:
            turned = _Compressed(self.matrix.T.tocsr(), self._device, self._dtype)
            self._by_columns = self._by_rows if turned.equals(self._by_rows) else turned
        return self._by_columns

    def dense(self) -> Tensor:
        return torch.from_numpy(self.matrix.toarray()).to(self._device, self._dtype)


class DenseOperator(Operator):
    """An ordinary matrix; where products are rounded to bfloat16, with a copy of itself as that."""

    def __init__(self, matrix: Tensor):
        self.matrix = matrix
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.cost = float(matrix.numel())
        self._low: Tensor | None = None

    def mm(self, right: Tensor) -> Tensor:
        return matmul(self._factor(), right)

    def tmm(self, left: Tensor) -> Tensor:
        return matmul(self._factor().t(), left)

    def _factor(self) -> Tensor:
        """The matrix as products want it now: rounded once, not in every product."""
        if self.matrix.dtype is not torch.float32 or not is_reduced(self.matrix):
            return self.matrix
        if self._low is None:
            self._low = self.matrix.to(torch.bfloat16)
        return self._low

    def dense(self) -> Tensor:
        return self.matrix


class LiveOperator(Operator):
    """An ordinary matrix with a gradient of its own, such as generated features."""

    live = True

    def __init__(self, matrix: Tensor):
        self.matrix = matrix
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.cost = float(matrix.numel())

    def mm(self, right: Tensor) -> Tensor:
        raise UnsupportedError("this backbone takes features for constants: it has no gradient for generated ones.")

    def tmm(self, left: Tensor) -> Tensor:
        return self.mm(left)

    def __matmul__(self, right: Tensor) -> Tensor:
        return widen(self.matrix @ right)

    def dense(self) -> Tensor:
        return self.matrix


class ChainOperator(Operator):
    """A product of two operators that is cheaper to apply one after the other than multiplied out."""

    def __init__(self, left: Operator, right: Operator):
        self.left, self.right = left, right
        self.shape = (left.shape[0], right.shape[1])
        self.cost = left.cost + right.cost
        self.live = left.live or right.live

    def __matmul__(self, right: Tensor) -> Tensor:
        return self.left @ (self.right @ right) if self.live else super().__matmul__(right)

    def mm(self, right: Tensor) -> Tensor:
        return self.left.mm(self.right.mm(right))

    def tmm(self, left: Tensor) -> Tensor:
        return self.right.tmm(self.left.tmm(left))

    def dense(self) -> Tensor:
        right = self.right.dense()
        return self.left @ right if self.live else self.left.mm(right)


def product(left: Operator, right: Operator) -> Operator:
    """left @ right as the cheapest operator to apply: chained, sparse, or dense; chained where left is not sparse."""
    if not isinstance(left, SparseOperator):
        return ChainOperator(left, right)
    device, dtype = left._device, left._dtype
    if not left.nnz:  # nodes without links
        nothing = sp.csr_matrix(([], ([], [])), shape=(left.shape[0], right.shape[1]), dtype=np.float32)
        return SparseOperator(nothing, device=device, dtype=dtype)
    chained = ChainOperator(left, right)
    entries = float(left.shape[0]) * right.shape[1]
    if isinstance(right, DenseOperator):
        return DenseOperator(left.mm(right.matrix)) if entries <= chained.cost else chained
    if isinstance(right, SparseOperator):
        # What is filled too much is not multiplied out only to find that: on a large graph it may not fit into memory.
        if min(entries, SPARSE_COST * _product_entries(left.matrix, right.matrix)) >= chained.cost:
            return chained
        joined = left.matrix @ right.matrix
        if min(entries, SPARSE_COST * joined.nnz) >= chained.cost:
            return chained
        if SPARSE_COST * joined.nnz <= entries:
            return SparseOperator(joined, device=device, dtype=dtype)
        return DenseOperator(torch.from_numpy(joined.toarray()).to(device, dtype))
    return chained


def _product_entries(left: sp.csr_matrix, right: sp.csr_matrix) -> float:
    """Stored entries of left @ right, from what some evenly spread rows have."""
    some = sampled_rows(left.shape[0])
    return float((left[some] @ right).nnz) * left.shape[0] / max(len(some), 1)


def sampled_rows(count: int) -> NDArray[np.int64]:
    """Some evenly spread ones of ``count`` rows."""
    return np.unique(np.linspace(0, count - 1, min(SAMPLED, count)).astype(np.int64))


def entries_of(pointer: NDArray[np.integer], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the entries of some rows of a compressed matrix stand, row by row, and how many each row has."""
    starts = pointer[rows].astype(np.int64)
    sizes = pointer[rows + 1] - starts
    return np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum())), sizes


def operator(matrix: sp.csr_matrix | np.ndarray, device: torch.device | str, dtype: torch.dtype) -> Operator:
    """The cheaper of sparse and dense for a matrix."""
    if sp.issparse(matrix):
        if SPARSE_COST * matrix.nnz <= float(matrix.shape[0]) * matrix.shape[1]:
            return SparseOperator(matrix, device=device, dtype=dtype)
        matrix = matrix.toarray()
    return DenseOperator(torch.from_numpy(np.ascontiguousarray(matrix)).to(device, dtype))


class _Compressed:
    """A matrix in compressed rows, ready to multiply from the left; shares no memory with what it was made from."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device, dtype: torch.dtype):
        index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 - 1 else np.int64
        matrix.sort_indices()
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.pointer = torch.from_numpy(matrix.indptr.astype(index)).to(device)
        self.columns = torch.from_numpy(matrix.indices.astype(index)).to(device)
        self.values = torch.from_numpy(np.array(matrix.data)).to(device, dtype)
        self.empty = matrix.nnz == 0
        self.as_bags = device.type == "cpu" and dtype is torch.float32
        # As torch's own sparse matrix, for what has no faster kernel.
        self._tensor = None if self.as_bags else csr_tensor(self.pointer, self.columns, self.values, self.shape)

    def equals(self, other: _Compressed) -> bool:
        """Whether both hold the same numbers at the same places."""
        mine, others = (self.pointer, self.columns, self.values), (other.pointer, other.columns, other.values)
        return self.shape == other.shape and all(map(torch.equal, mine, others))

    def mm(self, right: Tensor) -> Tensor:
        """The matrix times ``right`` [columns, k]."""
        if self.empty:
            return right.new_zeros(self.shape[0], right.shape[1])
        if self.as_bags:
            # A row of the product is a weighted sum of rows of ``right``: a bag of embeddings. The kernel for these is
            # two to four times faster on a CPU than the one behind torch.mm, and adds up a row in the same order
            # whatever the number of threads.
            # By place: scale_grad_by_freq, mode (sum), sparse, per_sample_weights, include_last_offset.
            # Detached, since for what needs a gradient torch also makes what its own backward pass would take.
            bags: tuple[Tensor, ...] = torch.embedding_bag(
                right.detach(), self.columns, self.pointer, False, 0, False, self.values, True
            )
            return bags[0]
        with keep_precision(right):
            return torch.mm(self._tensor, right)  # type: ignore[arg-type]


_quiet = False


def csr_tensor(pointer: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor on the values' device; no invariant is checked."""
    global _quiet
    if _quiet:
        return torch.sparse_csr_tensor(pointer, columns, values, size=shape, check_invariants=False)
    with warnings.catch_warnings():
        # torch calls its CSR layout beta once per process, at the first one made.
        warnings.simplefilter("ignore", UserWarning)
        _quiet = True
        return torch.sparse_csr_tensor(pointer, columns, values, size=shape, check_invariants=False)
