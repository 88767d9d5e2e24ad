"""Dropout: right mean, reproducible, off without a generator."""

from __future__ import annotations

import pytest
import torch

from graphsilo.models.dropout import dropout, keep_scale, relu_dropout


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.6, 0.99999])
def test_share_and_mean(rate: float) -> None:
    ones = torch.ones(400, 500)
    result = dropout(ones, rate, generator())
    kept = (result > 0).double().mean().item()
    deviation = (rate * (1 - rate) / ones.numel()) ** 0.5
    assert abs(kept - (1 - rate)) < 5 * deviation + 2**-16
    # Kept entries are scaled by exactly what the 16-bit mask can express.
    levels = min(round(rate * 65536), 65535)
    assert result.max().item() in (0.0, pytest.approx(65536 / (65536 - levels)))
    if rate < 0.9:
        assert result.double().mean().item() == pytest.approx(1.0, abs=5 * deviation / (1 - rate))


def test_same_generator_same_mask() -> None:
    values = torch.rand(7, 5)
    assert torch.equal(dropout(values, 0.5, generator(3)), dropout(values, 0.5, generator(3)))
    assert not torch.equal(dropout(values, 0.5, generator(3)), dropout(values, 0.5, generator(4)))


def test_evaluation_is_the_identity() -> None:
    values = torch.randn(4, 3, generator=generator())
    assert dropout(values, 0.5, None) is values
    assert dropout(values, 0.0, generator()) is values
    assert torch.equal(relu_dropout(values, 0.5, None), values.relu())


def test_empty_and_double() -> None:
    assert dropout(torch.zeros(0, 3), 0.5, generator()).shape == (0, 3)
    assert keep_scale(torch.Size([3]), 0.5, generator(), torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("seed", [None, 0])
def test_relu_dropout_gradient(seed: int | None) -> None:
    values = torch.randn(6, 4, dtype=torch.float64, generator=generator(), requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda value: relu_dropout(value, 0.5, None if seed is None else generator(seed)), (values,)
    )


def test_relu_dropout_is_relu_then_dropout() -> None:
    values = torch.randn(6, 4, generator=generator())
    assert torch.equal(relu_dropout(values, 0.5, generator(1)), dropout(values.relu(), 0.5, generator(1)))
