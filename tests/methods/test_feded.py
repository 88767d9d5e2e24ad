"""FedED: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphsilo.models.base import Outputs
from graphsilo.training.losses import calibrated_cross_entropy, kd
from graphsilo.training.objective import Step
from kit.silos import graphs_of

SHARES = torch.tensor([0.75, 0.25, 0.0, 0.0])
LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 1.0, 1.5]])
BEFORE = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 1])
FORMS = ("adjusted", "plain")


def suppression(logits, labels, shares, form):
    """Σ_c π_c log of the mean of e^u over items: u as it is adjusted and 0 for an item's own, or no own ones at all."""
    total = torch.zeros(())
    for c, share in enumerate(shares.tolist()):
        column, others = logits[:, c], labels != c
        if form == "adjusted":
            column = torch.where(others, column - math.log(share + 1e-9) - math.log(len(shares)), torch.zeros(()))
            total = total + share * (column.logsumexp(0) - math.log(len(column)))
        elif bool(others.any()):
            total = total + share * (column[others].logsumexp(0) - math.log(len(column)))
    return total


def built(kit, name, *, classes=4, nodes=12, train=(0, 1, 4, 8), model="gcn", **settings):
    """Two clients; of class 0 there are three of four training items, of class 1 one, of the others none."""
    silos = [kit.tiny_silo(client, nodes=nodes, train=train, classes=classes) for client in range(2)]
    return kit.build(name, silos, model=model, **settings)


def slope(kit, logits, before, labels, **settings):
    """What the term adds to the gradient of calibrated cross-entropy."""
    _, federation = built(kit, "feded", **settings)
    client = federation.client(0)
    assert client.shares.tolist() == SHARES.tolist()
    teacher = SimpleNamespace(outputs=lambda view: Outputs(before, before))
    return client.term(teacher, Step(np.arange(len(labels)), labels, logits, logits, None, None)).logits


def over_absent_classes(logits, before):
    """Distillation over the classes of which the client has no item."""
    return kd(logits[:, SHARES == 0], before[:, SHARES == 0])


def losses(logits, before, labels, *, distillation, weight, form):
    known = labels >= 0
    distilled = over_absent_classes(logits, before).mean()
    return distillation * distilled + weight * suppression(logits[known], labels[known], SHARES, form)


