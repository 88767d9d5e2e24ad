"""Settings that would have no effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphsilo
import graphsilo.data
import graphsilo.errors
from graphsilo import api
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.references import reference_config
from graphsilo.federation import registry
from kit.doors import SMALL, idle

CITES = {"data": SMALL, "partition": {"rule": "random", "clients": 3}}


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Two graphs of one's own with masks."""
    folder = tmp_path_factory.mktemp("own")
    names = []
    for seed in (0, 1):
        graph = graphsilo.load(**SMALL, seed=seed)
        order = np.arange(graph.num_nodes) % 3
        splits = {name: order == place for place, name in enumerate(("train", "val", "test"))}
        names.append(str(graphsilo.data.save_graph(folder / f"{seed}.npz", replace(graph, splits=splits))))
    return names


@pytest.mark.parametrize("cut", ["random", {"rule": "dirichlet", "alpha": 0.1}])
def test_files_of_clients_are_not_cut(own_files, cut):  # B3
    with pytest.raises(ConfigError, match=r"partition\.rule .*would have no effect: each client has a data set"):
        idle(None, data=own_files, partition=cut)
    result = idle({"partition": cut}, data=own_files)
    assert any("partition.rule" in text and "no effect" in text for text in result.tree["warnings"])
    assert "alpha" not in result.tree["config"]["partition"]
    assert result.tree["config"]["partition"]["rule"] == "files"


def test_graphs_have_no_split_of_nodes(molecules):  # B4
    base = {"data": str(molecules), "partition": {"rule": "random", "clients": 2}, "model": "gin"}
    for key, value in (("split", "global"), ("split", "predefined"), ("split_index", 4)):
        with pytest.raises(ConfigError, match=rf"partition\.{key} would have no effect: graph classification"):
            idle(base, **{f"partition.{key}": value})
    result = idle({**base, "partition": {**base["partition"], "split": "global"}})
    assert any(text.startswith("partition.split 'global' has no effect") for text in result.tree["warnings"])
    assert result.tree["config"]["partition"]["split"] == "auto"


def test_predefined_splits_have_no_ratios(own_files):  # B5
    single = {"data": own_files[0], "partition": {"rule": "random", "clients": 2, "split": "predefined"}}
    for base in ({"data": own_files}, single):
        with pytest.raises(ConfigError, match=r"brings masks .* ratios of 0\.5, 0\.2, 0\.3 .*Leave out the ratios"):
            idle(base, **{"partition.ratios": [0.5, 0.2, 0.3]})
    asked = idle({"data": own_files, "partition": {"split": "stratified", "ratios": [0.5, 0.2, 0.3]}})
    assert asked.tree["config"]["partition"]["ratios"] == [0.5, 0.2, 0.3]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("partition.split_index", 7, "the split is stratified, not predefined"),
        ("scenario.hops", 3, "belongs to the scenario 'unseen' and 'open', and this is 'seen'"),
        ("scenario.crop", 0.3, "belongs to the scenario 'open'"),
        ("method.momentum", 0.9, "method.optimizer is 'adam'; it is used where that is 'sgd'"),  # B7
        ("perturb.keep_classes", False, "perturb.label_sparsity is 0.0; it is used where that is above 0"),
        ("run.patience", 5.0, "it is about runs between machines"),
        ("run.largest_ratio", 9.0, "it is about runs between machines"),
        ("evaluation.embeddings", True, "there is no folder"),
    ],
)
def test_a_setting_without_effect_is_refused_in_a_call_and_remarked_in_a_file(name, value, reason):
    with pytest.raises(ConfigError) as caught:
        idle(CITES, **{name: value})
    assert f"{name} would have no effect" in str(caught.value)
    assert reason in str(caught.value)
    section, _, key = name.partition(".")
    base = {**CITES, section: {**CITES.get(section, {}), key: value}}
    result = idle(base)
    assert [text for text in result.tree["warnings"] if text.startswith(name) and reason in text]
    assert name not in result.tree["config"]["given"]
    assert result.tree["config"][section].get(key) != value


@pytest.mark.slow
def test_a_plan_refuses_what_its_run_would():
    with pytest.raises(ConfigError, match=r"data\.seed would have no effect"):
        graphsilo.plan(CITES, seconds=1, **{"data.seed": 3, "data": "Cora"})


