"""What clients of FedSage+ exchange is one backward pass."""

from __future__ import annotations

import torch

from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.methods.fedsage_plus import Client
from graphsilo.methods.fedsage_plus.messages import ImproveRequest
from graphsilo.random import generator
from graphsilo.training import neighgen
from kit.fedsage_plus import pair


def caught_gradient(server, federation):
    """What one exchange makes client 0 step by."""
    client = federation.client(0)
    steps = []
    client.neighgen.step = steps.append
    received = server._exchange(federation, 0, {0, 1}, 0)
    federation.ask(Client.improve, ImproveRequest(clients=2, **received), to=(0,)).require()
    return steps[0], received


def joint(own, generated, rows, targets, config):
    """λ_f α L_f^{0←1} written out, with plain loops."""
    total = torch.zeros(())
    features = targets.features.toarray()
    for slot, made in enumerate(generated):
        for row in range(len(made)):
            truth = torch.from_numpy(features[targets.pointer[row] : targets.pointer[row + 1]])
            total = total + (made[row] - truth).square().sum(1).min()
        assert slot < 5
    scale = 1 / len(own.impaired.train)
    return config.lambda_f * config.alpha * scale * total


def test_exchanged_gradients_are_those_of_one_backward_pass(kit):
    server, federation = pair(kit)
    config, own, other = server.config, federation.client(0).neighgen, federation.client(1)
    rows, _ = own.make_offer()
    assert len(rows) > 2
    assert rows.counts.max() >= 2
    # The same draws as both clients make, by name.
    named = {"targets": 1, "compare": 1, "generate": 0}
    streams = {name: generator(0, "client", client, "round", 0, name) for name, client in named.items()}
    leaves = own.trainable()
    inputs = own.embeddings[torch.from_numpy(own.rows.nodes)]
    local = own.local_loss(leaves, own.generate(leaves, inputs, own.rows, streams["generate"]), own.rows, None)
    targets = neighgen.cross_targets(
        undirected_adjacency(other.graph), other.graph.features, len(rows), streams["targets"]
    )
    noise = streams["compare"]
    generated = neighgen.generate(
        leaves, own.embeddings[torch.from_numpy(rows.nodes)], rows.counts, noise, config.generator_dropout, noise
    )
    together = 0.5 * (local + joint(own, generated, rows, targets, config))
    wanted = neighgen.gradients_of(together, leaves)

    found, _ = caught_gradient(server, federation)
    assert found.keys() == wanted.keys()
    assert {"body.0.weight", "slot.1.bias"} <= found.keys()
    for name, gradient in wanted.items():
        assert torch.allclose(found[name], gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-9), name
    # and the others' part is not lost among the rest
    loss, again, _ = own.frozen_loss(generator(0, "client", 0, "round", 0, "generate"))
    alone = neighgen.gradients_of(loss, again)
    assert not torch.allclose(found["slot.0.weight"], 0.5 * alone["slot.0.weight"], rtol=0.1, atol=0)


def test_exchanged_outputs_are_one_backward_pass_over_shared_draws(kit):
    server, federation = pair(kit, exchange="outputs")
    config, own, other = server.config, federation.client(0).neighgen, federation.client(1)
    rows, _ = own.make_offer()
    local, leaves, generated = own.frozen_loss(generator(0, "client", 0, "round", 0, "generate"))
    targets = neighgen.cross_targets(
        undirected_adjacency(other.graph), other.graph.features, len(rows),
        generator(0, "client", 1, "round", 0, "targets"),
    )  # fmt: skip
    mine = neighgen.compared_features(generated, own.choose_compared(own.rows))
    wanted = neighgen.gradients_of(0.5 * (local + joint(own, mine, rows, targets, config)), leaves)
    found, received = caught_gradient(server, federation)
    assert received["outputs"].shape == (sum(neighgen.rows_per_slot(rows.counts)), 3)
    for name, gradient in wanted.items():
        assert torch.allclose(found[name], gradient, atol=1e-5 * float(gradient.abs().max()) + 1e-9), name
