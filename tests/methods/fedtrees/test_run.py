"""Whole runs: exact whatever the cut, a loss that falls, own models, and data that spoils a learner."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import FederationError, MessageError
from graphsilo.federation.interface import Failure
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.directions import LARGEST_MOMENT
from graphsilo.methods.fedtrees.forest import Layout, trees
from graphsilo.methods.fedtrees.messages import (
    AdoptRequest,
    Cells,
    CellsRequest,
    Counts,
    DirectionsRequest,
    HistogramRequest,
    Histograms,
    Moments,
    MomentsRequest,
    StartRequest,
)
from graphsilo.runtime.local.in_process import InProcess
from kit.fedtrees import QUICK, silo_of, with_directions


def played(kit, silos, rounds=4, **settings):
    server, federation = kit.build("fedtrees", silos, **{**QUICK, **settings})
    kit.rounds(server, federation, rounds)
    return server, federation


WIDE = {"dim": 4}
"""Two of the five columns are principal directions, two are random."""


@pytest.mark.parametrize("changed", [lambda silo: silo, with_directions])
@pytest.mark.parametrize(("classes", "more"), [(2, {}), (3, {"balance": 0.5}), (3, WIDE)])
def test_the_forest_is_that_of_one_place_bit_for_bit(kit, classes, more, changed):
    cuts = [[[0, 1, 2, 3, 4]], [[3], [0, 1, 2, 4]], [[4], [2], [0], [1], [3]]]
    forests = []
    for cut in cuts:
        silos = [changed(silo_of(client, numbers, classes)) for client, numbers in enumerate(cut)]
        forests.append(played(kit, silos, own=False, **more)[0].forest)
    assert len(forests[0]["columns"]) == 4
    assert forests[0]["values"].any()
    for other in forests[1:]:
        assert all(torch.equal(forests[0][name], other[name]) for name in other)


@pytest.mark.parametrize(
    ("balance", "weights", "base"), [(1.0, [2, 2 / 3], 0.0), (0.5, [2**0.5, (2 / 3) ** 0.5], np.log(3) / 2)]
)
def test_a_class_of_one_node_weighs_as_much_as_one_of_three(kit, balance, weights, base):
    """Of 4 nodes and 2 classes: (4 / (2 · 1))^balance and (4 / (2 · 3))^balance; the base is the log of their odds."""
    silo = silo_of(0, [0], 2)
    silo = replace(
        silo, train=np.concatenate([np.flatnonzero(silo.labels == label)[: 1 + 2 * label] for label in (0, 1)])
    )
    server, federation = kit.build("fedtrees", [silo], **QUICK, balance=balance)
    server.set_up(federation)
    assert federation.client(0)._class_weights.tolist() == pytest.approx(weights)
    assert server.forest["base"].tolist() == pytest.approx([base])
    assert server.log["training_items"] == 4


@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_falls_with_every_tree(kit, classes):
    silos = [silo_of(client, [client], classes) for client in range(3)]
    server, federation = kit.build("fedtrees", silos, **QUICK, lr=0.5)
    server.set_up(federation)
    losses = []
    for number in range(1, 8):
        server.round(federation, number)
        total = 0.0
        for silo in silos:
            client = federation.client(silo.client)
            client.install_aggregate(server.aggregate())
            output = client.predict(client.data, "aggregate")[silo.train]
            total += float(F.nll_loss(output, torch.from_numpy(silo.labels[silo.train]), reduction="sum"))
        losses.append(total)
    assert (np.diff(losses) < 0).all()
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("more", [{}, WIDE])
def test_a_forest_that_came_from_elsewhere_answers_as_the_own_copy(kit, more):
    server, federation = played(kit, [silo_of(client, [client]) for client in range(2)], **more)
    held, fresh = federation.client(0), kit.build("fedtrees", [silo_of(0, [0])], **QUICK, **more)[1].client(0)
    for client in (held, fresh):
        client.install_aggregate(server.aggregate())
    if more:
        with pytest.raises(MessageError, match="has missed the directions"):
            fresh.predict(fresh.data, "aggregate")
    fresh.load_final(held.final_models())
    assert torch.equal(held.predict(held.data), fresh.predict(fresh.data))
    assert torch.equal(held.predict(held.data, "aggregate"), fresh.predict(fresh.data, "aggregate"))


def test_a_silo_unlike_the_others_takes_its_own_trees(kit):
    """Its classes are the others' turned round: nothing that they know holds there."""
    odd = silo_of(3, [3], 2, nodes=120)
    graph = replace(odd.graph, labels=1 - odd.graph.labels)
    odd = replace(odd, graph=graph, evaluations=(replace(odd.seen, graph=graph),))
    silos = [*(silo_of(client, [client], 2, nodes=240) for client in range(3)), odd]
    server, federation = played(kit, silos, rounds=6, lr=0.5, label_features=False, l2_per_row=0.0)
    client = federation.client(3)
    assert client._chosen != "common"
    client.install_aggregate(server.aggregate())
    own, common = (
        (client.predict(client.data, view).argmax(1).numpy() == odd.labels)[odd.seen.items["val"]].mean()
        for view in ("own", "aggregate")
    )
    assert own > common


