"""FedGTA: confidence, moments and mixing weights worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.federation.interface import Replies
from graphsilo.federation.message import Empty
from graphsilo.methods.fedgta import TrainReply, confidence_of, moments_of
from graphsilo.training.local import load_weights, weights_of
from kit.messages import check_sent


def test_confidence_of_certain_and_of_undecided_rows():
    """Σ_v d_v C/e where rows are one-hot, Σ_v d_v (C/e − log C) where they are uniform; d = 2 and 3, C = 4."""
    degrees = torch.tensor([2.0, 3.0]).double()
    certain = torch.eye(4).double()[:2]
    assert confidence_of(certain, degrees) == pytest.approx(5 * 4 / math.e, abs=1e-6)
    assert confidence_of(torch.full((2, 4), 0.25).double(), degrees) == pytest.approx(
        5 * (4 / math.e - math.log(4)), abs=1e-6
    )
    assert confidence_of(torch.full((2, 3), math.exp(-1)).double(), degrees) == pytest.approx(0.0, abs=1e-6)


def test_confidence_is_bounded_by_degrees():
    """A model is mixed in by its confidence: degrees that sum to 5 and four classes give 5 · 4/e of it at most."""
    moments, largest = torch.zeros(4, 3), 5 * 4 / math.e
    certain = confidence_of(torch.eye(4).double()[:2], torch.tensor([2.0, 3.0]).double())
    TrainReply(weights={}, moments=moments, confidence=certain).check_size(Empty(), 9.0, 5.0)
    lie = TrainReply(weights={}, moments=moments, confidence=largest + 0.01)
    with pytest.raises(MessageError, match=r"give a confidence of 7\.358 at most; 7\.368 came"):
        lie.check_size(Empty(), 9.0, 5.0)
    lie.check_size(Empty(), 9.0, math.inf)  # links with weights


def test_moments_by_hand():
    rows = torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double()
    raw = [[0.25, 0.125, 0.0625], [0.75, 0.625, 0.5625]]
    central = [[0.0, 0.0625, 0.0], [0.0, 0.0625, 0.0]]  # ± 1/4 about the mean
    assert moments_of(rows, "raw", 3).tolist() == raw
    assert moments_of(rows, "central", 3).tolist() == central
    assert moments_of(rows, "hybrid", 3).tolist() == [one + two for one, two in zip(raw, central, strict=True)]


def test_predictions_spread_by_hand(kit):
    """Two nodes and their edge, the first for training; one step, α = 1/2, heat 1.

    With loops every entry of S is 1/2. From Y = [[1, 0], [p, q]]: the second row becomes
    ½·½ (Y_0 + Y_1) + ½ Y_1 = [¼ + ¾ p, ¾ q]; the first stands for its label again.
    """
    silo = kit.tiny_silo(0, nodes=2, train=[0])
    _, federation = kit.build("fedgta", [silo], steps=1, heat=1.0, moments="raw", order=1)
    client = federation.client(0)
    p, q = 0.2, 0.8
    moments, confidence = client.describe_predictions(torch.tensor([[0.6, 0.4], [p, q]]).double())
    second = torch.softmax(torch.tensor([0.25 + 0.75 * p, 0.75 * q]).double(), 0)
    assert moments.flatten().tolist() == pytest.approx([(1 + float(second[0])) / 2, float(second[1]) / 2])
    terms = sum(float(value * value.log()) + 1 / math.e for value in second)
    assert confidence == pytest.approx(2 * (2 / math.e + terms), abs=1e-6)  # every node has one edge and its loop


def test_each_step_spreads_further_and_heat_is_the_confidences_alone(kit):
    """The same with two steps, α = 1/4 and heat 2, from Y = [[1, 0], [1/5, 4/5]].

    After one step [1.9, 0.1], to which the label was added once more and which nothing cuts, and [0.3, 0.7]; after two
    the second row is ¼ [1.1, 0.4] + ¾ Y_1 = [0.425, 0.7].
    """
    silo = kit.tiny_silo(0, nodes=2, train=[0])
    _, federation = kit.build("fedgta", [silo], steps=2, alpha=0.25, heat=2.0, moments="raw", order=1)
    moments, confidence = federation.client(0).describe_predictions(torch.tensor([[0.6, 0.4], [0.2, 0.8]]).double())
    plain, heated = ([math.exp(0.425 / heat), math.exp(0.7 / heat)] for heat in (1, 2))
    first, second = (value / sum(plain) for value in plain)
    assert moments.flatten().tolist() == pytest.approx([(1 + first) / 2, second / 2])
    terms = sum(value * math.log(value) + 1 / math.e for value in (each / sum(heated) for each in heated))
    assert confidence == pytest.approx(2 * (2 / math.e + terms), abs=1e-6)


def test_what_is_sent_is_the_trained_mixture_and_what_it_predicts(kit):
    """Each client trains the model that is its own at the server, as one alone would."""
    silos = [kit.tiny_silo(client) for client in range(2)]
    (server, federation), (_, alone) = (kit.build(name, silos) for name in ("fedgta", "local"))
    server.models[1] = {name: value + 0.1 for name, value in server.models[1].items()}
    for each in (federation, alone):
        each.at("round", 1)
    for client, reply in server.collect(federation, [0, 1]):
        one = alone.client(client)
        load_weights(one.model, server.models[client])
        one.round = 1
        one.run_epochs()
        assert all(torch.equal(reply.weights[name], value) for name, value in weights_of(one.model).items())
        with torch.no_grad():
            predicted = torch.softmax(one.model(one.data.full), 1).double()
        moments, confidence = federation.client(client).describe_predictions(predicted)
        torch.testing.assert_close(reply.moments, moments.float())
        assert reply.confidence == pytest.approx(confidence)


def test_a_client_without_edges_has_a_say(kit):
    silo = kit.tiny_silo(0)
    bare = replace(silo, graph=silo.graph.with_edges(np.zeros((2, 0), dtype=np.int64)))
    _, federation = kit.build("fedgta", [bare])
    _, confidence = federation.client(0).describe_predictions(torch.full((6, 2), 0.5).double())
    assert confidence > 0


def replies_of(rows):
    """Moments and confidence of each client, from client 3 upwards."""
    return Replies(
        {
            3 + place: TrainReply(weights={}, moments=torch.tensor([moments]), confidence=confidence)
            for place, (moments, confidence) in enumerate(rows)
        }
    )


ROWS = [([1.0, 0.0], 2.0), ([2.0, 0.2], 6.0), ([0.0, 3.0], 4.0)]


def test_mixing_weights_by_hand(kit):
    """The first two point the same way (cosine 0.995); the third is alone with cosines 0 and 0.0995."""
    server, _ = kit.build("fedgta", [kit.tiny_silo(client) for client in range(3)], threshold=0.5)
    assert server.shares(replies_of(ROWS)).tolist() == [[2.0, 6.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 4.0]]
    assert server.log["accepted"] == pytest.approx(5 / 9)
    server, _ = kit.build("fedgta", [kit.tiny_silo(client) for client in range(3)], threshold=0.05)
    assert server.shares(replies_of(ROWS)).tolist() == [[2.0, 6.0, 0.0], [2.0, 6.0, 4.0], [0.0, 6.0, 4.0]]


@pytest.mark.parametrize(
    ("threshold", "shares"),
    [
        (0.0, [[2.0, 6.0, 0.0], [2.0, 6.0, 4.0], [0.0, 6.0, 4.0]]),  # a cosine of 0 is not above 0
        (1.0, [[2.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 0.0, 4.0]]),  # nobody's is above 1, and each accepts itself
    ],
)
def test_alike_is_above_the_threshold(kit, threshold, shares):
    server, _ = kit.build("fedgta", [kit.tiny_silo(client) for client in range(3)], threshold=threshold)
    assert server.shares(replies_of(ROWS)).tolist() == shares


def test_at_a_threshold_of_one_everybody_keeps_its_own(kit):
    server, federation = kit.build("fedgta", [kit.tiny_silo(client) for client in range(3)], threshold=1.0)
    kit.rounds(server, federation)
    for client in range(3):
        own = weights_of(federation.client(client).model)
        assert all(torch.equal(server.aggregates()[client][name], own[name]) for name in own)


def test_clients_that_are_alike_share_the_plain_mean_and_the_scale_of_confidence_is_nothing(kit):
    server, _ = kit.build("fedgta", [kit.tiny_silo(client) for client in range(3)])
    same = [([1.0, 1.0], confidence) for confidence in (1.0, 2.0, 5.0)]
    shares = server.shares(replies_of(same))
    assert shares.tolist() == [[1.0, 2.0, 5.0]] * 3
    scaled = server.shares(replies_of([(moments, 10 * confidence) for moments, confidence in same]))
    assert torch.equal(shares / shares.sum(1, keepdim=True), scaled / scaled.sum(1, keepdim=True))


def test_a_confidence_below_zero_is_refused():
    with pytest.raises(MessageError, match="at least 0; -1 came"):
        TrainReply(weights={}, moments=torch.zeros(1, 1), confidence=-1.0).check()


def test_moments_of_another_shape_are_refused(kit):
    """They broke the run where they were held against the others', and named nobody. Two orders, of both kinds."""
    server, federation = kit.build("fedgta", [kit.tiny_silo(client) for client in range(2)], order=2, moments="hybrid")
    federation.at("round", 1)
    (client, reply), _ = server.collect(federation, federation.clients)
    server.check(client, reply)
    assert reply.moments.shape[1] == 4
    for moments in (reply.moments[:, :3], reply.moments[:-1]):
        with pytest.raises(MessageError, match=r"client 0 must send moments of shape"):
            server.check(client, replace(reply, moments=moments))


