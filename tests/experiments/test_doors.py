"""What a person says through Python, a file, flags or --set is what is run; doors.md's lines one by one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import yaml

import graphsilo
from graphsilo import api
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import RunConfig, configure, load_config, validated

SMALL = {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 30}


def said(config=None, **arguments):
    """The configuration that a Python call makes."""
    settings = {name: arguments.pop(name) for name in list(arguments) if name not in api._ARGUMENTS}
    with tempfile.TemporaryDirectory() as scratch:
        call = api._said(arguments, api._dotted(graphsilo.run, settings), Path(scratch))
        return api._configuration(config, call)


def written(tmp_path, tree, name="base.yaml"):
    path = tmp_path / name
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree), encoding="utf-8")
    return path


def tree_of(config):
    return config.complete()


# -- A0: arguments that were not given do not overwrite --------------------------------------------------------------


def test_a_tables_settings_stand_where_no_argument_says_otherwise():
    result = graphsilo.run(
        data=SMALL,
        method={"name": "fedavg", "rounds": 2},
        partition={"rule": "louvain", "clients": 4, "seed": 9},
        model={"hidden": 8},
    )
    settings = result.tree["config"]
    assert (settings["method"]["rounds"], settings["partition"]["clients"], settings["partition"]["seed"]) == (2, 4, 9)
    assert (len(result.tree["seeds"][0]["rounds"]), result.tree["partition"]["clients"]) == (2, 4)
    assert result.tree["partition"]["seed"] == 9


def test_a_plan_takes_a_tables_settings():
    found = graphsilo.plan(
        data=SMALL, method={"name": "fedavg", "rounds": 2}, partition={"rule": "random", "clients": 4, "seed": 9},
        seconds=1,
    )  # fmt: skip
    assert (found.about["clients"], found.about["rounds"]) == (4, 2)


def test_arguments_and_tables_are_one_door():
    config = said(method={"name": "fedprox", "mu": 0.3}, rounds=7, partition={"rule": "metis"}, clients=3)
    tree = tree_of(config)
    assert (tree["method"]["name"], tree["method"]["mu"], tree["method"]["rounds"]) == ("fedprox", 0.3, 7)
    assert (tree["partition"]["rule"], tree["partition"]["clients"]) == ("metis", 3)
    assert {"method.mu", "method.rounds", "partition.clients"} <= set(tree["given"])
    assert "partition.seed" not in tree["given"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rounds": 3, "method": {"rounds": 5}}, ["rounds=3", "method.rounds 5"]),
        ({"rounds": 3, "method.rounds": 5}, ["rounds=3", "'method.rounds': 5"]),
        ({"clients": 4, "partition": {"rule": "random", "clients": 5}}, ["clients=4", "partition.clients 5"]),
        ({"method": "fedprox", "method.name": "fedavg"}, ["method='fedprox'", "'method.name': 'fedavg'"]),
        ({"seeds": 3, "run.seeds": [4]}, ["seeds=3", "'run.seeds': [4]"]),
        ({"method": {"mu": 0.1, "options": {"mu": 0.2}}}, ["method.mu 0.1", "method.mu 0.2"]),
        ({"data": {"name": "citation-sbm", "nodes": 5, "generator": {"nodes": 6}}}, ["data.nodes 5", "data.nodes 6"]),
        ({"partition": {"rule": "metis", "file": "p.npz"}}, ["the rule 'metis'", "the stored partition 'p.npz'"]),
        ({"partition": "p.npz", "partition.rule": "metis"}, ["the rule 'metis'", "the stored partition 'p.npz'"]),
        ({"model": {"name": "mlp", "pool": ["gcn", "sage"]}}, ["model.name 'mlp'", "model.pool ['gcn', 'sage']"]),
    ],
    ids=str,
)
def test_two_words_of_one_call_that_contradict_each_other_are_refused(arguments, words):
    with pytest.raises(ConfigError) as caught:
        said(**arguments)
    for word in words:
        assert word in str(caught.value)
    assert "Give only one of them." in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "assignments"),
    [
        ({"partition.clients": 5}, ["partition.clients=4"]),
        ({"run.references": ["global"]}, ["run.references=[local]"]),  # C7
        ({}, ["method.mu=0.1", "method.name=fedprox", "method.mu=0.2"]),
        ({"method": "fedavg"}, ["method={name: fedprox, mu: 0.1}"]),
        ({"partition": "metis"}, ["partition.file=p.npz"]),
        ({"model": "mlp"}, ["model.pool=[gcn, sage]"]),
    ],
    ids=str,
)
def test_a_command_line_that_contradicts_itself_is_refused(flags, assignments):
    with pytest.raises(ConfigError, match="Give only one of them"):
        load_config(overrides=flags, assignments=assignments)


def test_the_same_said_twice_is_no_contradiction():
    config = load_config(
        overrides={"partition.clients": 5, "method": "fedsage+"},
        assignments=["partition.clients=5", "method.name=fedsage_plus"],
    )
    assert config.partition.clients == 5
    assert said(rounds=3, method={"rounds": 3}).method_config().rounds == 3


@pytest.mark.parametrize("order", [1, -1])
def test_a_setting_that_the_chosen_method_lacks_is_refused_in_any_order(order):  # C5
    config = load_config(assignments=["method.mu=0.9", "method.name=fedavg"][::order])
    with pytest.raises(ConfigError, match="unknown setting 'mu' for fedavg"):
        config.method_config()


# -- A3: a model or a pool ------------------------------------------------------------------------------------------


def test_a_model_takes_the_place_of_a_files_pool(tmp_path):
    path = written(tmp_path, "model: {pool: [gcn, sage], hidden: 8}")
    config = load_config(path, overrides={"model": "mlp"})
    assert (config.model.name, config.model.pool, config.model.options) == ("mlp", None, {"hidden": 8})
    config = said(str(path), model="gcn")
    assert (config.model.name, config.model.pool) == ("gcn", None)
    config = load_config(
        written(tmp_path, "model: {name: gamlp, hops: 5, hidden: 8}"), assignments=["model.pool=[gcn, sage]"]
    )
    assert (config.model.pool, config.model.options) == (["gcn", "sage"], {"hidden": 8})
    assert "name" not in config.complete()["model"]
    assert "model.hops 5" in config.remarks[0]


def test_the_models_that_are_saved_are_those_of_the_flag(tmp_path):
    from graphsilo.experiments.simulation import prepare

    path = written(tmp_path, {"data": SMALL, "model": {"pool": ["gcn", "sage"]}, "partition": "random"})
    specs = prepare(load_config(path, overrides={"model": "mlp", "partition.clients": 2})).models
    assert {spec.name for spec in specs.values()} == {"mlp"}


# -- C: a later word leaves the others in peace ---------------------------------------------------------------------


def test_a_table_of_set_merges_as_python_tables_do(tmp_path):  # C1
    path = written(tmp_path, "method: {name: fedavg, lr: 0.05}\npartition: {seed: 3, clients: 6}\n")
    config = load_config(
        path,
        overrides={"method.rounds": 2, "partition.clients": 4},
        assignments=["method={name: fedprox, mu: 0.1}", "partition={rule: random}"],
    )
    settings = config.method_config()
    assert (settings.rounds, settings.mu, settings.lr) == (2, 0.1, 0.05)
    assert (config.partition.rule, config.partition.clients, config.partition.seed) == ("random", 4, 3)
    assert config.remarks == []


def test_generated_data_keeps_its_settings_when_another_has_them(tmp_path):  # C2
    path = written(tmp_path, {"data": {**SMALL, "largest_component": True}})
    config = said(str(path), data="heterophily-sbm")
    kept = {key: value for key, value in SMALL.items() if key != "name"}
    assert config.data.options == {**kept, "largest_component": True}
    assert config.remarks == []
    config = load_config(path, overrides={"data": "Cora"})
    assert config.data.options == {"largest_component": True}
    assert config.remarks == [
        "of what base.yaml says, this is not used, since data.name is 'Cora' now: data.classes 3, data.features 30, "
        "data.nodes 150."
    ]


def test_a_scenario_keeps_its_settings_when_another_has_them(tmp_path):  # C3
    path = written(tmp_path, "scenario: {name: unseen, hops: 3}\n")
    config = said(str(path), scenario="open")
    assert (config.scenario.name, config.scenario.options) == ("open", {"hops": 3})
    config = load_config(path, overrides={"scenario": "seen"})
    assert config.scenario.options == {}
    assert "scenario.hops 3" in config.remarks[0]


def test_another_rule_says_which_settings_it_drops(tmp_path):
    path = written(tmp_path, "partition: {rule: dirichlet, alpha: 0.1, clients: 4}\n")
    config = load_config(path, overrides={"partition": "metis"})
    assert (config.partition.options, config.partition.clients) == ({}, 4)
    assert config.remarks == [
        "of what base.yaml says, this is not used, since partition.rule is 'metis' now: partition.alpha 0.1."
    ]
    kept = load_config(path, overrides={"partition": "dirichlet", "partition.clients": 5})
    assert (kept.partition.options, kept.remarks) == ({"alpha": 0.1}, [])


@pytest.mark.parametrize(
    ("method", "model", "settings"),
    [
        ("fedlog", "sage", {"lr": 0.001, "local_epochs": 1}),
        ("fedpg", "gamlp", {}),
        ("fedsage", "sage", {}),
        ("fedprox", "gcn", {"lr": 0.01, "local_epochs": 3}),
    ],
)
def test_written_out_defaults_are_no_wishes(tmp_path, method, model, settings):  # C4
    """A run's own config.yaml as the base of another method: that one's defaults and backbone."""
    first = load_config(overrides={"data": dict(SMALL), "method.rounds": 5, "partition.clients": 3})
    tree = first.complete()
    tree["partition"]["rule"], tree["task"] = "louvain", "node"  # as a run finds out
    fresh = load_config(overrides={"data": dict(SMALL), "method": method, "method.rounds": 5, "partition.clients": 3})
    for base in (tree, written(tmp_path, tree)):
        config = configure(base, _call(method))
        assert config.model.name == model == fresh.model.name
        assert config.method_config() == fresh.method_config()
        assert config.method_config().rounds == 5
        for name, value in settings.items():
            assert getattr(config.method_config(), name) == value
        assert config.remarks == []
    again = configure(tree, _call())
    assert again.complete() == {**tree, "given": again.complete()["given"]}


def _call(method=None):
    from graphsilo.experiments.config import door_of

    call = door_of("this call")
    if method:
        call.say("method", method)
    return call


def test_what_was_said_stays_a_wish_for_another_method():
    first = load_config(overrides={"model": "gcn", "method.lr": 0.05})
    config = configure(first.complete(), _call("fedlog"))
    assert (config.model.name, config.method_config().lr) == ("gcn", 0.05)


def test_a_written_out_default_that_was_changed_by_hand_is_a_wish():
    tree = load_config().complete()
    tree["method"]["local_epochs"] = 7
    assert configure(tree, _call("fedlog")).method_config().local_epochs == 7


def test_written_out_defaults_hold_where_nothing_else_is_chosen():
    """Defaults of another version stay with a configuration that is run again."""
    tree = load_config().complete()
    tree["method"]["weight_decay"] = 0.25
    call = _call()
    call.say("run.workers", 2)
    assert configure(tree, call).method_config().weight_decay == 0.25


def test_other_data_finds_its_own_rule_and_task():
    tree = load_config(overrides={"data": dict(SMALL)}).complete()
    tree["task"] = "node"
    tree["partition"].update({"rule": "louvain", "resolution": 1.0})
    call = _call()
    call.say("data", "MUTAG")
    config = configure(tree, call)
    assert (config.task, config.partition.rule, config.partition.options) == (None, "auto", {})


def test_a_graph_in_memory_is_left_as_it_is(tmp_path):  # C6
    path = written(tmp_path, {"data": {"name": "Cora", "scale": "unit_rows"}})
    config = said(str(path), data=graphsilo.load(**SMALL))
    assert config.data.options == {"undirected": False}
    assert config.remarks == [
        "of what base.yaml says, this is not used, since data is given whole: data.scale 'unit_rows'."
    ]
    asked = said(str(path), data=graphsilo.load(**SMALL), **{"data.scale": "unit_rows"})
    assert asked.data.options == {"scale": "unit_rows", "undirected": False}


def test_remarks_reach_the_result_and_stay_with_the_run(tmp_path):
    base = {"data": SMALL, "partition": {"rule": "dirichlet", "alpha": 0.5, "clients": 2}, "model": {"hidden": 8}}
    told = []

    class Listener:
        def started(self, description): ...

        def progressed(self, progress): ...

        def warned(self, text):
            told.append(text)

    folder = tmp_path / "run"
    result = graphsilo.run(base, partition="random", rounds=1, out=folder, progress=Listener(), report=False)
    remark = (
        "of what the configuration says, this is not used, since partition.rule is 'random' now: partition.alpha 0.5."
    )
    assert remark in told
    assert remark in result.tree["warnings"]
    assert "alpha" not in result.tree["config"]["partition"]
    (folder / "result.json").unlink()
    again = graphsilo.run(folder / "config.yaml", out=folder, resume=True, report=False)
    assert remark in again.tree["warnings"]
    other = configure(folder / "config.yaml", _call("fedprox"))
    assert other.remarks == []


def test_the_records_of_a_configuration_are_no_settings():
    for assignment in ("given=[method.mu]", "remarks=[x]"):
        with pytest.raises(ConfigError, match="unknown setting"):
            load_config(assignments=[assignment])
    with pytest.raises(ConfigError, match="'given' is written by graphsilo"):
        validated(RunConfig, {"given": 3}, "")
    assert json.loads(json.dumps(load_config().complete()))["given"] == []
