"""Which of two classes is looked for, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.catalog import load
from graphsilo.errors import ConfigError
from graphsilo.evaluate.rare import Decision
from graphsilo.experiments.config import EvaluationConfig
from graphsilo.experiments.decisions import apply_decision, describe_decision, labels_of, looked_for, threshold_warnings

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


def test_thresholds_that_rest_on_few_items_are_warned_of():
    """Of three silos with 2, 0 and 7 validation items of fraud the first; where all choose together, none."""

    def silo_of(client: int, frauds: int) -> SimpleNamespace:
        labels = np.array([1] * frauds + [0] * 9 + [1] * 20)
        seen = SimpleNamespace(graph=SimpleNamespace(labels=labels), items={"val": np.arange(frauds + 9)})
        return SimpleNamespace(client=client, seen=seen)

    who = SimpleNamespace(
        schema=SCHEMA, rare=1, silos=[silo_of(*each) for each in ((0, 2), (1, 0), (2, 7))],
        name_clients=lambda clients: f"clients {clients}",
    )  # fmt: skip
    (said,) = threshold_warnings(EvaluationConfig(), who)
    assert said.startswith("at clients [0] the threshold rests on 2 validation items of class 'fraud', and is")
    assert threshold_warnings(EvaluationConfig(threshold_by="federation"), who) == []
    assert threshold_warnings(EvaluationConfig(), SimpleNamespace(schema=SCHEMA, rare=1)) == []  # between machines


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
