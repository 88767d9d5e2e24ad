"""Rows that stand for classes, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from graphsilo.random import generator
from graphsilo.training.prototypes import (
    PrototypeGenerator,
    class_means,
    class_sums,
    finch,
    nearest_prototype,
    orthogonal_rows,
    pool_means,
    spread_rows,
    unit_rows,
)

ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 8.0]])
LABELS = torch.tensor([2, 0, 2])


def test_sums_and_means_by_hand():
    sums, counts = class_sums(ROWS, LABELS, 4)
    assert sums.tolist() == [[3.0, 4.0], [0.0, 0.0], [6.0, 10.0], [0.0, 0.0]]
    assert counts.tolist() == [1, 0, 2, 0]
    means, again = class_means(ROWS, LABELS, 4)
    assert means.tolist() == [[3.0, 4.0], [0.0, 0.0], [3.0, 5.0], [0.0, 0.0]]
    assert again.tolist() == counts.tolist()
    assert class_sums(torch.zeros(0, 2), LABELS[:0], 3)[1].tolist() == [0, 0, 0]


def test_pooling_is_the_mean_of_all_rows_however_they_are_divided():
    draw = generator(0)
    rows, labels = torch.randn(50, 3, generator=draw), torch.randint(4, (50,), generator=draw)
    parts = [class_sums(rows[part], labels[part], 5) for part in torch.arange(50).split(17)]
    old = torch.full((5, 3), 7.0)
    found = pool_means(sum(sums for sums, _ in parts), sum(counts for _, counts in parts), old)
    torch.testing.assert_close(found[:4], class_means(rows, labels, 4)[0])
    assert found[4].tolist() == [7.0, 7.0, 7.0]  # nobody has it: as it was
    # Sums come in float64, and one that one client alone has is that client's mean.
    alone = pool_means(torch.tensor([[3.0, 9.0]]).double(), torch.tensor([3]), torch.zeros(1, 2))
    assert (alone.tolist(), alone.dtype) == ([[1.0, 3.0]], torch.float32)


def test_unit_rows_by_hand():
    assert unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0, 0],
    ]


def test_orthogonal_rows():
    rows = orthogonal_rows(4, 8, generator(0, "test"))
    torch.testing.assert_close(rows @ rows.t(), torch.eye(4), atol=1e-6, rtol=0)
    assert torch.equal(rows, orthogonal_rows(4, 8, generator(0, "test")))
    torch.testing.assert_close(orthogonal_rows(9, 4, generator(0)).norm(dim=1), torch.ones(9))


@pytest.mark.parametrize(("count", "width", "cosine"), [(4, 8, 0.0), (5, 2, math.cos(2 * math.pi / 5)), (4, 3, -1 / 3)])
def test_rows_far_apart(count, width, cosine):
    """At right angles; on a circle at equal angles; the corners of a tetrahedron."""
    rows = spread_rows(count, width, generator(0))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(count))
    assert float((rows @ rows.t()).fill_diagonal_(-2).max()) == pytest.approx(cosine, abs=1e-4)


@pytest.mark.parametrize(("initial", "bound"), [("xavier", math.sqrt(3)), ("torch", 1.0)])
def test_rows_that_are_learned(initial, bound):
    """Weights up to √(6 / 2p) or 1/√p, and a gradient that is autograd's."""
    net = PrototypeGenerator(6, 64, generator(0), initial=initial)
    for weight, bias in (net.parameters[1:3], net.parameters[3:]):
        assert 0.95 * bound / 8 < float(weight.abs().max()) <= bound / 8
        assert (0.8 < 8 * float(bias.abs().max()) <= 1) if initial == "torch" else not bias.any()
    net.parameters = [parameter.double().requires_grad_() for parameter in net.parameters]
    vectors, first, first_bias, second, second_bias = net.parameters
    rows = torch.relu(vectors @ first + first_bias) @ second + second_bias
    slope = torch.randn(6, 64, generator=generator(1), dtype=torch.float64)
    expected = torch.autograd.grad((rows * slope).sum(), net.parameters)
    with torch.no_grad():
        found, hidden = net.forward()
        torch.testing.assert_close(found, rows)
        for mine, theirs in zip(net.gradients(hidden, slope), expected, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_nearest_prototype_by_hand():
    """From (0, 0) to (1, 0), (0, 2) and an absent (0, 0): squares 1 and 4, so that the first has 1 / (1 + e^-3)."""
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    found = nearest_prototype(torch.zeros(1, 2), prototypes, torch.tensor([True, True, False]))
    assert found.exp().tolist()[0] == pytest.approx([1 / (1 + math.exp(-3)), 1 / (1 + math.exp(3)), 0.0])


def test_no_class_without_a_prototype_is_ever_nearest():
    rows = torch.randn(200, 3, generator=generator(0))
    present = torch.tensor([True, False, True, False])
    prototypes = torch.cat([torch.full((1, 3), 9.0), torch.zeros(1, 3), torch.full((1, 3), -9.0), torch.zeros(1, 3)])
    assert set(nearest_prototype(rows, prototypes, present).argmax(1).tolist()) == {0, 2}


def turned(*degrees: float) -> torch.Tensor:
    """Rows of length 1 at these angles."""
    angles = torch.tensor(degrees) * math.pi / 180
    return torch.stack([angles.cos(), angles.sin()], 1)


def test_finch_by_hand():
    """0 and 4 degrees are each other's nearest, 10 goes to 4; so with 90, 94, 100. Their means would be one cluster."""
    rows = turned(0, 4, 10, 90, 94, 100)
    assert finch(rows).tolist() == [0, 0, 0, 1, 1, 1]
    assert finch(rows * torch.arange(1.0, 7.0)[:, None]).tolist() == [0, 0, 0, 1, 1, 1]  # by direction alone
    assert finch(rows[[3, 0, 1, 4, 2, 5]]).tolist() == [0, 1, 1, 0, 1, 0]


def test_finch_goes_on_over_means():
    """Pairs at 0, 20, 100 and 120 degrees join to two, the coarsest before one."""
    rows = turned(0, 1, 20, 21, 100, 101, 120, 121)
    assert finch(rows).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_finch_of_few_rows_is_one_cluster(count):
    assert finch(torch.randn(count, 4, generator=generator(count))).tolist() == [0] * count
    assert finch(torch.zeros(0, 4)).tolist() == []
