"""What a person says through Python, a file, flags or --set is what is run; doors.md's lines one by one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import graphsilo
import graphsilo.data
import graphsilo.errors
from graphsilo import api
from graphsilo.cli.values import whole_numbers
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import RunConfig, configure, load_config
from graphsilo.experiments.runner import run
from kit.doors import SMALL, idle


def said(config=None, **arguments):
    """The configuration that a Python call makes."""
    with tempfile.TemporaryDirectory() as scratch:
        call = api._parse_call(graphsilo.run, arguments, Path(scratch))
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


@pytest.mark.slow
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
        ({"seeds": [3], "run.seeds": [4]}, ["seeds=[3]", "'run.seeds': [4]"]),
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
    with pytest.raises(ConfigError, match=r"unknown setting 'method\.mu' for fedavg"):
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

    class Listener(graphsilo.Observer):
        def on_warning(self, text):
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
        RunConfig.of({"given": 3})
    assert json.loads(json.dumps(load_config().complete()))["given"] == []


STORED = [("ratios", [0.6, 0.2, 0.2]), ("split", "global"), ("split_index", 3), ("seed", 8), ("resolution", 0.5)]


@pytest.mark.parametrize(("key", "value"), STORED)
def test_a_stored_partition_is_used_as_it_is(stored, key, value):  # B1
    for arguments in (
        {"partition": str(stored), f"partition.{key}": value},
        {"partition": {"file": str(stored), key: value}},
    ):
        with pytest.raises(
            ConfigError, match=rf"partition\.{key} .*would have no effect: the stored partition .*as it is"
        ):
            idle({"data": SMALL}, **arguments)
    told = idle({"data": SMALL, "partition": {"file": str(stored), key: value}})
    assert any(text.startswith(f"partition.{key} ") and "has no effect" in text for text in told.tree["warnings"])
    settings = told.tree["config"]["partition"]
    assert settings.get(key) in (None, 0, "auto", 2024)
    assert f"partition.{key}" not in told.tree["config"]["given"]


def test_what_a_stored_partition_says_itself_may_be_repeated(stored):
    same = {"seed": 5, "split": "stratified", "ratios": [0.4, 0.3, 0.3], "clients": 3}
    result = idle({"data": SMALL}, partition={"file": str(stored), **same})
    assert not any("no effect" in text for text in result.tree["warnings"])
    flags = load_config(overrides={"data": SMALL, "partition.file": str(stored), "partition.seed": 8})
    with pytest.raises(ConfigError, match=r"partition\.seed \(--partition-seed\) would have no effect"):
        run(flags)


def test_a_stored_partition_in_memory_is_used_as_it_is():
    graph = graphsilo.load(**SMALL)
    cut = graphsilo.partition(graph, "random", clients=3)
    with pytest.raises(ConfigError, match=r"partition\.ratios would have no effect"):
        idle(None, data=graph, partition=cut, **{"partition.ratios": [0.6, 0.2, 0.2]})


def test_a_partition_is_audited_as_it_is(stored):  # B2
    from graphsilo.cli.partition import partition_command

    data = {"data": dict(SMALL), "partition.file": str(stored)}
    with pytest.raises(ConfigError, match="9 clients are asked for"):
        partition_command({**data, "partition.clients": 9}, [], None)
    for overrides, assignments in (({"partition.seed": 9}, []), ({}, ["ratios=[0.6, 0.2, 0.2]"])):
        with pytest.raises(ConfigError, match="would have no effect: the stored partition"):
            partition_command({**data, **overrides}, assignments, None)
    partition_command({**data, "partition.clients": 3, "partition.seed": 5}, [], None)


# -- D, F: a value is what it looks like -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seeds": "12"}, r"seeds=\.\.\.\) takes a list of seeds .*; got '12' of type str"),  # D1
        ({"seeds": [1.9]}, r"run\.seeds\.0 must be a whole number at least 0; got 1\.9"),
        ({"seeds": True}, r"got True of type bool"),  # D2
        ({"seeds": [True]}, r"run\.seeds\.0 must be a whole number at least 0; got True"),
        ({"seeds": ["1"]}, r"run\.seeds\.0 must be a whole number at least 0; got '1'"),
        ({"rounds": True}, r"method\.rounds must be a whole number at least 1; got True"),  # D5
        ({"rounds": "3"}, r"method\.rounds must be a whole number at least 1; got '3'"),
        ({"method.lr": True}, r"method\.lr must be a number above 0; got True"),
        ({"method.min_clients": True}, r"method\.min_clients must be a whole number at least 1 or none; got True"),
        ({"clients": True}, r"partition\.clients must be a whole number at least 1; got True"),
        ({"partition": {"ratios": [True, 0, 0]}}, r"partition\.ratios\.0 must be a number; got True"),
        ({"evaluation.auc": 1}, r"evaluation\.auc must be true or false; got 1"),
        ({"evaluation.auc": "yes"}, r"evaluation\.auc must be true or false; got 'yes'"),
        (
            {"evaluation.modes": []},
            r"evaluation\.modes must be a list of one or more words out of own_local, .* or none; got \[\]",
        ),  # F
        (
            {"references": "lokal"},
            r"^run\.references\.0 must be one of local, .*; got 'lokal'\. Did you mean 'local'\?$",
        ),
        ({"method": {"name": None}}, r"^method\.name must be text; got None\.$"),
        ({"report_": False}, r"graphsilo\.run has no argument 'report_'; did you mean 'report'\?"),
    ],
    ids=str,
)
def test_values_are_not_bent(arguments, text):
    with pytest.raises(ConfigError, match=text):
        said(**arguments).method_config()


@pytest.mark.parametrize("way", [{"seeds": 3}, {"seeds": np.int64(3)}, {"run.seeds": 3}], ids=str)
def test_a_number_alone_is_no_list_of_seeds(way, tmp_path):
    """3 may mean seed 3 or three seeds, so it is refused wherever a value has a type; a flag's text is a list."""
    text = r"^run\.seeds is a list of seeds; got 3, which may mean seed 3 or 3 seeds\. Say \[3\] for the one, and \[0, "
    with pytest.raises(ConfigError, match=text):
        said(**way)
    for refused in (
        lambda: load_config(assignments=["run.seeds=3"]),
        lambda: load_config(written(tmp_path, {"run": {"seeds": 3}})),
        lambda: graphsilo.plan(data=SMALL, **way),
    ):
        with pytest.raises(ConfigError, match=text):
            refused()
    assert said(seeds=range(3)).run.seeds == [0, 1, 2]
    assert whole_numbers("3", "--seeds") == [3]


