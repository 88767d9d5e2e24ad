"""FedGen: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation import registry
from graphsilo.methods import fedgen
from graphsilo.methods.fedgen import FedGenConfig, Generator, ensemble_loss
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from graphsilo.training.objective import Step
from kit.messages import check_sent

CONFIG = registry.load("fedgen").config
SHORT = {"model": "mlp", "generator_steps": 2, "generator_hidden": 8, "noise_dim": 4, "generated": 6}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


def test_the_ensembles_loss_by_hand():
    """Two heads, two classes; class 0 is held 3 : 1, class 1 by the second alone.

    Items of class 0 and 1 with probabilities of their class 1/2 and 1/4 (head 1), 1/8 and 1/2 (head 2):
    (3/4 log 2 + 1/4 log 8 + log 2) / 2.
    """
    logits = torch.tensor([[[0.5, 0.5], [0.75, 0.25]], [[0.125, 0.875], [0.5, 0.5]]]).log()
    shares = torch.tensor([[0.75, 0.0], [0.25, 1.0]])
    wanted = (0.75 * math.log(2) + 0.25 * math.log(8) + math.log(2)) / 2
    assert float(ensemble_loss(logits, torch.tensor([0, 1]), shares)) == pytest.approx(wanted)


def test_the_generators_steps_are_those_of_the_formula(kit):
    """Two steps of Adam in round 3 on both terms, as they are written and by autograd, in float64.

    Class 0 is held 3 : 0, class 1 1 : 5; the rate is 0.1 · 0.5².
    """
    settings = {"generator_lr": 0.1, "generator_decay": 0.5, "generator_weight_decay": 0.1, "diversity": 2.0}
    server, _ = kit.build("fedgen", [kit.tiny_silo(0)], **SHORT, **settings)
    weight, bias = server.model.head_names()
    heads, made = {weight: drawn(2, 4, 2, seed=1), bias: drawn(2, 2, seed=2)}, server.generator_model
    leaves = {name: part.detach().double().requires_grad_() for name, part in made.named_parameters()}
    assert leaves.keys() == {"inner.weight", "norm.weight", "norm.bias", "outer.weight", "outer.bias"}
    server.number = 3
    server.learn(heads, torch.tensor([[3, 1], [0, 5]]))
    assert server.counts.tolist() == [3, 6]
    steps = torch.optim.Adam(leaves.values(), lr=0.025, weight_decay=0.1)
    draw, shares = server.generator("round", 3, "embeddings"), torch.tensor([[1.0, 1 / 6], [0.0, 5 / 6]]).double()
    for _ in range(2):
        labels = torch.multinomial(torch.tensor([3.0, 6.0]).double(), 6, True, generator=draw)
        noise = torch.randn(6, 4, generator=draw).double()
        inner = torch.cat([noise, F.one_hot(labels, 2)], 1) @ leaves["inner.weight"]
        unit = (inner - inner.mean(0)) / (inner.var(0, correction=0) + 1e-5).sqrt()
        hidden = (unit * leaves["norm.weight"] + leaves["norm.bias"]).relu()
        rows = hidden @ leaves["outer.weight"] + leaves["outer.bias"]
        loss = torch.zeros(())
        for share, w, b in zip(shares, heads[weight].double(), heads[bias].double(), strict=True):
            loss = loss - (share[labels] * (rows @ w + b).log_softmax(1)[range(6), labels]).mean()
        far = [
            [((noise[i] - noise[j]) ** 2).mean() * (rows[i] - rows[j]).abs().mean() for j in range(6)] for i in range(6)
        ]
        loss = loss + 2 * torch.exp(-torch.stack([one for row in far for one in row]).mean())
        steps.zero_grad()
        loss.backward()
        steps.step()
    for name, part in made.named_parameters():
        torch.testing.assert_close(part.detach().double(), leaves[name].detach(), atol=1e-5, rtol=1e-4)
    assert server.log["generator_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)


def test_heads_at_once_are_heads_one_by_one(kit):
    server, _ = kit.build("fedgen", [kit.tiny_silo(0)], **SHORT)
    models = [server.build_model(seed_names=("other", number)) for number in range(3)]
    heads = {name: torch.stack([weights_of(model)[name] for model in models]) for name in server.model.head_names()}
    rows = drawn(5, 4).requires_grad_()
    found = server.model.classify_by(heads, rows)
    for logits, model in zip(found, models, strict=True):
        torch.testing.assert_close(logits, model.classify(rows))
    found.square().sum().backward()
    one = rows.grad
    rows.grad = None
    sum(model.classify(rows).square().sum() for model in models).backward()
    torch.testing.assert_close(one, rows.grad)


def test_what_it_makes_is_classified_as_it_should_be(kit):
    """After training on fixed heads that tell classes apart, by every one of them."""
    server, _ = kit.build(
        "fedgen", [kit.tiny_silo(0)], model="mlp", generator_steps=300, generator_lr=1e-2, generator_weight_decay=0.0
    )
    separable = 4 * torch.eye(4, 2)
    weight, bias = server.model.head_names()
    heads = {
        weight: torch.stack([separable + 0.1 * drawn(4, 2, seed=number) for number in (1, 2)]), bias: torch.zeros(2, 2)
    }  # fmt: skip
    before = {name: value.clone() for name, value in heads.items()}
    server.learn(heads, torch.tensor([[3, 1], [0, 5]]))
    assert same(heads, before)
    made, draw = server.generator_model, generator(5)
    labels = made.labels(torch.tensor([1, 1]), draw).repeat(10)
    with torch.no_grad():
        found = server.model.classify_by(heads, made(made.noise(len(labels), draw), labels)).mean(0).argmax(1)
    assert float((found == labels).double().mean()) > 0.95


@pytest.mark.parametrize(("classes", "shares"), [("counts", [0.75, 0.0, 0.25]), ("uniform", [0.5, 0.0, 0.5])])
def test_classes_are_drawn_as_clients_have_them(classes, shares):
    """Of 3, 0 and 1 items: never the class that nobody has."""
    made = Generator(CONFIG(classes=classes, generated=4000), 3, 2)
    found = torch.bincount(made.labels(torch.tensor([3, 0, 1]), generator(0)), minlength=3) / 4000
    assert found.tolist() == pytest.approx(shares, abs=0.03)
    assert found[1] == 0


@pytest.mark.parametrize(("law", "low", "mean"), [("normal", -5.0, 0.0), ("uniform", 0.0, 0.5)])
def test_the_law_of_noise(law, low, mean):
    found = Generator(CONFIG(noise=law), 2, 2).noise(1000, generator(0))
    assert found.min() >= low
    assert float(found.mean()) == pytest.approx(mean, abs=0.02)


def test_terms_and_their_gradients_by_hand(kit):
    """The first reaches the head alone, the second the step's logits, and neither the generator.

    d/dz of KL(p ‖ softmax(z)), the mean over b items: (softmax(z) − p) / b.
    """
    server, federation = kit.build("fedgen", [kit.tiny_silo(0)], **SHORT, alpha=2.0, beta=3.0, decay=0.5)
    kit.rounds(server, federation, 2)
    client = federation.client(0)
    caught = []
    client.run_epochs = lambda term: caught.append(term)
    client.round = 1
    client.fit(
        fedgen.TrainRequest(
            weights=server.weights, generator=weights_of(server.generator_model), label_counts=server.counts
        )
    )
    (term,) = caught
    rows, labels = drawn(3, 4).requires_grad_(), torch.tensor([0, 1, 0])
    logits = drawn(3, 2, seed=1).requires_grad_()
    step = Step(np.arange(3), labels, logits, rows, client.data.full, generator(7))
    value = term(step)
    value.backward()
    draw = generator(7)
    drawn_labels = client.made_by.labels(server.counts, draw)
    with torch.no_grad():
        first = client.made_by(client.made_by.noise(6, draw), drawn_labels)
        target = torch.softmax(client.model.classify(client.made_by(client.made_by.noise(3, draw), labels)), 1)
    kl = (target * (target.log() - logits.log_softmax(1))).sum(1).mean()
    head = F.cross_entropy(client.model.classify(first), drawn_labels)
    torch.testing.assert_close(value, (2.0 * head + 3.0 * kl) / 2)  # in round 1 both weights are halved
    torch.testing.assert_close(logits.grad, 1.5 * (torch.softmax(logits.detach(), 1) - target) / 3)
    assert rows.grad is None
    names = {name for name, parameter in client.model.named_parameters() if parameter.grad is not None}
    assert names == set(client.model.head_names())
    assert all(parameter.grad is None for parameter in client.made_by.parameters())


def test_clients_use_the_generator_and_do_not_change_it(kit):
    server, federation = kit.build("fedgen", [kit.tiny_silo(0), kit.tiny_silo(1)], **SHORT)
    kit.rounds(server, federation)
    sent = {name: value.clone() for name, value in weights_of(server.generator_model).items()}
    assert "norm.running_mean" in sent
    kit.rounds(server, federation, start=2)
    for client in federation.clients:
        assert same(weights_of(federation.client(client).made_by), sent)
    assert not same(weights_of(server.generator_model), sent)


def test_the_generator_sees_counts_of_the_rounds_clients(kit):
    """Two items of class 0 and one of class 1; one of class 0; nothing. And their heads, as they were uploaded."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=(2,)), kit.tiny_silo(2, train=())]
    server, federation = kit.build("fedgen", silos, **SHORT)
    seen = []
    server.learn = lambda heads, counts: seen.append((counts.tolist(), heads))
    kit.rounds(server, federation)
    ((counts, heads),) = seen
    assert counts == [[2, 1], [1, 0]]
    own = [federation.client(client).weights for client in (0, 1)]
    assert same(heads, {name: torch.stack([each[name] for each in own]) for name in server.model.head_names()})


