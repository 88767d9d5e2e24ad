"""Reference rows beside a run."""

from __future__ import annotations

import copy
import shutil

import pytest

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import has_tables
from graphsilo.errors import FederationError, UnsupportedError
from graphsilo.evaluate.significance import gap_closed, paired_errors
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer
from graphsilo.experiments.predict import predict
from graphsilo.experiments.references import reference_config, with_trees_alone
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.experiments.storage import reading
from graphsilo.methods import trees_alone
from graphsilo.testing import conformance
from kit.runs import Listener, only
from kit.silos import CLASSES, write_tables


def test_the_global_reference_on_the_global_graph(small):
    seed = only(run(small(method__name="global", evaluation__modes=["own_global", "own_local"])))
    assert seed["modes"]["own_local"]["test"]["items"] == seed["test"]["items"]


# -- references ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"task": "link", "run__references": ["fedridge"]}, "FedRidge does not do task 'link'"),
        (
            {"method__name": "fedridge", "model__hidden": None, "run__precision": "bfloat16"},
            "FedRidge has no backbone whose products could be made in bfloat16",
        ),
    ],
)
def test_what_a_reference_cannot_do_is_said_before_the_run(small, tmp_path, overrides, complaint):
    config = small(**{**overrides, "partition__rule": "louvain"})
    listener = Listener()
    with pytest.raises(UnsupportedError, match=complaint):
        run(config, out=tmp_path / "run", observer=listener)
    assert listener.first is None
    assert not (tmp_path / "run" / "result.json").exists()


def test_references(small, tmp_path):
    config = small(run__references=["global_cut", "local", "global"], run__seeds=[0, 1], method__participation=0.5)
    tree = run(config, out=tmp_path / "run").tree
    rows = copy.deepcopy(tree["references"])
    assert set(rows) == {"local", "global", "global_cut", "gap_closed"}
    spent = [rows[name].pop("spent") for name in ("local", "global", "global_cut")]
    assert not any("upload_bytes" in each or "download_bytes" in each for each in spent)
    alone = run(small(method__name="local", run__seeds=[0, 1])).tree
    assert rows["local"] == alone["summary"]["test"]
    cut = run(small(method__name="global", method__cross_edges=False, run__seeds=[0, 1])).tree
    assert rows["global_cut"] == cut["summary"]["test"]
    means = [part["accuracy"]["mean"] for part in (tree["summary"]["test"], rows["local"], rows["global"])]
    assert rows["gap_closed"]["accuracy"] == gap_closed(*means)
    assert (tmp_path / "run" / "references" / "global_cut" / "result.json").exists()
    again = run(config, out=tmp_path / "run", resume=True).tree
    assert conformance.numbers(again) == conformance.numbers(tree)


@pytest.mark.parametrize(
    ("method", "said", "row", "settings"),
    [
        # Steps of boosting are multiplied by 0.1, 0.3 and 0.05, which is nothing to Adam; rounds are rounds.
        ("fedtrees", {}, "fedavg", {"lr": 0.01, "local_epochs": 3, "rounds": 100}),
        ("fedtrees", {"lr": 0.3, "rounds": 7}, "fedavg", {"lr": 0.01, "rounds": 7}),
        ("fedtrees", {"lr": 0.3}, "trees_alone", {"lr": 0.05}),
        ("fedtrees", {"lr": 0.3}, "alone", {"lr": 0.3}),
        ("fedavg", {"lr": 0.5, "local_epochs": 2, "optimizer": "sgd"}, "trees_alone", {"lr": 0.05}),
        ("fedavg", {"lr": 0.5}, "auto", {"rounds": 100}),
        ("auto", {"rounds": 9}, "fedavg", {"lr": 0.01, "rounds": 9}),
        # What another method trains with by itself is none of FedAvg's, what was said of both is.
        ("scaffold", {}, "fedavg", {"lr": 0.01, "optimizer": "adam"}),
        ("scaffold", {"lr": 0.2, "optimizer": "sgd"}, "local", {"lr": 0.2, "optimizer": "sgd", "weight_decay": 5e-4}),
        ("fairfgl", {"lr": 0.02}, "global", {"lr": 0.02, "rounds": 150}),
        ("ghost", {"lr": 0.02, "local_epochs": 70}, "fedavg", {"lr": 0.01, "local_epochs": 3}),  # of its generator
    ],
)
def test_a_row_has_its_own_settings_but_for_what_was_said_of_both(method, said, row, settings):
    config = load_config({"method": {"name": method, **said}})
    found = reference_config(config, row)
    assert {name: getattr(found.method_config(), name) for name in settings} == settings
    assert all(f"method.{name}" not in found.given for name in {"lr"} & said.keys() if settings.get("lr") != said[name])
    stored = reference_config(load_config(config.complete()), row)
    assert stored.method_config() == found.method_config()


