"""What a client of FedSage+ computes, step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import EvaluationSet
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.methods.fedsage_plus import Client
from graphsilo.methods.fedsage_plus.messages import OfferRequest, PretrainReply
from graphsilo.testing import conformance
from graphsilo.training import neighgen
from kit.fedsage_plus import ROUNDED, SMALL, pair


def test_what_is_offered_is_only_what_enters_the_loss(kit):
    _, federation = pair(kit)
    own = federation.client(0).neighgen
    offer = federation.ask(Client.offer, OfferRequest(), to=(0,))[0]
    compared = own.rows.nodes[own.choose_compared(own.rows)]
    assert len(offer.counts) == len(compared)
    assert (own.impaired.counts[compared] > 0).all()
    assert own.is_train[compared].all()
    assert sum(name.startswith("slot.") for name in offer.weights) == 2 * int(offer.counts.max())
    assert all(neighgen.is_fgen(name) for name in offer.weights)


def test_a_mended_client(kit):
    server, federation = kit.build(
        "fedsage_plus",
        [kit.tiny_silo(client, nodes=24, train=range(0, 24, 2)) for client in range(3)],
        model="sage", count_bias=1.6, **SMALL, **ROUNDED,
    )  # fmt: skip
    train = [federation.client(client).silo.train.copy() for client in range(3)]
    spy = conformance.Spy(federation)
    server.set_up(spy)
    (looked,) = [each for each in spy.messages if isinstance(each, PretrainReply)]  # the sum of three
    kept = missing = 0
    for number in range(3):
        client = federation.client(number)
        is_hidden = np.isin(np.arange(24), client.hidden_nodes())
        kept += int((~is_hidden).sum())
        missing += int(client.graph.adjacency()[~is_hidden][:, is_hidden].sum())
    assert (looked.nodes, looked.missing) == (kept, missing)
    assert server.log["true_hidden_neighbours"] == missing / kept
    assert server.log["predicted_hidden_neighbours"] == looked.predicted / kept
    generated = sum(len(federation.client(client).mended) for client in range(3))
    assert server.log["generated_neighbours"] == generated / kept > 0  # hidden ones are back, and get none
    for number in range(3):
        client = federation.client(number)
        counts = np.rint(client.mended.predicted.numpy()).clip(0, 5)
        assert counts[client.hidden_nodes()].sum() == 0  # the hidden ones are back, and get no neighbours
        tensors = client.mended_tensors(client.data)
        assert tensors.num_nodes == 24 + int(counts.sum())
        adjacency = tensors.graph.adjacency()
        assert (adjacency != adjacency.T).nnz == 0
        assert (client.mended.features.abs() <= 1).all()
        assert np.array_equal(client.silo.train, train[number])
        assert client.trainer.objective.num_samples == 12
        assert client.predict(client.data).shape == (24, 2)
        assert client.neighgen is None


def test_mended_graphs_survive_a_restart(kit):
    server, federation = kit.build(
        "fedsage_plus", [kit.tiny_silo(c, nodes=24, train=range(0, 24, 2)) for c in range(2)], model="sage",
        count_bias=1.6, **SMALL,
    )  # fmt: skip
    server.set_up(federation)
    federation.at("round", 1)
    server.round(federation, 1)
    client = federation.client(0)
    before = client.predict(client.data)
    models_, state = client.final_models(), decode_tree(encode_tree(client.state()))
    _, again = kit.build("fedsage_plus", [client.silo, federation.client(1).silo], model="sage", **SMALL)
    for restore in (lambda fresh: fresh.load_final(models_), lambda fresh: fresh.load_state(state)):
        fresh = again.client(0)
        restore(fresh)
        assert torch.equal(fresh.predict(fresh.data), before)
        fresh.load_state(again.client(1).state())


def test_other_graphs_are_seen_as_they_are(kit):
    server, federation = kit.build(
        "fedsage_plus", [kit.tiny_silo(c, nodes=24, train=range(0, 24, 2)) for c in range(2)], model="sage",
        count_bias=1.6, **SMALL,
    )  # fmt: skip
    server.set_up(federation)
    client, other = federation.client(0), federation.client(1)
    assert client.mended_tensors(other.data) is other.data
    assert client.mended_tensors(client.data) is not client.data


@pytest.mark.parametrize("choice", ["own", "shared"])
def test_without_an_epoch_the_generator_mends_as_it_was_drawn(kit, choice):
    silos = [kit.tiny_silo(client, nodes=24, train=range(0, 24, 2)) for client in range(2)]
    settings = {**SMALL, "neighgen": choice, "local_generator_epochs": 0, "generator_epochs": 0, "count_bias": 1.6}
    server, federation = kit.build("fedsage_plus", silos, model="sage", **settings)
    server.set_up(federation)
    assert all(len(federation.client(client).mended) for client in range(2))
    assert all(federation.client(client).neighgen is None for client in range(2))


def test_study_of_a_client(kit):
    silo = kit.tiny_silo(0, nodes=24, train=range(0, 24, 2))
    whole = EvaluationSet("global", silo.graph, silo.seen.items)
    silo = replace(silo, evaluations=(*silo.evaluations, whole))
    server, federation = kit.build("fedsage_plus", [silo], model="sage", **SMALL)
    assert federation.client(0).study() == {}
    server.set_up(federation)
    found = federation.client(0).study()
    assert found["distance_local"] == 0.0
    assert found["missing_true"] == 0.0
    assert "distance_local_lacking" not in found