def test_who_was_not_asked_catches_up(kit):
    silos = [silo_of(client, [client]) for client in range(4)]
    server, federation = played(kit, silos, rounds=5, participation=0.5)
    assert len(server.forest["columns"]) == 5
    for client in server.current:
        assert len(federation.client(client)._forests["common"]["columns"]) == 5


# -- data that spoils a learner --------------------------------------------------------------------------------------


def features(silo, values):
    graph = replace(silo.graph, features=values)
    return replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),))


def spoilt(what):
    silos = [silo_of(client, [client], 2) for client in range(3)]
    nothing = np.zeros(0, np.int64)
    if what == "constant columns":
        return [features(silo, np.full_like(silo.graph.features, 3.0)) for silo in silos]
    if what == "huge numbers":
        return [features(silo, silo.graph.features * np.float32(1e37)) for silo in silos]
    if what == "one class":
        return [replace(silo, train=silo.train[silo.labels[silo.train] == 0]) for silo in silos]
    if what == "no validation nodes":
        return [replace(silo, evaluations=(replace(silo.seen, items={**silo.seen.items, "val": nothing}),))
                for silo in silos]  # fmt: skip
    if what == "a silo without rows":
        return [replace(silos[0], train=nothing), *silos[1:]]
    if what == "nobody trains":
        return [replace(silo, train=nothing) for silo in silos]
    assert what == "a class nobody has"
    return [
        replace(silo, schema=Schema("node", 5, 4), graph=(new := replace(silo.graph, num_classes=4)),
                evaluations=(replace(silo.seen, graph=new),))
        for silo in silos
    ]  # fmt: skip


@pytest.mark.parametrize(
    "what",
    ["constant columns", "huge numbers", "one class", "no validation nodes", "a silo without rows", "nobody trains",
     "a class nobody has"],
)  # fmt: skip
@pytest.mark.parametrize("l2", [0.0, 1.0])
def test_no_data_makes_it_warn_or_lose_a_number(kit, what, l2):
    silos = spoilt(what)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server, federation = played(kit, silos, balance=1.0, l2=l2)
        for silo in silos:
            client = federation.client(silo.client)
            client.install_aggregate(server.aggregate())
            for view in ("own", "aggregate"):
                output = client.predict(client.data, view)
                assert torch.isfinite(output).all()
                assert torch.allclose(output.exp().sum(1), torch.ones(len(output)), atol=1e-5)
    if what == "one class":
        assert not client.predict(client.data).argmax(1).any()
    if what == "a class nobody has":
        assert client.predict(client.data).argmax(1).max() < 2


def test_a_hundred_thousand_columns_are_projected(kit):
    import scipy.sparse as sp

    silo = silo_of(0, [0], 2)
    wide = sp.random(len(silo.graph.features), 100_000, 1e-4, "csr", np.float32, np.random.default_rng(0))
    silo = replace(features(silo, wide), schema=Schema("node", 100_000, 2))
    server, federation = played(kit, [silo], rounds=1, dim=8)
    assert federation.client(0)._rows(federation.client(0).data).shape[1] == 3 * 8 + 2 + 4
    assert torch.isfinite(server.forest["values"]).all()


def test_classes_and_bins_of_few_rows_do_not_leave(kit):
    silos = [silo_of(client, [client]) for client in range(3)]
    client = kit.build("fedtrees", silos, **QUICK, min_count=4)[1].client(0)
    cells = client.cells(CellsRequest(cells=torch.zeros(client.config.width(client.silo.schema), 0, dtype=torch.int64)))
    assert not set(cells.counts.unique().tolist()) & {1, 2, 3}
    with pytest.raises(FederationError, match=r"fewer than method\.min_count=99"):
        played(kit, silos, min_count=99)


