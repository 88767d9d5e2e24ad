"""Models that state their plan: what is written out is what plain autograd says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.models import GraphTensors
from graphsilo.models.backbones.gcn import GCN
from graphsilo.models.stack import StackedModel, plain
from graphsilo.random import generator
from kit.backbones import DOUBLE, IDS, VARIANTS, made, shaken


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_layers_are_what_plain_autograd_says(name: str, options: dict, make_graph) -> None:
    """The output of every layer with dropout, and the gradient of a loss that depends on all of them."""
    model, view = (
        shaken(made(name, options)).double(),
        GraphTensors(make_graph(seed=1), dtype=DOUBLE).view(np.arange(5)),
    )
    if not isinstance(model, StackedModel) or "bases" in options:  # whose weights are made of its parameters
        return
    for depth, activate_last in ((model.depth, False), (1, True)):
        plan = model.plan(view, depth)
        parameters = model._weights(sum(len(terms) + 1 for terms in plan))
        mine = StackedModel._outputs(model, view, depth, generator(1), activate_last)
        theirs = plain(plan, model.dropout, generator(1), activate_last, parameters, model.activation or torch.relu)
        torch.testing.assert_close(list(mine), theirs)
        slopes = [torch.randn(part.shape, generator=generator(4), dtype=DOUBLE) for part in mine]
        losses = [
            sum((slope * part).sum() for slope, part in zip(slopes, parts, strict=True)) for parts in (mine, theirs)
        ]
        found = [torch.autograd.grad(loss, parameters) for loss in losses]
        for left, right in zip(*found, strict=True):
            torch.testing.assert_close(left, right)


@pytest.mark.parametrize(
    ("name", "options"), [("gcn", {}), ("sage", {"layers": 3}), ("sign", {}), ("rgcn", {"bases": 2})]
)
def test_gradcheck(name: str, options: dict, make_graph) -> None:
    """Every entry, by torch's own checker."""
    data = GraphTensors(make_graph(nodes=6, features=3), dtype=DOUBLE)
    model = shaken(made(name, {"hidden": 4, **options}, features=3, classes=2)).double()
    keys = [key for key, _ in model.named_parameters()]
    view = data.view(np.array([3, 5]))

    def run(*values: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(
            model, dict(zip(keys, values, strict=True)), (view, generator(0, "mask"))
        )
        return result

    inputs = tuple(value.detach().clone().requires_grad_() for value in model.parameters())
    assert torch.autograd.gradcheck(run, inputs)


def test_a_loss_of_hidden_layers_alone(make_graph) -> None:
    model, view = made("gcn", {}), GraphTensors(make_graph()).full
    hidden, _ = model._outputs(view, 2, None, False)
    first, bias, *others = torch.autograd.grad(hidden.sum(), list(model.parameters()))
    torch.testing.assert_close(bias, (hidden > 0).sum(0).float())
    assert first.any()
    assert not any(one.any() for one in others)


def test_second_derivatives_are_refused(make_graph) -> None:
    model = made("gcn", {})
    loss = model(GraphTensors(make_graph()).full).square().sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        gradients[0].sum().backward()


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_dropout_drawn_ahead_is_the_same(name: str, options: dict, make_graph) -> None:
    """Bit for bit; parameters may change in between."""
    model, view = shaken(made(name, options)), GraphTensors(make_graph(nodes=20, seed=1)).kept_view(np.array([7, 2, 0]))
    ahead, alone = generator(3), generator(3)
    for place, source in enumerate(model.sources(view, 2, ahead)):
        trace, expected = model.trace(view, source), model.trace(view, alone)
        if trace is None or expected is None:
            assert source is ahead
            continue
        slope = torch.randn(trace.logits.shape, generator=generator(4 + place))
        assert torch.equal(trace.logits, expected.logits)
        assert all(torch.equal(*pair) for pair in zip(trace.pull(slope), expected.pull(slope), strict=True))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
    if model.trace(view, None) is not None:
        assert torch.equal(ahead.get_state(), alone.get_state())


class Doubled(GCN):
    """Somebody's, whose logits are not what its plan says."""

    def forward(self, view, generator=None):
        return 2 * super().forward(view, generator)


def test_a_model_with_a_forward_of_its_own_is_left_to_autograd(make_graph) -> None:
    view = GraphTensors(make_graph()).full
    assert Doubled(12, 3).trace(view, None) is None
    assert GCN(12, 3).trace(view, None) is not None