def test_the_losses_by_hand():
    assert float(calibrated_cross_entropy(LOGITS, LABELS, SHARES).mean()) == pytest.approx(0.5761316, abs=1e-6)
    assert float(over_absent_classes(LOGITS, BEFORE).mean()) == pytest.approx(0.0131723, abs=1e-6)
    assert float(suppression(LOGITS, LABELS, SHARES, "plain")) == pytest.approx(-0.4431472, abs=1e-6)
    assert float(suppression(LOGITS, LABELS, SHARES, "adjusted")) == pytest.approx(-0.1490702, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", [[0, 1], [0, 0], [1, -1]], ids=str)
@pytest.mark.parametrize(("distillation", "weight"), [(2.0, 0.0), (0.0, 3.0), (2.0, 3.0)])
def test_the_slope_is_that_of_autograd(kit, form, labels, distillation, weight):
    """Also where all labelled items are of one class, and where one has no label."""
    leaf, labels = LOGITS.clone().requires_grad_(), torch.tensor(labels)
    losses(leaf, BEFORE, labels, distillation=distillation, weight=weight, form=form).backward()
    mine = slope(kit, LOGITS, BEFORE, labels, distillation=distillation, suppression=weight, suppressed=form)
    torch.testing.assert_close(mine, leaf.grad, atol=1e-6, rtol=1e-5)


def test_what_pushes_which_class(kit):
    """Distillation touches empty classes alone, and sums to 0 there; suppression those that the client has."""
    moved, held = (
        slope(kit, LOGITS, BEFORE, LABELS, distillation=distillation, suppression=weight)
        for distillation, weight in ((1.0, 0.0), (0.0, 1.0))
    )
    torch.testing.assert_close(moved[:, :2], torch.zeros(2, 2))
    torch.testing.assert_close(moved.sum(1), torch.zeros(2))
    assert moved[0].tolist() == [0.0] * 4  # (0, −1) and (1, 0) are the same odds
    assert float(moved[1, 2]) > 0.01
    torch.testing.assert_close(held[:, 2:], torch.zeros(2, 2))
    assert float(held[0, 1]) > 0.0 < float(held[1, 0])
    assert float(held[0, 0]) == float(held[1, 1]) == 0.0


@pytest.mark.parametrize("settings", [{}, {"batch_size": 2}], ids=str)
def test_with_even_classes_and_no_more_losses_it_is_fedavg(kit, settings):
    silos = [kit.tiny_silo(client, nodes=12, train=(0, 1, 2, 3)) for client in range(3)]
    more = {"dropout": 0.5, "optimizer": "sgd", "lr": 0.5, **settings}
    plain = kit.rounds(*kit.build("fedavg", silos, **more), 3)
    even = kit.rounds(*kit.build("feded", silos, distillation=0.0, suppression=0.0, **more), 3)
    for name, value in even.items():
        torch.testing.assert_close(plain[name], value, atol=1e-6, rtol=1e-5)
    other = kit.rounds(*kit.build("feded", silos, distillation=0.0, suppression=1.0, **more), 3)
    assert max(float((plain[name] - value).abs().max()) for name, value in other.items()) > 1e-4


def test_training_follows_the_losses(kit):
    """One full-batch step of a linear model is that of autograd over the whole objective, on all nodes as well."""
    for nodes in ("train", "all"):
        settings = {"distillation": 5.0, "suppression": 0.3, "distill_nodes": nodes}
        options = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 2}
        server, federation = built(kit, "feded", **settings, **options)
        client = federation.client(0)
        other = built(kit, "feded", **options)[1].client(0)
        view, train, start = client.data.full, torch.from_numpy(client.silo.train), dict(server.weights)
        with torch.no_grad():
            before = other.model(view)
        labels = torch.full((12,), -1).index_copy_(0, train, client.trainer.objective.labels)
        for _ in range(2):
            logits = other.model(view)
            rows = logits if nodes == "all" else logits[train]
            seen, teacher = (labels, before) if nodes == "all" else (labels[train], before[train])
            value = losses(rows, teacher, seen, distillation=5.0, weight=0.3, form="adjusted")
            value = value + calibrated_cross_entropy(logits[train], labels[train], SHARES).mean()
            slopes = torch.autograd.grad(value, list(other.model.parameters()))
            with torch.no_grad():
                for parameter, one in zip(other.model.parameters(), slopes, strict=True):
                    parameter.sub_(0.1 * one)
        kit.rounds(server, federation)
        for name, value in client.weights.items():
            torch.testing.assert_close(value, other.weights[name], atol=1e-6, rtol=1e-5)
            assert not torch.equal(value, start[name])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("train", [(0, 4, 8), (0,), ()], ids=str)
def test_clients_of_one_class_or_none_stay_finite(kit, form, train):
    weights = kit.rounds(*built(kit, "feded", train=train, suppressed=form, suppression=1.0), 3)
    assert all(bool(value.isfinite().all()) for value in weights.values())


def test_no_prior_is_added_where_it_predicts(kit):
    server, federation = built(kit, "feded")
    kit.rounds(server, federation)
    client = federation.client(0)
    with torch.no_grad():
        assert torch.equal(client.predict(client.data), client.model(client.data.full))


@pytest.mark.parametrize("batch_size", [0, 4])
def test_graphs(kit, batch_size):
    """Three items at a client, of five classes."""
    silos = [graphs_of(client, classes=5, count=6) for client in range(3)]
    found = [
        kit.rounds(*kit.build("feded", silos, model="gin", batch_size=batch_size, distillation=weight), 2)
        for weight in (0.0, 1.0)
    ]
    assert not all(torch.equal(found[0][name], value) for name, value in found[1].items())
