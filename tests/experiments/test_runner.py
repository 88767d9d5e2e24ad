"""The runner: rounds, selection, results, refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import graphsilo
from graphsilo.errors import ConfigError, DataError, FederationError, RunError, UnsupportedError
from graphsilo.experiments import runner
from graphsilo.experiments.config import load_config
from graphsilo.experiments.evaluation import scored_clients
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.testing import conformance
from kit.own import SMALL
from kit.runs import Listener, only, quick
from kit.stopped import Stop, StopAfter

MODES = ["own_local", "own_global", "aggregate_local", "aggregate_global"]


def shuffled(simulation, kind):
    """Labels of the items of one kind dealt out anew, in graphs that training does not read labels of."""
    silos = []
    for silo in simulation.silos:
        labels = silo.graph.labels.copy()
        items = silo.seen.items[kind]
        labels[items] = labels[np.roll(items, 1)]
        graph = replace(silo.graph, labels=labels)
        silos.append(
            replace(silo, graph=graph, evaluations=tuple(replace(one, graph=graph) for one in silo.evaluations))
        )
    return replace(simulation, silos=tuple(silos))


def test_test_labels_influence_nothing_but_test_scores(small):
    config = small(method__rounds=8, method__lr=0.05, run__early_stopping=3)
    simulation = prepare(config)
    first = only(run(config, simulation=simulation))
    second = only(run(config, simulation=shuffled(simulation, "test")))
    assert [row["test"]["accuracy"] for row in first["rounds"]] != [row["test"]["accuracy"] for row in second["rounds"]]
    assert first["best_round"] == second["best_round"]
    assert first["validation"]["accuracy"] == second["validation"]["accuracy"]
    assert [row["validation"]["accuracy"] for row in first["rounds"]] == [
        row["validation"]["accuracy"] for row in second["rounds"]
    ]


def test_without_test_items(small):
    with pytest.raises(DataError, match="no client has a test item"):
        run(small(partition__ratios=[0.5, 0.5, 0.0]))


def test_evaluation_every_few_rounds_and_after_the_last(small):
    seed = only(run(small(method__rounds=7, evaluation__every=3)))
    assert ["validation" in row for row in seed["rounds"]] == [False, False, True, False, False, True, True]
    every = only(run(small(method__rounds=7)))
    for number in (3, 6, 7):
        assert seed["rounds"][number - 1]["test"] == every["rounds"][number - 1]["test"]
    assert all("upload_bytes" in row for row in seed["rounds"])


def test_a_share_of_the_clients_is_scored_and_all_train(small):
    """Two of six: the same ones in every round, with the scores that they have when all are scored."""
    some = only(run(small(partition__clients=6, evaluation__share=0.4)))
    every = only(run(small(partition__clients=6)))
    scored = [row["client"] for row in some["clients"] if row["test"]]
    assert len(scored) == 2
    assert len([row for row in every["clients"] if row["test"]]) == 6
    assert [row["participants"] for row in some["rounds"]] == [6, 6, 6]
    assert some["modes"]["aggregate_local"]["test"]["accuracy"] is not None
    config = small(evaluation__share=0.4).evaluation
    assert list(scored_clients(config, range(6), 0)) == scored
    assert scored_clients(config, range(1000), 7) == scored_clients(config, range(1000), 7)
    assert len(scored_clients(config, range(1000), 7)) == 400
    assert scored_clients(small().evaluation, range(6), 0) is None
    assert scored_clients(small(evaluation__share=0.001).evaluation, range(6), 0) is not None


def test_seeds_are_independent_of_each_other(small):
    both = run(small(run__seeds=[0, 1])).tree
    second = run(small(run__seeds=[1])).tree
    assert conformance.numbers({"seeds": both["seeds"][1:]}) == conformance.numbers({"seeds": second["seeds"]})
    scores = [seed["test"]["accuracy"] for seed in both["seeds"]]
    assert scores[0] != scores[1]
    assert both["summary"]["test"]["accuracy"]["mean"] == pytest.approx(np.mean(scores))
    assert both["summary"]["test"]["accuracy"]["std"] == pytest.approx(np.std(scores, ddof=1))


# -- evaluation modes ------------------------------------------------------------------------------------------------


def test_one_client_makes_all_modes_one(small):
    seed = only(run(small(partition__clients=1, evaluation__modes=MODES)))
    for row in seed["rounds"]:
        for mode in MODES[1:]:
            assert row["modes"][mode] == {"validation": row["validation"], "test": row["test"]}
    scores = [seed["modes"][mode]["test"]["accuracy"] for mode in MODES]
    assert len(set(scores)) == 1


def test_modes_ask_different_questions(small):
    config = small(evaluation__modes=MODES, method__lr=0.05, partition__rule="metis")
    seed = only(run(config))
    plain = only(run(small(method__lr=0.05, partition__rule="metis")))
    assert seed["test"] == plain["test"]
    nodes = sum(client["test_items"] for client in seed["clients"])
    items = {mode: seed["modes"][mode]["test"]["items"] for mode in MODES}
    # Every client's model answers for all nodes; the aggregate is scored once.
    assert items == {"own_local": nodes, "aggregate_local": nodes, "own_global": 3 * nodes, "aggregate_global": nodes}
    aggregate = seed["modes"]["aggregate_global"]["test"]
    assert aggregate["worst_client"]["client"] is None
    assert aggregate["accuracy"] == pytest.approx(aggregate["pooled"]["accuracy"])
    assert len({seed["modes"][mode]["test"]["accuracy"] for mode in MODES}) > 2


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_can_be_the_first(small, mode):
    seed = only(run(small(evaluation__modes=[mode])))
    assert 0 <= seed["test"]["accuracy"] <= 1
    scored = [bool(client["test"]) for client in seed["clients"]]
    assert scored == [mode != "aggregate_global"] * 3


def test_own_global_is_weighted_by_own_nodes(small):
    """By hand from each client's own score on the whole graph."""
    config = small(evaluation__modes=["own_global"], partition__rule="louvain", method__rounds=1)
    seed = only(run(config))
    sizes = [client["nodes"] for client in seed["clients"]]
    scores = [client["test"]["accuracy"] for client in seed["clients"]]
    assert len(set(sizes)) > 1
    assert seed["test"]["accuracy"] == pytest.approx(np.average(scores, weights=sizes))


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", ["fedridge", "opfgl"])
def test_those_of_one_round_are_who_sent(small, tmp_path, method, secure):
    """The other two have what comes of it, and only say that they do."""
    config = small(
        method__name=method, method__participation=0.6, partition__clients=5, method__rounds=1,
        run__secure_sums=secure, **quick(method),
    )  # fmt: skip
    run(config, out=tmp_path / "run")
    seed = json.loads((tmp_path / "run/result.json").read_text())["seeds"][0]
    assert [row["participants"] for row in seed["rounds"]] == [3]


