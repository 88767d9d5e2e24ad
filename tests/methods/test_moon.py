"""MOON: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError
from graphsilo.methods import moon
from graphsilo.models.base import Outputs
from graphsilo.random import generator
from graphsilo.training.losses import info_nce
from graphsilo.training.objective import Step


def built(kit, name, **settings):
    return kit.build(name, [kit.tiny_silo(client) for client in range(3)], **settings)


def teacher_of(rows):
    return SimpleNamespace(outputs=lambda view: Outputs(rows, rows))


def slope(kit, rows, *others, **settings):
    """The term's gradient on embeddings, each of ``others`` being what one frozen model makes of the same items."""
    _, federation = built(kit, "moon", **settings)
    step = Step(np.arange(len(rows)), torch.zeros(len(rows)).long(), rows, rows, None, None)
    return federation.client(0).term([teacher_of(each) for each in others], step).embeddings


def loss(rows, *others, temperature):
    """The mean contrast as its formula says."""
    cosines = torch.stack([F.cosine_similarity(rows, each, dim=1, eps=1e-8) for each in others], dim=1) / temperature
    return info_nce(cosines, torch.arange(len(others)).eq(0).expand(len(rows), -1)).mean()


def test_the_contrast_by_hand(kit):
    """z = (1, 0), towards (1, 1), away from (0, 1), τ = ½: cosines 1/√2 and 0, log(1 + e^(−√2)) = 0.217622.

    Its slope is −μ / τ · e^(−√2) / (1 + e^(−√2)) (∇cos_g − ∇cos_p) with ∇cos_g = (0, 1/√2) and ∇cos_p = (0, 1).
    """
    row, shared, own = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0]])
    assert float(loss(row, shared, own, temperature=0.5)) == pytest.approx(0.217622, abs=1e-6)
    share = math.exp(-math.sqrt(2)) / (1 + math.exp(-math.sqrt(2)))
    expected = [0.0, -3.0 / 0.5 * share * (1 / math.sqrt(2) - 1)]
    assert slope(kit, row, shared, own, mu=3.0)[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("count", [1, 3])
def test_the_slope_is_that_of_autograd(kit, temperature, count):
    rows, *others = (torch.randn(5, 4, generator=generator(place)) for place in range(2 + count))
    leaf = rows.clone().requires_grad_()
    (3.0 * loss(leaf, *others, temperature=temperature)).backward()
    torch.testing.assert_close(slope(kit, rows, *others, mu=3.0, temperature=temperature), leaf.grad)


def test_equal_frozen_models_and_rows_of_zeros_have_no_slope(kit):
    rows, other = torch.randn(3, 4, generator=generator(0)), torch.randn(3, 4, generator=generator(1))
    assert float(loss(rows, other, other, temperature=0.5)) == pytest.approx(math.log(2))
    torch.testing.assert_close(slope(kit, rows, other, other), torch.zeros(3, 4))
    rows[1] = 0.0
    assert torch.equal(slope(kit, rows, other, -other)[1], torch.zeros(4))


@pytest.mark.parametrize(
    "settings",
    [{}, {"batch_size": 2}, {"participation": 0.5}, {"projection": 5}, {"fan_out": 1}, {"fan_out": 1, "batch_size": 2}],
    ids=str,
)
def test_without_contrast_it_is_fedavg_bit_for_bit_and_so_is_the_first_round(kit, settings):
    def found(name, count, **more):
        pair = built(kit, name, dropout=0.5, **settings, **more)
        return kit.rounds(*pair, count), pair[1]

    if "projection" in settings:  # FedAvg of the same architecture
        plain, first = (found("moon", count, mu=0.0)[0] for count in (3, 1))
    else:
        plain, first = (found("fedavg", count)[0] for count in (3, 1))
    sampled = {"contrast": "train"} if "fan_out" in settings else {}  # of all nodes there are no samples
    for count, same, more in ((3, plain, {"mu": 0.0}), (1, first, {"mu": 5.0, **sampled})):
        weights = found("moon", count, **more)[0]
        assert all(torch.equal(same[name], value) for name, value in weights.items())
    for contrast in ("train",) if sampled else ("all", "train"):
        weights = found("moon", 4, mu=5.0, contrast=contrast)[0]
        assert not all(torch.equal(plain[name], value) for name, value in weights.items())


def test_all_nodes_are_not_contrasted_where_neighbours_are_sampled(kit):
    with pytest.raises(
        ConfigError,
        match=r"method\.fan_out samples neighbours.*computes all nodes.*fan_out=0, or method\.contrast=train",
    ):
        built(kit, "moon", fan_out=1)


def test_what_is_drawn_away_from_is_the_own_model_of_the_last_time(kit):
    """Before the mean, and however long ago; so many of them as is said. Nothing of them moves or has a gradient."""
    server, federation = built(kit, "moon", participation=0.34, previous=2, mu=0.5)
    ended = {client: [] for client in federation.clients}
    for number in range(1, 10):
        (asked,) = server.select(federation, number)
        kit.rounds(server, federation, 1, start=number)
        client = federation.client(asked)
        ended[asked].append({name: value.detach().clone() for name, value in client.weights.items()})
        for one in federation.clients:
            before = federation.client(one).before
            assert len(before) == min(2, len(ended[one]))
            for kept, then in zip(before, ended[one][-2:], strict=True):
                assert all(torch.equal(kept[name], value) for name, value in then.items())
                assert not any(value.requires_grad for value in kept.values())
    assert max(len(each) for each in ended.values()) >= 3


def test_embeddings_leave_those_of_the_last_time_for_the_shared_models(kit):
    """The difference of their cosines grows over what the same number of steps without contrast makes of it."""

    def cosines(mu):
        server, federation = built(kit, "moon", mu=mu, optimizer="sgd", lr=0.02, local_epochs=100)
        client = federation.client(0)
        kit.rounds(server, federation)
        draws = generator(0)
        own = {name: torch.randn(value.shape, generator=draws) for name, value in server.weights.items()}
        client.before, start = [own], dict(server.weights)
        kit.rounds(server, federation, 1, start=2)
        with torch.no_grad():
            now = client.model.embed(client.data.full)
        frozen = (client.teacher(weights).outputs(client.data.full).embeddings for weights in (start, own))
        return [float(F.cosine_similarity(now, rows, dim=1).mean()) for rows in frozen]

    (near, far), (nearer, further) = cosines(1e-9), cosines(10.0)
    assert nearer - further > near - far + 0.05


def test_a_model_without_hidden_layer_needs_a_projection(kit):
    more = {"model": "sgc", "model_options": {"hidden": 4}}
    with pytest.raises(ConfigError, match=r"has no hidden layer.*method\.projection to a width"):
        built(kit, "moon", **more)
    kit.rounds(*built(kit, "moon", projection=4, **more), 2)
    kit.rounds(*built(kit, "moon", mu=0.0, **more), 1)


def test_the_projections_width_is_that_of_what_is_contrasted(kit):
    server, federation = built(kit, "moon", projection=5)
    client = federation.client(0)
    assert client.model.embed(client.data.full).shape == (6, 5)
    assert {name: tuple(value.shape) for name, value in server.weights.items() if name.startswith("out")} == {
        "output.weight": (5, 2), "output.bias": (2,),
    }  # fmt: skip
    assert all(torch.equal(value, client.weights[name]) for name, value in server.weights.items())
    assert issubclass(moon.Server, moon.fedavg.Server)
