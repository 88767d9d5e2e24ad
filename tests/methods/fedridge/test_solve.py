"""The solvers of FedRidge by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.methods.fedridge.solve import corrections, pack, ridges, upper_product
from kit.fedridge import whole

# -- solutions -------------------------------------------------------------------------------------------------------


def test_packing_is_the_upper_triangle_row_by_row():
    matrix = torch.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]], dtype=torch.float64)
    packed = pack(matrix).float()
    assert packed.tolist() == [1, 2, 3, 4, 5, 6]
    assert torch.equal(whole(packed, 3), matrix)


@pytest.mark.parametrize("width", [1, 255, 256, 257, 600])
def test_triangles_of_products_are_added_up_in_float64(width):
    draw = torch.Generator().manual_seed(width)
    rows = torch.randn(40, width, generator=draw)
    scaled = 2 * rows
    total = upper_product(rows[20:], scaled[20:], upper_product(rows[:20], scaled[:20]))
    assert total.dtype is torch.float64
    found = whole(pack(total), width)
    assert torch.allclose(found, (rows.t().double() @ scaled.double()), atol=1e-4)
    assert torch.equal(whole(pack(found.float()), width), found.float().double())


def test_a_ridge_by_hand():
    # (M + I)⁻¹ (1, 0) with M = [[2, 1], [1, 2]]: the inverse of [[3, 1], [1, 3]] is [[3, -1], [-1, 3]] / 8.
    (found,) = ridges(torch.tensor([[2.0, 1], [1, 2]]).double(), torch.tensor([[1.0], [0]]).double(), [1.0])
    assert found.flatten().tolist() == pytest.approx([3 / 8, -1 / 8])


@pytest.mark.parametrize("rows", [0, 1, 7, 30, 200])
def test_all_penalties_whatever_the_rank(rows):
    draw = torch.Generator().manual_seed(rows)
    matrix = torch.randn(rows, 30, generator=draw, dtype=torch.float64)
    right = matrix.t() @ torch.randn(rows, 3, generator=draw, dtype=torch.float64)
    gram = matrix.t() @ matrix
    penalties = (1e-3, 1.0, 100.0)
    for penalty, solved in zip(penalties, ridges(gram, right, penalties), strict=True):
        exact = torch.linalg.solve(gram + penalty * torch.eye(30, dtype=torch.float64), right)
        assert torch.allclose(solved, exact, rtol=1e-9, atol=1e-11)


def test_a_correction_by_hand_and_both_forms_agree():
    # One row e1 with residual 1: d = 1 / (1 + μ) along e1.
    # With residual 2 beside it and no more than μ = 1: d = 2 / 2.
    one = torch.tensor([[1.0]]).double()
    ((found,), (other,)) = corrections(torch.tensor([[1.0, 0, 0]]).double(), [(one, [3.0]), (2 * one, [1.0])])
    assert found.flatten().tolist() == pytest.approx([0.25, 0, 0])
    assert other.flatten().tolist() == pytest.approx([1.0, 0, 0])
    draw = torch.Generator().manual_seed(0)
    wide = torch.randn(5, 9, generator=draw, dtype=torch.float64)
    residual = torch.randn(5, 2, generator=draw, dtype=torch.float64)
    twice = torch.cat([wide, wide]) * 0.5**0.5  # ten rows for nine columns, the same sums
    for one, two in zip(
        *corrections(wide, [(residual, [0.1, 10.0])]),
        *corrections(twice, [(torch.cat([residual, residual]) * 0.5**0.5, [0.1, 10.0])]),
        strict=True,
    ):
        assert torch.allclose(one, two, atol=1e-12)


def test_directions_that_rounding_made_do_not_count() -> None:
    """Sums of 58 columns that lie in 6 directions: a tolerance below rounding takes some of its noise for directions,
    and dividing by their eigenvalues gave 1e290."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(900, 6, generator=draw, dtype=torch.float64)
    wide = torch.cat([rows, rows @ torch.randn(6, 52, generator=draw, dtype=torch.float64)], dim=1)
    right = wide.t() @ torch.randn(900, 2, generator=draw, dtype=torch.float64)
    penalties = (0.001, 1.0)
    square = wide.t() @ wide
    wanted = [torch.linalg.solve(square + each * torch.eye(58, dtype=torch.float64), right) for each in penalties]
    for tolerance in (1e-17, 2.2e-15, 1e-11):
        for found, exact in zip(ridges(square.clone(), right, penalties, tolerance), wanted, strict=True):
            assert torch.allclose(wide @ found, wide @ exact, atol=1e-4)  # what is predicted, of the size of 0.1