@pytest.mark.parametrize(
    ("method", "settings", "is_idle"),
    [
        ("fedproto", {"model": "silo"}, True),
        ("fedproto", {"model": "run"}, False),
        ("fedavg", {"model": "silo"}, False),
        ("fedavg", {"model": "silo", "modes": ["own_local"]}, True),
        ("fedavg", {"model": "first", "modes": ["own_local", "aggregate_global"]}, True),
    ],
)
def test_a_choice_between_models_needs_two(method, settings, is_idle):
    overrides = {"method.name": method, **{f"evaluation.{key}": value for key, value in settings.items()}}
    config = load_config(overrides=overrides)
    remarks = drop_idle(config.with_explicit(())).remarks
    assert ["evaluation.model" in text and "nothing to choose from" in text for text in remarks] == [True] * is_idle


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("run", "name", "value", "reasons"),
    [  # in one process, and between machines
        ({"run.alone": True}, "run.largest_ratio", 9.0, ("it is about runs between", "with run.alone nothing of")),
        ({"run.alone": True}, "run.largest_value", 9.0, ("with run.alone nothing of",) * 2),
        ({"run.alone": True}, "run.secure_sums", True, ("with run.alone nothing of", "")),
        ({"run.alone": True, "evaluation.report": "federation"}, "run.secure_sums", True, ("", "")),
        ({"run.alone": True}, "method.min_clients", 2, ("", "")),  # so many silos must say that they are done
        ({"method.name": "local"}, "run.secure_sums", True, ("of Local only nothing of training leaves", "")),
        ({"method.name": "local", "run.references": ["fedridge"]}, "run.secure_sums", True, ("", "")),
        ({"method.name": "global"}, "run.secure_sums", True, ("has all data in one place",) * 2),
        ({"method.name": "global"}, "run.secure_sums", False, ("", "")),
        ({"method.name": "global"}, "method.min_clients", 2, ("has all data in one place",) * 2),
        ({"method.name": "global"}, "run.largest_value", 9.0, ("", "")),
    ],
)
def test_where_silos_send_nothing(run, name, value, reasons, remote):
    config = load_config(overrides={**run, name: value})
    remarks = drop_idle(config.with_explicit(()), remote=remote).remarks
    wanted = reasons[remote]
    assert [text for text in remarks if text.startswith(name)] == [
        text for text in remarks if wanted and wanted in text
    ]
    assert bool(wanted) == any(text.startswith(name) for text in remarks)
    if wanted:
        with pytest.raises(ConfigError, match=f"{name} would have no effect"):
            drop_idle(config, remote=remote)


@pytest.mark.parametrize("said", [{"run.alone": True}, {"method.name": "local"}])
def test_a_run_of_silos_by_themselves_has_no_reference_alone(said):
    config = load_config(overrides={**said, "run.references": ["fedridge", "alone"]})
    with pytest.raises(ConfigError, match=r"^alone in run\.references .*would have no effect: with .* Leave it out"):
        drop_idle(config)
    left = drop_idle(config.with_explicit(()))
    assert left.run.references == ["fedridge"]
    assert left.remarks[-1].startswith("run.references ['alone'] has no effect: ")
    assert drop_idle(load_config(overrides={"run.references": ["alone"]})).run.references == ["alone"]


def test_a_setting_has_its_effect_where_its_condition_holds():
    sgd = {**CITES, "method": {"optimizer": "sgd", "lr": 0.5}}
    told = [idle(sgd, **{"method.momentum": value, "method.rounds": 4}).tree for value in (0.0, 0.9)]
    assert told[1]["config"]["method"]["momentum"] == 0.9
    assert [row["validation"] for row in told[0]["seeds"][0]["rounds"]] != [
        row["validation"] for row in told[1]["seeds"][0]["rounds"]
    ]


@pytest.mark.parametrize(
    ("method", "settings", "reason"),
    [
        ("fedavg", {"reset_optimizer": True, "optimizer": "sgd"}, "method.momentum is 0, so that nothing is kept"),
        ("fedavg", {"reset_optimizer": True, "optimizer": "sgd", "momentum": 0.5}, None),
        ("fedavg", {"reset_optimizer": True}, None),
        ("scaffold", {"reset_optimizer": True}, "method.momentum is 0, so that nothing is kept"),
        ("fedproto", {"reset_optimizer": True, "optimizer": "sgd"}, "method.momentum is 0, so that nothing is kept"),
        ("dense", {"reset_optimizer": True}, "no client of DENSE trains after a download"),
        ("co_boosting", {"reset_optimizer": True}, "no client of Co-Boosting trains after a download"),
        ("local", {"reset_optimizer": True}, "no client of Local only trains after a download"),
        ("fedlog", {"reset_optimizer": True}, None),
        ("fedprox", {"stragglers": 0.5, "local_epochs": 1}, "local_epochs is 1; it is used where that is above 1"),
        ("fedprox", {"stragglers": 0.5, "local_epochs": 2}, None),
    ],
    ids=str,
)
def test_moments_and_epochs_that_a_run_does_not_have(method, settings, reason):
    name = f"method.{next(iter(settings))}"
    overrides = {"method.name": method, **{f"method.{key}": value for key, value in settings.items()}}
    config = load_config(overrides=overrides)
    remarks = drop_idle(config.with_explicit(())).remarks
    if reason is None:
        assert not remarks
        assert drop_idle(config.with_explicit([name])).method.options.items() >= settings.items()
        return
    assert [reason in text for text in remarks if text.startswith(f"{name} ")] == [True]
    with pytest.raises(ConfigError, match=f"{name} would have no effect: .*{reason}"):
        drop_idle(config.with_explicit([name]))
    without = load_config(overrides={**overrides, name: type(settings[name.removeprefix("method.")])(0)})
    assert not drop_idle(without.with_explicit([name])).remarks


