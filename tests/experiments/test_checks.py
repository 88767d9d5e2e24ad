"""What is refused before anything is trained."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError, GraphsiloError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.methods import fedavg
from kit.runs import Listener

# -- refusals before training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"model__pool": ["gcn", "sage"]}, UnsupportedError, r"must run the same one.*different models: .*local"),
        ({"model__name": "nope"}, GraphsiloError, "nope"),
        ({"method__min_clients": 4}, ConfigError, "wants 4 answers, but only 3 of 3 clients"),
        ({"method__min_clients": 2, "method__participation": 0.4}, ConfigError, "only 1 of 3"),
        ({"task": "graph"}, UnsupportedError, r"'graph' was asked for, but .* is made for task 'node' \(or link\)"),
        ({"partition__rule": "lovain"}, ConfigError, "did you mean 'louvain'"),
        ({"partition__clients": 1000}, GraphsiloError, "ask for at most 150"),
        ({"task": "link", "scenario__name": "unseen"}, UnsupportedError, "has the scenario 'seen' only"),
        ({"task": "link", "evaluation__modes": ["own_global"]}, UnsupportedError, "global"),
        ({"run__device": "tpu3"}, ConfigError, "is no device"),
        ({"run__device": "mps"}, ConfigError, "'mps' is a device of torch that graphsilo does not compute on; use cpu"),
        ({"data__name": "Coraa"}, ConfigError, "Coraa"),
    ],
    ids=str,
)  # fmt: skip
def test_refused_before_training(small, tmp_path, change, error, text):
    listener = Listener()
    with pytest.raises(error, match=text):
        run(small(**change), out=tmp_path / "run", observer=listener)
    assert listener.first is None
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_method_for_another_task(small):
    method = Method(
        name="graphsonly", about="Graphs only", config=fedavg.FedAvgConfig,
        client=fedavg.Client, server=fedavg.Server, tasks=("graph",),
    )  # fmt: skip
    registry.register(method)
    try:
        with pytest.raises(UnsupportedError, match=r"Graphs only does not do task 'node', only graph.*fedavg.*fedprox"):
            run(small(method__name="graphsonly"))
    finally:
        del registry._REGISTERED["graphsonly"]


def test_a_model_for_another_task(small, molecules):
    with pytest.raises(UnsupportedError, match=r"model 'sign' does not do task 'graph'.*there are: .*gin"):
        run(small(data__name=str(molecules), data__generator=None, model__name="sign", model__hidden=None))