# -- messages --------------------------------------------------------------------------------------------------------


def whole(*rows):
    return torch.tensor(rows, dtype=torch.int32)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Counts(classes=torch.tensor([3, -1])), "at least 0"),
        (Cells(counts=whole([0, -2])), "at least 0"),
        (Histograms(gradients=whole([1, 1]), hessians=whole([1, -1]), counts=whole([1, 1])), "at least 0"),
        (Histograms(gradients=whole([1, 1]), hessians=whole([1, 1]), counts=whole([1, 2])), "than in all of them"),
        (Histograms(gradients=whole([1, 1]), hessians=whole([1, 0]), counts=whole([1, 0])), "no training node"),
    ],
)
def test_what_no_rows_can_say_is_refused(message, text):
    with pytest.raises(MessageError, match=text):
        message.check()


def test_answers_have_the_form_that_was_asked_for():
    asked = HistogramRequest(
        step=0, columns=torch.zeros(1, 0), thresholds=torch.zeros(1, 0), wanted=torch.zeros(1, 2, dtype=torch.int64),
        ends=torch.tensor([3]), largest=10,
    )  # fmt: skip
    answer = Histograms(gradients=whole([1, 1]), hessians=whole([1, 1]), counts=whole([1, 1]))
    with pytest.raises(MessageError, match="3 entries"):
        answer.check_answer(asked)
    Histograms(gradients=whole([20, -10, 0]), hessians=whole([6, 3, 0]), counts=whole([2, 1, 0])).check_answer(asked)
    lowest = whole([-(2**31), 0, 0])  # has no positive of its own type
    for wrong in ({"gradients": whole([21, 0, 0])}, {"hessians": whole([8, 0, 0])}, {"gradients": lowest}):
        fields = {"gradients": whole([0, 0, 0]), "hessians": whole([0, 0, 0]), "counts": whole([2, 1, 0]), **wrong}
        with pytest.raises(MessageError, match="10 steps"):
            Histograms(**fields).check_answer(asked)
    with pytest.raises(MessageError, match="2 columns"):
        Cells(counts=whole([1, 1])).check_answer(CellsRequest(cells=torch.zeros(2, 0, dtype=torch.int64)))


def test_no_node_counts_in_two_bins_of_a_column():
    asked = HistogramRequest(
        step=0, columns=torch.zeros(1, 0), thresholds=torch.zeros(1, 0), wanted=torch.zeros(1, 2, dtype=torch.int64),
        ends=torch.tensor([3, 5]), largest=10,
    )  # fmt: skip
    nothing = torch.zeros(1, 5, dtype=torch.int32)
    for counts, right in (
        ([4, 3, 1, 0, 4], True),
        ([4, 3, 1, 0, 2], True),
        ([4, 3, 2, 0, 4], False),
        ([4, 3, 1, 1, 4], False),
    ):
        answer = Histograms(gradients=nothing, hessians=nothing, counts=whole(counts))
        answer.check()
        if right:
            answer.check_answer(asked)
        else:
            with pytest.raises(MessageError, match="in a column's bins than in all"):
                answer.check_answer(asked)


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (Counts(classes=torch.tensor([3, 2])), []),
        (Cells(counts=whole([1, 0], [2, 3])), []),
        (Moments(sums=torch.tensor([[-5 * LARGEST_MOMENT]])), []),
        (Histograms(gradients=whole([0]), hessians=whole([0]), counts=whole([3], [4], [2])), [[0, 0], [1, 0], [0, 3]]),
    ],
)
def test_no_silo_counts_more_nodes_than_it_holds(message, wanted):
    """Each of them by itself is below what it holds: only together are they more."""
    asked = HistogramRequest(
        step=0, columns=torch.zeros(2, 3), thresholds=torch.zeros(2, 3), wanted=torch.tensor(wanted),
        ends=torch.tensor([1]), largest=10,
    )  # fmt: skip
    message.check_size(asked, 5.0, 0.0)
    with pytest.raises(MessageError, match=r"counts 5 nodes; there are 4 at most\."):
        message.check_size(asked, 4.0, 0.0)