def test_who_trains_nothing_counts_for_nobody(kit):
    """It has the mixture of the others, which are alike by any threshold, weighed by their confidence."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1), kit.tiny_silo(2, train=[])]
    server, federation = kit.build("fedgta", silos, threshold=-1.0)
    federation.at("round", 1)
    replies = server.collect(federation, [0, 1, 2])
    assert [reply.confidence > 0 for _, reply in replies] == [True, True, False]
    kit.rounds(server, federation, start=2)
    first, second, third = (server.models[client] for client in range(3))
    assert all(torch.equal(first[name], third[name]) and torch.equal(second[name], third[name]) for name in first)


def test_predictions_are_made_without_dropout(kit):
    """Of a model that drops half of its inputs in training."""
    _, federation = kit.build("fedgta", [kit.tiny_silo(0)], model_options={"dropout": 0.5})
    server = kit.build("fedgta", [kit.tiny_silo(0)], model_options={"dropout": 0.5})[0]
    federation.at("round", 1)
    client, (_, reply) = federation.client(0), next(iter(server.collect(federation, [0])))
    with torch.no_grad():
        predicted = torch.softmax(client.model(client.data.full), 1).double()
    torch.testing.assert_close(reply.moments, client.describe_predictions(predicted)[0].float())


def test_what_leaves_a_silo():
    check_sent(
        "fedgta",
        """
        train weights: model float32
        train moments: statistic float32 [classes, moments] per_class=True
        train confidence: statistic per_class=False
        """,
    )