def test_a_run_that_goes_on_in_python_takes_the_settings_of_its_folder(tmp_path):
    said = {"data": SMALL, "partition": "random", "clients": 2, "rounds": 3, "seeds": [4], "report": False}
    whole = graphsilo.run(**said, out=tmp_path / "whole", progress=None)
    with pytest.raises(Stop):
        graphsilo.run(**said, out=tmp_path / "run", progress=StopAfter(4, 1), **{"run.checkpoint_every": 1})
    on = graphsilo.run(out=tmp_path / "run", resume=True, report=False)
    assert on.tree["seeds"][0]["test"] == whole.tree["seeds"][0]["test"]
    assert [row["test"] for row in on.tree["seeds"][0]["rounds"]] == [
        row["test"] for row in whole.tree["seeds"][0]["rounds"]
    ]
    with pytest.raises(ConfigError, match=r"method\.rounds was 3"):
        graphsilo.run(out=tmp_path / "run", resume=True, rounds=4, report=False)


def test_clients_that_were_not_asked_are_scored_all_the_same(small):
    """One of three trains per round; the mean runs over all three, weighted by all their nodes."""
    seed = only(run(small(method__participation=0.34, method__rounds=1, partition__rule="louvain")))
    assert seed["rounds"][0]["participants"] == 1
    sizes = [client["nodes"] for client in seed["clients"]]
    scores = [client["test"]["accuracy"] for client in seed["clients"]]
    assert len(scores) == 3
    assert seed["test"]["accuracy"] == pytest.approx(np.average(scores, weights=sizes))