DOTTED, DOTS = "A setting is given by its dotted name:", "settings are given by their dotted names:"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"compression": "int8"}, f"did you mean 'run.compression'? {DOTTED} **{{'run.compression': 'int8'}}."),
        ({"run": {"compression": "int8"}}, f"its {DOTS} **{{'run.compression': 'int8'}}."),
        ({"evaluation": {"every": 5}}, f"its {DOTS} **{{'evaluation.every': 5}}."),
        ({"learning_rate": 0.1}, f"did you mean 'method.lr'? {DOTTED} **{{'method.lr': 0.1}}."),
        ({"seed": 3}, "did you mean 'seeds'?"),
    ],
    ids=str,
)
def test_a_setting_as_an_argument_is_refused_with_the_true_way(wrong, right):
    with pytest.raises(ConfigError) as caught:
        graphsilo.run(data=SMALL, **wrong)
    (name,) = wrong
    assert str(caught.value) == f"graphsilo.run has no argument '{name}'; {right}"


def test_a_plan_speaks_of_its_own_arguments():
    with pytest.raises(ConfigError, match=r"^graphsilo\.plan has no argument 'report'; known: bandwidth, clients"):
        graphsilo.plan(data=SMALL, report=False)


def test_no_method_is_no_name():
    with pytest.raises(ConfigError, match=r"method should be a name, or a table .*; got null\. Leave it out"):
        load_config(assignments=["method=null"])


def test_numbers_of_numpys_are_numbers():
    config = said(
        rounds=np.int64(3), seeds=np.arange(2), clients=np.int32(4), partition_seed=np.uint8(7),
        method={"lr": np.float32(0.5)}, model={"hidden": np.int64(8)},
        partition={"ratios": np.array([0.5, 0.25, 0.25])},
    )  # fmt: skip
    tree = json.loads(json.dumps(config.complete()))
    assert (tree["method"]["rounds"], tree["method"]["lr"], tree["run"]["seeds"]) == (3, 0.5, [0, 1])
    assert (tree["partition"]["clients"], tree["partition"]["seed"], tree["model"]["hidden"]) == (4, 7, 8)
    assert tree["partition"]["ratios"] == [0.5, 0.25, 0.25]
    assert said(references="local").run.references == ["local"]
    torches = said(rounds=torch.tensor(3), seeds=torch.arange(2), method={"lr": torch.tensor(0.5)})
    assert (torches.run.seeds, dict(torches.method.options)["lr"]) == ([0, 1], 0.5)
    graph = graphsilo.load("citation-sbm", nodes=np.int64(100), seed=np.int64(1))
    cut = graphsilo.partition(graph, "dirichlet", clients=np.int64(3), seed=np.int64(5), alpha=np.float64(0.5))
    assert (cut.num_clients, cut.seed, cut.options["alpha"]) == (3, 5, 0.5)


