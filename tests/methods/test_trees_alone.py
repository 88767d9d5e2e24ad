"""Trees alone: scikit-learn's, chosen on validation, the same from a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from graphsilo.data.graph import Graph
from graphsilo.data.links import Targets
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.message import Empty
from graphsilo.methods import trees_alone


def silo_of():
    """Nodes on a line whose label is whether their first feature is above 0."""
    draw = np.random.default_rng(0)
    features = draw.normal(size=(120, 3)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    train, val, test = np.arange(60), np.arange(60, 90), np.arange(90, 120)
    graph = Graph(features, np.zeros((2, 0), dtype=np.int64), labels, 2)
    asked = (EvaluationSet("seen", graph, {"val": val, "test": test}),)
    return Silo(0, graph, train, asked, Schema("node", 3, 2)), features, labels


def test_it_is_scikit_learn_on_own_rows(kit):
    silo, features, labels = silo_of()
    server, federation = kit.build("trees_alone", [silo], leaves=(4,), min_child=(5,), iterations=30, lr=0.2)
    kit.rounds(server, federation)
    client = federation.client(0)
    steps = len(client.trees["start"]) - 1
    assert steps in (10, 20, 30)
    other = HistGradientBoostingClassifier(
        learning_rate=0.2, max_iter=steps, max_leaf_nodes=4, min_samples_leaf=5, early_stopping=False, random_state=0
    ).fit(features[:60], labels[:60])
    found = client.predict(client.data).exp().numpy()
    assert found == pytest.approx(other.predict_proba(features), abs=1e-6)
    again = kit.build("trees_alone", [silo], leaves=(4,), min_child=(5,), iterations=30, lr=0.2)[1].client(0)
    again.load_final(client.final_models())
    assert torch.equal(again.predict(again.data), client.predict(client.data))


def test_validation_items_are_scored_once_by_every_tree(kit, monkeypatch):
    """After every tenth step while trees grow, and after the steps that then are left."""
    scored, of_steps = [], trees_alone._scores

    def count(trees, rows, before=None):
        scored.append((len(trees["start"]) - 1, len(rows)))
        return of_steps(trees, rows, before)

    monkeypatch.setattr(trees_alone, "_scores", count)
    client = kit.build("trees_alone", [silo_of()[0]], leaves=(4,), min_child=(5,), iterations=25, lr=1e-3)[1].client(0)
    client.grow(Empty())
    assert scored == [(10, 30), (10, 30), (5, 30)]
    assert len(client.trees["start"]) - 1 in (10, 20, 25)


@pytest.mark.parametrize(("train", "share"), [((0, 2, 4), 1.0), ((), 0.5)])
def test_one_class_or_none(kit, train, share):
    silo = kit.tiny_silo(0, train=train)  # labels 0 1 0 1 0 1
    _, federation = kit.build("trees_alone", [silo])
    client = federation.client(0)
    assert client.predict(client.data).exp()[0].tolist() == [pytest.approx(0.5)] * 2
    client.grow(Empty())
    assert client.predict(client.data).exp()[0].tolist() == pytest.approx([share, 1 - share])


def test_of_targets_each_has_scikit_learns_trees(kit):
    silo, features, _ = silo_of()
    wanted = np.column_stack([features[:, 0] ** 2, features[:, 1]]).astype(np.float32)
    graph = replace(silo.graph, targets=Targets(wanted, "regression"))
    asked = (EvaluationSet("seen", graph, silo.seen.items),)
    silo = replace(silo, graph=graph, evaluations=asked, schema=Schema("regression", 3, 2))
    server, federation = kit.build("trees_alone", [silo], leaves=(4,), min_child=(5,), iterations=10, lr=0.2)
    kit.rounds(server, federation)
    client = federation.client(0)
    for at in range(2):
        other = HistGradientBoostingRegressor(
            learning_rate=0.2, max_iter=10, max_leaf_nodes=4, min_samples_leaf=5, early_stopping=False, random_state=0
        ).fit(features[:60], wanted[:60, at])
        assert client.predict(client.data)[:, at].numpy() == pytest.approx(other.predict(features), abs=1e-5)


@pytest.mark.parametrize(("val", "steps"), [("wrong", 40), ("none", 60), ("one class", 60)])
def test_growing_ends_when_validation_finds_none_better(kit, monkeypatch, val, steps):
    """Labels turned round make the first ten steps the best of all; where nothing tells, all are taken."""
    silo, _, labels = silo_of()
    items = dict(silo.seen.items)
    if val == "wrong":
        labels[items["val"]] = 1 - labels[items["val"]]
    elif val == "none":
        items["val"] = items["val"][:0]
    else:
        labels[items["val"]] = 0
    silo = replace(silo, evaluations=(replace(silo.seen, items=items),))
    client = kit.build("trees_alone", [silo], min_child=(5,), iterations=60)[1].client(0)
    client.metric = find_selecting("auc", "node")
    grown, grow = [], client._grow

    def grow_seen(*given):
        grown.append(grow(*given))
        return grown[-1]

    monkeypatch.setattr(client, "_grow", grow_seen)
    client.grow(Empty())
    whole = grown[0]
    assert len(whole["start"]) - 1 == steps
    assert len(client.trees["start"]) - 1 == (10 if val == "wrong" else 60)