# -- beside others ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_as_good_as_scikit_learns_on_one_silo(kit, monkeypatch):
    monkeypatch.setattr(FedTreesConfig, "num_drawn", lambda self, columns: columns)  # as scikit-learn does
    from sklearn.ensemble import HistGradientBoostingClassifier

    silo = silo_of(0, range(4), 2, nodes=600)
    values = silo.graph.features
    labels = (values[:, 0] + values[:, 1] * values[:, 2] > 0).astype(np.int64)
    graph = replace(silo.graph, labels=labels)
    silo = replace(silo, graph=graph, evaluations=(replace(silo.seen, graph=graph),))
    server, federation = played(kit, [silo], rounds=30, depth=4, min_child=10, bins=64, own=False, l2_per_row=0.0)
    client = federation.client(0)
    rows, test = client._rows(client.data), np.setdiff1d(np.arange(len(labels)), silo.train)
    theirs = HistGradientBoostingClassifier(
        max_iter=30, max_depth=4, max_leaf_nodes=None, min_samples_leaf=10, max_bins=64, l2_regularization=1.0,
        early_stopping=False,
    ).fit(rows[silo.train], labels[silo.train])  # fmt: skip
    client.install_aggregate(server.aggregate())
    mine = client.predict(client.data, "aggregate")[test].argmax(1).numpy()
    assert (mine == labels[test]).mean() == pytest.approx(theirs.score(rows[test], labels[test]), abs=0.01)
    assert (mine == labels[test]).mean() > 0.9


UNUSUAL = {
    "a-column-that-is-not-there": ("columns", lambda each: each + 10**6),
    "half-a-column": ("columns", lambda each: each + 0.5),
    "no-threshold": ("thresholds", lambda each: each * float("nan")),
    "half-a-level": ("columns", lambda each: torch.cat([each, each[:, :1]], dim=1)),
    "a-node-that-is-not-there": ("wanted", lambda each: each + 4),
    "nodes-twice": ("wanted", lambda each: torch.cat([each, each])),
    "no-nodes": ("wanted", lambda each: each[:0]),
    "other-entries": ("ends", lambda each: each - 1),
    "other-steps": ("largest", lambda each: each + 1),
}


@pytest.mark.parametrize("change", list(UNUSUAL))
def test_no_made_up_question_tells_whether_a_row_is_there(kit, change):
    """Whether it could be answered did, and the words of the failure held the silo's own sums."""
    server, federation = kit.build("fedtrees", [silo_of(0, [0]), silo_of(1, [1])], **QUICK)
    server.set_up(federation)
    client = federation.client(0)
    layout = Layout.draw(client._edges.numpy(), client.config.num_drawn(len(client._edges)), client.context.seed, 0)
    columns = torch.full((3, 1), float(layout.columns[0]))
    usual = HistogramRequest(
        step=0, columns=columns, thresholds=torch.zeros(3, 1), wanted=torch.tensor([[0, 0], [2, 1]]),
        ends=torch.from_numpy(layout.ends), largest=server.largest,
    )  # fmt: skip
    client.histograms(usual)
    field, changed = UNUSUAL[change]
    for rows in (len(client.train), 0):  # as many answers as rows would differ
        client.__dict__["_trained"] = client._trained[:rows]
        with pytest.raises(MessageError, match="of a kind was asked of this silo that no run of these settings asks"):
            client.histograms(replace(usual, **{field: changed(getattr(usual, field))}))


def beginning_of(server):
    """What its silos were sent."""
    return StartRequest(
        base=server.forest["base"], edges=server.edges, class_weights=server.class_weights, scale=server.scale, own=True
    )


BEGINNINGS = {
    "edges-that-fall": {"edges": lambda each: -each},
    "no-edges": {"edges": lambda each: each * float("nan")},
    "weights-below-0": {"class_weights": lambda each: -each},
    "endless-weights": {"class_weights": lambda each: each / 0},
    "steps-that-run-over": {"scale": lambda each: each << 12},
    "odd-steps": {"scale": lambda each: each - 1},
    "weights-that-run-over": {"scale": lambda each: 1, "class_weights": lambda each: each + 2.0**32},
}


@pytest.mark.parametrize("change", list(BEGINNINGS))
def test_no_made_up_beginning(kit, change):
    server, federation = kit.build("fedtrees", [silo_of(0, [0]), silo_of(1, [1])], **QUICK)
    server.set_up(federation)
    client = federation.client(0)
    usual = beginning_of(server)
    client.start(usual)
    with pytest.raises(MessageError, match="that no run of these settings asks"):
        client.start(
            replace(usual, **{field: changed(getattr(usual, field)) for field, changed in BEGINNINGS[change].items()})
        )


