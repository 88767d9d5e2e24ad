"""Means over clients, from counts written down by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.evaluate.metrics import METRICS
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import SetScores, gather, scenario_weights
from graphsilo.experiments.progress import Aggregates, SeedProgress
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.storage.disk import read_tensors
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, EvaluateReply, EvaluateRequest
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedavg


def accuracy_counts(right: int, wrong: int) -> np.ndarray:
    """[4, 2, 2] of one client and kind: items of class 0, in no group."""
    counts = np.zeros((4, 2, 2), dtype=np.int64)
    counts[0, 0] = right, wrong
    return counts


def scores(kind: str) -> SetScores:
    """Client 0 with 90 nodes scores 3 of 4 items, client 1 with 10 nodes 1 of 10, client 2 has nothing to score."""
    rows = [accuracy_counts(3, 1), accuracy_counts(1, 9), accuracy_counts(0, 0)]
    return SetScores((kind,), np.stack(rows)[:, None], np.array([90, 10, 50]), clients=(0, 1, 2))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("test", (90 * 0.75 + 10 * 0.1) / 100),  # by all nodes of the client
        ("missing_class", (4 * 0.75 + 10 * 0.1) / 14),  # by the nodes scored
        ("unseen_node", 4 / 14),
        ("new_client", (0.75 + 0.1) / 2),  # every model once
    ],
)
def test_weights_of_the_mean(kind: str, expected: float) -> None:
    assert scores(kind).light()[kind]["accuracy"] == pytest.approx(expected)
    assert scores(kind).full(kind).metrics["accuracy"] == pytest.approx(expected)


def test_weights_of_a_scenario() -> None:
    counts = scores("missing_class").of("missing_class")
    assert scenario_weights("missing_class", counts).tolist() == [4.0, 10.0, 0.0]
    assert scenario_weights("new_client", counts).tolist() == [1.0, 1.0, 1.0]


class ServerWithoutModel(fedavg.Server):
    """Trains as FedAvg does, and keeps the result to itself."""

    def aggregate(self) -> None:
        return None


@pytest.fixture
def secretive() -> Iterator[str]:
    method = Method(
        name="secretive", about="Secretive", config=fedavg.FedAvgConfig,
        client=fedavg.Client, server=ServerWithoutModel,
    )  # fmt: skip
    registry.register(method)
    yield method.name
    del registry._REGISTERED[method.name]


@pytest.mark.parametrize("modes", [None, ["aggregate_local"], ["own_local", "aggregate_global"]])
def test_a_server_without_model_is_not_scored_by_the_clients_own(
    small: Callable[..., RunConfig], secretive: str, modes: list[str] | None
) -> None:
    with pytest.raises(UnsupportedError, match=r"'aggregate_\w+' scores the server's model.*modes=\[own_local\]"):
        run(small(method__name=secretive, evaluation__modes=modes))


def test_its_clients_own_models_can_be_scored(small: Callable[..., RunConfig], secretive: str) -> None:
    tree = run(small(method__name=secretive, evaluation__modes=["own_local"])).tree
    assert list(tree["summary"]["modes"]) == ["own_local"]


class Echo(fedavg.Server):
    """Has for each client the model that it sent last."""

    def __init__(self, context: ServerContext):
        super().__init__(context)
        self.each: dict[int, Tensors] = dict.fromkeys(context.clients, self.weights)

    def round(self, federation: Federation, number: int) -> None:
        replies = federation.ask(fedavg.Client.train, fedavg.TrainRequest(weights=self.weights))
        self.each = {client: reply.weights for client, reply in replies}

    def aggregates(self) -> dict[int, Tensors]:
        return self.each

    def state(self) -> dict[str, Any]:
        return {"each": self.each}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.each = dict(state["each"])


@pytest.fixture
def echo() -> Iterator[str]:
    method = Method(
        name="echo", about="Echo", config=fedavg.FedAvgConfig, client=fedavg.Client,
        server=Echo,
    )  # fmt: skip
    yield registry.register(method).name
    del registry._REGISTERED[method.name]


def test_each_client_is_scored_with_its_own_aggregate(
    small: Callable[..., RunConfig], echo: str, tmp_path: Path
) -> None:
    """What the server has for a client is what the client sent: both views must say the same, on every graph."""
    modes = ["own_local", "aggregate_local", "own_global", "aggregate_global"]
    tree = run(
        small(method__name=echo, evaluation__modes=modes, evaluation__models=True, run__early_stopping=1),
        out=tmp_path / "run",
    ).tree
    (seed,) = tree["seeds"]
    own, aggregate, own_global, aggregate_global = (seed["modes"][mode] for mode in modes)
    assert aggregate["test"] == own["test"] == seed["test"]
    assert aggregate_global["test"] == own_global["test"]
    folder = tmp_path / "run" / "models"
    for client in range(3):
        for when in ("best", "last"):
            mine, kept = (
                read_tensors(folder / f"seed0-client{client}-{name}{when}.safetensors") for name in ("", "aggregate-")
            )
            assert {name.removeprefix("own/") for name in mine} == set(kept)
            assert all(np.array_equal(mine[f"own/{name}"], kept[name]) for name in kept)


def test_a_client_without_an_aggregate_is_not_scored_by_its_own_model(
    small: Callable[..., RunConfig], echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Echo, "aggregates", lambda self: {0: self.weights, 1: self.weights})
    with pytest.raises(UnsupportedError, match="'aggregate_local' scores the server's model"):
        run(small(method__name=echo))


def test_aggregates_are_kept_as_they_were_and_once() -> None:
    common, other = {"w": torch.zeros(2)}, {"w": torch.ones(2)}
    best = Aggregates()
    best.keep({0: common, 1: common, 2: {}}, None)
    common["w"] += 5
    assert [(owner, weights["w"].tolist()) for owner, weights in best.distinct()] == [(None, [0.0, 0.0])]
    best.keep({0: other, 1: other}, {1})
    again = Aggregates.from_state(decode_tree(encode_tree(best.state())))
    assert [(owner, weights["w"].tolist()) for owner, weights in again.distinct()] == [(0, [0.0] * 2), (1, [1.0] * 2)]


def untrained(config: RunConfig) -> list[EvaluateReply]:
    """How fresh clients of a configuration score themselves; all draw the same weights."""
    method = registry.load(config.method.name)
    simulation = prepare(config, method)
    request = EvaluateRequest(views=["own"], global_views=[], auc=True)
    replies = []
    for silo in simulation.silos:
        spec = simulation.models[silo.client]
        client = method.client(ClientContext(silo.client, silo, config.method_config(), spec, 0, "cpu"))
        client.round = 1
        replies.append(client.evaluate(request))
    return replies


@pytest.mark.parametrize("kind", ["node", "link", "graph"])
def test_rankings_of_a_pooled_silo_are_those_of_its_clients(
    small: Callable[..., RunConfig], molecules: Path, kind: str
) -> None:
    """One model on the same items: the mean over clients must not depend on who holds them. (AUC of citation-sbm was
    one ranking of everybody's items in a pooled row, and a mean of the clients' rankings in the row below.)"""
    asked: dict[str, Any] = {"evaluation__auc": True, "task": kind}
    if kind == "graph":
        asked |= {"data__name": str(molecules), "partition__rule": "dirichlet", "data__generator": {}}
        asked["model__name"] = "gin"
    each = untrained(small(method__name="local", **asked))
    (pooled,) = untrained(small(method__name="global", method__cross_edges=False, **asked))
    assert len(each) == 3
    names = list(pooled.scores)
    assert {"own/seen/val/auc", "own/seen/test/auc"} <= set(names)
    assert {"own/seen/val/ap", "own/seen/test/ap"} <= set(names)
    for name in names:
        one_by_one = [number for reply in each for number in reply.scores[name]]
        assert pooled.scores[name] == pytest.approx(one_by_one, abs=1e-6, nan_ok=True)
    ours, theirs = (summary_of(replies) for replies in ([pooled], each))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_answers_that_look_alike_and_others_stand_in_the_order_of_clients():
    def answer(number: int, *kinds: str) -> EvaluateReply:
        counts = torch.full((len(kinds), 4, 2, 2), number, dtype=torch.int32)
        return EvaluateReply(
            kinds={"own/seen": list(kinds)}, parts=[1], counts=counts, sizes=torch.tensor([10 + number]), scores={}
        )

    replies = [(3, answer(0, "val", "test")), (5, answer(1, "val", "test")), (8, answer(2, "val", "test"))]
    found = gather(replies)["own"]["seen"]
    assert (found.clients, found.kinds, found.sizes.tolist()) == ((3, 5, 8), ("val", "test"), [10, 11, 12])
    assert found.counts is not None
    assert found.counts.shape == (3, 2, 4, 2, 2)
    assert found.counts[:, 1, 2, 0, 1].tolist() == [0, 1, 2]
    scored = [
        (client, replace(reply, scores={"own/seen/val/auc": [0.5 + client, 2.0]})) for client, reply in replies[1:]
    ]
    mixed = gather([replies[0], *scored])["own"]["seen"]
    assert mixed.counts is not None
    assert mixed.counts[:, 0, 0, 0, 0].tolist() == [0, 1, 2]
    np.testing.assert_equal(mixed.scores["val/auc"], [[math.nan, 0.0], [5.5, 2.0], [8.5, 2.0]])  # one row for each
    table = torch.arange(64, dtype=torch.int32).view(4, 4, 2, 2)  # of two silos in one place
    pooled = replace(replies[0][1], parts=[2], counts=table, sizes=torch.tensor([4, 6]))
    both = gather([(0, pooled)], (4, 9))
    assert both["own"]["seen"].clients == (4, 9)
    assert both["own"]["seen"].counts is not None
    assert both["own"]["seen"].counts[:, :, 0, 0, 0].tolist() == [[0, 16], [32, 48]]


def summary_of(replies: list[EvaluateReply]) -> dict[str, float | None]:
    return gather(list(enumerate(replies)))["own"]["seen"].light()["test"]


def test_the_result_keeps_every_clients_auc(small: Callable[..., RunConfig]) -> None:
    tree = run(small(evaluation__auc=True)).tree
    (seed,) = tree["seeds"]
    rows = seed["clients"]
    mean = sum(row["test"]["auc"] * row["nodes"] for row in rows) / sum(row["nodes"] for row in rows)
    assert seed["test"]["auc"] == pytest.approx(mean)


def test_a_node_is_in_the_same_groups_on_the_pooled_graph(small: Callable[..., RunConfig]) -> None:
    """The same model and nodes, the aggregate on own graphs without edges between silos and on the pool of all: where
    no edge joins two silos, both modes ask the same question, groups included."""
    modes = ["aggregate_local", "aggregate_global"]
    config = small(evaluation__modes=modes, model__name="mlp")
    (seed,) = run(config).tree["seeds"]
    local, pooled = (seed["modes"][mode]["test"]["pooled"] for mode in modes)
    assert local.keys() == pooled.keys()
    assert local["hete_min_f1"] is not None
    lists = {name for name, metric in METRICS.items() if metric.per_class}
    assert {key: value for key, value in pooled.items() if key not in lists} == pytest.approx(
        {key: value for key, value in local.items() if key not in lists}
    )


def own_scores(right: dict[int, int]) -> dict[str, SetScores]:
    """Clients with ten validation and ten test items each, of which so many are right."""
    rows = [np.stack([accuracy_counts(n, 10 - n), accuracy_counts(10 - n, n)]) for n in right.values()]
    return {"seen": SetScores(("val", "test"), np.stack(rows), np.full(len(right), 20), clients=tuple(right))}


def test_silos_alone_have_best_rounds_of_their_own() -> None:
    """Client 0 is best in round 2, client 1 in rounds 1 and 3 (the first counts), client 2, which failed in round 1, in
    round 3. By the mean over clients all would have been reported at round 2 or 3."""
    progress = SeedProgress()
    steps = [{0: 4, 1: 9}, {0: 7, 1: 5, 2: 2}, {0: 6, 1: 9, 2: 8}]
    better = [
        progress.note(number, {"own": own_scores(right)}, ("own_local",), METRICS["accuracy"], "run", alone=True)[0]
        for number, right in enumerate(steps, 1)
    ]
    assert [each["own_local"] for each in better] == [{0, 1}, {0, 2}, {2}]
    view = SeedProgress.from_state(progress.state(), []).views["own_local"]
    assert {client: found[0] for client, found in view.rounds.items()} == {0: 2, 1: 1, 2: 3}
    kept = view.best["seen"]
    assert kept.clients == (0, 1, 2)
    assert kept.each("val", "accuracy") == [0.7, 0.9, 0.8]
    assert kept.each("test", "accuracy") == pytest.approx([0.3, 0.1, 0.2])
    assert view.summary("own_local").test.metrics["accuracy"] == pytest.approx(0.2)
    assert progress.best_score == (pytest.approx(0.8), 3)


@pytest.mark.parametrize("alone", [False, True])
def test_of_rounds_with_equal_macro_f1_the_better_ranking_is_taken(alone: bool) -> None:
    """While all answers are the common class every round has the same macro-F1; the ranking goes on getting better."""
    progress = SeedProgress()
    for number, ranked in enumerate([0.02, 0.3, 0.1], 1):
        scores = own_scores({0: 5})
        scores["seen"].scores = {f"{kind}/ap": np.array([[ranked, 10.0]]) for kind in ("val", "test")}
        progress.note(number, {"own": scores}, ("own_local",), METRICS["macro_f1"], "run", alone=alone)
    assert progress.views["own_local"].best_round == 2
    progress = SeedProgress()
    for number in (1, 2):  # without a ranking the first of equals
        progress.note(number, {"own": own_scores({0: 5})}, ("own_local",), METRICS["macro_f1"], "run", alone=alone)
    assert progress.views["own_local"].best_round == 1


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_silo_alone_keeps_the_model_of_its_own_best_round(
    small: Callable[..., RunConfig], tmp_path: Path, workers: int
) -> None:
    """Nothing that others do decides when a silo stops: its best model is its last one of so many rounds."""
    asked = {"method__name": "local", "method__lr": 0.1, "evaluation__models": True, "run__workers": workers}
    (seed,) = run(small(method__rounds=8, **asked), out=tmp_path / "whole").tree["seeds"]
    best = {row["client"]: row["best_round"] for row in seed["clients"]}
    assert len(set(best.values())) > 1  # else the test shows nothing
    assert seed["best_round"] == max(best.values())
    for rounds in set(best.values()):
        run(small(method__rounds=rounds, **{**asked, "run__workers": 1}), out=tmp_path / str(rounds))
    for client, rounds in best.items():
        (kept,) = (tmp_path / "whole" / "models").glob(f"*client{client}*best*")
        (last,) = (tmp_path / str(rounds) / "models").glob(kept.name.replace("best", "last"))
        assert kept.read_bytes() == last.read_bytes()
