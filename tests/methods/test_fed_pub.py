"""Fed-PUB: masks, penalties and mixing weights worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.func import functional_call

from graphsilo.data.graph import GraphCollection
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.interface import Replies
from graphsilo.methods.fed_pub import FedPUBConfig, TrainReply, draw_graph
from graphsilo.training.local import weights_of
from kit.messages import check_sent


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_training_follows_autograd(kit, model):
    """Two steps of plain gradient descent on loss(θ ⊙ μ) + λ1 Σ |μ| + λ2 ‖θ − θ̄‖², by autograd of the whole."""
    settings = {
        "optimizer": "sgd",
        "lr": 0.5,
        "local_epochs": 2,
        "weight_decay": 0.1,
        "sparsity": 0.01,
        "proximal": 0.2,
    }
    plain = {"model": model, "model_options": {"dropout": 0.0}}
    server, federation = kit.build("fed_pub", [kit.tiny_silo(0)], **plain, **settings)
    federation.at("round", 1)
    client, start = federation.client(0), server.models[0]
    theta = {name: value.clone().requires_grad_() for name, value in start.items()}
    masks = {name: torch.ones_like(value).requires_grad_() for name, value in start.items() if value.dim() > 1}
    view, labels = client.data.view(client.trainer.objective.items), client.trainer.objective.labels
    for _ in range(2):
        used = {name: value * masks.get(name, 1.0) for name, value in theta.items()}
        loss = torch.nn.functional.cross_entropy(functional_call(client.model, used, (view,)), labels)
        loss = loss + 0.01 * sum(mask.abs().sum() for mask in masks.values())
        loss = loss + 0.2 * sum((value - start[name]).square().sum() for name, value in theta.items())
        leaves = [*theta.values(), *masks.values()]
        for leaf, slope in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
            leaf.data -= 0.5 * (slope + 0.1 * leaf.data)
    client.download(start)
    client.run_epochs()
    for name, value in theta.items():
        torch.testing.assert_close(client.upload()[name], value.detach(), atol=1e-5, rtol=1e-4)
    for name, mask in masks.items():
        torch.testing.assert_close(client.masks[name], mask.detach(), atol=1e-5, rtol=1e-4)


def test_every_matrix_has_a_mask_and_no_bias(kit):
    _, federation = kit.build("fed_pub", [kit.tiny_silo(0)], model="gat")
    found = {f"layers.{layer}.{part}" for layer in (0, 1) for part in ("linear.weight", "source", "target")}
    assert federation.client(0).masks.keys() == found


def replies_of(rows):
    """Direction and training items of each client, from client 3 upwards."""
    return Replies(
        {
            3 + place: TrainReply(weights={}, direction=torch.tensor(direction), num_samples=samples)
            for place, (direction, samples) in enumerate(rows)
        }
    )


def test_mixing_weights_by_hand(kit):
    """Cosines 0.6, 0 and 0.8; e^τ = 32, so that exp(τ cos) is 8, 1 and 16 beside 32 for oneself.

    The third trained nothing: it counts for nobody, and has a mixture of the others by 1 and 16.
    """
    server, _ = kit.build("fed_pub", [kit.tiny_silo(0)], sharpness=5 * math.log(2))
    rows = [([1.0, 0.0], 2.0), ([0.6, 0.8], 3.0), ([0.0, 1.0], 4.0)]
    wanted = torch.tensor([[2.0, 0.5, 0.0625], [0.75, 3.0, 1.5], [0.125, 2.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(server.shares(replies_of(rows)), wanted, atol=1e-6, rtol=0)
    wanted[:, 2] = 0
    wanted[2] = torch.tensor([0.0625, 1.0, 0.0])
    torch.testing.assert_close(server.shares(replies_of([*rows[:2], ([0.0, 1.0], 0.0)])), wanted, atol=1e-6, rtol=0)
    assert server.log["similarity"] == pytest.approx((3 + 2 * 1.4) / 9)
    nobody = server.shares(replies_of([(direction, 0.0) for direction, _ in rows]))
    assert not nobody.any()  # then each keeps what it sent


def test_models_without_direction_have_the_plain_mean(kit):
    server, _ = kit.build("fed_pub", [kit.tiny_silo(0)])
    shares = server.shares(replies_of([([0.0, 0.0], 5.0), ([1.0, 0.0], 5.0), ([0.0, 1.0], 5.0)]))
    assert shares[0].tolist() == [5.0] * 3
    assert shares[1].tolist() == pytest.approx([5 * math.exp(-10), 5.0, 5 * math.exp(-10)])


def test_from_the_plain_mean_to_models_of_their_own(kit):
    """A sharpness of 0 mixes all alike; a large one gives back what each sent, whose masked model is then its own."""
    for sharpness in (0.0, 1e9):
        server, federation = kit.build("fed_pub", [kit.tiny_silo(client) for client in range(3)], sharpness=sharpness)
        kit.rounds(server, federation, 2)
        uploads = [federation.client(client).upload() for client in range(3)]
        for place, upload in enumerate(uploads):
            for name, value in upload.items():
                wanted = value if sharpness else torch.stack([each[name] for each in uploads]).mean(0)
                torch.testing.assert_close(server.models[place][name], wanted)
    client = federation.client(0)
    client.install_aggregate(server.models[0])
    assert torch.equal(client.predict(client.data, "aggregate"), client.predict(client.data))


def test_masks_are_the_clients_own(kit):
    """What is received moves none; without training items they stay 1. Both views are masked, and come back."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1), kit.tiny_silo(2, train=[])]
    server, federation = kit.build("fed_pub", silos, cut=0.98)
    kit.rounds(server, federation, 2)
    client, bare = federation.client(0), federation.client(2)
    before = {name: mask.clone() for name, mask in client.masks.items()}
    client.download(server.models[1])
    assert all(torch.equal(client.masks[name], mask) for name, mask in before.items())
    assert any((mask.abs() <= 0.98).any() and (mask != 1).any() for mask in before.values())
    assert all(bool((mask == 1).all()) for mask in bare.masks.values())
    again = kit.build("fed_pub", silos, cut=0.98)[1].client(0)
    federation.client(0).masked.write(0.98)
    again.load_final(client.final_models())
    for each in (client, again):
        each.install_aggregate(server.models[0])
    for view in ("own", "aggregate"):
        assert torch.equal(again.predict(again.data, view), client.predict(client.data, view))
    masked = {name: value * before.get(name, torch.ones(())) for name, value in server.models[0].items()}
    masked = {name: value * (before[name].abs() > 0.98) if name in before else value for name, value in masked.items()}
    wanted = functional_call(client.model, masked, (client.data.full,))
    torch.testing.assert_close(client.predict(client.data, "aggregate"), wanted.detach())
    assert set(weights_of(client.model)) == set(client.upload())


