"""FedPG through the real clients, server, codec and ledger: its specification's invariants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.federation import registry
from graphsilo.federation.codec import encode
from graphsilo.models import pool
from graphsilo.testing import conformance
from graphsilo.testing.small import play
from kit.fedpg import SHORT, federation_of, silo_of, weights_in
from kit.messages import by_kind


def test_unlabelled_nodes_count_with_their_predicted_class(kit):
    silo = silo_of(0)
    server, federation = kit.build("fedpg", [silo], **SHORT)
    play(server, federation, 1)
    client = federation.client(0)
    predicted = client.predict(client.data).argmax(1).numpy()
    expected = predicted.copy()
    expected[silo.train] = silo.labels[silo.train]
    assert np.array_equal(client._membership.labels, expected)
    assert server.counts[0].tolist() == np.bincount(expected, minlength=3).tolist()


def test_isolated_nodes_have_prototypes_at_hop_zero_alone(kit):
    silo = silo_of(0)
    bare = silo.graph.with_edges(np.zeros((2, 0), dtype=np.int64))
    silo = replace(silo, graph=bare, evaluations=(replace(silo.seen, graph=bare),))
    server, federation = kit.build("fedpg", [silo], **SHORT)
    play(server, federation, 3)
    assert server.present[0, :, 0].any()
    assert not server.present[0, :, 1:].any()


# -- ablations and settings ----------------------------------------------------------------------------------------


def test_noise_and_centring_change_what_is_sent_but_not_the_model_at_first(kit):
    sent = []
    for settings in ({}, {"noise": 0.25}, {"centred": True}):
        server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **{**SHORT, **settings})
        play(server, federation, 1)
        sent.append((server.prototypes, weights_in(federation)))
    (plain, weights), (noisy, _), (centred, after) = sent
    assert all(torch.equal(value, after[0][name]) for name, value in weights[0].items())
    for place in (0, 1):
        assert (noisy[place] != plain[place]).flatten(0, 1).any(0).sum() == 1  # a quarter of four dimensions
    torch.testing.assert_close(centred[0, :, 0].sum(0), torch.zeros(4), atol=1e-5, rtol=0)


# -- different models ----------------------------------------------------------------------------------------------


def test_the_pool_of_five_models(kit):
    models = [(name, {**options, "hidden": 8}) for name, options in pool("fedpg")]
    silos = [silo_of(client) for client in range(5)]
    server, federation = federation_of(silos, models)
    before = [{name: value.clone() for name, value in weights.items()} for weights in weights_in(federation)]
    play(server, federation, 3)
    assert (server.hops, server.width) == (2, 8)
    assert server.present.flatten(1).any(1).all()
    for old, new in zip(before, weights_in(federation), strict=True):
        assert any(not torch.equal(value, new[name]) for name, value in old.items())


# -- bytes and wire ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "hops"), [(64, 2), (16, 1), (10, 3)])
def test_bytes_of_a_round_by_formula(kit, hidden, hops):
    """Up 4 (C (L + 1) p + C), down 4 C (L + 1) p and a truth value per row; each tensor is padded to 64 bytes."""
    silos = [silo_of(client, classes=5) for client in range(3)]
    server, federation = kit.build("fedpg", silos, model_options={"hidden": hidden}, hops=hops, **SHORT)
    play(server, federation, 2)
    rows = 5 * (hops + 1)
    payload = {"up": 4 * (rows * hidden + 5), "down": 4 * rows * hidden + rows}
    sizes = {"up": (4 * rows * hidden, 20), "down": (4 * rows * hidden, rows)}
    noted = {"up": 0, "down": 0}
    for phase, number, _, way, _, _, field, _, size, _ in federation.ledger.rows():
        if phase == "round" and number == 2 and field != "(header)":
            noted[way] += size
    for way in ("up", "down"):
        padding = sum(-size % 64 for size in sizes[way])
        assert noted[way] <= 3 * (payload[way] + padding)
        assert noted[way] >= 3 * payload[way]
    # With p = 64, C = 5 and L = 2 under 4 KB each way, headers included.
    if (hidden, hops) == (64, 2):
        total = federation.ledger.total("round", 2)
        assert payload["up"] == 3860
        assert max(total.values()) / 3 < 4300


def test_what_is_sent_is_named(kit):
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **SHORT)
    play(server, federation, 2)
    assert set(by_kind(federation.ledger, "up")) == {"prototype", "counts", "control"}
    assert set(by_kind(federation.ledger, "down")) == {"prototype", "control"}
    request = server._requests([0])[0]
    assert encode(request).num_bytes < 4 * 9 * 4 + 500


def test_the_first_round_carries_nothing(kit):
    server, federation = kit.build("fedpg", [silo_of(0), silo_of(1)], **SHORT)
    federation.at("setup", 0)
    server.set_up(federation)
    assert server._requests([0])[0].prototypes is None


# -- the conformance suite -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"neighbour_weights": "scorer", "centred": True, "noise": 0.1}, {"batch_size": 8}], ids=str
)
@pytest.mark.parametrize("check", [*conformance.CHECKS, conformance.check_workers])
def test_conforms(check, settings):
    check(registry.load("fedpg"), {**SHORT, **settings})


@pytest.mark.parametrize(
    "settings", [{"neighbour_weights": "scorer"}, {"annotation": "labelled", "batch_size": 8}], ids=str
)
def test_labels_stay_in_variants(settings):
    method = registry.load("fedpg")
    conformance.check_labels_stay(method, {**method.quick, **settings})