@pytest.mark.parametrize("number", ["1e-1", "1E-1", "0.1", ".1"])
def test_a_number_is_the_same_in_a_file_and_in_set(tmp_path, number):  # D7
    path = written(
        tmp_path, f"partition: {{rule: dirichlet, alpha: {number}}}\nmethod: {{name: fedprox, mu: {number}}}\n"
    )
    there = load_config(path)
    here = load_config(
        assignments=[
            "partition.rule=dirichlet",
            f"partition.alpha={number}",
            "method.name=fedprox",
            f"method.mu={number}",
        ]
    )
    for config in (there, here):
        assert (config.partition.options["alpha"], config.method_config().mu) == (0.1, 0.1)


def test_a_policy_takes_no_truth_for_a_number():
    from graphsilo.federation.policy import DisclosurePolicy

    with pytest.raises(ConfigError, match=r"policy\.min_class_count must be a whole number at least 1; got True"):
        DisclosurePolicy.of({"min_class_count": True})


# -- A1, A2: what lies in the folder ---------------------------------------------------------------------------------


def graphs():
    return [graphsilo.load("citation-sbm", nodes=nodes, classes=3, features=30) for nodes in (120, 150)]


QUICK = {"clients": 3, "rounds": 1, "model": {"hidden": 8}, "report": False}


def numbers(result):
    return [row["validation"] for seed in result.tree["seeds"] for row in seed["rounds"]]


@pytest.mark.parametrize(
    "refused", [{"method": {"lr": -1}}, {"clients": 500}, {"rounds": 0}, {"model": "nope"}], ids=str
)
def test_a_refused_run_leaves_nothing_behind(tmp_path, refused):  # A1
    first, second = graphs()
    with pytest.raises(graphsilo.errors.GraphsiloError):
        graphsilo.run(data=first, out=tmp_path / "run", **{**QUICK, **refused})
    place = tmp_path / "run"
    assert not place.exists() or {path.name for path in place.iterdir()} <= {".lock"}
    result = graphsilo.run(data=second, out=place, **QUICK)
    assert result.tree["data"]["nodes"] == 150
    assert result.tree["config"]["data"]["name"] == str(place / "data.npz")
    assert numbers(result) == numbers(graphsilo.run(data=second, **QUICK))


def test_a_file_of_ones_own_is_neither_used_nor_overwritten(tmp_path):  # A1, A2
    first, second = graphs()
    mine = graphsilo.data.save_graph(tmp_path / "data.npz", first)
    before = mine.read_bytes()
    with pytest.raises(ConfigError, match=r"data\.npz is there already and holds another graph"):
        graphsilo.run(data=second, out=tmp_path, **QUICK)
    assert mine.read_bytes() == before
    mine.write_text("notes of mine")
    with pytest.raises(ConfigError, match="neither used nor written over"):
        graphsilo.run(data=second, out=tmp_path, **QUICK)
    assert mine.read_text() == "notes of mine"
    graphsilo.data.save_graph(mine, second)
    assert graphsilo.run(data=second, out=tmp_path, **QUICK).tree["data"]["nodes"] == 150


@pytest.mark.parametrize("how", ["object", "rule", "file"])
def test_a_partition_of_ones_own_is_neither_used_nor_overwritten(tmp_path, how):  # A2
    graph = graphs()[0]
    cuts = [graphsilo.partition(graph, "random", clients=clients) for clients in (3, 4)]
    place = tmp_path / "run"
    place.mkdir()
    cuts[0].save(place / "partition.npz")
    cuts[1].save(tmp_path / "other.npz")
    chosen = {"object": cuts[1], "rule": {"rule": "random", "clients": 4}, "file": str(tmp_path / "other.npz")}[how]
    settings = {**QUICK, "clients": 4, "data": graph, "out": place}
    with pytest.raises(ConfigError, match=r"partition\.npz is there already and holds another partition"):
        graphsilo.run(**settings, partition=chosen)
    assert graphsilo.Partition.load(place / "partition.npz").content_hash == cuts[0].content_hash
    assert not (place / "config.yaml").exists()
    (place / "partition.npz").unlink()
    result = graphsilo.run(**settings, partition=chosen)
    assert result.tree["partition"]["clients"] == 4


def test_another_cut_replaces_that_of_a_run_stopped_before_its_first_checkpoint(tmp_path):
    base = {"data": SMALL, **QUICK}
    first = graphsilo.run(**base, out=tmp_path)
    for name in ("result.json", "rounds.parquet", "ledger.parquet"):
        (tmp_path / name).unlink()
    for path in (tmp_path / "checkpoints").glob("*.ckpt"):
        path.unlink()
    second = graphsilo.run(**base, partition_seed=9, out=tmp_path)
    assert second.tree["partition"]["hash"] != first.tree["partition"]["hash"]
    assert graphsilo.Partition.load(tmp_path / "partition.npz").seed == 9


