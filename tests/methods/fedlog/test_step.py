"""A step of FedLoG: its loss and its gradient."""

from __future__ import annotations

import pytest
import torch

from graphsilo.methods import fedlog
from graphsilo.methods.fedlog import step as fedlog_step
from graphsilo.testing.small import play
from kit.fedlog import build, silo_of


def test_steps_on_synthetic_nodes_beside_the_batches_or_after_them(kit, monkeypatch):
    """Eight training nodes and six synthetic ones in batches of four: two steps, or two and two more."""
    seen = []

    def watched(self, batch, synthetic, draw, *, norm_weight=None):
        seen.append((len(batch), 0 if synthetic is None else len(synthetic.labels), norm_weight))
        return 0.0

    monkeypatch.setattr(fedlog.Client, "step", watched)
    for generalization in ("joint", "sequential"):
        settings = {"batch_size": 4, "generalization": generalization}
        server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1, 2, 0, 1])], **settings)
        play(server, federation, 2)
    joint, sequential = seen[:4], seen[4:]
    assert joint == [(4, 0, None)] * 2 + [(4, 6, None)] * 2
    assert sequential == [(4, 0, None)] * 4 + [(0, 4, 0.0), (0, 2, 0.0)]


def test_prediction_with_all_pairs_takes_few_nodes_at_once(kit, monkeypatch):
    server, federation = build(kit, [silo_of(0, [0, 1, 2])], interp=0)
    play(server, federation, 1)
    client, seen = federation.client(0), []
    whole = client.predict(client.data)
    forward = client.network.classifiers.forward

    def watched(parameters, targets, prototypes):
        seen.append(len(targets.own) * prototypes.shape[1])
        return forward(parameters, targets, prototypes)

    monkeypatch.setattr(client.network.classifiers, "forward", watched)
    monkeypatch.setattr(fedlog_step, "_POINTS", 31)  # 6 prototypes a branch
    torch.testing.assert_close(client.predict(client.data), whole, rtol=1e-5, atol=1e-6)
    assert seen == [30, 30, 12]


@pytest.mark.parametrize("part", ["encoder.", "classifier.", "prototypes"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neighbour_generator": False},
        {"interaction": "inert", "mixing": "logarithms"},
        {"distance": "embedding"},
        {"layer_norm": False},
    ],
    ids=str,
)
def test_the_gradient_of_a_step_is_that_of_its_loss(kit, settings, part):
    server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1])], norm_weight=0.3, prototypes=4, **settings)
    play(server, federation, 2)
    client, batch = federation.client(0), torch.tensor([0, 2, 3])
    for name, value in client.weights.items():
        if name.endswith("move.2.weight"):
            value *= 100.0  # else the classifiers hardly move anything
    synthetic = client.customise(server.synthetic)
    _, gradients, to_prototypes = client.gradients(batch, synthetic, None)
    if part == "prototypes":
        values, slopes = [client.prototypes], [to_prototypes]
    else:
        values = [value for name, value in client.weights.items() if name.startswith(part)]
        slopes = [slope.clone() for name, slope in zip(client.weights, gradients, strict=True) if name.startswith(part)]
    length = float(torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt())
    step, losses = 3e-3, []
    for sign in (1.0, -2.0):
        for value, slope in zip(values, slopes, strict=True):
            value.add_(slope, alpha=sign * step / length)
        losses.append(client.gradients(batch, synthetic, None)[0])
    assert length > 1e-3
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(length, rel=0.02)


def test_a_step_in_blocks_is_the_step(kit, monkeypatch):
    server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1])], prototypes=4)
    play(server, federation, 2)
    client, batch = federation.client(0), torch.tensor([0, 2, 3])
    synthetic = client.customise(server.synthetic)
    wanted = client.gradients(batch, synthetic, None)
    monkeypatch.setattr(fedlog_step, "_BLOCK", 4 * 2 * 64)  # 4 of 15 targets at once
    loss, modules, prototypes = client.gradients(batch, synthetic, None)
    assert loss == pytest.approx(wanted[0], rel=1e-6)
    for mine, whole in zip([*modules, prototypes], [*wanted[1], wanted[2]], strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-5)
