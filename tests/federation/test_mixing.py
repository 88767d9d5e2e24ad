"""Models in the mean: one for each client, by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Replies
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.mixing import MixingServer, mix, pack_models, unpack_models
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import MethodConfig


def model(*values):
    return {"a": torch.tensor([values[0]]), "b": torch.tensor([[values[1], values[1]]])}


def test_mixtures_by_hand():
    first, second = mix([model(1.0, 10.0), model(3.0, 30.0)], torch.tensor([[1.0, 3.0], [0.0, 5.0]]))
    assert (first["a"].tolist(), first["b"].tolist()) == ([2.5], [[25.0, 25.0]])  # (1 + 3 · 3) / 4
    assert (second["a"].tolist(), second["b"].tolist()) == ([3.0], [[30.0, 30.0]])


def test_the_mixture_of_equal_models_is_that_model():
    third = model(0.1, 1 / 3)
    (found,) = mix([third] * 3, torch.tensor([[0.2, 0.7, 1e-3]]))
    assert all(torch.equal(found[name], third[name]) for name in third)


class Sent(Message):
    weights: Tensors = sends("model")


class Server(MixingServer[MethodConfig, Sent]):
    """Clients send what ``answers`` says, and count for each other as ``counted`` says."""

    answers: dict[int, float]
    counted: list[list[float]]

    def collect(self, federation, clients):
        return Replies({client: Sent(weights={"w": torch.tensor([self.answers[client]])}) for client in self.answers})

    def shares(self, replies):
        return torch.tensor(self.counted)

    def select(self, federation, number):
        return tuple(self.answers)


def server_of(clients=4):
    models = dict.fromkeys(range(clients), ModelSpec("sgc", {}))
    server = Server(ServerContext(MethodConfig(), Schema("node", 1, 2), models, 0, tuple(range(clients))))
    start = {"w": torch.tensor([9.0])}
    server.models = dict.fromkeys(range(clients), start)
    return server


def held(server):
    return [float(server.aggregates()[client]["w"]) for client in sorted(server.models)]


def test_who_was_not_asked_yet_has_the_mean_of_the_others():
    server = server_of()
    server.answers, server.counted = {1: 2.0, 3: 6.0}, [[1.0, 1.0], [0.0, 3.0]]
    server.round(None, 1)
    # 1 has (2 + 6) / 2 and counts 1, 3 has 6 and counts 3: the mean is (4 + 18) / 4.
    assert held(server) == [5.5, 4.0, 5.5, 6.0]
    server.answers, server.counted = {0: 1.0}, [[0.0]]  # counts for nobody, and keeps its own
    server.round(None, 2)
    # Whoever was asked before keeps its model; 2 has (1 · 1 + 1 · 4 + 3 · 6) / 5.
    assert held(server) == [1.0, 4.0, pytest.approx(4.6), 6.0]
    server.answers, server.counted = {}, []
    before = held(server)
    server.round(None, 3)
    assert held(server) == before


def test_state_comes_back_with_what_clients_have_in_common():
    server, again = server_of(), server_of()
    server.answers, server.counted = {1: 2.0}, [[4.0]]
    server.round(None, 1)
    again.load_state(decode_tree(encode_tree(server.state())))
    assert held(again) == held(server)
    assert again.models[0] is again.models[2]
    assert again.own_shares == {1: 4.0}
    for one in (server, again):
        one.answers, one.counted = {2: 5.0}, [[1.0]]
        one.round(None, 2)
    assert held(again) == held(server)


def test_models_are_packed_once():
    common = model(1.0, 2.0)
    state = pack_models({3: common, 5: model(0.0, 0.0), 8: common})
    assert len(state["models"]) == 2
    found = unpack_models(decode_tree(encode_tree(state)))
    assert list(found) == [3, 5, 8]
    assert found[3] is found[8]
    assert found[5]["a"].tolist() == [0.0]
