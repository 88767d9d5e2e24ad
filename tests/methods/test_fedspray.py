"""FedSpray: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import MessageError
from graphsilo.methods.fedspray import TrainReply, TrainRequest
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from graphsilo.training.losses import kd
from graphsilo.training.objective import Step
from kit.messages import check_sent

PROXIES = torch.tensor([[1.0, 0.0], [0.0, 3.0]])


def made(kit, **settings):
    """A client with two training nodes of class 0 and one of class 1, of six, and proxies of two entries."""
    server, federation = kit.build("fedspray", [kit.tiny_silo(0)], width=2, **settings)
    client = federation.client(0)
    federation.at("round", 1)
    client.download(server.weights)
    return client


def blind(client):
    """An encoder that sees nothing: F₂ gives both classes one half, F₁ the softmax of the proxies themselves."""
    with torch.no_grad():
        for value in client.common_weights.values():
            value.zero_()
        client.common.proxied.weight.copy_(torch.eye(2))
    return client


@pytest.mark.parametrize(("threshold", "nodes"), [(0.49, [0, 1, 2, 3, 4, 5]), (0.5, [0, 1, 2])])
def test_soft_targets_by_hand(kit, threshold, nodes):
    """Nodes with a label have their own proxies, others the mean of everybody's, where their class is sure enough."""
    client = blind(made(kit, threshold=threshold))
    client.free.copy_(PROXIES[[0, 1, 0]])
    targets, rows = client.soft_targets(PROXIES)
    assert rows.tolist() == nodes
    expected = torch.cat([PROXIES[[0, 1, 0]], torch.tensor([[0.5, 1.5]]).expand(3, 2)])[rows]
    torch.testing.assert_close(targets, torch.softmax(expected, 1))


def test_the_term_is_the_distance_from_the_targets(kit):
    client, seen = made(kit, strength=3.0), []
    client.run_epochs = lambda term=None: seen.append(term)
    client.soft_targets = lambda proxies: (torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([4, 1]))
    client.learn(PROXIES)
    logits = torch.linspace(-1, 2, 12).view(6, 2).requires_grad_()
    found = seen[0](Step(client.silo.train, torch.zeros(6), logits, logits, client.data.full, None)).logits
    value = 3.0 * kd(logits[[4, 1]], torch.tensor([[0.9, 0.1], [0.5, 0.5]]).log()).mean()
    torch.testing.assert_close(found, torch.autograd.grad(value, logits)[0])


@pytest.mark.parametrize("supervised", ["both", "features"])
@pytest.mark.parametrize("size", [0, 2])
def test_a_step_of_the_encoder_is_its_losss_gradient(kit, supervised, size):
    """CE(F₂, y) [+ CE(F₁, y)] + λ₂ KL(GNN ‖ F₁), for weights and proxies; the GNN stays as it is."""
    client, seen = made(kit, supervised=supervised, encoder_strength=3.0), []
    client.free.copy_(PROXIES[[0, 1, 1]])
    before = {name: value.clone() for name, value in weights_of(client.model).items()}
    client.optimizer.step = client.proxy_optimizer.step = seen.append
    batch = next(client.labelled.batches(size, torch.Generator().manual_seed(3)))
    known = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])[: len(batch.labels)]
    with torch.no_grad():
        client.step(batch, known)
    free = client.free.clone().requires_grad_()
    plain, rows = client.common.outputs(batch.view)
    logits = client.common.proxied(rows + free[slice(None) if batch.places is None else batch.places])
    value = F.cross_entropy(plain, batch.labels) + 3.0 * kd(logits, known.log()).mean()
    if supervised == "both":
        value = value + F.cross_entropy(logits, batch.labels)
    expected = torch.autograd.grad(value, [*client.common.parameters(), free])
    for mine, theirs in zip([*seen[0], *seen[1]], expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(torch.equal(before[name], value) for name, value in weights_of(client.model).items())


@pytest.mark.parametrize("refresh", ["all", "unlabelled"])
def test_where_training_nodes_begin(kit, refresh):
    client = made(kit, refresh=refresh, proxy_lr=1e-30)
    reply = client.train(TrainRequest(weights=client.upload(), proxies=PROXIES))
    rows = PROXIES[[0, 1, 0]] if refresh == "all" else torch.full((3, 2), 0.1)
    torch.testing.assert_close(client.proxies, rows)
    torch.testing.assert_close(reply.shares, torch.tensor([2 / 3, 1 / 3]))
    torch.testing.assert_close(reply.proxies, reply.shares[:, None] * rows[:2])
    assert reply.num_samples == 3


def test_the_server_by_hand(kit):
    """Of class 0 client 0 has the share 0.5 and the proxy 2, client 1 the share 1 and 5: (1 + 5) / 1.5 = 4."""
    server, _ = kit.build("fedspray", [kit.tiny_silo(0, classes=3)], width=1)
    assert server.proxies.flatten().tolist() == pytest.approx([0.0, 0.01, 0.02])
    weights = {name: 4.0 * value + 2.0 for name, value in server.weights.items()}
    before = dict(server.weights)
    total = TrainReply(
        weights=weights, num_samples=4.0, shares=torch.tensor([1.5, 0.5, 0.0]),
        proxies=torch.tensor([[6.0], [0.5], [0.0]]),
    )  # fmt: skip
    total.check_total(total, 2)
    server.combine(total)
    assert server.proxies.flatten().tolist() == pytest.approx([4.0, 1.0, 0.02])  # nobody has class 2: it stays
    for name, value in server.weights.items():
        torch.testing.assert_close(value, before[name] + 0.5)


@pytest.mark.parametrize(
    ("shares", "proxies"),
    [([-0.1, 0.5], [[0.0], [1.0]]), ([0.7, 0.4], [[0.0], [1.0]]), ([0.0, 1.0], [[1.0], [1.0]])],
    ids=["below 0", "more than all", "a proxy of nothing"],
)
def test_what_cannot_be_is_refused(shares, proxies):
    with pytest.raises(MessageError):
        TrainReply(weights={}, num_samples=3.0, shares=torch.tensor(shares), proxies=torch.tensor(proxies)).check()


def test_no_gnn_is_ever_sent(kit):
    """The encoder alone: d p + p, and p C + C twice; whatever the GNN is."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=())]
    server, federation = kit.build("fedspray", silos, model="sage", width=5, min_count=2)
    first = server.proxies.clone()
    play(server, federation, 2)
    assert sum(value.numel() for value in server.weights.values()) == 3 * 5 + 5 + 2 * (5 * 2 + 2)
    assert torch.equal(server.proxies[1], first[1])  # client 0 alone has it, once
    assert bool((server.proxies[0] != first[0]).all())
    idle = federation.client(1)
    reply = idle.train(TrainRequest(weights=server.weights, proxies=server.proxies))
    assert (reply.num_samples, float(reply.shares.sum())) == (0.0, 0.0)
    assert all(torch.equal(value, server.weights[name]) for name, value in reply.weights.items())


def test_what_leaves_a_silo():
    check_sent(
        "fedspray",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        train shares: counts float32 [classes] per_class=min_count
        train proxies: prototype float32 [classes, width] per_class=min_count
        """,
    )