@pytest.mark.parametrize(
    ("method", "more", "name", "reason"),
    [
        ("fedridge", {}, "method.rounds", "FedRidge has exactly one round"),
        ("dense", {"run.references": ["majority", "fedridge"]}, "method.rounds", "as has each of its reference rows"),
        ("fedridge", {"run.references": ["local"]}, "method.rounds", None),
        ("fedavg", {}, "method.rounds", None),
        ("opfgl", {}, "evaluation.every", "O-pFGL has exactly one round"),
        ("fedridge", {}, "run.early_stopping", "FedRidge has exactly one round"),
        ("majority", {}, "method.participation", "has every silo find its answer by itself, once"),
        ("global", {}, "method.participation", "has all data in one place"),
        ("fedridge", {}, "method.participation", None),
        ("local", {}, "method.participation", None),
    ],
    ids=str,
)
def test_rounds_and_shares_that_a_run_does_not_have(method, more, name, reason):
    value = {"method.participation": 0.5}.get(name, 7)
    config = load_config(overrides={"method.name": method, **more, name: value})
    remarks = drop_idle(config.with_explicit(())).remarks
    if reason is None:
        assert not remarks
        assert not drop_idle(config.with_explicit([name])).remarks
        return
    assert [reason in text for text in remarks if text.startswith(f"{name} ")] == [True]
    with pytest.raises(ConfigError, match=rf"{name}.* would have no effect: .*{reason}"):
        drop_idle(config.with_explicit([name]))
    if name != "run.early_stopping":
        assert not drop_idle(load_config(overrides={"method.name": method, **more, name: 1})).remarks


def test_rounds_of_reference_rows_are_said():
    result = graphsilo.run(CITES, method="fedridge", rounds=2, references=["local"])
    assert "FedRidge has exactly one round: method.rounds 2 is that of its reference rows." in result.tree["warnings"]
    beside = graphsilo.run({**CITES, "method": {"rounds": 2}}, references=["majority"], **{"evaluation.every": 2})
    assert not [text for text in beside.tree["warnings"] if "one round" in text]


def test_a_number_of_links_that_nobody_is_chosen_by():
    with pytest.raises(
        ConfigError, match=r"scenario\.degree would have no effect: scenario\.links is 'all'; it is used where"
    ):
        idle(CITES, scenario="receiver", **{"scenario.degree": 2})


def test_hidden_features_of_nodes_that_nobody_trains_beside():
    with pytest.raises(
        ConfigError, match=r"perturb\.feature_sparsity would have no effect: in the scenario 'inductive'"
    ):
        idle(CITES, scenario="inductive", **{"perturb.feature_sparsity": 0.5})


def test_models_of_a_list_that_is_longer_than_the_clients_are_many():
    result = graphsilo.run(
        CITES, method="fedproto", rounds=1, model={"pool": ["gcn", "mlp", "sage", "gat"], "hidden": 8}
    )
    assert "model.pool has 4 models, and there are 3 clients: the last are not used (gat)." in result.tree["warnings"]


def test_the_number_of_clients_of_files_names_a_way_out(own_files):
    with pytest.raises(
        ConfigError, match=r"one client per data set or file makes 2\. Leave the number out; run\.without"
    ):
        idle(None, data=own_files, clients=3)


def test_seeds_and_folders_of_data_that_does_not_take_them(stored):  # B6
    with pytest.raises(ConfigError, match=r"data\.seed would have no effect: it is the seed of generated data"):
        idle(None, data=graphsilo.load(**SMALL), clients=3, **{"data.seed": 9})
    result = idle({"data": {"seed": 9}}, data=graphsilo.load(**SMALL), clients=3, data_root="raw")
    assert any(text.startswith("data.root 'raw' has no effect") for text in result.tree["warnings"])
    assert any("data.seed 9" in text for text in result.tree["warnings"])
    assert result.tree["config"]["data"]["root"] is None


