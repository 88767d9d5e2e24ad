"""Studies: equal budgets, validation alone, pruning, going on, and what is run afterwards."""

from __future__ import annotations

import json
import re
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphsilo
from graphsilo import documents
from graphsilo.data import save_graph
from graphsilo.errors import ConfigError, RunError, UnsupportedError, installing
from graphsilo.experiments.config import load_config
from graphsilo.experiments.tuning import Plan, tune
from kit.stopped import Stop
from kit.studies import RATES, SMALL, trials_of

pytest.importorskip("optuna")


def states(out):
    return {name: [state for _, _, state, _, _ in rows] for name, rows in trials_of(out).items()}


def config_of(folder):
    return documents.read(folder / "config.yaml", "the configuration", references=500)


@pytest.mark.slow
def test_every_method_has_the_same_budget_data_cut_and_seeds(tmp_path):
    found = graphsilo.tune(
        SMALL, methods=["fedavg", "fedprox"], trials=3, space={**RATES, "fedprox": {"method.mu": [0.1, 1.0]}},
        tuning_seeds=[7, 8], seeds=[1, 2], out=tmp_path / "study", prune=False,
    )  # fmt: skip
    assert [len(method.trials) for method in found.methods] == [3, 3]
    configs = [config_of(path.parent) for path in sorted((tmp_path / "study/trials").rglob("config.yaml"))]
    assert len(configs) == 6
    for section in ("data", "partition", "scenario", "evaluation", "run"):
        assert all(config[section] == configs[0][section] for config in configs), section
    assert configs[0]["run"]["seeds"] == [7, 8]
    assert [config["method"]["rounds"] for config in configs] == [6] * 6
    for method in found.methods:
        first, *drawn = method.trials
        assert first.settings == {}
        best = method.best_trial
        assert best.validation == max(trial.validation for trial in method.trials)
        result = json.loads((tmp_path / f"study/trials/{method.name}/{best.trial:03}/result.json").read_text())
        scores = [seed["validation"]["accuracy"] for seed in result["seeds"]]
        assert best.validation == pytest.approx(sum(scores) / 2, abs=1e-12)
        assert all(set(trial.settings) == set(method.space[0]) for trial in drawn)
        final = {each.tuned: tmp_path / "study" / each.folder for each in found.final if each.method == method.name}
        assert config_of(final[False])["run"]["seeds"] == [1, 2]
        assert config_of(final[False])["method"]["lr"] == 0.01
        if best.trial:
            tuned = config_of(final[True])
            assert {f"method.{key}": value for key, value in tuned["method"].items()}.items() >= best.settings.items()
            assert tuned["run"]["seeds"] == [1, 2]
    assert graphsilo.compare(*(tmp_path / "study" / each.folder for each in found.final))


def test_labels_of_test_nodes_change_nothing_but_test_scores(tmp_path):
    graph = graphsilo.load("citation-sbm", nodes=300, seed=3)
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    masks = {
        name: np.isin(np.arange(graph.num_nodes), order[part])
        for name, part in (("train", slice(0, 100)), ("val", slice(100, 200)), ("test", slice(200, 300)))
    }
    labels = graph.labels.copy()
    places = np.flatnonzero(masks["test"])
    labels[places] = labels[np.roll(places, 1)]
    found = {}
    for name, each in (("true", graph.labels), ("changed", labels)):
        file = save_graph(tmp_path / f"{name}.npz", replace(graph, labels=each, splits=masks))
        found[name] = graphsilo.tune(
            data=str(file), partition="random", clients=2, rounds=6, trials=3, space=RATES, seeds=[0],
            out=tmp_path / name,
        )  # fmt: skip
    assert trials_of(tmp_path / "true") == trials_of(tmp_path / "changed")
    tests = [
        json.loads((tmp_path / name / "final/fedavg/untuned/result.json").read_text())["seeds"][0]["test"]["accuracy"]
        for name in found
    ]
    assert tests[0] != tests[1], "the test labels did change"


def test_a_method_of_which_every_trial_fails_ends_the_study_in_words(tmp_path):
    with pytest.raises(RunError, match="every trial of fedavg failed, so there are no settings to choose"):
        graphsilo.tune(SMALL, trials=2, space={"method.lr": [1e29]}, out=tmp_path / "study", **{"method.lr": 1e30})


