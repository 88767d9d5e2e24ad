"""Means over clients, from counts written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from graphsilo.errors import UnsupportedError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.evaluation import SetScores, scenario_weights
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
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
