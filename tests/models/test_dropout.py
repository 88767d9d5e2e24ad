"""Dropout: right mean, reproducible, off without a generator."""

from __future__ import annotations

import pytest
import torch

from graphsilo.models import dropout as module
from graphsilo.models.dropout import activate, activate_backward, dropout, keep_scale, masks_ahead, relu_dropout


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


@pytest.mark.parametrize("rate", [0.5, 0.3])
def test_masks_drawn_ahead_are_those_drawn_one_by_one(rate: float) -> None:
    # 15 entries of 8 bits are two words, 9 entries of 16 bits three: no mask ends where a word does.
    shapes = [(5, 3), (3, 3)]
    ahead, alone = generator(4), generator(4)
    runs = masks_ahead(shapes, rate, 3, ahead)
    assert runs is not None
    for run in runs:
        for shape in shapes:
            assert torch.equal(next(run), keep_scale(torch.Size(shape), rate, alone, torch.zeros(1)))
    assert torch.equal(ahead.get_state(), alone.get_state())


def test_many_masks_are_not_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = generator()
    before = draw.get_state()
    monkeypatch.setattr(module, "_AHEAD", 10)
    assert masks_ahead([(2, 3)], 0.5, 2, draw) is None
    assert masks_ahead([], 0.5, 2, draw) is None
    assert torch.equal(draw.get_state(), before)


def test_activation_by_hand() -> None:
    values = torch.tensor([[1.0, -2.0, 3.0, 0.0]])
    mask = activate(values, 0.5, iter([torch.tensor([[2.0, 2.0, 0.0, 2.0]])]))
    assert values.tolist() == [[2.0, 0.0, 0.0, 0.0]]
    assert activate_backward(torch.ones(1, 4), values, mask).tolist() == [[2.0, 0.0, 0.0, 0.0]]
    plain = torch.tensor([[1.0, -2.0]])
    assert activate(plain, 0.5, None) is None
    assert activate_backward(torch.full((1, 2), 3.0), plain, None).tolist() == [[3.0, 0.0]]
