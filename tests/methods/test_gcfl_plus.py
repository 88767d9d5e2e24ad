"""GCFL+: distances of sequences worked out by hand, and when they are used. What it has of GCFL is tested there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation import registry
from graphsilo.methods.gcfl_plus import TrainReply, warped_distance
from graphsilo.testing.small import play
from kit.messages import check_sent

READY = {"eps_1": 1e9, "eps_2": 0.0, "warm_up": 0}


def test_distances_by_hand():
    """1, 2, 3 meet 1, 1, 2, 3 without cost, and 4 meets 3; the second pair differs by 1 twice."""
    for one, other, wanted in (
        ([1, 2, 3, 4], [1, 1, 2, 3], 1.0),
        ([0, 0, 1, 2, 1, 0, 1, 0, 0], [0, 1, 2, 0, 0, 0, 0, 0, 0], np.sqrt(2)),
        ([3, 1, 2], [3, 1, 2], 0.0),
    ):
        found = warped_distance(np.array(one, float), np.array(other, float))
        assert found == pytest.approx(wanted)
        assert found == warped_distance(np.array(other, float), np.array(one, float))
    draw = np.random.default_rng(0)
    for one, other in draw.random((20, 2, 6)):
        assert warped_distance(one, other) <= np.linalg.norm(one - other) + 1e-12


def server_of(kit, norms, **settings):
    server, _ = kit.build("gcfl_plus", [kit.tiny_silo(client) for client in range(len(norms))], **READY, **settings)
    server.norms = {client: list(row) for client, row in enumerate(norms)}
    server.updates = {client: torch.ones(2) for client in server.norms}
    server.sizes = dict.fromkeys(server.norms, 1.0)
    return server, list(server.norms)


def test_rising_and_falling_norms_are_told_apart(kit):
    server, members = server_of(kit, [[1, 2, 3], [3, 2, 1], [1, 2.1, 3], [3.1, 2, 1]], window=3)
    assert server.parts(members) == [[0, 2], [1, 3]]
    assert server.norms == {}
    assert server.parts(members) == [members]  # sequences begin anew: nothing can be said yet


def test_standardised_norms_compare_trends(kit):
    """Rising ten times as fast, and falling, with the same end: by size the slow are apart, by trend the falling."""
    norms = [[10, 20, 30], [1, 2, 3], [11, 20, 30], [3, 2, 1]]
    for standardize, wanted in ((False, [[0, 2], [1, 3]]), (True, [[0, 1, 2], [3]])):
        server, members = server_of(kit, norms, window=3, standardize=standardize)
        assert server.parts(members) == wanted


def test_standardised_distances_by_hand(kit):
    """(0, 2), (0, 4) and (2, 0) have deviations 1, 2 and 1: the first two become equal, √(4 + 4) from the third.

    The walk: 0 meets 2, which costs 4, then 2 meets 2 or 0 meets 0, which costs nothing, and the last pair 4 again.
    (3, 3) has none and stays: 3 from 0 and 1 from 2 is √10, 1 from 2 and 3 from 0 the same.
    """
    server, members = server_of(kit, [[0, 2], [0, 4], [2, 0], [3, 3]], window=2, standardize=True)
    far = np.sqrt(10)
    apart = [
        [0.0, 0.0, np.sqrt(8), far],
        [0.0, 0.0, np.sqrt(8), far],
        [np.sqrt(8), np.sqrt(8), 0.0, far],
        [far, far, far, 0.0],
    ]
    np.testing.assert_allclose(server.similarities(members), far - np.array(apart), atol=1e-12)
    assert server.norms == {}


@pytest.mark.parametrize(
    ("norms", "why"),
    [
        ([[1, 2, 3], [3, 2, 1], [1, 2]], "one is too short"),
        ([[1, 2, 3]] * 3, "all are equal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_when_nothing_can_be_said(kit, norms, why):
    server, members = server_of(kit, norms, window=3, standardize=True)
    assert server.parts(members) == [members]
    assert server.norms[0] == [1, 2, 3]


def test_splits_are_a_window_apart_and_no_more_than_a_window_is_kept(kit):
    server, federation = kit.build("gcfl_plus", [kit.tiny_silo(client) for client in range(6)], **READY, window=3)
    counts = [1]
    for number in range(1, 12):
        kit.rounds(server, federation, start=number)
        counts.append(len(server.clusters))
        assert max((len(row) for row in server.norms.values()), default=0) <= 3
        assert (server.norms == {}) is (counts[-1] > counts[-2])
    splits = np.flatnonzero(np.diff(counts)) + 1
    assert splits[0] == 3
    assert np.diff(splits).min() >= 3
    assert set(np.diff(counts)) == {0, 1}


@pytest.mark.parametrize("norm_of", ["gradient", "update"])
def test_the_norm_by_hand(kit, norm_of):
    """Gradient descent with rate 0.1 and two steps on every weight's (x − 4)²/2 from 1: slopes −3 and −2.7."""
    server, federation = kit.build(
        "gcfl_plus", [kit.tiny_silo(0)], norm_of=norm_of, optimizer="sgd", lr=0.1, weight_decay=0.0, local_epochs=2
    )
    client = federation.client(0)
    client.trainer.objective = kit.Quadratic(1.0, 4.0)
    server.weights = [{name: torch.ones_like(value) for name, value in server.weights[0].items()}]
    play(server, federation, rounds=1)
    root = np.sqrt(sum(value.numel() for value in server.weights[0].values()))
    assert server.norms[0][0] == pytest.approx({"gradient": 2.7, "update": 0.57}[norm_of] * root, rel=1e-5)