def test_whether_a_beginning_is_taken_tells_nothing_of_rows(kit):
    """With weights as large as one row allows, it said how many training nodes of a class there are."""
    server, federation = kit.build("fedtrees", [silo_of(0, [0]), silo_of(1, [1])], **QUICK)
    server.set_up(federation)
    client, weights = federation.client(0), torch.zeros(3, dtype=torch.float64)
    weights[0] = 2.0**31 - 1
    client.start(replace(beginning_of(server), class_weights=weights, scale=1, own=False))
    layout, nothing = client.layout(0)[0], torch.zeros(3, 0)
    found = client.histograms(
        HistogramRequest(
            step=0,
            columns=nothing,
            thresholds=nothing,
            wanted=torch.tensor([[0, 0]]),
            ends=torch.from_numpy(layout.ends),
            largest=2**31 - 1,
        )
    )
    assert (client._labels == 0).sum() == 3  # two thirds of the weight each
    assert found.gradients.min() == -(2**31 - 1)
    found.check()


def test_no_own_forests_in_a_run_without(kit):
    """Their validation counts would leave."""
    server, federation = played(kit, [silo_of(0, [0]), silo_of(1, [1])], own=False)
    client = federation.client(0)
    usual = replace(beginning_of(server), own=False)
    client.start(usual)
    with pytest.raises(MessageError, match="a beginning of a kind was asked"):
        client.start(replace(usual, own=True))


def test_no_made_up_directions(kit):
    server, federation = kit.build("fedtrees", [silo_of(0, [0]), silo_of(1, [1])], **QUICK, **WIDE)
    server.set_up(federation)
    client = federation.client(0)
    good = client._directions
    client.moments(MomentsRequest(basis=good))
    for bad in (good * 1.5, good + 2.0**-22, good * float("nan"), good[:, :1], torch.cat([good, good], dim=1)):
        with pytest.raises(MessageError, match="directions of a kind was asked"):
            client.moments(MomentsRequest(basis=bad))
        with pytest.raises(MessageError, match="directions of a kind was asked"):
            client.project(DirectionsRequest(directions=bad))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_own_forests_are_those_beside_the_common_one_that_came_last(kit, first, count):
    """A site may have trees of rounds that a run does again without it. A fresh silo is never in that position."""
    silos = [silo_of(client, [client]) for client in range(2)]
    server, federation = played(kit, silos, rounds=3)
    client = federation.client(0)
    other = server.forest["values"] * torch.tensor([1.0, -1.0, 1.0])[:, None, None]
    changed = trees({**server.forest, "values": other}, 0, count)
    client.adopt(AdoptRequest(forest=trees(changed, first), first=first, preferred=0))
    _, fresh = kit.build("fedtrees", silos, **QUICK)
    server.set_up(fresh)
    fresh.client(0).adopt(AdoptRequest(forest=changed, first=0, preferred=0))
    for track, each in fresh.client(0)._forests.items():
        assert all(torch.equal(client._forests[track][name], tensor) for name, tensor in each.items())
        assert torch.equal(client.predict(client.data, track), fresh.client(0).predict(client.data, track))


def test_of_many_directions_one_set_of_columns_is_held(kit):
    """Others are a few numbers to send, and a matrix of all nodes to hold."""
    _, federation = kit.build("fedtrees", [silo_of(0, [0]), silo_of(1, [1])], **QUICK, **WIDE)
    client = federation.client(0)
    asked = CellsRequest(cells=torch.zeros(client.config.width(client.silo.schema), 0, dtype=torch.int64))
    for shift in range(3):
        client.project(DirectionsRequest(directions=torch.eye(5, 2).roll(shift, 0)))
        client.cells(asked)
        assert [len(each) for each in client.data.cached(("trees columns",), dict).values()] == [1]