def test_going_on_needs_a_folder():
    with pytest.raises(ConfigError, match=r"resume=True\) goes on with the run in a folder"):
        graphsilo.run(data=SMALL, resume=True)


@pytest.mark.parametrize(
    ("base", "method", "lost"),
    [
        ({"name": "fedprox", "mu": 0.5}, "fedpg", "method.mu 0.5"),
        ({"server_lr": 0.5}, "fedpg", "method.server_lr 0.5"),
        ({"name": "fedsage_plus", "generator_epochs": 7}, "fedlog", "method.generator_epochs 7"),
        ({"name": "opfgl", "hops": 1}, "fedpg", "method.hops 1"),
        ({"weight_by": "nodes"}, "fedproto", "method.weight_by 'nodes'"),
        ({"weight_by": "nodes"}, "dense", "method.weight_by 'nodes'"),
        ({"name": "feddistill", "weight_by": "count"}, "fedntd", "method.weight_by 'count'"),
    ],
)
def test_settings_that_methods_call_alike_and_mean_otherwise_stay_behind(base, method, lost):
    """The strength of FedProx's proximal term became FedPG's pull towards prototypes, without a word."""
    shared = {"lr": 0.05, "weight_decay": 0.0} if base.get("name") != "opfgl" else {"rounds": 3}
    config = configure({"method": {**base, **shared}}, _call(method))
    assert config.method_config() == configure({"method": {"name": method, **shared}}, _call()).method_config()
    assert config.remarks == [
        f"of what the configuration says, this is not used, since method.name is '{method}' now: {lost}."
    ]


def test_settings_of_one_meaning_go_along():
    config = configure({"method": {"name": "fedavg", "server_lr": 0.5, "weight_by": "uniform"}}, _call("fedprox"))
    assert (config.method_config().server_lr, config.method_config().weight_by, config.remarks) == (0.5, "uniform", [])
    config = configure({"method": {"name": "fedavg", "weight_by": "uniform"}}, _call("fairfgl"))
    assert (config.method_config().weight_by, config.remarks) == ("uniform", [])


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_no_generator_takes(seed):
    graph = graphsilo.load(**SMALL)
    for wrong in ({"seed": seed}, {"cut_seed": seed}):
        with pytest.raises(ConfigError, match=rf"seed must be at least 0 and at most 4294967295; got {seed}"):
            graphsilo.partition(graph, "louvain", clients=2, **wrong)


NEIGHBOURS = "a whole number at least 0 and at most 1000 or a list of whole numbers at least 0 and at most 1000"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("method.fan_out", "3", NEIGHBOURS),
        ("method.fan_out", True, NEIGHBOURS),
        ("method.fan_out", 2.0, NEIGHBOURS),
        ("method.fan_out", [2, 2], None),
    ],
)
def test_text_is_no_number_where_a_list_may_stand_too(name, value, wanted):
    config = load_config(overrides={"method": "fedsage", name: value})
    if wanted is None:
        assert config.method_config().fan_out in (2, (2, 2))
    else:
        with pytest.raises(ConfigError, match=f"method.fan_out must be {wanted}; got"):
            config.method_config()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["partition.alpha", "perturb.edge_noise", "data.mean_degree", "data.feature_density"])
def test_numbers_that_are_not_finite_are_refused_everywhere(name, value):
    """A Dirichlet cut with alpha NaN was made, by no proportions at all."""
    with pytest.raises(ConfigError, match=f"{name.partition('.')[2]} must be a (finite )?number"):
        api.run(data=SMALL, partition="dirichlet", clients=2, rounds=1, **{name: value})


def test_all_that_is_misspelt_is_told_at_once(tmp_path: Path) -> None:
    """In a file and at the command line: sections, and what stands in those that there are."""
    file = tmp_path / "run.yaml"
    file.write_text("datta: Cora\nevalution: {every: 2}\nevaluation: {evry: 3}\nrun: {seedz: [0], workers: 1}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file, assignments=["rum.x=3", "evaluation.autc=true"])
    for name in ("datta", "evalution", "evaluation.evry", "run.seedz", "rum.x", "evaluation.autc"):
        assert f"unknown setting '{name}'; did you mean" in str(refused.value)
    with pytest.raises(
        ConfigError, match=r"^unknown setting 'rum\.x'; did you mean 'run'\? unknown setting 'x'; known"
    ):
        load_config(assignments=["rum.x=3", "x=1"])