def test_fedavg_of_one_client_is_global(small):
    """The same schedule and the same numbers."""
    federated = only(run(small(partition__clients=1)))
    central = only(run(small(partition__clients=1, method__name="global")))
    assert [row["test"] for row in federated["rounds"]] == [row["test"] for row in central["rounds"]]


def test_references_have_scenario_scores(small):
    tree = run(small(run__references=["local", "global"], scenario__name="unseen")).tree
    scenarios = tree["summary"]["scenarios"]
    assert scenarios
    for name in ("local", "global"):
        assert set(tree["references"][name]["scenarios"]) == set(scenarios)
    assert set(tree["references"]["gap_closed"]) <= set(tree["summary"]["test"])


def test_no_gap_without_both_ends(small):
    assert "gap_closed" not in run(small(run__references=["local"])).tree["references"]


def test_a_warning_is_said_once_for_all_rows(small):
    heard = []

    class Ears(Observer):
        def on_warning(self, text):
            heard.append(text)

    run(small(run__references=["local", "alone", "global"], run__without=[0], method__rounds=1), observer=Ears())
    assert sum("left out (run.without)" in text for text in heard) == 1
    assert len(set(heard)) == len(heard)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("fedavg", "run"),
        ("fairfgl", "own"),
        *(pytest.param("fairfgl", view, marks=pytest.mark.slow) for view in ("run", "silo", "common")),
    ],
)
def test_a_row_alone_is_held_beside_the_run_item_by_item(small, tmp_path, name, view):
    """With what the saved models of both answer."""
    rounds = {"method__rounds": 4, "method__lr": 0.3}
    config = small(
        method__name=name, **rounds, evaluation__models=True, evaluation__model=view, run__references=["alone", "local"]
    )
    run(config, out=tmp_path / "run")
    for row, method in (("alone", name), ("local", "local")):
        (seed,) = reading.read(tmp_path / "run" / "references" / row).seeds
        for silo in prepare(config).silos:
            paired = next(each.paired for each in seed.clients if each.client == silo.client)
            one, other = (
                predict(tmp_path / "run" / place, client=silo.client).classes for place in (".", f"references/{row}")
            )
            items = silo.seen.items["test"]
            expected = paired_errors(silo.seen.graph.labels[items], one[items], other[items], silo.schema.num_classes)
            assert paired == pytest.approx(expected, abs=1e-12), method
            assert expected["accuracy"] > 0


@pytest.mark.parametrize(
    "where", [{"run__resident_clients": 1}, pytest.param({"run__workers": 2}, marks=pytest.mark.slow)]
)
def test_where_clients_live_changes_nothing_of_the_comparison(small, tmp_path, where):
    found = []
    for place, settings in (("one", {}), ("other", where)):
        config = small(evaluation__models=True, run__references=["alone"], **settings)
        run(config, out=tmp_path / place)
        (seed,) = reading.read(tmp_path / place / "references" / "alone").seeds
        found.append([each.paired for each in seed.clients])
    assert found[0] == found[1]
    assert all(found[0])