@pytest.mark.slow
def test_a_study_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path):
    """Stopped in the middle of a trial, in this process; below it is killed."""
    config, plan = load_config(SMALL), Plan(space=RATES, trials=7, final=False)
    tune(config, plan, out=tmp_path / "whole")
    for last in (9, 22):
        rounds = iter(range(last))

        def stop(rounds=rounds):
            if next(rounds, None) is None:
                raise Stop

        with pytest.raises(Stop):
            tune(config, plan, out=tmp_path / "stopped", resume=True, after_round=stop)
    tune(config, plan, out=tmp_path / "stopped", resume=True)
    assert trials_of(tmp_path / "stopped") == trials_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_as_if_nothing_had_been(tmp_path):
    """kill -9 in the middle of a trial, twice; with pruning."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    config = tmp_path / "config.yaml"
    config.write_text(documents.write({**SMALL, "method": {"name": "fedavg", "rounds": 60}, "tune": RATES}))
    asked = [sys.executable, "-m", "graphsilo", "tune", "--no-final", "--quiet", "--out"]
    subprocess.run([*asked, str(whole), str(config), "--trials", "9"], check=True, capture_output=True)
    goes_on = [str(config), "--trials", "9"]
    for number in (2, 6):
        with subprocess.Popen([*asked, str(killed), *goes_on], stderr=subprocess.DEVNULL) as process:
            noted = killed / f"trials/fedavg/{number:03}/validation.jsonl"
            end = time.monotonic() + 60
            while not (noted.exists() and noted.read_text().count("\n") > 10):
                assert time.monotonic() < end
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert not (killed / f"trials/fedavg/{number + 1:03}").exists(), "it was killed in the middle"
        goes_on = ["--resume"]
    subprocess.run([*asked, str(killed), "--resume"], check=True, capture_output=True)
    assert trials_of(killed) == trials_of(whole)
    assert "pruned" in states(whole)["fedavg"]


@pytest.mark.slow
def test_more_trials_for_a_study_and_its_final_runs_anew(tmp_path):
    out = tmp_path / "study"
    bad = {**SMALL, "method": {"name": "fedavg", "rounds": 6, "lr": 1e-6}}
    first = graphsilo.tune(bad, trials=2, space={"method.lr": [1e-5, 0.05]}, seeds=[0], out=out, prune=False)
    before = trials_of(out)["fedavg"]
    assert len(before) == 2
    with pytest.raises(ConfigError, match="already holds a study"):
        graphsilo.tune(bad, trials=3, space={"method.lr": [1e-5, 0.05]}, out=out)
    second = graphsilo.tune(trials=3, out=out, resume=True)
    assert trials_of(out)["fedavg"][:2] == before
    assert second.seeds == [0]
    assert len(second.methods[0].trials) == 3
    folders = sorted(path.name for path in (out / "final/fedavg").iterdir())
    same = first.methods[0].best == second.methods[0].best
    assert folders == (["tuned", "untuned"] if same else ["tuned", "tuned-1", "untuned"])
    assert config_of(out / "final/fedavg/tuned")["method"]["lr"] == 0.05


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(
        UnsupportedError, match=re.escape(f"optuna is not installed, which this needs. {installing('tune')}")
    ):
        graphsilo.tune(SMALL, out=tmp_path / "study", space=RATES)
    assert not (tmp_path / "study").exists()


def test_a_graph_in_memory_is_kept_with_the_study(tmp_path):
    graph = graphsilo.load("citation-sbm", nodes=150)
    said = {"data": graph, "partition": "random", "clients": 2, "rounds": 2}
    with pytest.raises(ConfigError):
        graphsilo.tune(**said, trials=0, out=tmp_path / "study")
    assert not (tmp_path / "study").exists()
    graphsilo.tune(**said, trials=2, out=tmp_path / "study", final=False)
    assert (tmp_path / "study/data.npz").exists()
    found = graphsilo.tune(trials=3, out=tmp_path / "study", resume=True, final=False)
    assert len(found.methods[0].trials) == 3


@pytest.mark.slow
def test_trials_in_processes_and_on_dask(tmp_path):
    distributed = pytest.importorskip("distributed")
    space = {"method.lr": [0.02, 0.05, 0.1]}
    config, plan = load_config(SMALL), Plan(space=space, sampler="grid", prune=False, final=False)
    tune(config, plan, out=tmp_path / "here")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=None
    ) as cluster:
        place = f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"
        tune(config, plan, out=tmp_path / "dask", executor=place)
    tune(config, plan, out=tmp_path / "processes", executor="processes:2")
    assert trials_of(tmp_path / "here") == trials_of(tmp_path / "dask") == trials_of(tmp_path / "processes")


OWN = Path(__file__).parents[3] / "examples" / "own_method.py"


@pytest.mark.slow
def test_methods_of_ones_own_are_tuned_as_files_and_as_objects(tmp_path):
    as_file = graphsilo.tune(
        SMALL, methods=["fedavg", str(OWN)], trials=2, out=tmp_path / "file", final=False, executor="processes:1",
        sampler="random",
    )  # fmt: skip
    assert [method.name for method in as_file.methods] == ["fedavg", "fedper"]
    rates = [sorted(table) for table in as_file.methods[1].space]
    assert rates == [["method.lr", "method.optimizer"]] * 2, "the learning rates, where nobody says a space"
    METHOD = runpy.run_path(str(OWN))["METHOD"]
    as_object = graphsilo.tune(SMALL, methods=METHOD, trials=2, out=tmp_path / "object", final=False, sampler="random")
    assert trials_of(tmp_path / "object")["fedper"] == trials_of(tmp_path / "file")["fedper"]
    assert [method.name for method in as_object.methods] == ["fedper"]
    on = graphsilo.tune(out=tmp_path / "file", resume=True, trials=3, final=False)
    assert [len(method.trials) for method in on.methods] == [3, 3]
    assert repr(on).startswith("TuneRecord(by validation accuracy; FedAvg: best is trial ")
    assert len(repr(on)) < 300


def test_where_the_configuration_is_best_tuned_is_the_same_run(tmp_path):
    found = graphsilo.tune(SMALL, space={"method.lr": [1e-9]}, trials=2, seeds=[0], out=tmp_path)
    assert found.methods[0].best == 0
    assert [each.folder for each in found.final] == ["final/fedavg/tuned", "final/fedavg/untuned"]
    tuned, untuned = (json.loads((tmp_path / each.folder / "result.json").read_text()) for each in found.final)
    assert tuned == untuned
