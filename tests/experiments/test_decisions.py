"""Which of two classes is looked for, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import load
from graphsilo.errors import ConfigError
from graphsilo.evaluate.binned import EDGES
from graphsilo.evaluate.rare import Decision
from graphsilo.experiments.config import EvaluationConfig, load_config
from graphsilo.experiments.decisions import apply_decision, describe_decision, labels_of, looked_for
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.runner import run

SCHEMA = Schema("node", 3, 2, class_names=("ok", "fraud"))


@pytest.mark.parametrize(("settings", "rare", "expected"), [
    ({}, None, None),
    ({}, 1, {"positive": 1, "budget": 0.01, "aim": "f1"}),
    ({"positive": "ok", "budget": 50, "threshold": 0.8}, 1, {"positive": 0, "budget": 50, "aim": "0.8"}),
    ({"positive": 1, "threshold": "budget"}, 0, {"positive": 1, "budget": 0.01, "aim": "budget"}),
])  # fmt: skip
def test_the_class_asked_for_or_the_rarer_one(settings, rare, expected):
    assert looked_for(EvaluationConfig(**settings), SCHEMA, rare) == expected


@pytest.mark.parametrize(("schema", "text"), [
    (SCHEMA, "no class 'fruad'; did you mean 'fraud'"), (replace(SCHEMA, num_classes=3), "this data has 3"),
    (replace(SCHEMA, task="regression"), "this data has none"),
])  # fmt: skip
def test_a_class_that_there_is_not(schema, text):
    with pytest.raises(ConfigError, match=text):
        looked_for(EvaluationConfig(positive="fruad"), schema, None)


def test_what_a_decision_says_of_scores():
    shares = np.array([[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]])
    found = apply_decision(Decision(1, np.log(0.25 / 0.75), is_chosen=True), shares)
    assert found["decisions"].tolist() == [0, 1, 1]
    assert (found["scores"].tolist(), found["calibrated"]) == ([0.1, 0.3, 0.6], None)
    said = describe_decision(Decision(1, np.log(0.25 / 0.75), is_chosen=True), "'fraud'", "0.8")
    assert "from a score of 0.25 on" in said
    assert "a precision of 0.8; not calibrated" in said
    assert "the likelier class" in describe_decision(Decision(1), "'fraud'", "f1")


def test_classes_are_the_models():
    graph = load("citation-sbm", options={"generator": {"nodes": 6, "classes": 2, "features": 3, "mean_degree": 1}})
    graph = replace(graph, class_names=("fraud", "no"))
    graph = replace(graph, labels=np.array([0, 1, -1, 0, 1, 1]))
    assert labels_of(graph, SCHEMA).tolist() == [1, -1, -1, 1, -1, -1]
    assert labels_of(replace(graph, class_names=("a", "b")), SCHEMA) is None
    assert labels_of(replace(graph, class_names=None), SCHEMA).tolist() == graph.labels.tolist()


@pytest.mark.parametrize("report", ["silos", "federation"])
def test_one_threshold_for_all_silos(tmp_path, report):
    """It comes with the models, and `predict` finds what the scores say is found."""
    config = {
        "data.name": "citation-sbm", "data.generator": {"nodes": 400, "classes": 2, "features": 30},
        "partition.rule": "random", "partition.clients": 3, "method.name": "fedridge", "evaluation.positive": 1,
        "evaluation.threshold_by": "federation", "evaluation.report": report,
    }  # fmt: skip
    result = run(load_config(overrides=config), out=tmp_path / "run")
    said = [predict(tmp_path / "run", client=client) for client in range(3)]
    kept = [open_member(tmp_path / "run", client=client).decision() for client in range(3)]
    assert kept[0] == kept[1] == kept[2]
    assert kept[0].is_chosen
    assert kept[0].threshold in EDGES.tolist()
    assert "chosen on all silos' validation items" in said[0].decided
    found, sizes = [], []
    for each in said:
        tested = each.splits == "test"
        found.append((each.decisions[tested] == 1)[each.labels[tested] == 1].mean())
        sizes.append(len(each.labels))
    recall = result.tree["seeds"][0]["test"]["threshold_recall"]
    assert recall == pytest.approx(np.average(found, weights=sizes), abs=1e-9 if report == "silos" else 0.001)