def test_the_random_graph():
    """Five blocks of 100 nodes, of 24,750 pairs one in ten; the same for whoever draws it, graphs where these count."""
    graph = draw_graph(7, 5, Schema("node", 4, 3))
    assert graph.features.shape == (500, 4)
    assert abs(graph.features.mean()) < 0.1
    assert abs(graph.features.std() - 1) < 0.1
    ends = graph.edges // 100
    assert (ends[0] == ends[1]).all()
    assert graph.edges.shape[1] == pytest.approx(2 * 2475, rel=0.1)
    assert np.array_equal(graph.features, draw_graph(7, 5, Schema("node", 4, 3)).features)
    graphs = draw_graph(7, 2, Schema("graph", 4, 3))
    assert isinstance(graphs, GraphCollection)
    assert graphs.pointer.tolist() == [0, 100, 200]


def test_directions_that_are_none_are_refused(kit):
    server, _ = kit.build("fed_pub", [kit.tiny_silo(0)])
    with pytest.raises(MessageError, match="length 1, or is none at all"):
        TrainReply(weights={}, direction=torch.tensor([0.6, 0.6]), num_samples=1.0).check()
    narrow = TrainReply(weights={}, direction=torch.tensor([1.0]), num_samples=1.0)
    with pytest.raises(MessageError, match="of 2 numbers; 1 came"):
        server.check(0, narrow)


def test_one_step_has_no_distance():
    config, schema = FedPUBConfig(local_epochs=1), Schema("node", 4, 3)
    assert "takes one step" in config.explain_no_effect(schema, 10, 2, "gcn")
    for other in ({"proximal": 0.0}, {"local_epochs": 2}, {"batch_size": 4}):
        assert not FedPUBConfig(**{"local_epochs": 1, **other}).explain_no_effect(schema, 10, 2, "gcn")


def test_what_leaves_a_silo():
    check_sent(
        "fed_pub",
        """
        train weights: model float32
        train direction: model float32 [outputs] largest=1.001
        train num_samples: counts
        """,
    )


def test_masks_are_trained_beside_weights(kit):
    """FedPG's table VII: twice the parameters of FedAvg, but for biases, which have no mask."""
    _, plain = kit.build("fedavg", [kit.tiny_silo(0)])
    _, masked = kit.build("fed_pub", [kit.tiny_silo(0)])
    sizes = [parameter.numel() for parameter in plain.client(0).model.parameters()]
    biases = sum(one.numel() for one in plain.client(0).model.parameters() if one.dim() < 2)
    assert plain.client(0).count_trained() == sum(sizes)
    assert masked.client(0).count_trained() == 2 * sum(sizes) - biases