def test_no_made_up_forest_or_cells(kit):
    server, federation = played(kit, [silo_of(0, [0]), silo_of(1, [1])], rounds=2)
    client = federation.client(0)
    good = server.forest
    for name, bad in (
        ("values", good["values"] * float("inf")),
        ("columns", good["columns"] - 1),
        ("base", good["base"][:1]),
    ):
        with pytest.raises(MessageError, match="a forest of a kind was asked"):
            client.adopt(AdoptRequest(forest={**good, name: bad}, first=0, preferred=0))
    for first, preferred in ((0, 3), (-1, 0), (99, 0)):
        with pytest.raises(MessageError, match="a forest of a kind was asked"):
            client.adopt(AdoptRequest(forest=good, first=first, preferred=preferred))
    with pytest.raises(MessageError, match="this silo has 2 trees of the common forest, and the next one after 3 was"):
        client.adopt(AdoptRequest(forest=trees(good, 1), first=3, preferred=0))
    with pytest.raises(MessageError, match="a forest of a kind was asked"):
        client.adopt(AdoptRequest(forest={**good, "base": good["base"] + 1}, first=0, preferred=0))

    width = len(server.edges)
    for cells in (torch.zeros(width, 2), torch.full((width, 1), 1 << 12), torch.zeros(width, 16), torch.zeros(1, 1)):
        with pytest.raises(MessageError, match="cells of a kind was asked"):
            client.cells(CellsRequest(cells=cells.long()))


def test_silos_are_sent_the_trees_that_they_lack(kit):
    sent = []

    class Watched:
        def __init__(self, federation):
            self.federation = federation

        def __getattr__(self, name):
            return getattr(self.federation, name)

        def sum(self, handler, request, *, to=None):
            if handler.name == "adopt":
                sent.append({client: (each.first, len(each.forest["columns"])) for client, each in request.items()})
            return self.federation.sum(handler, request, to=to)

    server, federation = kit.build("fedtrees", [silo_of(client, [client]) for client in range(3)], **QUICK)
    server.set_up(federation)
    for number in (1, 2, 3):
        server.round(Watched(federation), number)
    server.current = {0, 1}  # as if the third one had not answered
    server.round(Watched(federation), 4)
    assert sent[:3] == [dict.fromkeys(range(3), (first, 1)) for first in (0, 1, 2)]
    assert sent[3:] == [{0: (3, 0), 1: (3, 0), 2: (0, 3)}, dict.fromkeys(range(3), (3, 1))]
    forests = [federation.client(client)._forests["common"] for client in range(3)]
    assert all(torch.equal(each[name], server.forest[name]) for each in forests for name in each)


SET_UP = ("count", "moments", "project", "cells", "start")


@pytest.mark.parametrize(
    ("asked", "steps"),
    [(True, {(0, "start")}), (True, {(1, "adopt")}), (False, {(0, step) for step in SET_UP}), (False, {(1, "adopt")})],
)
def test_a_silo_that_has_missed_something_is_given_it(kit, asked, steps):
    """Its answer was lost, or it was never asked: of the beginning as of trees."""

    class Losing(InProcess):
        def deliver(self, handler, round, outgoing):
            gone = (round, handler) in steps
            reached = {client: each for client, each in outgoing.items() if asked or not gone or client != 2}
            for client, answer in super().deliver(handler, round, reached):
                if not gone or client != 2:
                    yield client, answer
            if gone:
                yield 2, Failure(2, handler, "Gone", "it did not finish in time")

    silos = [silo_of(client, [client]) for client in range(3)]
    server, federation = kit.build("fedtrees", silos, min_clients=2, **WIDE, **QUICK)
    federation.__class__ = Losing
    kit.rounds(server, federation, 3)
    assert server.current == {0, 1, 2}
    for client in range(3):
        forests = federation.client(client)._forests
        assert all(torch.equal(forests["common"][name], each) for name, each in server.forest.items())
        assert [len(each["columns"]) for each in forests.values()] == [3, 3, 3]


def test_a_silo_that_has_lost_the_beginning_is_sent_it_again(kit):
    """Its site was started again, and had kept no checkpoint. The others keep what they made of the rows so far."""
    server, federation = kit.build("fedtrees", [silo_of(i, [i]) for i in range(3)], min_clients=2, **WIDE, **QUICK)
    fresh = federation.client(2).state()
    server.set_up(federation)
    server.round(federation, 1)
    federation.client(2).load_state(fresh)
    federation.client(0)._margins["mark"] = None
    server.round(federation, 2)
    assert (server.begun, server.current) == ({0, 1}, {0, 1})
    server.round(federation, 3)
    assert (server.begun, server.current) == ({0, 1, 2}, {0, 1, 2})
    assert "mark" in federation.client(0)._margins
    forests = federation.client(2)._forests
    assert all(torch.equal(forests["common"][name], each) for name, each in server.forest.items())
    assert [len(each["columns"]) for each in forests.values()] == [3, 3, 3]
