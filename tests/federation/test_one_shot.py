"""Federations of one upload and one download: what they do whatever their graphs are made for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import FederationError, MessageError
from graphsilo.federation import registry
from graphsilo.federation.one_shot import ModelReply, OneShotClient, OneShotServer
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.testing import conformance
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of

SHORT = {"local_epochs": 3, "epochs": 3, "generator_steps": 2, "nodes": 8, "noise_dim": 4}


class Plain(OneShotServer):
    """The mean of logits, on graphs that it is sure of; notes what it made and learned of."""

    client = OneShotClient

    def begin(self):
        self.began = [(client, dict(weights)) for client, weights in self.uploads.items()]
        self.pools, self.lessons = [], []

    def before_distilling(self, epoch):
        self.pools.append(len(self.pool))

    def answer(self, logits):
        return logits.mean(0)

    def generator_loss(self, answer, student, labels):
        return F.cross_entropy(answer, labels)

    def lesson(self, place, draw):
        self.lessons.append(place)
        view = self.view(place)
        return view, self.answer(self.ensemble(view))


def assembled(hide=None, **settings):
    method = replace(registry.load("dense"), client=OneShotClient, server=Plain)
    return conformance.assemble(method, {**SHORT, **settings}, hide=hide)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def untrained(client):
    """Hides the training items of one client."""
    none = np.zeros(0, dtype=np.int64)
    return lambda silo: replace(silo, train=none) if silo.client == client else silo


def test_one_upload_and_one_download():
    server, federation, spy = assembled()
    play(server, spy)
    assert (spy.asked, spy.summed) == ({"train_alone"}, {"adopt"})
    assert [client for client, _ in server.began] == list(federation.clients)
    for client, weights in server.began:
        assert same(weights_of(federation.client(client).model), weights)  # it keeps the model that it sent
        assert same(weights_of(federation.client(client).common), server.weights)
    assert issubclass(type(server.config), OneRoundConfig)
    assert server.uploads == {}  # models of single clients are let go
    assert server.pool == []


def test_each_graph_joins_and_all_are_gone_through():
    server, _, spy = assembled()
    start = weights_of(server.student)
    start = {name: value.clone() for name, value in start.items()}
    play(server, spy)
    assert server.pools == [0, 1, 2]
    assert server.lessons == [0, 0, 1, 0, 1, 2]
    assert not same(server.weights, start)


def test_who_was_not_asked_gets_the_student_too():
    server, federation, spy = assembled(participation=0.5)
    play(server, spy)
    assert len(server.began) == max(1, len(federation.clients) // 2) < len(federation.clients)
    for client in federation.clients:
        assert same(weights_of(federation.client(client).common), server.weights)


def test_who_has_nothing_to_train_on_is_not_in_the_ensemble():
    server, federation, spy = assembled(untrained(1))
    play(server, spy)
    assert [client for client, _ in server.began] == [client for client in federation.clients if client != 1]
    assert server.counts.shape == (len(server.began), server.schema.num_classes)
    assert bool(server.counts.any(1).all())
    assert same(weights_of(federation.client(1).common), server.weights)


def test_a_client_that_lies_about_its_model_has_failed_alone():
    for settings, said in (({}, "client 0 failed in 'train_alone'"), ({"min_clients": 1}, None)):
        server, federation, spy = assembled(**settings)
        liar = federation.client(0)
        liar.model = liar.build_model(replace(liar.context.common, settings={"hidden": 3}))
        liar.trainer.parameters = list(liar.model.parameters())
        liar.run_epochs = lambda: None
        liar.weights = weights_of(liar.model)
        if said:
            with pytest.raises(FederationError, match=said):
                play(server, spy)
        else:
            play(server, spy)
            assert [client for client, _ in server.began] == list(federation.clients)[1:]


def test_counts_are_at_least_0():
    ModelReply(weights={}, label_counts=torch.tensor([0, 2])).check()
    with pytest.raises(MessageError, match="below 0"):
        ModelReply(weights={}, label_counts=torch.tensor([3, -1])).check()


def test_a_clients_state_has_the_student():
    server, federation, spy = assembled()
    play(server, spy)
    state = federation.client(0).state()
    fresh = assembled()[1].client(0)
    assert not same(weights_of(fresh.common), server.weights)
    fresh.load_state(state)
    assert same(weights_of(fresh.common), server.weights)
    assert same(weights_of(fresh.model), weights_of(federation.client(0).model))