def test_the_ends_do_not_count(kit):
    silos = [kit.tiny_silo(0)]
    found = []
    for shift in (0.0, 1.0):
        server, federation = kit.build(
            "gcfl_plus", silos, model="gin_gcfl", model_options={"layers": 1, "dropout": 0.0}
        )
        client = federation.client(0)
        client.trainer.objective = kit.Quadratic(1.0, 4.0)
        with torch.no_grad():
            client.weights["pre.weight"].add_(shift)
        play(server, federation, rounds=1)
        found.append(server.norms[0][0])
    assert found[0] == found[1]


def test_a_norm_below_0_is_refused():
    with pytest.raises(MessageError, match="at least 0; -1 came"):
        TrainReply(weights={}, num_samples=1.0, norm=-1.0).check()


def test_the_last_norms_are_kept(kit):
    """Nothing splits, and windows of three slide over five rounds."""
    server, federation = kit.build("gcfl_plus", [kit.tiny_silo(client) for client in range(3)], window=3, warm_up=9)
    sent: dict[int, list[float]] = {client: [] for client in range(3)}
    observe = server.observe

    def watched(replies):
        for client, reply in replies:
            sent[client].append(reply.norm)
        observe(replies)

    server.observe = watched
    play(server, federation, rounds=5)
    assert server.norms == {client: rows[-3:] for client, rows in sent.items()}
    assert len(set(sent[0])) == 5


def test_no_cluster_splits_before_everybody_has_enough_norms(kit):
    """A client of another cluster is asked about, too: after a split all sequences begin anew."""
    server, _ = server_of(kit, [[1, 2, 3], [3, 2, 1], [1, 2.1, 3], [1, 2]], window=3)
    server.clusters = [[0, 1, 2], [3]]
    assert server.parts([0, 1, 2]) == [[0, 1, 2]]
    server.norms[3].append(3)
    assert server.parts([0, 1, 2]) == [[0, 2], [1]]


@pytest.mark.parametrize("method", ["gcfl", "gcfl_plus"])
def test_a_run_says_where_no_layer_stays_private(method):
    config = registry.load(method).config()
    graphs, nodes = Schema("graph", 3, 2), Schema("node", 3, 2)
    assert "the model gin has no layers at its ends" in config.explain_no_effect(graphs, 100, 10, "gin")
    assert config.explain_no_effect(graphs, 100, 10, "gin_gcfl") == ""
    assert config.explain_no_effect(nodes, 100, 10, "gcn") == ""


def test_what_leaves_a_silo():
    check_sent(
        "gcfl_plus",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        train norm: gradient
        """,
    )
