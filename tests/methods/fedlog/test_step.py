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
    logits = client.network.classifiers.logits

    def watched(parameters, targets, prototypes):
        seen.append(len(targets.own) * prototypes.shape[1])
        return logits(parameters, targets, prototypes)

    monkeypatch.setattr(client.network.classifiers, "logits", watched)
    monkeypatch.setattr(fedlog_step, "_POINTS", 31)  # 6 prototypes a branch
    torch.testing.assert_close(client.predict(client.data), whole, rtol=1e-5, atol=1e-6)
    assert seen == [30, 30, 12]


def test_a_step_in_blocks_is_the_step(kit, monkeypatch):
    server, federation = build(kit, [silo_of(0, [0, 1, 2, 0, 1])], prototypes=4)
    play(server, federation, 2)
    client, batch = federation.client(0), torch.tensor([0, 2, 3])
    synthetic = client.customise(server.synthetic)
    wanted = client.gradients(batch, synthetic, None)
    monkeypatch.setattr(fedlog_step, "_BLOCK", 2 * 2 * 64)  # 2 targets at once
    loss, modules, prototypes = client.gradients(batch, synthetic, None)
    assert loss == pytest.approx(wanted[0], rel=1e-6)
    for mine, whole in zip([*modules, prototypes], [*wanted[1], wanted[2]], strict=True):
        torch.testing.assert_close(mine, whole, rtol=1e-4, atol=1e-5)
