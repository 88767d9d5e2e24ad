"""Gradients of stacks of layers, written by hand, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.models import GraphTensors
from graphsilo.random import generator
from kit.backbones import DOUBLE, IDS, VARIANTS, made, shaken


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
@pytest.mark.parametrize("part", ["full", "rows"])
@pytest.mark.parametrize("what", ["forward", "embed"])
def test_gradients_against_finite_differences(name: str, options: dict, part: str, what: str, make_graph) -> None:
    data = GraphTensors(make_graph(nodes=9, features=4, sparse=part == "rows"), dtype=DOUBLE)
    view = data.full if part == "full" else data.view(np.array([7, 0, 3]))
    small = {"layers": 2} if name.startswith("gcnii") else {}
    model = shaken(made(name, {"hidden": 4, **small, **options}, features=4)).double()
    parameters = dict(model.named_parameters())
    if what == "embed":
        parameters = {key: parameters[key] for key in model.encoder_names()}
    if not parameters:
        return

    def run(*values: Tensor) -> Tensor:
        with torch.no_grad():
            for parameter, value in zip(parameters.values(), values, strict=True):
                parameter.copy_(value)
        result: Tensor = (model if what == "forward" else model.embed)(view, generator(0, "mask"))
        return result

    start = [value.detach().clone() for value in parameters.values()]
    directions = [torch.randn(value.shape, dtype=DOUBLE, generator=generator(1, i)) for i, value in enumerate(start)]
    output = run(*start)
    weights = torch.randn(output.shape, dtype=DOUBLE, generator=generator(2))
    gradients = torch.autograd.grad((output * weights).sum(), list(parameters.values()))
    step = 1e-6
    # One random direction per parameter: a wrong entry shows in its inner product.
    for index, direction in enumerate(directions):
        ahead, behind = list(start), list(start)
        ahead[index], behind[index] = start[index] + step * direction, start[index] - step * direction
        slope = ((run(*ahead) - run(*behind)) * weights).sum() / (2 * step)
        assert (gradients[index] * direction).sum().item() == pytest.approx(slope.item(), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"), [("gcn", {}), ("sage", {}), ("gat", {"heads": 2}), ("gcnii", {"layers": 2})]
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


def test_second_derivatives_are_refused(make_graph) -> None:
    model = made("gcn", {})
    loss = model(GraphTensors(make_graph()).full).square().sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        gradients[0].sum().backward()


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_several_passes_are_as_many_traces(name: str, options: dict, make_graph) -> None:
    """Bit for bit, in the order of the parameters, which may change in between, and with the same draws."""
    model, view = shaken(made(name, options)), GraphTensors(make_graph(nodes=20, seed=1)).kept_view(np.array([7, 2, 0]))
    known = model.trace(view, None)
    ahead, alone = generator(3), generator(3)
    passes = model.passes(view, 2, ahead)
    assert known is not None or passes is None
    for place, (output, pull) in enumerate(passes or ()):
        expected, back = model.trace(view, alone)
        slope = torch.randn(output.shape, generator=generator(4 + place))
        assert torch.equal(output, expected)
        assert all(torch.equal(*pair) for pair in zip(pull(slope), back(slope), strict=True))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
    if passes is not None:
        assert torch.equal(ahead.get_state(), alone.get_state())
