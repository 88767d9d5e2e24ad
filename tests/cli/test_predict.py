"""`graphsilo predict`."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from graphsilo.data.partition import Partition
from graphsilo.experiments.predict import open_member


def test_predict(call, finished, tmp_path):
    code, out, _ = call("predict", "--run", finished, "--client", "1")
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    stored = Partition.load(finished / "partition.npz")
    assert [int(row["node"]) for row in rows] == stored.nodes[1].tolist()
    chances = np.array([[float(row[f"p_{index}"]) for index in range(3)] for row in rows])
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-4)
    assert [int(row["class"]) for row in rows] == chances.argmax(axis=1).tolist()
    wanted = f"{rows[4]['node']},{rows[0]['node']}"
    path = tmp_path / "p.csv"
    code, told, _ = call("predict", "--run", finished, "--client", "1", "--nodes", wanted, "--out", path)
    assert code == 0
    assert told.startswith("2 predictions on client 1's own graph")
    assert list(csv.DictReader(path.read_text().splitlines())) == [rows[4], rows[0]]
    other = next(node for node in range(150) if node not in stored.nodes[1])
    code, _, err = call("predict", "--run", finished, "--client", "1", "--nodes", str(other))
    assert code == 2
    assert f"node {other} is not on client 1's own graph" in err
    assert call("predict", "--run", finished, "--client", "9")[0] == 2
    assert call("predict", "--run", tmp_path, "--client", "0")[0] == 2
    assert call("predict", "--run", finished, "--client", "1", "--nodes", "a")[0] == 2


def test_predict_speaks_of_the_users_ids(call, tmp_path):
    ids = ["q1", "q,2", "007", "=1+1", "@q5", "-6", "q7", "q8", "q9", "q0"]
    (tmp_path / "n.csv").write_text(
        "id,a,y\n" + "".join(f'"{node}",{row},{row % 2 if row != 8 else ""}\n' for row, node in enumerate(ids))
    )
    (tmp_path / "e.csv").write_text("s,t\n" + "".join(f'"{ids[row]}","{ids[row - 1]}"\n' for row in range(10)))
    (tmp_path / "g.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y}\nedges: {path: e.csv, source: s, target: t}\n"
    )
    run = tmp_path / "run"
    assert call("run", "--data", tmp_path / "g.yaml", "--clients", "1", "--rounds", "1", "--out", run)[0] == 0
    ask = ("predict", "--run", run, "--client", "0")
    shown = [*ids[:3], "'=1+1", "'@q5", *ids[5:]]  # what a spreadsheet would compute
    assert [row["node"] for row in csv.DictReader(call(*ask)[1].splitlines())] == shown
    code, out, _ = call(*ask, "--nodes", "q,2", "--nodes", "q9, 007")
    assert code == 0
    assert [row["node"] for row in csv.DictReader(out.splitlines())] == ["q,2", "q9", "007"]
    code, _, err = call(*ask, "--nodes", "7")
    assert code == 2
    assert "node 7 is not on client 0's own graph, which holds 10 nodes with the ids of their table" in err
    assert "nodes 7, q are not on client 0's own graph" in call(*ask, "--nodes", "7,q1,q")[2]
    assert call(*ask, "--nodes", " , ")[0] == 2
    open_cases = call(*ask, "--unlabelled", "--top", "3")[1]
    assert [row["node"] for row in csv.DictReader(open_cases.splitlines())] == ["q9"]
    code, _, err = call(*ask, "--unlabelled", "--nodes", "q7,q8")
    assert (code, "all 2 nodes" in err) == (2, True)


def test_a_rare_class_is_looked_for(call, tmp_path):
    random = np.random.default_rng(0)
    labels = random.random(400) < 0.15
    rows = random.normal(size=(400, 2)) + labels[:, None] * [2.5, 1]
    nodes = "".join(f"k{i},{a:.3f},{b:.3f},{'fraud' if labels[i] else 'ok'}\n" for i, (a, b) in enumerate(rows))
    (tmp_path / "n.csv").write_text(f"id,a,b,y\n{nodes}")
    (tmp_path / "e.csv").write_text("s,t\n" + "".join(f"k{i},k{i + 1}\n" for i in range(399)))
    (tmp_path / "g.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y}\nedges: {path: e.csv, source: s, target: t}\n"
    )
    run, data = tmp_path / "run", tmp_path / "g.yaml"
    settings = ("--set", "evaluation.budget=10", "--set", "partition.ratios=[0.3, 0.4, 0.3]")
    assert call("run", "--data", data, "--clients", "1", "--method", "fedridge", *settings, "--out", run)[0] == 0
    assert "test items with the highest scores" in (run / "report.html").read_text("utf-8")
    score = json.loads((run / "result.json").read_text())["seeds"][0]["test"]
    ask = ("predict", "--run", run, "--client", "0")
    every = list(csv.DictReader(call(*ask)[1].splitlines()))
    assert [row["label"] for row in every] == ["fraud" if each else "ok" for each in labels]
    # The likelier class is another than the decision at places, and would be taken for it.
    assert list(every[0]) == ["node", "p_fraud", "p_ok", "score", "calibrated", "decision", "split", "label"]
    tested = [row for row in every if row["split"] == "test"]
    order = sorted(tested, key=lambda row: -float(row["score"]))
    hits = sum(row["label"] == "fraud" for row in order[:10])
    assert score["precision_at_budget"] == pytest.approx(hits / 10)
    found = [row["label"] == "fraud" for row in tested if row["decision"] == "fraud"]
    assert score["threshold_precision"] == pytest.approx(np.mean(found))
    errors = [(float(row["calibrated"]) - (row["label"] == "fraud")) ** 2 for row in tested]
    assert score["calibrated_brier"] == pytest.approx(np.mean(errors), rel=1e-4)
    code, told, _ = call(*ask, "--top", "5", "--out", tmp_path / "top.csv")
    assert (code, list(csv.DictReader((tmp_path / "top.csv").read_text().splitlines()))) == (
        0, sorted(every, key=lambda row: -float(row["score"]))[:5],
    )  # fmt: skip
    assert "Decision: 'fraud' from a score of" in told
    given = list(csv.DictReader(call(*ask, "--graph", data)[1].splitlines()))
    assert [row["decision"] for row in given] == [row["decision"] for row in every]
    assert "split" not in given[0]
    opened = open_member(run, client=0)
    chosen = opened.decision()
    seen = opened.silo.seen
    seen.graph.labels[seen.items["test"]] = random.permutation(seen.graph.labels[seen.items["test"]])
    assert opened.decision() == chosen
    settings = ("--set", "evaluation.positive=fruad")
    code, _, err = call(
        "run", "--data", data, "--clients", "1", "--method", "fedridge", *settings, "--out", tmp_path / "2"
    )
    assert code == 2
    assert "did you mean 'fraud'" in err.lower()
    assert not (tmp_path / "2").exists()


def test_targets_stand_beside_what_they_are(call, tmp_path):
    """True values and splits, so that errors can be computed; an unknown one is an empty cell."""
    rows = "".join(f"q{row},{row % 7},{row + 0.25 if row % 5 else ''},{row * 2}\n" for row in range(40))
    (tmp_path / "n.csv").write_text("id,a,rent,age\n" + rows)
    (tmp_path / "e.csv").write_text("s,t\n" + "".join(f"q{row},q{row - 1}\n" for row in range(1, 40)))
    (tmp_path / "g.yaml").write_text(
        "nodes: {path: n.csv, id: id, features: [a], targets: [rent, age]}\n"
        "edges: {path: e.csv, source: s, target: t}\n"
    )
    run = tmp_path / "run"
    assert call("run", "--data", tmp_path / "g.yaml", "--clients", "1", "--method", "fedridge", "--out", run)[0] == 0
    told = list(csv.DictReader(call("predict", "--run", run, "--client", "0")[1].splitlines()))
    assert list(told[0]) == ["node", "rent", "age", "split", "true_rent", "true_age"]
    assert [row["true_rent"] for row in told[:3]] == ["", "1.25", "2.25"]
    assert call("predict", "--run", run, "--client", "0", "--unlabelled")[0] == 2  # each has an age
    for place in (tmp_path, ""):
        code, _, err = call("predict", "--run", run, "--client", "0", "--out", place)
        assert code == 2
        assert "is a folder" in err
