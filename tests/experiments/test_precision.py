"""A run in bfloat16: the same numbers however it is carried out, and never the setting alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import graphsilo
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.methods import fedavg
from kit import runs
from kit.stopped import Stop, StopAfter

LOW = {"run__precision": "bfloat16"}


@pytest.fixture
def learned(small, tmp_path):
    """The scores of a run and every byte of its models."""

    def carry_out(name, **more):
        return runs.learned(small(**{"evaluation__models": True, **more}), tmp_path / name)

    return carry_out


@pytest.mark.slow
def test_the_same_serially_spread_parked_and_resumed(small, learned, tmp_path):
    whole = learned("whole", **LOW)
    assert whole[1] != learned("full")[1]
    assert whole == learned("spread", **LOW, run__workers=2)
    assert whole == learned("offloaded", **LOW, run__resident_clients=1)
    again = {**LOW, "run__checkpoint_every": 1, "evaluation__models": True}
    with pytest.raises(Stop):
        run(small(**again), out=tmp_path / "resumed", observer=StopAfter(0, 2))
    assert whole == learned("resumed", **again)


def test_it_is_told_and_belongs_to_the_run(small, tmp_path):
    run(small(**LOW), out=tmp_path / "low")
    low, full = json.loads((tmp_path / "low" / "result.json").read_text()), run(small()).tree
    assert low["config"]["run"]["precision"] == "bfloat16"
    assert full["config"]["run"]["precision"] == "float32"
    assert low["fingerprint"] != full["fingerprint"]
    with pytest.raises(ConfigError, match=r"run\.precision was bfloat16 when the run was begun and is float32 now"):
        run(small(), out=tmp_path / "low", resume=True)


def test_predictions_have_the_precision_of_the_run(small, tmp_path):
    for precision in ("bfloat16", "float32"):
        out = tmp_path / precision
        run(small(run__precision=precision, evaluation__models=True, method__rounds=1), out=out)
    # The same weights, asked for in the other precision.
    models = "models/seed0-client0-best.safetensors"
    (tmp_path / "float32" / models).write_bytes((tmp_path / "bfloat16" / models).read_bytes())
    low, full = (
        graphsilo.predict(tmp_path / precision, client=0).probabilities for precision in ("bfloat16", "float32")
    )
    assert abs(low - full).max() < 0.02
    assert (low != full).any()


def test_other_precisions_are_refused(small):
    with pytest.raises(ConfigError, match=r"run\.precision must be one of float32, bfloat16; got 'float16'"):
        small(run__precision="float16")
    with pytest.raises(ConfigError, match=r"run\.precision"):
        graphsilo.run(data="citation-sbm", precision="half")


SPARSE = {"nodes": 200, "classes": 3, "features": 1000, "feature_density": 0.01}


def test_where_it_would_do_nothing_it_is_refused(small):
    linear = {"data__generator": SPARSE, "model__name": "sgc", "method__rounds": 1}
    with pytest.raises(UnsupportedError, match=r"'sgc' without a hidden layer multiplies sparse features here"):
        run(small(**linear, model__hops=0, **LOW))
    run(small(**linear, model__hops=0))
    run(small(**linear, model__hops=0, model__layers=2, **LOW))
    run(small(model__name="sgc", method__rounds=1, **LOW))  # narrow features, dense after two hops


def test_a_client_that_predicts_without_such_a_model_is_refused(small, monkeypatch):
    class Own(fedavg.Client):
        """Builds its model itself, and forgets the precision."""

        def build_model(self, **options):
            model = super().build_model(**options)
            model.precision = "float32"
            return model

    monkeypatch.setitem(registry._REGISTERED, "fedavg", replace(registry.load("fedavg"), client=Own))
    run(small())
    with pytest.raises(Exception, match=r"predicts without a model of that precision, so the setting would do nothing"):
        run(small(**LOW))