def test_without_items_nothing_is_learned(kit):
    server, federation = kit.build("fedgen", [kit.tiny_silo(0, train=())], **SHORT)
    start = {name: value.clone() for name, value in server.weights.items()}
    kit.rounds(server, federation, 2)
    assert same(server.weights, start)
    assert not server.trained


def test_rates_fall(kit):
    server, federation = kit.build("fedgen", [kit.tiny_silo(0)], **SHORT, generator_lr=0.1, generator_decay=0.5)
    kit.rounds(server, federation, 3)
    assert server.optimizer.lr == pytest.approx(0.025)


def test_numbers_of_items_below_0_are_refused():
    for number, counts in ((-1.0, [1]), (1.0, [-1])):
        with pytest.raises(MessageError, match="number of items below 0"):
            fedgen.TrainReply(weights={}, num_samples=number, label_counts=torch.tensor(counts)).check()


def test_a_head_that_mixes_neighbours_is_refused_before_anything_is_trained(kit):
    with pytest.raises(UnsupportedError, match="cannot classify vectors that are no nodes"):
        kit.build("fedgen", [kit.tiny_silo(0)], model="gcn")


def test_bytes(kit):
    """Up 4 P + 8 C, down as much and, from the second round on, the generator's.

    P = 3·4 + 4 + 4·2 + 2 = 26; the generator (4 + 2)·8, four times 8 for its BatchNorm, 8·4 + 4: 116 numbers.
    """
    server, _ = kit.build("fedgen", [kit.tiny_silo(0), kit.tiny_silo(1)], **SHORT, rounds=10)
    assert server.expected_bytes() == (20 * (104 + 16), 20 * (104 + 16) + 18 * 4 * 116)


def test_a_run_says_that_it_is_fedavg():
    told = [FedGenConfig(**settings).explain_no_effect(Schema("node", 3, 4), 9, 3, "gamlp") for settings in (
        {"alpha": 0.0, "beta": 0.0}, {}, {"alpha": 0.0, "beta": 1.0},
    )]  # fmt: skip
    assert [bool(text) for text in told] == [True, False, False]


def test_what_leaves_a_silo():
    check_sent(
        "fedgen",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        train label_counts: counts int64 [classes] per_class=True
        """,
    )
