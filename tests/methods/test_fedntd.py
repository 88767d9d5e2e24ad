"""FedNTD: the invariants of its specification, through the real machinery."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphsilo.methods import fedavg
from graphsilo.models.base import Outputs
from graphsilo.training.losses import not_true_kd
from graphsilo.training.objective import Step
from kit.doors import SMALL, idle


def built(kit, name, *, classes=4, **settings):
    """Three clients that each have some of the classes."""
    silos = [kit.tiny_silo(client, nodes=12, train=range(client, 6), classes=classes) for client in range(3)]
    return kit.build(name, silos, **settings)


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 0.4734876), (3.0, 0.5105602)])
def test_the_term_by_hand(kit, temperature, expected):
    """Labels 0 and 3 of four: the first item's logits become (1, 0, −1) against (0, 1, 0), the second's (0, ½, 1)
    against (0, 2, 0); τ² KL(teacher ‖ student), the mean over items, twice with β = 2.

    Its slope, as the client works it out and as autograd does: β τ (q − p) / 2 on the other classes.
    """
    _, federation = built(kit, "fedntd", beta=2.0, temperature=temperature)
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 1.0, 1.5]], requires_grad=True)
    before, labels = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0]]), torch.tensor([0, 3])
    value = 2.0 * not_true_kd(logits, before, labels, temperature=temperature).mean()
    assert float(value.detach()) == pytest.approx(2 * expected, abs=1e-6)
    value.backward()
    teacher = SimpleNamespace(outputs=lambda view: Outputs(before, before))
    slope = federation.client(0).term(teacher, Step(np.arange(2), labels, logits, logits, None, None)).logits
    torch.testing.assert_close(slope, logits.grad)
    q, p = (torch.softmax(torch.tensor(row) / temperature, 0) for row in ([1.0, 0.0, -1.0], [0.0, 1.0, 0.0]))
    torch.testing.assert_close(slope[0], torch.cat([torch.zeros(1), temperature * (q - p)]))
    assert before.tolist() == [[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0]]  # which a round's steps have in common


def test_with_two_classes_it_is_fedavg_bit_for_bit(kit):
    plain, same = (kit.rounds(*built(kit, name, classes=2), 3) for name in ("fedavg", "fedntd"))
    assert all(torch.equal(plain[name], value) for name, value in same.items())


def test_with_two_classes_a_run_says_that_it_is_fedavg():
    settings = {"partition": {"rule": "random", "clients": 3}, "method": {"name": "fedntd"}}
    told = [
        [text for text in idle({**settings, "data": {**SMALL, "classes": classes}}, **more).tree["warnings"]
         if text.startswith("FedNTD is FedAvg on this data: of two classes one is left")]
        for classes, more in ((2, {}), (3, {}), (2, {"method.beta": 0.0}))
    ]  # fmt: skip
    assert [len(found) for found in told] == [1, 0, 0]


def test_the_first_step_is_fedavgs(kit):
    """Both models are the same there, and the divergence is at its least."""
    plain, same = (
        kit.rounds(*built(kit, name, local_epochs=1, optimizer="sgd", lr=0.5)) for name in ("fedavg", "fedntd")
    )
    for name, value in same.items():
        torch.testing.assert_close(plain[name], value)


def test_views_of_other_classes_stay(kit):
    """Far nearer to the download's than FedAvg's do, over as many local steps."""

    def moved(name, **settings):
        server, federation = built(kit, name, local_epochs=100, optimizer="sgd", lr=0.05, weight_decay=0.0, **settings)
        request = fedavg.TrainRequest(weights={key: value.clone() for key, value in server.weights.items()})
        client = federation.client(0)
        with torch.no_grad():
            before = client.teacher(request.weights).outputs(client.data.full).logits
            federation.at("round", 1)
            client.train(request)
            after = client.model(client.data.full)
        kept = all(torch.equal(request.weights[key], value) for key, value in server.weights.items())
        assert kept
        assert all(parameter.grad is None for parameter in client.model.parameters())
        own = torch.nn.functional.one_hot(torch.from_numpy(client.silo.labels), 4) == 1
        q, p = (torch.softmax(one.masked_fill(own, -torch.inf), 1)[client.silo.train] for one in (after, before))
        return float((q - p).abs().sum(1).mean())

    assert moved("fedntd", beta=20.0) < 0.25 * moved("fedavg")
