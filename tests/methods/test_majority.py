"""The constant answer: its scores are those of the label counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.methods import majority
from graphsilo.report.record import load as load_run
from graphsilo.report.run_page import sentence
from kit.messages import check_sent


def test_the_answer_is_the_share_of_each_class_in_training(kit):
    # A path with labels 0 1 0 1 0 1; nodes 0, 1 and 2 train: class 0 has two thirds, for every node.
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=(0, 1)), kit.tiny_silo(2, train=())]
    server, federation = kit.build("majority", silos)
    kit.rounds(server, federation)
    found = [federation.client(client).predict(federation.client(client).data).exp() for client in range(3)]
    assert [part.shape for part in found] == [(6, 2)] * 3
    assert torch.stack([part[3] for part in found]).tolist() == [
        [pytest.approx(2 / 3), pytest.approx(1 / 3)], [0.5, 0.5], [1.0, 1.0],
    ]  # fmt: skip
    assert all(part.argmax(1).tolist() == [0] * 6 for part in found)  # the first of equals
    assert federation.ledger.total("round")["up"] < 3 * 100
    assert federation.sum(majority.Client.count, majority.CountRequest(), to=(0, 2)).require(2).clients == 2


def test_its_rounds_are_those_of_the_rows_beside_it(kit):
    config = registry.load("majority").config
    assert config().rounds == 100
    assert kit.build("majority", [kit.tiny_silo(0)], rounds=7)[0].rounds == 1
    with pytest.raises(ConfigError, match="rounds"):
        config(rounds=0)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_scores_are_those_of_the_label_counts(task, small_graphs):
    overrides = {"evaluation.auc": True, "evaluation.models": False, **small_graphs[task]}
    config = load_config(overrides={**overrides, "method.name": "majority"})
    tree = run(config).tree
    right = []
    silos = prepare(config, registry.load("majority")).silos
    for silo, scored in zip(silos, tree["seeds"][0]["clients"], strict=True):
        tests = silo.labels[silo.seen.items["test"]]
        commonest = np.bincount(silo.labels[silo.train]).argmax()
        right.append((tests == commonest).mean())
        assert scored["test"]["accuracy"] == pytest.approx(right[-1])
    weights = [silo.num_items for silo in silos]
    test = tree["summary"]["test"]
    assert test["accuracy"]["mean"] == pytest.approx(np.average(right, weights=weights))
    assert test["auc"]["mean"] == 0.5
    assert test["macro_f1_present"]["mean"] < test["accuracy"]["mean"]


def test_it_stands_beside_a_run_as_a_reference(small_graphs):
    overrides = {**small_graphs["node"], "method.name": "fedavg", "method.rounds": 1, "run.references": ["majority"]}
    rows = run(load_config(overrides=overrides)).tree["references"]
    alone = run(load_config(overrides={**small_graphs["node"], "method.name": "majority"})).tree
    assert "upload_bytes" not in rows["majority"].pop("spent")
    assert rows["majority"] == alone["summary"]["test"]


def test_settings_of_a_backbone_are_refused_and_those_of_the_run_beside_it_are_not(small_graphs):
    settings = {**small_graphs["node"], "model.name": "sage", "method.rounds": 1}
    with pytest.raises(ConfigError, match=r"model\.name \(--model\) would have no effect: Majority class has no back"):
        run(load_config(overrides={**settings, "method.name": "majority"}))
    beside = run(load_config(overrides={**settings, "method.name": "fedavg", "run.references": ["majority"]}))
    assert beside.tree["config"]["model"]["name"] == "sage"
    assert not any("backbone" in warning for warning in beside.tree["warnings"])


@pytest.fixture(scope="module")
def small_graphs(tmp_path_factory):
    """Settings of a graph and of a file with 60 small graphs, each in three silos with skewed labels."""
    labels = (np.arange(60) % 3 == 0).astype(np.int64)
    first = 3 * np.arange(60)
    union = Graph(np.ones((180, 2), np.float32), np.stack([first, first + 1]), np.full(180, -1), 2)
    graphs = GraphCollection(union, np.arange(0, 181, 3), labels, 2, "threes")
    cut = {"partition.rule": "dirichlet", "partition.alpha": 0.5, "partition.clients": 3}
    return {
        "node": {"data.name": "citation-sbm", "data.generator": {"nodes": 120, "classes": 3}, **cut},
        "graph": {"data.name": str(save_graph(tmp_path_factory.mktemp("graphs") / "threes.npz", graphs)),
                  "task": "graph", **cut},
    }  # fmt: skip


def test_a_report_names_no_backbone_and_the_one_round(small_graphs, tmp_path):
    run(load_config(overrides={**small_graphs["node"], "method.name": "majority"}), out=tmp_path / "run")
    text = sentence(load_run(tmp_path / "run"))
    assert text.startswith("Majority class on citation-sbm (")
    assert ", for 1 round, seed 0" in text


def test_what_leaves_a_silo():
    check_sent(
        "majority",
        """
        count clients: counts
        """,
    )
