"""Constant matrices: every kind gives the product, its transpose and the right gradient."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.models import operators
from graphsilo.models.operators import (
    ChainOperator,
    DenseOperator,
    LiveOperator,
    SparseOperator,
    _product_entries,
    operator,
    product,
)

DOUBLE = torch.float64
LEFT = sp.csr_matrix(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
RIGHT = sp.csr_matrix(np.array([[1.0, 0.0], [0.0, 1.0], [4.0, 0.0]]))


def kinds() -> list:
    left, right = SparseOperator(LEFT, dtype=DOUBLE), SparseOperator(RIGHT, dtype=DOUBLE)
    return [
        (left, LEFT.toarray()),
        (DenseOperator(torch.from_numpy(LEFT.toarray())), LEFT.toarray()),
        (ChainOperator(left, right), np.array([[9.0, 0.0], [0.0, 3.0]])),
        (SparseOperator(sp.csr_matrix((2, 3)), dtype=DOUBLE), np.zeros((2, 3))),
    ]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("columns", [1, 2, 20])
def test_products(index: int, columns: int) -> None:
    made, wanted = kinds()[index]
    wanted = torch.from_numpy(wanted)
    right = torch.rand(wanted.shape[1], columns, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    left = torch.rand(wanted.shape[0], columns, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    assert made.shape == tuple(wanted.shape)
    torch.testing.assert_close(made.mm(right), wanted @ right)
    torch.testing.assert_close(made.tmm(left), wanted.T @ left)
    torch.testing.assert_close(made.dense(), wanted)
    assert torch.autograd.gradcheck(lambda value: made @ value, (right.requires_grad_(),))


def test_operator_picks_by_count() -> None:
    # 10 x 10: sparse up to 100 / 3 = 33 entries.
    def diagonals(count: int) -> sp.csr_matrix:
        return sp.csr_matrix((np.ones(count), (np.arange(count) // 10, np.arange(count) % 10)), shape=(10, 10))

    assert isinstance(operator(diagonals(33), "cpu", torch.float32), SparseOperator)
    assert isinstance(operator(diagonals(34), "cpu", torch.float32), DenseOperator)
    assert isinstance(operator(np.eye(3, dtype=np.float32), "cpu", torch.float32), DenseOperator)


def test_products_are_not_made_to_find_that_they_are_too_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 rows reach all 100 others, which have one word each of their own: 10 000 entries instead of 10 000 + 100."""
    full, own = sp.csr_matrix(np.ones((100, 100), dtype=np.float32)), sp.eye(100, dtype=np.float32, format="csr")
    assert _product_entries(full, own) == 10_000
    assert _product_entries(own, full[:, :7]) == 700
    assert _product_entries(own[:0], full) == 0
    left, wide = SparseOperator(own), SparseOperator(sp.random(100, 4000, density=0.01, random_state=1, format="csr"))
    assert isinstance(product(left, wide), SparseOperator)  # as many entries as before, and one factor less
    reach = SparseOperator(full)
    monkeypatch.setattr(operators, "SAMPLED", 4)
    seen = []
    multiply = sp.csr_matrix.__matmul__
    monkeypatch.setattr(
        sp.csr_matrix, "__matmul__", lambda one, other: (seen.append(one.shape), multiply(one, other))[1]
    )
    assert isinstance(product(reach, wide), ChainOperator)
    assert seen == [(4, 100)]


def test_product_multiplies_out_only_where_cheaper() -> None:
    draws = np.random.default_rng(0)
    adjacency = sp.csr_matrix(np.ones((4, 4)))
    few = SparseOperator(sp.random(4, 50, density=0.9, random_state=1, format="csr"))
    many = SparseOperator(sp.random(4, 5000, density=0.001, random_state=1, format="csr"))
    left = SparseOperator(adjacency)
    weight = torch.from_numpy(draws.random((50, 3)).astype(np.float32))
    joined = product(left, few)
    assert isinstance(joined, DenseOperator)
    torch.testing.assert_close(joined.mm(weight), left.mm(few.mm(weight)))
    assert isinstance(product(left, many), ChainOperator)
    dense = product(left, DenseOperator(torch.rand(4, 3)))
    assert isinstance(dense, DenseOperator)


@pytest.mark.parametrize("columns", [1, 7, 64])
def test_single_precision(columns: int) -> None:
    # Rows and columns without entries, and right-hand sides that are not stored row by row.
    matrix = sp.random(30, 20, density=0.1, random_state=0, format="csr", dtype=np.float32)
    made, dense = SparseOperator(matrix), torch.from_numpy(matrix.toarray())
    draws = torch.Generator().manual_seed(0)
    for right in (torch.rand(20, columns, generator=draws), torch.rand(columns, 20, generator=draws).t()):
        torch.testing.assert_close(made.mm(right), dense @ right)
    left = torch.rand(60, columns, generator=draws)[::2]
    torch.testing.assert_close(made.tmm(left), dense.t() @ left)
    nothing = SparseOperator(sp.csr_matrix((0, 20), dtype=np.float32))
    assert nothing.mm(torch.rand(20, columns)).shape == (0, columns)
    assert nothing.tmm(torch.rand(0, columns)).tolist() == torch.zeros(20, columns).tolist()


def test_block_of_whole_components_by_hand() -> None:
    entries = np.array(
        [[0, 2, 0, 0, 0], [2, 1, 0, 0, 0], [0, 0, 0, 3, 0], [0, 0, 3, 0, 4], [0, 0, 0, 4, 5]], np.float32
    )
    whole = SparseOperator(sp.csr_matrix(entries))
    part = whole.block(np.array([2, 3, 4, 0, 1]))
    expected = np.array(
        [[0, 3, 0, 0, 0], [3, 0, 4, 0, 0], [0, 4, 5, 0, 0], [0, 0, 0, 0, 2], [0, 0, 0, 2, 1]], np.float32
    )
    np.testing.assert_array_equal(part.dense().numpy(), expected)
    np.testing.assert_array_equal(whole.block(np.array([0, 1])).dense().numpy(), [[0, 2], [2, 1]])
    assert whole.block(np.array([], dtype=np.int64)).shape == (0, 0)


@pytest.mark.parametrize("symmetric", [True, False])
def test_transposes_of_blocks(symmetric: bool) -> None:
    entries = np.array([[1, 2, 0], [2 if symmetric else 3, 0, 0], [0, 0, 4]], np.float32)
    whole = SparseOperator(sp.csr_matrix(entries))
    assert whole.symmetric is symmetric
    right = torch.tensor([[1.0], [10.0], [100.0]])
    back = [21.0, 2.0, 400.0] if symmetric else [31.0, 2.0, 400.0]  # the columns' sums, weighted
    assert whole.tmm(right)[:, 0].tolist() == back
    part = whole.block(np.array([2, 0, 1]))
    assert part.symmetric is symmetric
    assert part.tmm(right[[2, 0, 1]])[:, 0].tolist() == [back[2], back[0], back[1]]
    assert not SparseOperator(sp.csr_matrix(entries[:2])).symmetric


def test_nothing_times_a_matrix_is_nothing() -> None:
    """Nodes without links: their neighbours' features are not multiplied to find out."""
    features, weight = torch.ones(2, 4, requires_grad=True), torch.ones(4, 5, requires_grad=True)
    found = product(SparseOperator(sp.csr_matrix((3, 2), dtype=np.float32)), LiveOperator(features))
    assert found.cost == 0
    result = found @ weight
    assert torch.equal(result, torch.zeros(3, 5))
    assert torch.equal(torch.autograd.grad(result.sum(), weight)[0], torch.zeros(4, 5))
