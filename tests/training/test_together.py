"""Clients of one process train side by side: every number is the one that each computes alone, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silo import EvaluationSet, Schema, Silo
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.methods import fedprox
from graphsilo.runtime.in_process import InProcess
from graphsilo.training import together as training_together
from graphsilo.training.objective import ClassifyItems

BACKBONES = ["mlp", "gcn", "sage", "gat", "gin", "sgc", "ssgc", "appnp", "gcnii", "sign", "gamlp"]


@pytest.fixture
def joined(monkeypatch):
    """Makes sure that clients were joined at all, lest a test shows nothing."""
    runs = []
    original = training_together.Joint.run
    monkeypatch.setattr(
        training_together.Joint, "run", lambda self, works: (runs.append(works), original(self, works))[1]
    )
    yield runs
    assert runs


def silo(client, *, nodes, train, sparse=True, features=300):
    draw = np.random.default_rng(client)
    ends = draw.integers(nodes, size=(2, nodes))
    ends = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    values = (draw.random((nodes, features)) < 0.01).astype(np.float32)
    graph = Graph(
        features=sp.csr_matrix(values) if sparse else values,
        edges=np.concatenate([ends, ends[::-1]], axis=1).astype(np.int64),
        labels=draw.integers(4, size=nodes),
        num_classes=4,
    )
    items = np.sort(draw.permutation(nodes)[:train]).astype(np.int64)
    return Silo(client, graph, items, (EvaluationSet("seen", graph, {}),), Schema("node", features, 4))


def silos(**more):
    """Five clients of uneven size; the fourth has nothing to train on."""
    sizes = [(160, 32), (133, 27), (147, 47), (20, 0), (181, 21)]
    return [silo(client, nodes=nodes, train=train, **more) for client, (nodes, train) in enumerate(sizes)]


def federations(name, parts, *, model="gcn", options=None, **settings):
    """All clients in one process, and each in one of its own."""
    method = registry.load(name)
    config = method.config(**settings)
    spec = ModelSpec(model, options or {})
    by_client = {one.client: one for one in parts}

    def federation(clients):
        return InProcess(
            clients, lambda client: method.client(ClientContext(client, by_client[client], config, spec, 0))
        )

    return federation(sorted(by_client)), {client: federation([client]) for client in by_client}


def state_of(federation, client):
    return encode_tree(federation.client(client).full_state()).tobytes()


def advance(federation, number, *, to=None):
    federation.at("round", number)
    client = type(federation.client(federation.clients[0]))
    federation.ask(client.train_alone, client.train_alone.types()[0](), to=to).require()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone(name, sparse):
    together, alone = federations("local", silos(sparse=sparse), model=name)
    for number in range(1, 5):
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


@pytest.mark.parametrize("hidden", [1, 7, 8, 33, 64, [16, 5], [10, 10, 10]], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.37])
def test_any_width_and_dropout(hidden, dropout):
    together, alone = federations("local", silos(), options={"hidden": hidden, "dropout": dropout})
    for number in range(1, 5):
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "sgd", "lr": 0.1},
        {"batch_size": 5},
        {"local_epochs": 1},
        {"weight_decay": 0.1},
        {"reset_optimizer": True},
    ],
    ids=str,
)
def test_settings(settings):
    together, alone = federations("local", silos(), **settings)
    for number in range(1, 5):
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_changing_company(joined):
    """Groups form, break up and form again; each client's own steps are all that counts."""
    together, alone = federations("local", silos())
    company = [
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2],
        [1, 2, 4],
        [1, 2, 4],
        [0, 4],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
        [0, 1, 2],
        [2],
    ]
    for number, clients in enumerate(company, start=1):
        advance(together, number, to=clients)
        for client in clients:
            advance(alone[client], number)
        for client in alone:
            assert state_of(together, client) == state_of(alone[client], client), (number, client)


def test_states_that_are_loaded_in_between(joined):
    together, alone = federations("local", silos())
    for number in (1, 2, 3):
        advance(together, number)
    kept = together.client_states()
    states = {client: state_of(together, client) for client in kept}
    for number in (4, 5):
        advance(together, number)
    later = {client: state_of(together, client) for client in kept}
    for client, one in alone.items():
        together.client(client).load_full_state(decode_tree(np.frombuffer(states[client], dtype=np.uint8).copy()))
        one.client(client).load_full_state(decode_tree(np.frombuffer(states[client], dtype=np.uint8).copy()))
    for number in (4, 5):
        advance(together, number)
        for one in alone.values():
            advance(one, number)
    for client, one in alone.items():
        assert state_of(together, client) == later[client]
        assert state_of(one, client) == later[client]


@pytest.mark.parametrize("stragglers", [0.0, 0.3])
def test_the_pull_of_fedprox(stragglers):
    together, alone = federations("fedprox", silos(), mu=0.5, stragglers=stragglers)
    weights = {name: value.detach().clone() for name, value in together.client(0).weights.items()}
    for number in range(1, 6):
        request = fedprox.fedavg.TrainRequest(weights={name: value + 0.01 * number for name, value in weights.items()})
        for where in (together, *alone.values()):
            where.at("round", number)
            where.ask(fedprox.Client.train, request).require()
        for client, one in alone.items():
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_a_new_objective_is_heeded(joined):
    """Methods may give a trainer other labels on the way."""
    together, alone = federations("local", silos())
    for number in range(1, 7):
        if number == 4:
            for where in (together, alone[1]):
                client = where.client(1)
                fewer = client.silo.train[:3]
                client.trainer.objective = ClassifyItems(client.data, replace(client.silo, train=fewer))
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_a_new_rate_is_heeded(joined):
    together, alone = federations("local", silos())
    for number in range(1, 7):
        if number == 4:
            for where in (together, alone[2]):
                where.client(2).trainer.optimizer.lr = 0.001
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_one_clients_trouble_while_training(joined):
    """What a client does to its gradients may fail: that is its failure alone, and it stays where it was."""
    together, alone = federations("local", silos(), local_epochs=4)
    for where in (together, alone[1]):
        client = where.client(1)
        original = client.trainer.run

        def run(epochs, draw, client=client, original=original, **options):
            steps = iter(range(epochs))

            def adjust(gradients):
                if client.round == 4 and next(steps) == 2:
                    raise ValueError("no such gradient")

            original(epochs, draw, **{**options, "adjust": adjust})

        client.trainer.run = run
    kind = type(together.client(1))
    for number in range(1, 7):
        failed = []
        for where in (together, *alone.values()):
            where.at("round", number)
            replies = where.ask(kind.train_alone, kind.train_alone.types()[0]())
            failed += [failure.reason for failure in replies.failures.values()]
        assert failed == (["no such gradient"] * 2 if number == 4 else [])
        for client, one in alone.items():
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_switched_off_gradients_stay_with_their_client():
    """A handler may switch gradients off around its training; that holds for it alone."""
    together, _ = federations("local", silos())
    seen = []
    for number in together.clients:
        held = together.client(number)
        original = held.trainer.run

        def run(epochs, draw, original=original, number=number, **options):
            seen.append(torch.is_grad_enabled())
            with torch.set_grad_enabled(number % 2 == 0):
                original(epochs, draw, **options)
                seen.append(torch.is_grad_enabled() == (number % 2 == 0))

        held.trainer.run = run
    for number in (1, 2, 3):
        advance(together, number)
    assert all(seen)
    assert torch.is_grad_enabled()
