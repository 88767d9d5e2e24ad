"""Our optimisers against torch's, step by step."""

from __future__ import annotations

import pytest
import torch

from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.training.optimizer import optimizer, shorten

SHAPES = [(5, 3), (3,), (1,), (40, 7)]


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def gradients(step):
    generator = torch.Generator().manual_seed(1000 + step)
    return [torch.randn(shape, generator=generator) * 10.0 ** (step % 3 - 1) for shape in SHAPES]


def theirs(kind, steps, **settings):
    """Parameters after every step of torch's own optimiser."""
    mine = [torch.nn.Parameter(value) for value in parameters()]
    chosen = torch.optim.Adam(mine, fused=True, **settings) if kind == "adam" else torch.optim.SGD(mine, **settings)
    path = []
    for step in range(steps):
        for parameter, gradient in zip(mine, gradients(step), strict=True):
            parameter.grad = gradient
        chosen.step()
        path.append([parameter.detach().clone() for parameter in mine])
    return path


CASES = [
    ("adam", {"lr": 0.01}),
    ("adam", {"lr": 0.1, "weight_decay": 5e-4}),
    ("sgd", {"lr": 0.1}),
    ("sgd", {"lr": 0.1, "weight_decay": 0.01}),
    ("sgd", {"lr": 0.1, "momentum": 0.9}),
    ("sgd", {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}),
]


def same(left, right):
    return all(torch.equal(*pair) for pair in zip(left, right, strict=True))


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_same_numbers_as_torch(kind, settings):
    mine = parameters()
    ours = optimizer(kind, mine, **settings)
    for step, expected in enumerate(theirs(kind, 20, **settings)):
        given = gradients(step)
        if step % 2:  # lying in memory as autograd gives that of a transposed weight
            given = [one.t().contiguous().t() if one.dim() == 2 else one for one in given]
        ours.step(given)
        assert same(mine, expected), step


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_state_comes_back_at_any_step(kind, settings):
    whole = parameters()
    ours = optimizer(kind, whole, **settings)
    for step in range(6):
        ours.step(gradients(step))
    for stop in range(6):
        part = parameters()
        first = optimizer(kind, part, **settings)
        for step in range(stop):
            first.step(gradients(step))
        second = optimizer(kind, part, **settings)
        second.load_state(decode_tree(encode_tree(first.state())))
        for step in range(stop, 6):
            second.step(gradients(step))
        assert same(part, whole), stop


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_a_saved_state_goes_where_the_parameters_are(kind, settings):
    """It comes back on the CPU; ``meta`` stands for a GPU here."""
    first = optimizer(kind, parameters(), **settings)
    first.step(gradients(0))
    second = optimizer(kind, [value.to("meta") for value in parameters()], **settings)
    second.load_state(decode_tree(encode_tree(first.state())))
    found = [value for part in second.state().values() for value in (part if isinstance(part, list) else [part])]
    assert all(value.device.type == "meta" for value in found)


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_a_saved_state_is_no_alias(kind, settings):
    first = optimizer(kind, parameters(), **settings)
    first.step(gradients(0))
    second = optimizer(kind, parameters(), **settings)
    state = first.state()
    second.load_state(state)
    before = encode_tree(first.state()).tobytes()
    second.step(gradients(1))
    assert encode_tree(first.state()).tobytes() == before


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_reset_forgets(kind, settings):
    mine = parameters()
    ours = optimizer(kind, mine, **settings)
    ours.step(gradients(5))
    ours.reset()
    for parameter, value in zip(mine, parameters(), strict=True):
        parameter.copy_(value)
    ours.step(gradients(0))
    assert same(mine, theirs(kind, 1, **settings)[0])


def test_parameters_with_gradients_are_changed_in_place():
    mine = [torch.nn.Parameter(value) for value in parameters()]
    places = [parameter.data_ptr() for parameter in mine]
    for kind in ("adam", "sgd"):
        optimizer(kind, mine, lr=0.1).step(gradients(0))
    assert [parameter.data_ptr() for parameter in mine] == places
    assert all(parameter.requires_grad and parameter.grad is None for parameter in mine)


def test_gradients_are_shortened():
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    shorten(gradients, 10.0)
    assert gradients[0].tolist() == [3.0, 0.0]
    shorten(gradients, None)
    shorten(gradients, 1.0)
    assert gradients[0].tolist() == pytest.approx([0.6, 0.0])
    assert gradients[1].tolist() == [[pytest.approx(0.8)]]
