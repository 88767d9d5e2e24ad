"""The two stages of O-pFGL."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.federation.client import ModelSpec
from graphsilo.methods.opfgl import client as opfgl_client
from graphsilo.methods.opfgl import stages as opfgl_stages
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training import sharing
from kit.opfgl import blocks, federation_of, own_weights, same, train

# -- losses --------------------------------------------------------------------------------------------------------

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 1.0, 1.5]])


TRUTH = torch.tensor([0, 3])


def pulled(loss, logits):
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf), leaf)[0]


def focal_loss(logits, gamma):
    log = F.log_softmax(logits, dim=1).gather(1, TRUTH[:, None])
    return (-((1.0 - log.exp()) ** gamma) * log).mean()


def test_losses_are_gradients_of_what_they_say():
    torch.testing.assert_close(
        opfgl_stages.cross_entropy(TRUTH, 4)(LOGITS.clone()), pulled(lambda z: F.cross_entropy(z, TRUTH), LOGITS)
    )
    assert float(focal_loss(LOGITS, 2.0)) == pytest.approx(0.1448137, abs=1e-6)  # the specification's number
    for gamma in (0.0, 0.5, 1.0, 2.0, 5.0):
        found = opfgl_stages.focal(TRUTH, 4, gamma)(LOGITS.clone())
        torch.testing.assert_close(found, pulled(lambda z, g=gamma: focal_loss(z, g), LOGITS))
        assert found.sum(dim=1).abs().max() < 1e-6
        sure = opfgl_stages.focal(TRUTH, 4, gamma)(100.0 * F.one_hot(TRUTH, 4) - 50.0)
        assert torch.isfinite(sure).all()
        assert sure.abs().max() < 1e-2


@pytest.mark.parametrize("mean", [True, False])
def test_distillation(mean):
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    teacher = F.softmax(torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), dim=1)
    gamma, rows = torch.tensor([0.1, 0.2, 0.0, 1.0, 0.5]), torch.tensor([3, 1])

    def loss(z):
        log = F.log_softmax(z, dim=1)
        divergence = (teacher * (teacher.log() - log)).sum(dim=1)
        return F.cross_entropy(z[rows], TRUTH) + (gamma * divergence).sum() / (5 if mean else 1)

    found = opfgl_stages.distil(TRUTH, rows, teacher, gamma, mean=mean)(logits.clone())
    torch.testing.assert_close(found, pulled(loss, logits))
    # At the teacher itself the divergence has no slope: only the cross-entropy is left.
    start = opfgl_stages.distil(TRUTH, rows, teacher, gamma, mean=mean)(teacher.log())
    plain = torch.zeros(5, 4)
    plain[rows] = opfgl_stages.cross_entropy(TRUTH, 4)(teacher.log()[rows])
    torch.testing.assert_close(start, plain, atol=1e-6, rtol=1e-5)


def test_models_without_a_trace_take_the_same_gradients():
    silo = blocks(1)[0]
    view = GraphTensors(silo.graph).full
    labels = torch.from_numpy(silo.graph.labels)
    for name in ("gcn", "appnp", "gat"):
        model = models.build(name, num_features=3, num_classes=3, seed=0, dropout=0.0)
        parameters, draw = list(model.parameters()), generator(0)
        found = opfgl_stages.parameter_gradients(model, view, draw, opfgl_stages.cross_entropy(labels, 3), parameters)
        wanted = torch.autograd.grad(F.cross_entropy(model(view, draw), labels), parameters)
        for left, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-4)


# -- paths ---------------------------------------------------------------------------------------------------------


class Steps:
    """A path whose weights are the number of the check."""

    def __init__(self, checks, check_every=10):
        self.checks, self.epochs, self.check_every = checks, checks * check_every, check_every
        self.asked = []

    def epoch(self, check):
        return check * self.check_every

    def at(self, check):
        self.asked.append(check)
        return {"w": torch.tensor(float(check))}


@pytest.mark.parametrize(
    ("scores", "patience", "chosen", "last"),
    [
        ([0.1, 0.3, 0.3, 0.2, 0.1], 2, 2, 4),  # the first of equals; two worse looks end it
        ([0.5, 0.4, 0.6, 0.1, 0.1, 0.1], 2, 3, 5),
        ([0.1, 0.2, 0.3], 10, 3, 3),
        ([0.0, 0.0, 0.0], 10, 1, 3),
    ],
)
def test_the_choice_of_an_epoch(scores, patience, chosen, last):
    path = Steps(len(scores))
    weights, epoch = opfgl_stages.choose(path, lambda found: scores[int(found["w"]) - 1], patience)
    assert (float(weights["w"]), epoch, max(path.asked)) == (chosen, 10 * chosen, last)


def test_without_a_score_the_last_check_is_taken():
    weights, epoch = opfgl_stages.choose(Steps(3), None, 1)
    assert (float(weights["w"]), epoch) == (3.0, 30)


def test_a_path_is_plain_full_batch_adam():
    silo = blocks(1)[0]
    view, labels = GraphTensors(silo.graph).full, torch.from_numpy(silo.graph.labels)
    for keep in (False, True):
        model = models.build("gcn", num_features=3, num_classes=3, seed=0, hidden=4, dropout=0.0)
        other = models.build("gcn", num_features=3, num_classes=3, seed=0, hidden=4, dropout=0.0)
        path = opfgl_stages.Path(
            model, view, opfgl_stages.cross_entropy(labels, 3), lr=0.01, epochs=25, check_every=10,
            generator=generator(0), keep=keep,
        )  # fmt: skip
        assert (path.checks, path.epoch(1), path.epoch(3)) == (3, 10, 25)
        first = opfgl_stages.copy_of(path.at(1))
        last = opfgl_stages.copy_of(path.at(3))
        if keep:
            assert all(torch.equal(path.at(1)[name], first[name]) for name in first)
        adam = torch.optim.Adam(other.parameters(), lr=0.01)
        for _ in range(25):
            adam.zero_grad()
            F.cross_entropy(other(view), labels).backward()
            adam.step()
        for name, value in other.named_parameters():
            torch.testing.assert_close(last[name], value.detach(), atol=1e-5, rtol=1e-4)


def test_sharing_a_path_changes_no_number(monkeypatch):
    found, made = [], []
    build = opfgl_stages.Path.__init__

    def counted(self, *arguments, **options):
        made[-1].append(options.get("keep"))
        build(self, *arguments, **options)

    monkeypatch.setattr(opfgl_stages.Path, "__init__", counted)
    for limit in (opfgl_stages.SHARED_BYTES, 0):
        monkeypatch.setattr(opfgl_stages, "SHARED_BYTES", limit)
        made.append([])
        server, federation = federation_of(blocks())
        train(server, federation)
        found.append(own_weights(federation))
    assert same(*found)
    assert made[0].count(True) == 1  # one path on the surrogate for three clients
    assert made[1].count(False) == 3
    assert not sharing._SHARED or all(value is not None for value in sharing._SHARED.values())


@pytest.mark.parametrize("condense_at", ["server", pytest.param("clients", marks=pytest.mark.slow)])
def test_a_held_path_serves_no_other_data_seed_or_setting(condense_at, monkeypatch):
    variants = [
        ({"seed": 0}, {}), ({"seed": 1}, {}), ({"seed": 0}, {"seed": 1}), ({"seed": 0}, {"stage1_lr": 2e-2}),
        ({"seed": 0}, {"stage1_epochs": 50}), ({"seed": 0}, {"specs": [ModelSpec("gcn", {"hidden": 5})]}),
        ({"seed": 0}, {"specs": [ModelSpec("mlp", {"hidden": 4})]}), ({"seed": 0}, {"lr_features": 1e-2}),
    ]  # fmt: skip

    def trained(data, settings):
        server, federation = federation_of(blocks(2, **data), condense_at=condense_at, links="edgeless", **settings)
        train(server, federation)
        return federation

    held = [trained(*variant) for variant in variants]  # all alive at once, as no prediction was asked for
    assert len(sharing._SHARED) >= len(variants)
    monkeypatch.setattr(opfgl_client, "share", lambda names, tensors, make: make())
    for federation, variant in zip(held, variants, strict=True):
        assert same(own_weights(federation), own_weights(trained(*variant)))
