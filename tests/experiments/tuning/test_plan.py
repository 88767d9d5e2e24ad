"""What is tuned: refused in words, and the same when a study goes on."""

from __future__ import annotations

import pytest

import graphsilo
from graphsilo.errors import ConfigError
from graphsilo.experiments.tuning import Plan
from kit.studies import RATES, SMALL

pytest.importorskip("optuna")


def test_another_study_does_not_go_on_in_the_folder(tmp_path):
    out = tmp_path / "study"
    graphsilo.tune(SMALL, trials=1, space=RATES, out=out, final=False)
    before = (out / "study.yaml").read_bytes()
    for said, text in (
        ({"space": {"method.lr": [0.1]}}, "spaces was"),
        ({"method.weight_decay": 0.5}, "method.weight_decay was"),
        ({"tuning_seeds": [3]}, r"tuning_seeds was \[10\] when the study was begun and is \[3\] now"),
        ({"sampler": "random"}, "sampler was tpe"),
        ({"methods": ["fedprox"]}, "holds another study"),
    ):
        with pytest.raises(ConfigError, match=text):
            graphsilo.tune(out=out, resume=True, trials=2, **said)
    assert (out / "study.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"trials": 0}, "trials must be at least 1; got 0"),
        ({"space": {}}, "the space is empty"),
        ({"trials": "all"}, "trials must be a whole number at least 1; got 'all'"),
        ({"tuning_seeds": 3}, "tuning_seeds must be a list of one or more whole numbers at least 0; got 3"),
        ({"tuning_seeds": [-1]}, r"tuning_seeds.0 must be at least 0; got -1"),
        ({"sampler_seed": -1}, "sampler_seed must be at least 0; got -1"),
        ({"prune": "no"}, "prune must be true or false; got 'no'"),
        ({"sampler": "tpee"}, "Did you mean 'tpe'"),
        ({"sampler": "grid"}, "more than 1000 points"),
        ({"tuning_seeds": [0, 1]}, "seeds that the runs afterwards do not have"),
        ({"methods": ["fedavgg"]}, "did you mean 'fedavg'"),
        ({"partition.ratios": [0.6, 0.0, 0.4]}, "no client has anything to validate on"),
        ({"evaluation.select_by": "test_accuracy"}, "evaluation.select_by"),
        ({"executor": "slurm://here"}, "an executor is"),
        ({"device": "cuda"}, "run.device cuda was asked for"),
        ({"run.top_share": 0.1}, "run.top_share would have no effect"),
        ({"method": "majority", "space": None}, "the space of majority is empty"),
        ({"method": "auto", "space": None}, r"such as tune: \{method.balance: "),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(said, text, tmp_path):
    with pytest.raises(ConfigError, match=text):
        graphsilo.tune(SMALL, out=tmp_path / "study", **{"space": RATES, **said})
    assert not (tmp_path / "study").exists()


def test_there_is_no_study_to_go_on_with(tmp_path):
    with pytest.raises(ConfigError, match="holds no study"):
        graphsilo.tune(out=tmp_path / "study", resume=True)


def test_what_is_not_said_is_as_the_study_was_begun_with():
    kept = {"spaces": {"fedavg": [{"method.lr": [0.1]}]}, "trials": 3, "seeds": [4], "sampler": "random"}
    assert Plan.merge(kept, trials=5, sampler=None) == Plan(
        methods=["fedavg"], space=kept["spaces"], trials=5, seeds=[4], sampler="random"
    )
    assert Plan.merge({}, prune=False) == Plan(prune=False)