def test_views_that_a_method_lacks(small):
    with pytest.raises(UnsupportedError, match="needs the view 'aggregate'; Local only has only own"):
        run(small(method__name="local", evaluation__modes=["aggregate_local"]))


def test_aucs_do_not_change_the_rest(small):
    plain, more = only(run(small())), only(run(small(evaluation__auc=True)))
    assert 0 <= more["test"].pop("auc") <= 1
    more["test"].pop("ap")
    assert more["test"] == plain["test"]
    assert all(0 <= row["validation"]["auc"] <= 1 for row in more["rounds"])


# -- folders ---------------------------------------------------------------------------------------------------------


def test_a_used_folder_is_refused(small, tmp_path):
    run(small(), out=tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    with pytest.raises(ConfigError, match=r"already holds a run\. Continue it with --resume"):
        run(small(), out=tmp_path / "run")
    assert (tmp_path / "run" / "result.json").read_bytes() == before
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ConfigError, match="already holds a run"):
        run(small(), out=tmp_path / "run")


def test_a_held_folder_is_refused(small, tmp_path):
    class Intruder(Observer):
        caught = None

        def on_progress(self, progress):
            if progress.round == 2:
                with pytest.raises(RunError, match="another process is writing") as caught:
                    run(small(), out=tmp_path / "run", resume=True)
                Intruder.caught = caught

    run(small(), out=tmp_path / "run", observer=Intruder())
    assert Intruder.caught is not None


@pytest.mark.parametrize(
    "change",
    [
        {"method__lr": 0.02}, {"run__seeds": [0, 1]}, {"partition__seed": 1}, {"data__seed": 1}, {"model__hidden": 4},
        {"method__name": "fedprox"}, {"evaluation__every": 2}, {"run__early_stopping": 4},
    ],
    ids=str,
)  # fmt: skip
def test_resuming_something_else_is_refused(small, tmp_path, change):
    run(small(), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="another configuration, data set or partition"):
        run(small(**change), out=tmp_path / "run", resume=True)
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(ConfigError, match="another configuration, data set or partition"):  # by its checkpoint
        run(small(**change), out=tmp_path / "run", resume=True)


def test_resuming_removes_what_a_killed_write_left(small, tmp_path):
    run(small(), out=tmp_path / "run")
    left = tmp_path / "run" / f".rounds.parquet.{'0f' * 16}.tmp"
    left.touch()
    with pytest.raises(ConfigError):  # of another run nothing is touched
        run(small(method__lr=0.02), out=tmp_path / "run", resume=True)
    assert left.exists()
    run(small(), out=tmp_path / "run", resume=True)
    assert not left.exists()


@pytest.mark.parametrize("model", ["gcn", "sign"])
def test_neighbours_that_do_not_fit_the_model_are_refused_before_data_is_read(small, monkeypatch, model):
    monkeypatch.setattr(runner, "prepare", lambda *_: pytest.fail("data was read"))
    said = {"gcn": "the model has 2 layers, a list of 3 numbers came", "sign": "the model sign; use another model"}
    with pytest.raises(ConfigError, match=said[model]):
        run(small(model__name=model, method__fan_out=[5, 5, 5]))


def test_a_finished_run_has_nothing_left_to_do(small, tmp_path):
    first = run(small(), out=tmp_path / "run")
    listener = Listener()
    again = run(small(run__workers=2, run__checkpoint_every=1), out=tmp_path / "run", resume=True, observer=listener)
    assert listener.heard == []
    assert again.tree == json.loads(json.dumps(first.tree))


def test_the_stored_configuration_runs_again(small, tmp_path):
    first = run(small(), out=tmp_path / "one")
    second = run(load_config(tmp_path / "one" / "config.yaml"), out=tmp_path / "two")
    assert second.tree["fingerprint"] == first.tree["fingerprint"]
    assert conformance.numbers(second.tree) == conformance.numbers(first.tree)


def test_training_that_diverges_is_told(small):
    config = small(method__optimizer="sgd", method__lr=1e30, method__rounds=9)
    with pytest.raises(FederationError, match="NaN or infinity"):
        run(config)
