"""Means over clients, from counts written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphsilo.errors import UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import SetScores, gather, scenario_weights
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, EvaluateReply, EvaluateRequest
from graphsilo.federation.registry import Method
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
    assert scores(kind).full(kind)["accuracy"] == pytest.approx(expected)


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
        name="secretive", title="Secretive", citation="none", summary="none", config=fedavg.FedAvgConfig,
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


def untrained(config: RunConfig) -> list[EvaluateReply]:
    """How fresh clients of a configuration score themselves; all draw the same weights."""
    method = registry.load(config.method.name)
    simulation = prepare(config, method)
    request = EvaluateRequest(views=["own"], global_views=[], auc=True)
    replies = []
    for silo in simulation.silos:
        spec = simulation.models[silo.client]
        client = method.client(ClientContext(silo.client, silo, config.method_config(), spec, 0, "cpu"))
        client.begin("evaluate", 1)
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
    assert ("own/seen/test/ap" in names) == (kind == "link")
    for name in names:
        one_by_one = [number for reply in each for number in reply.scores[name]]
        assert pooled.scores[name] == pytest.approx(one_by_one, abs=1e-6, nan_ok=True)
    ours, theirs = (summary_of(replies) for replies in ([pooled], each))
    assert ours == pytest.approx(theirs, abs=1e-6)


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
    lists = {"per_class_f1"}
    assert {key: value for key, value in pooled.items() if key not in lists} == pytest.approx(
        {key: value for key, value in local.items() if key not in lists}
    )
