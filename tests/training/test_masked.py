"""Weights and masks, and what draws them back, by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.training.masked import MaskedOptimizer
from graphsilo.training.optimizer import SGD


@pytest.mark.parametrize(("squared", "pull"), [(True, [0.12, 0.16]), (False, [0.06, 0.08])])
def test_a_step_by_hand(squared, pull):
    """θ = (2, 1) under masks (½, 1), gradients (3, −1) of θ ⊙ μ, rate 1, λ1 = ¼; λ2 = 0.1 and θ̄ = (1.4, 0.2).

    θ is (0.6, 0.8) away, at distance 1: the slope of its square is twice that, of the length itself once.
    """
    weight, bias = torch.tensor([[2.0, 1.0]]), torch.tensor([1.0])
    trained = MaskedOptimizer(
        [weight, bias], lambda tensors: SGD(tensors, lr=1.0), sparsity=0.25, proximal=0.1, squared=squared
    )
    trained.masks[0].copy_(torch.tensor([[0.5, 1.0]]))
    trained.weights[0].copy_(torch.tensor([[1.4, 0.2]]))
    trained.begin()
    torch.testing.assert_close(weight, torch.tensor([[0.7, 0.2]]))
    trained.weights[0].copy_(torch.tensor([[2.0, 1.0]]))
    trained.step([torch.tensor([[3.0, -1.0]]), torch.tensor([5.0])])
    theta = torch.tensor([[2 - 1.5 - pull[0], 1 + 1 - pull[1]]])
    masks = torch.tensor([[0.5 - 6 - 0.25, 1 + 1 - 0.25]])
    torch.testing.assert_close(trained.weights[0], theta)
    torch.testing.assert_close(trained.masks[0], masks)
    torch.testing.assert_close(weight, theta * masks)
    assert bias.tolist() == [-4.0]  # it has no mask, and is where it was received
    trained.masks[0].copy_(torch.tensor([[-0.3, 0.2]]))
    trained.write(0.25)
    torch.testing.assert_close(weight, theta * torch.tensor([[-0.3, 0.0]]))
