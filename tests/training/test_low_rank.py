"""Changes of weights as low-rank factors, against numbers worked out by hand and torch's decomposition."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.random import generator
from graphsilo.training.low_rank import compress, expand, factors, rank_for


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


@pytest.mark.parametrize(("energy", "rank"), [(0.0, 1), (0.6, 1), (0.7, 2), (0.9, 2), (0.95, 3), (1.0, 3)])
def test_the_smallest_rank_by_hand(energy, rank):
    """σ = (3, 2, 1): 9, 13 and 14 of 14, which is 0.64, 0.93 and 1."""
    assert rank_for(torch.tensor([9.0, 4.0, 1.0]), energy) == rank


@pytest.mark.parametrize("shape", [(100, 20), (20, 100), (40, 30)])
def test_the_error_is_what_is_left_out(shape):
    """‖M − M_r‖² = Σ_{i>r} σ_i² ≤ (1 − T) ‖M‖², with torch's singular values; the rank does not fall with T."""
    matrix, before = drawn(*shape) @ torch.diag(0.5 ** torch.arange(shape[1])), 0
    values = torch.linalg.svdvals(matrix.double())
    for energy in (0.5, 0.9, 0.99, 0.9999):
        left, right = factors(matrix, energy)
        rank = left.shape[1]
        assert (left.shape, right.shape) == ((shape[0], rank), (rank, shape[1]))
        error = (matrix - left @ right).double().square().sum()
        torch.testing.assert_close(error, values[rank:].square().sum(), rtol=1e-3, atol=1e-6)
        assert error <= (1 - energy) * matrix.double().square().sum() + 1e-6
        assert rank >= before
        before = rank


def test_one_direction_is_exact_at_any_energy():
    matrix = drawn(30, 1) @ drawn(1, 9, seed=1)
    for energy in (0.01, 0.95, 1 - 1e-9):
        left, right = factors(matrix, energy)
        assert left.shape[1] == 1
        torch.testing.assert_close(left @ right, matrix)


def test_factors_that_are_no_smaller_are_not_sent():
    """r (rows + columns) < rows · columns: of 6 x 6 two directions are 24 numbers of 36, three as many as all."""
    rotation = torch.linalg.qr(drawn(6, 6))[0]
    two, three = (rotation[:, :count] @ rotation[:count] for count in (2, 3))
    assert [tuple(part.shape) for part in factors(two, 0.999)] == [(6, 2), (2, 6)]
    assert factors(three, 0.999) is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_what_is_not_finite_is_sent_whole(odd):
    """So that it is refused as what it is: no decomposition of it converges."""
    change = drawn(6, 5)
    change[2, 3] = odd
    assert compress({"w": change}, 0.5)["w"] is change


def test_only_matrices_are_compressed():
    tensors = {
        "bias": drawn(5), "row": drawn(1, 5), "column": drawn(5, 1), "cube": drawn(4, 4, 4),
        "matrix": drawn(20, 1) @ drawn(1, 10, seed=1), "nothing": torch.zeros(6, 5),
    }  # fmt: skip
    packed = compress(tensors, 0.95)
    assert sorted(packed) == [
        "bias", "column", "cube", "matrix/left", "matrix/right", "nothing/left", "nothing/right", "row",
    ]  # fmt: skip
    for name, value in expand(packed, tensors).items():
        torch.testing.assert_close(value, tensors[name])


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        ({}, r"of the change of 'a', \(4, 3\), .* nothing came"),
        ({"a": torch.ones(3, 4)}, r"\[\(3, 4\)\] came"),
        ({"a/left": torch.ones(4, 2)}, r"\[\(4, 2\)\] came"),
        ({"a/left": torch.ones(4, 2), "a/right": torch.ones(1, 3)}, r"\[\(4, 2\), \(1, 3\)\] came"),
        ({"a/left": torch.ones(4, 2), "a/right": torch.ones(2, 5)}, r"\[\(4, 2\), \(2, 5\)\] came"),
        ({"a/left": torch.ones(4), "a/right": torch.ones(4, 3)}, r"\[\(4,\), \(4, 3\)\] came"),
        ({"a": torch.ones(4, 3), "b": torch.ones(1)}, "came with 'b', which this model has not"),
        ({"a": torch.ones(4, 3), "a/left": torch.ones(4, 1)}, "came with 'a/left', which this model has not"),
    ],
)
def test_what_is_no_change_of_these_tensors_is_refused(packed, said):
    with pytest.raises(MessageError, match=said):
        expand(packed, {"a": torch.zeros(4, 3)})
