"""Every rule, scenario, task, backbone and perturbation through a whole run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.partition import rules
from graphsilo.data.partition.graphs import graph_rules
from graphsilo.data.silos.perturb import perturb
from graphsilo.data.sources.files import load_graph, save_graph
from graphsilo.errors import PartitionError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, EvaluateRequest
from graphsilo.federation.codec import encode
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.methods.fedavg import TrainRequest
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing import conformance
from kit.broad import broadly

METHODS = registry.names()
ANYWHERE = [name for name in METHODS if name not in ("fedgcn", "fedstruct")]
"""These two need links between silos: one graph, cut without overlap, as it is (tested with their own)."""


def able(task, *settings):
    """The methods that do a task and have these settings."""
    loaded = [registry.load(name) for name in METHODS]
    return [
        method.name for method in loaded if task in method.tasks and set(settings) <= set(method.config.model_fields)
    ]


def short(method, **more):
    """What makes a run of a method short, as settings of ``small``."""
    return {
        "method__name": method,
        **{f"method__{key}": value for key, value in registry.load(method).quick.items()},
        **more,
    }


def some(rounds, method):
    """So many rounds, where a method has several."""
    return {} if issubclass(registry.load(method).config, OneRoundConfig) else {"method__rounds": rounds}


def only(result):
    (seed,) = result.tree["seeds"]
    return seed


def fair(value):
    return value is not None and 0 <= value <= 1


@pytest.mark.parametrize("rule", [rule.name for rule in rules() if rule.name not in ("files", "natural")])
def test_every_rule(small, rule):
    more = {"partition__clients": 10} if rule == "overlap" else {}
    if rule == "metis+plain":  # refuses empty parts, which 100 parts of 150 nodes have
        with pytest.raises(PartitionError, match="parts are empty"):
            run(small(partition__rule=rule))
        more = {"partition__parts": 12}
    tree = run(small(partition__rule=rule, method__rounds=1, **more)).tree
    assert tree["partition"]["rule"] == rule
    assert len(tree["seeds"][0]["clients"]) == tree["partition"]["clients"] == more.get("partition__clients", 3)
    assert tree["partition"]["is_disjoint_cover"] is (rule != "overlap")
    assert fair(tree["seeds"][0]["test"]["accuracy"])


def test_the_rule_of_a_file(small, tmp_path):
    run(small(method__rounds=1), out=tmp_path / "one")
    tree = run(small(partition__rule="files", partition__path=str(tmp_path / "one" / "partition.npz"))).tree
    assert tree["partition"]["clients"] == 3


@pytest.mark.parametrize("method", broadly(ANYWHERE))
@pytest.mark.parametrize("scenario", ["unseen", "open"])
def test_scenarios_with_a_new_client(small, scenario, method):
    config = small(**short(method), scenario__name=scenario, partition__rule="metis", **some(1, method))
    seed = only(run(config))
    assert set(seed["scenarios"]) == {"missing_class", "unseen_node", "new_client"}
    assert all(score["items"] > 0 for score in seed["scenarios"].values())
    assert fair(seed["scenarios"]["new_client"]["accuracy"])
    assert set(seed["rounds"][0]["scenarios"]) >= {"missing_class", "unseen_node", "new_client"}


def test_a_new_client_is_asked_of_every_model(small):
    config = small(scenario__name="unseen", partition__rule="metis", method__rounds=2)
    seed, new = only(run(config)), prepare(config).silos[0].evaluations[-1]
    assert seed["scenarios"]["new_client"]["items"] == 3 * len(new.items["new_client"])


@pytest.mark.parametrize("method", broadly(ANYWHERE))
def test_inductive(small, method):
    seed = only(run(small(**short(method), scenario__name="inductive", **some(2, method))))
    assert fair(seed["test"]["accuracy"])


@pytest.mark.parametrize("method", broadly(ANYWHERE))
def test_clients_that_overlap(small, method):
    tree = run(small(**short(method), partition__rule="overlap", partition__clients=10, **some(1, method))).tree
    assert tree["partition"]["is_disjoint_cover"] is False
    assert fair(tree["seeds"][0]["test"]["accuracy"])


@pytest.mark.parametrize("method", METHODS)
def test_skewed_labels(small, method):
    """With α = 0.2 some clients lack classes; prototypes, statistics and generators must do without them."""
    config = small(**short(method), partition__rule="dirichlet", partition__alpha=0.2, **some(2, method))
    tree = run(config).tree
    counts = [silo.class_counts() for silo in prepare(config).silos]
    assert min(int((row > 0).sum()) for row in counts) < 3
    assert fair(tree["seeds"][0]["test"]["accuracy"])


@pytest.mark.parametrize(
    "method", broadly([name for name in METHODS if name not in ("global", "majority", "trees_alone")])
)
def test_some_clients_per_round(small, method):
    """Two of five send; what comes of one round, all get, and of several where all choose among it."""
    config = small(**short(method), method__participation=0.4, partition__clients=5, **some(2, method))
    seed = only(run(config))
    kind = registry.load(method).config
    asked = 5 if kind.reaches_all and kind(rounds=2).total_rounds > 1 else 2
    assert [row["participants"] for row in seed["rounds"]] == [asked] * len(seed["rounds"])
    assert len(seed["rounds"]) == registry.load(method).config(rounds=2).total_rounds
    assert fair(seed["test"]["accuracy"])


def test_opfgl_keeps_dropout_when_asked_to(small):
    """With the default model: without it by default, as with a rate of 0."""
    by_default, heard, without = (
        conformance.numbers(run(small(**short("opfgl"), **more)).tree)
        for more in ({}, {"method__dropout": True}, {"model__dropout": 0.0})
    )
    assert by_default == without != heard


@pytest.mark.parametrize("method", broadly(able("link", "lr")))
def test_link_prediction(small, method):
    config = small(task="link", method__name=method, method__lr=0.05)
    tree = run(config).tree
    (seed,) = tree["seeds"]
    assert set(seed["test"]) == {"auc", "ap", "hits_at_10"}
    assert fair(seed["test"]["auc"])
    assert fair(seed["test"]["ap"])
    scores = [row["validation"]["auc"] for row in seed["rounds"]]
    if method == "local":  # each silo has a best round of its own
        assert seed["best_round"] == max(client["best_round"] for client in seed["clients"])
    else:
        assert seed["best_round"] == int(np.argmax(scores)) + 1
    each = [client["test"]["auc"] for client in seed["clients"]]
    nodes = [client["nodes"] for client in seed["clients"]]
    assert seed["test"]["auc"] == pytest.approx(np.average(each, weights=nodes))
    assert conformance.numbers(run(config).tree) == conformance.numbers(tree)


def test_links_can_be_learned(small):
    seed = only(run(small(task="link", method__rounds=30, method__lr=0.02, partition__clients=1, model__hidden=32)))
    assert seed["test"]["auc"] > 0.55


@pytest.mark.parametrize("method", broadly(able("graph", "lr", "local_epochs")))
def test_graph_classification(molecules, method):
    config = load_config(
        overrides={
            "data.name": str(molecules), "partition.clients": 3, "partition.rule": "random",
            "model.name": "gin_fedstar" if method == "fedstar" else "gin", "model.hidden": 8,
            "method.name": method, "method.rounds": 4, "method.lr": 0.02, "partition.seed": 1,
            "partition.ratios": [0.6, 0.2, 0.2],
        }
    )  # fmt: skip
    tree = run(config).tree
    assert tree["task"] == "graph"
    assert sum(client["nodes"] for client in tree["seeds"][0]["clients"]) == 40  # graphs
    assert fair(tree["seeds"][0]["test"]["accuracy"])


@pytest.mark.parametrize("rule", [rule.name for rule in graph_rules() if rule.name not in ("domains", "natural")])
def test_every_rule_for_graphs(molecules, rule):
    config = load_config(
        overrides={
            "data.name": str(molecules), "partition.clients": 2, "partition.rule": rule, "model.name": "gin",
            "model.hidden": 8, "method.rounds": 1, "partition.ratios": [0.6, 0.2, 0.2],
        }
    )  # fmt: skip
    if rule == "features":  # each node's are one of several kinds
        with pytest.raises(PartitionError, match=r"it is 0\.125 for all 40 graphs of rings"):
            run(config)
        return
    assert run(config).tree["partition"]["rule"] == rule


def graph_config(molecules, **more):
    overrides = {
        "data.name": str(molecules),
        "partition.clients": 2,
        "model.name": "gin",
        "model.hidden": 8,
        "method.rounds": 2,
    }
    return load_config(overrides={**overrides, **more})


def test_the_rule_for_graphs_by_default_runs_again(molecules, tmp_path):
    first = run(graph_config(molecules), out=tmp_path / "one")
    assert first.tree["partition"]["rule"] == "dirichlet"
    second = run(load_config(tmp_path / "one" / "config.yaml"))
    assert conformance.numbers(second.tree) == conformance.numbers(first.tree)


def test_one_data_set_per_client(molecules):
    other = save_graph(
        molecules.with_name("other.npz"), replace(whole := load_graph(molecules), labels=1 - whole.labels)
    )
    tree = run(graph_config(molecules, **{"data.name": [str(molecules), str(other)]})).tree
    assert tree["partition"]["rule"] == "domains"
    assert [client["nodes"] for client in tree["seeds"][0]["clients"]] == [40, 40]


def test_graphs_have_no_scenarios_and_no_global_graph(molecules):
    with pytest.raises(UnsupportedError, match="graph classification is asked on 'seen' only"):
        run(graph_config(molecules, **{"scenario.name": "unseen"}))
    with pytest.raises(UnsupportedError, match="no global graph"):
        run(graph_config(molecules, **{"evaluation.modes": ["own_global"]}))


def test_batches_of_graphs(molecules):
    by_default = run(graph_config(molecules, **{"method.batch_size": 64})).tree
    unset = run(graph_config(molecules)).tree
    small_batches = run(graph_config(molecules, **{"method.batch_size": 4})).tree
    assert by_default["seeds"][0]["rounds"][1]["test"] == unset["seeds"][0]["rounds"][1]["test"]
    assert small_batches["seeds"][0]["test"] is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mlp", "gcn", "sage", "gat", "gin", "sgc", "ssgc", "appnp", "gcnii", "classic", "sign", "gamlp"]
)
def test_every_backbone_in_batches(small, name):
    seed = only(run(small(model__name=name, model__hidden=None, method__batch_size=8, method__rounds=1)))
    assert fair(seed["test"]["accuracy"])


def test_different_models(small):
    config = small(model__pool=["gcn", {"name": "mlp", "hidden": 4}], method__name="local", run__seeds=[0, 1])
    tree = run(config).tree
    assert fair(tree["summary"]["test"]["accuracy"]["mean"])
    models = prepare(config).models
    assert [models[client].name for client in range(3)] == ["gcn", "mlp", "gcn"]
    assert models[1].settings["hidden"] == 4


def test_a_pool_of_one_model_is_no_obstacle(small):
    assert run(small(model__pool=["gcn", "gcn"])).tree["summary"]


SPOILS = [
    {"feature_sparsity": 0.5}, {"feature_noise": 1.0}, {"edge_sparsity": 0.5}, {"edge_noise": 0.5},
    {"label_sparsity": 0.5}, {"label_noise": 0.4},
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILS, ids=str)
@pytest.mark.parametrize("method", ["fedavg", "global"])
def test_perturbed(small, spoil, method):
    config = small(perturb=spoil, method__name=method, method__rounds=2)
    tree = run(config).tree
    assert fair(tree["seeds"][0]["test"]["accuracy"])
    assert tree["config"]["perturb"] == spoil
    clean, spoilt = prepare(small()), prepare(small(perturb=spoil))
    for before, after in zip(clean.silos, spoilt.silos, strict=True):
        assert np.array_equal(before.seen.graph.labels, after.seen.graph.labels)
        assert np.array_equal(before.seen.graph.edges, after.seen.graph.edges)
        assert np.array_equal(before.seen.graph.features, after.seen.graph.features)
        assert np.array_equal(before.seen.items["test"], after.seen.items["test"])
        again = perturb(before, spoil, seed=2024)
        assert np.array_equal(again.graph.edges, after.graph.edges)
        assert np.array_equal(again.train, after.train)


ALL_AT_ONCE = {"label_noise": 0.3, "edge_sparsity": 0.3, "feature_sparsity": 0.3, "label_sparsity": 0.3}


@pytest.mark.parametrize("method", broadly(ANYWHERE))
def test_perturbed_in_four_ways(small, method):
    tree = run(small(**short(method), perturb=ALL_AT_ONCE, **some(2, method))).tree
    assert fair(tree["seeds"][0]["test"]["accuracy"])
    assert tree["config"]["perturb"] == ALL_AT_ONCE


def test_edges_of_links_can_be_spoilt(small):
    seed = only(run(small(task="link", perturb={"edge_sparsity": 0.3, "edge_noise": 0.3})))
    assert fair(seed["test"]["auc"])


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "local"])
@pytest.mark.parametrize("kind", ["val", "test"])
def test_hidden_labels_change_no_upload(small, name, kind):
    """Byte for byte, evaluation left out; with perturbations and a new client on top."""
    method = registry.load(name)
    config = small(method__name=name, perturb={"label_noise": 0.3}, scenario__name="unseen", partition__rule="metis")
    simulation = prepare(config, method)
    sent = []
    for shuffle in (False, True):
        silos = {}
        for silo in simulation.silos:
            labels = silo.graph.labels.copy()
            items = np.setdiff1d(silo.seen.items[kind], silo.train)
            assert len(items) > 1
            if shuffle:
                labels[items] = (labels[items] + 1) % 3
                noisy = silo.noisy_labels.copy()
                noisy[items] = labels[items]
                graph = replace(silo.graph, labels=labels)
                silo = replace(silo, graph=graph, noisy_labels=noisy)
            silos[silo.client] = silo
        federation = InProcess(
            sorted(silos),
            lambda client, silos=silos: method.client(
                ClientContext(client, silos[client], config.method_config(), simulation.models[client], 0)
            ),
        )
        request = None
        found = []
        for number in (1, 2):
            federation.at("round", number)
            train = getattr(method.client, "train_alone", None) or method.client.train
            request_type = train.types()[0]
            if request_type is TrainRequest:
                request = TrainRequest(
                    weights={key: value.detach() for key, value in federation.client(0).weights.items()}
                )
            else:
                request = request_type()
            found += [encode(reply).data.tobytes() for _, reply in federation.ask(train, request).require()]
            federation.ask(method.client.evaluate, EvaluateRequest(views=["own"])).require()
            found += [
                tensor.detach().numpy().tobytes()
                for client in federation.clients
                for tensor in federation.client(client).weights.values()
            ]
        sent.append(found)
    assert sent[0] == sent[1]


def test_evaluating_more_or_less_often_changes_no_model(small):
    often = only(run(small(method__rounds=6)))
    seldom = only(
        run(
            small(
                method__rounds=6,
                evaluation__every=6,
                evaluation__auc=True,
                evaluation__modes=["own_local", "aggregate_global"],
            )
        )
    )
    assert often["rounds"][-1]["test"]["accuracy"] == seldom["rounds"][-1]["test"]["accuracy"]


@pytest.mark.data
def test_mutag(data_root):
    config = load_config(
        overrides={
            "data.name": "MUTAG", "data.root": str(data_root), "partition.clients": 3, "partition.rule": "random",
            "model.name": "gin", "model.hidden": 16, "method.rounds": 3,
        }
    )  # fmt: skip
    tree = run(config).tree
    assert tree["data"]["graphs"] == 188
    assert fair(tree["summary"]["test"]["accuracy"]["mean"])


@pytest.mark.data
def test_cora_learns(data_root):
    config = load_config(
        overrides={"data.name": "Cora", "data.root": str(data_root), "partition.clients": 5, "method.rounds": 15}
    )
    assert run(config).accuracy() > 0.6