def test_who_kept_no_answers_is_not_compared_and_sums_are_never(small, tmp_path):
    """A silo that was away when the run was finished has none, and is scored like the others."""
    config = small(evaluation__models=True, run__references=["alone"])
    run(config, out=tmp_path / "run")
    (tmp_path / "run" / "answers" / "seed0-client1.safetensors").unlink()
    shutil.rmtree(tmp_path / "run" / "references")
    (tmp_path / "run" / "result.json").unlink()
    run(config, out=tmp_path / "run", resume=True)
    (seed,) = reading.read(tmp_path / "run" / "references" / "alone").seeds
    assert [each.paired and all(value is None for value in each.paired.values()) for each in seed.clients] == [
        False, True, False,
    ]  # fmt: skip
    summed = small(evaluation__models=True, evaluation__report="federation", run__references=["alone"])
    run(summed, out=tmp_path / "summed")
    (seed,) = reading.read(tmp_path / "summed" / "references" / "alone").seeds
    assert not any(each.paired for each in seed.clients)


# -- trees alone beside tables ---------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path):
    """The settings of a run on two silos' tables."""
    silos = [write_tables(tmp_path, name, seed=seed, labels=CLASSES) for seed, name in enumerate(("north", "south"))]
    return {"data": {"name": list(map(str, silos))}, "method": "fedridge"}


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        ({}, ["trees_alone"]),
        ({"run": {"seeds": [0, 1]}}, ["trees_alone"]),
        ({"run": {"references": []}}, []),
        ({"run": {"references": "none"}}, []),
        ({"run": {"references": ["none"]}}, []),
        ({"run": {"references": ["majority"]}}, ["majority"]),
        ({"method": "trees_alone"}, []),
    ],
)
def test_what_has_to_be_beaten_stands_beside_tables(tables, said, rows):
    found = run(load_config({**tables, **said})).record
    assert list(found.reference_rows) == rows
    if rows == ["trees_alone"]:
        alone = run(load_config({**tables, "method": "trees_alone"})).record
        assert found.reference_rows["trees_alone"].metrics == alone.summary.test.metrics
        assert found.config["run"]["references"] == rows
        assert found.config["run"]["seeds"] == said.get("run", {}).get("seeds", [0])


def test_only_beside_tables_and_what_trees_can_do(small, tables):
    assert run(small()).record.reference_rows == {}
    config = load_config(tables)
    for task, columns, rows in (
        ("node", 2, ["trees_alone"]), ("regression", 2, ["trees_alone"]), ("link", 2, []), ("multilabel", 2, []),
        ("node", 0, []),
    ):  # fmt: skip
        assert with_trees_alone(config, Schema(task, columns, 2)).run.references == rows
    assert [has_tables(name) for name in ("bank", "hospital", "a/silo.yaml", "Cora", "citation-sbm", "a.npz")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_a_row_that_nobody_asked_for_costs_no_result(tables, monkeypatch):
    """What it fails of is a warning; of a row that was named it ends the run."""

    def fail(*_):
        raise ValueError("no trees today")

    monkeypatch.setattr(trees_alone.Client, "_grow", fail)
    found = run(load_config(tables)).record
    assert found.reference_rows == {}
    assert any("the reference 'trees_alone' is missing: " in text and "no trees" in text for text in found.warnings)
    with pytest.raises(FederationError, match="no trees today"):
        run(load_config({**tables, "run": {"references": ["trees_alone"]}}))


def test_no_seed_changes_trees_alone(tables, tmp_path):
    """One fit stands for all of them."""
    every = run(load_config({**tables, "method": "trees_alone", "run": {"seeds": [0, 7]}})).record
    assert every.seeds[0].test == every.seeds[1].test
    run(load_config({**tables, "run": {"seeds": [3, 4]}}), out=tmp_path / "run")
    assert [seed.seed for seed in reading.read_run(tmp_path / "run" / "references" / "trees_alone").seeds] == [3]