@pytest.mark.parametrize("method", ["fedridge", "fedtrees", "auto"])
def test_a_method_without_a_backbone_says_that_it_computes_on_the_cpu(method):
    for config in (
        load_config({"method": method, "run": {"device": "cuda"}}),
        load_config({"method": method}, overrides={"run.device": "cuda"}),
    ):
        found = drop_idle(config)
        assert found.run.device == "cpu"
        title = registry.load(method).title
        assert found.remarks[0] == (
            f"run.device 'cuda' has no effect: {title} has no backbone and computes on the CPU."
        )
    rows = drop_idle(load_config({"method": method, "run": {"device": "cuda", "references": ["fedavg"]}}))
    assert (rows.run.device, rows.remarks) == ("cuda", [])


@pytest.mark.parametrize(
    ("row", "model"), [("fedavg", "sage"), ("global", "sage"), ("alone", "gcn"), ("fedridge", "gcn")]
)
def test_a_backbone_is_that_of_reference_rows_where_the_method_has_none(row, model):
    config = drop_idle(load_config({"method": "auto", "model": "sage", "run": {"references": [row]}}))
    assert config.model.name == model
    assert reference_config(config, row).model.name == model


def test_link_prediction_selects_by_auc():  # B8
    with pytest.raises(
        ConfigError, match=r"evaluation\.select_by would have no effect: link prediction selects by auc"
    ):
        idle(CITES, task="link", **{"evaluation.select_by": "accuracy"})
    result = idle({**CITES, "task": "link", "evaluation": {"select_by": "macro_f1"}})
    assert any(text.startswith("evaluation.select_by 'macro_f1' has no effect") for text in result.tree["warnings"])
    result = idle(
        {
            **CITES,
            "task": "link",
            "evaluation": {"select_by": "auc"},
            "partition": {"rule": "random", "clients": 2, "ratios": [0.7, 0.1, 0.2]},
        }
    )
    assert not any("no effect" in text for text in result.tree["warnings"])
    assert result.tree["config"]["partition"]["ratios"] == [0.7, 0.1, 0.2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scenario": "seen", "crop": 0.3}, "belongs to the scenario 'open'; this is 'seen'"),
        ({"split_index": 4}, "say split='predefined', too"),
        ({"split": "predefined", "ratios": (0.2, 0.4, 0.4)}, "masks"),
        ({"seed": "5"}, r"graphsilo\.partition\(seed=\.\.\.\) takes a whole number; got '5' of type str"),
        ({"clients": True}, "takes a whole number; got True of type bool"),
        ({"seed": 1.5}, "takes a whole number"),
    ],
    ids=str,
)
def test_a_cut_by_hand_refuses_what_it_would_not_use(options, text):
    with pytest.raises(ConfigError, match=text):
        graphsilo.partition(graphsilo.load(**SMALL), "random", **{"clients": 3, **options})


@pytest.mark.parametrize("pool", ["fedpg", [{"name": "gcn", "hidden": 8}, {"name": "sage", "hidden": 8}]])
def test_a_setting_that_every_model_of_a_pool_has_for_itself(pool):
    """config.yaml said 32, and every client ran 64."""
    with pytest.raises(
        ConfigError, match=r"model\.hidden would have no effect: every model of model\.pool has a value"
    ):
        api.run(data=SMALL, method="fedpg", rounds=1, clients=2, model={"pool": pool, "hidden": 32})
    based = api.run({"model": {"pool": pool, "hidden": 32}}, data=SMALL, method="fedpg", rounds=1, clients=2)
    assert "hidden" not in based.tree["config"]["model"]
    assert "model.hidden 32 has no effect" in based.tree["config"]["remarks"][0]
    assert api.run(data=SMALL, method="fedpg", rounds=1, clients=2, model={"pool": pool, "dropout": 0.1}).tree["seeds"]


@pytest.mark.parametrize("classes", [7, 0, 2])
def test_a_threshold_of_all_silos_is_of_two_classes(classes: int) -> None:
    config = load_config({"evaluation": {"threshold_by": "federation"}})
    said = drop_idle(config, task="node", classes=classes)
    assert said.evaluation.threshold_by == ("federation" if classes == 2 else "silo")
    assert ("calibration are of one of two classes, and this data has not two" in str(said.remarks)) == (classes != 2)
    if classes != 2:
        with pytest.raises(ConfigError, match=r"evaluation\.threshold_by would have no effect"):
            drop_idle(load_config(assignments=["evaluation.threshold_by=federation"]), task="node", classes=classes)
        with pytest.raises(ConfigError, match=r"evaluation\.budget would have no effect: budget, threshold"):
            drop_idle(load_config(assignments=["evaluation.budget=10"]), task="node", classes=classes)
