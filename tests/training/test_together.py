"""Clients of one process train side by side: every number is the one that each computes alone, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silo import EvaluationSet, Schema, Silo
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.codec import encode_tree
from graphsilo.methods import fedprox
from graphsilo.runtime.in_process import InProcess
from graphsilo.training.objective import ClassifyItems

BACKBONES = ["mlp", "gcn", "sage", "gat", "gin", "sgc", "ssgc", "appnp", "gcnii", "sign", "gamlp"]


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
    sizes = [(60, 12), (33, 7), (47, 47), (20, 0), (81, 1)]
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
    for number in range(1, 6):
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


def test_changing_company():
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


def test_states_that_are_loaded_in_between():
    together, alone = federations("local", silos())
    for number in (1, 2, 3):
        advance(together, number)
    kept = together.client_states()
    states = {client: state_of(together, client) for client in kept}
    for number in (4, 5):
        advance(together, number)
    later = {client: state_of(together, client) for client in kept}
    from graphsilo.federation.codec import decode_tree

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


def test_the_pull_of_fedprox():
    together, alone = federations("fedprox", silos(), mu=0.5, stragglers=0.5)
    weights = {name: value.detach().clone() for name, value in together.client(0).weights.items()}
    for number in range(1, 6):
        request = fedprox.fedavg.TrainRequest(weights={name: value + 0.01 * number for name, value in weights.items()})
        for where in (together, *alone.values()):
            where.at("round", number)
            where.ask(fedprox.Client.train, request).require()
        for client, one in alone.items():
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_a_new_objective_is_heeded():
    """Methods may give a trainer other labels on the way."""
    together, alone = federations("local", silos())
    for number in range(1, 7):
        if number == 4:
            for where in (together, alone[1]):
                client = where.client(1)
                fewer = client.silo.train[:3]
                from dataclasses import replace

                client.trainer.objective = ClassifyItems(client.data, replace(client.silo, train=fewer))
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_a_new_rate_is_heeded():
    together, alone = federations("local", silos())
    for number in range(1, 7):
        if number == 4:
            for where in (together, alone[2]):
                where.client(2).trainer.optimizer.lr = 0.001
        advance(together, number)
        for client, one in alone.items():
            advance(one, number)
            assert state_of(together, client) == state_of(one, client), (number, client)


def test_one_clients_trouble_while_training(kit_error="no such gradient"):
    """What a client adds to its gradients may fail: that is its failure, and it is listed."""
    together, _ = federations("local", silos())
    for number in (1, 2, 3):
        advance(together, number)
    client = together.client(1)
    original = client.trainer.run

    def failing(gradients):
        raise ValueError(kit_error)

    client.trainer.run = lambda epochs, draw, **options: original(epochs, draw, **{**options, "adjust": failing})
    together.at("round", 4)
    kind = type(client)
    replies = together.ask(kind.train_alone, kind.train_alone.types()[0]())
    assert kit_error in replies.failures[1].reason


def test_switched_off_gradients_stay_with_their_client():
    """A handler may train inside a context; it holds for that client alone."""
    together, alone = federations("local", silos(), batch_size=5)
    seen = {}
    for where in (together, *alone.values()):
        for client in where.clients:
            held = where.client(client)
            original = held.trainer.run

            def run(epochs, draw, original=original, number=client, place=where, **options):
                seen.setdefault(id(place) == id(together), []).append((number, torch.is_grad_enabled()))
                with torch.set_grad_enabled(number % 2 == 0):
                    with torch.enable_grad():
                        original(epochs, draw, **options)

            held.trainer.run = run
    for number in (1, 2, 3):
        advance(together, number)
        for one in alone.values():
            advance(one, number)
    assert {enabled for _, enabled in seen[True]} == {True}
    assert torch.is_grad_enabled()
    for client, one in alone.items():
        assert state_of(together, client) == state_of(one, client)
