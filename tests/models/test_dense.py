"""Products by oneDNN where it is faster, else by torch's own."""

from __future__ import annotations

import pytest
import torch

from graphsilo.models import dense


@pytest.fixture(params=[True, False], ids=["oneDNN", "torch"])
def library(request, monkeypatch):
    if request.param and not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(dense, "WORTH", 0)
    monkeypatch.setattr(dense, "WORTH_ROUNDING", 0)
    monkeypatch.setattr(dense, "_worth_asking", lambda: request.param)


def test_products_by_hand(library):
    left, right = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1.0, -1.0], [2.0, 0.5]])
    # 1·1 + 2·2 = 5, 1·(−1) + 2·0.5 = 0, …
    assert dense.mm(left, right).tolist() == [[5.0, 0.0], [11.0, -1.0], [17.0, -2.0]]
    # leftᵀ left: 1·1 + 3·3 + 5·5 = 35, …
    assert dense.mm(left.t(), left).tolist() == [[35.0, 44.0], [44.0, 56.0]]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("shape", [(40, 7, 5), (3, 50, 4), (30, 60, 3), (0, 3, 2), (4, 0, 2)], ids=str)
def test_factors_may_lie_either_way(library, shape, turned):
    draw = torch.Generator().manual_seed(0)
    rows, inner, columns = shape
    left = torch.randn(inner, rows, generator=draw).t() if turned[0] else torch.randn(rows, inner, generator=draw)
    right = (
        torch.randn(columns, inner, generator=draw).t() if turned[1] else torch.randn(inner, columns, generator=draw)
    )
    found = dense.mm(left, right)
    assert found.is_contiguous()
    torch.testing.assert_close(found, (left.double() @ right.double()).float(), rtol=1e-5, atol=1e-5)


def test_double_precision_stays_with_torch(library):
    value = torch.tensor([[1.0 + 2.0**-40]], dtype=torch.float64)
    assert dense.mm(value, value).item() == value.item() ** 2


@pytest.mark.parametrize("any_number", [True, False])
@pytest.mark.parametrize("rows", [0, 3, 64, 130, 200])
@pytest.mark.parametrize("columns", [1, 3, 7, 20])
def test_products_of_any_number_of_rows(library, monkeypatch, any_number, rows, columns):
    monkeypatch.setattr(dense, "WORTH_ANY", 0 if any_number else 1 << 40)
    draw = torch.Generator().manual_seed(0)
    values, weight = torch.randn(rows, 5, generator=draw), torch.randn(5, columns, generator=draw)
    gradient = torch.randn(rows, columns, generator=draw)
    for left, right in ((values, weight), (values.t(), gradient), (gradient, weight.t())):
        found = dense.matmul(left, right)
        assert found.is_contiguous()
        torch.testing.assert_close(found, (left.double() @ right.double()).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shifted", [True, False])
def test_gradients_of_times(library, shifted):
    draw = torch.Generator().manual_seed(0)
    plain = [torch.randn(shape, generator=draw, requires_grad=True) for shape in ((130, 5), (5, 3), (3,))]
    mine = [value.detach().clone().requires_grad_() for value in plain]
    upstream = torch.randn(3, 130, generator=draw).t()  # not by rows
    (plain[0] @ plain[1] + (plain[2] if shifted else 0.0)).backward(upstream)
    dense.times(mine[0], mine[1], mine[2] if shifted else None).backward(upstream)
    for expected, found in zip(plain[: 2 + shifted], mine, strict=False):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-5, atol=1e-5)


def test_a_constant_has_no_gradient(library):
    weight = torch.tensor([[2.0], [1.0]], requires_grad=True)
    dense.times(torch.tensor([[1.0, 3.0], [4.0, -1.0]]), weight).sum().backward()
    assert weight.grad.tolist() == [[5.0], [2.0]]  # 1 + 4, 3 - 1


@pytest.mark.parametrize("is_amd", [True, False])
def test_narrow_products_are_the_same_on_every_processor(monkeypatch, is_amd):
    monkeypatch.setattr(dense, "on_amd", lambda: is_amd)
    left, right = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1.0, -1.0], [2.0, 0.5]])
    layer, gradient = dense.matmul(left, right), dense.matmul(left.t(), torch.ones(3, 1))
    assert (layer.tolist(), gradient.tolist()) == ([[5.0, 0.0], [11.0, -1.0], [17.0, -2.0]], [[9.0], [12.0]])
    assert layer.is_contiguous()
    assert gradient.is_contiguous()


def test_steps_with_another_number_of_rows_each_share_programs(library, monkeypatch):
    taken, plain = set(), dense.mm

    def noted(left, right, *more, **named):
        taken.add(tuple(left.shape))
        return plain(left, right, *more, **named)

    monkeypatch.setattr(dense, "mm", noted)
    monkeypatch.setattr(dense, "WORTH_ANY", 0)
    monkeypatch.setattr(dense, "_worth_asking", lambda: True)
    weight = torch.tensor([[1.0, 2.0, -1.0, 0.5]]).repeat(2, 4)
    for rows in range(17_000, 17_100, 9):
        values = torch.arange(2.0 * rows).view(rows, 2).remainder_(5.0)
        with dense.varying_rows():
            found = dense.matmul(values, weight)
            turned = dense.matmul(values.t(), values[:, :1].expand(-1, 16))
        torch.testing.assert_close(found, values @ weight)
        torch.testing.assert_close(turned, values.t() @ values[:, :1].expand(-1, 16))
    # 17,000 lies between 2^14 and 2^15: multiples of 2^15 / 2^7 = 256, of which 66 · 256 = 16,896 is the last
    assert taken == {(16_896, 2), (2, 16_896)}
    taken.clear()
    dense.matmul(values, weight)
    assert taken == {(17_099, 2)}
