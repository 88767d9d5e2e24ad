"""An exported model says what the run's model says, without graphsilo."""

from __future__ import annotations

import subprocess
import sys
from importlib import util

import numpy as np
import pytest

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.export import export, raw_features
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.runner import run

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


def _module(folder):
    spec = util.spec_from_file_location("scorer", folder / "scorer.py")
    scorer = util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer


def _model(folder):
    return _module(folder).Model(folder)


def _scores(folder, asked):
    graph, silo = asked.silo.seen.graph, asked.silo
    labels = np.full(graph.num_nodes, -1)
    labels[graph.rows_of(silo.graph.global_ids[silo.train])] = silo.labels[silo.train]
    return _model(folder).score(raw_features(asked, graph), graph.edges, labels)


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedridge"},
        {"name": "fedridge", "features": "separate", "dim": 16, "label_features": "always"},
        {"name": "fedtrees", "rounds": 3},
        {"name": "fedtrees", "rounds": 2, "dim": 16},
        {"name": "auto", "rounds": 6},
    ],
)
def test_scores_of_the_run(tmp_path, method):
    run(load_config(overrides={**BASE, "method": method, "data.scale": "standard"}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=1)
    found = _scores(tmp_path / "out", open_member(tmp_path / "run", client=1))
    assert np.allclose(found, predict(tmp_path / "run", client=1).probabilities, atol=3e-6)
    if method == {"name": "fedridge"}:
        said = subprocess.run(
            [sys.executable, "-I", tmp_path / "out" / "scorer.py"], capture_output=True, text=True, check=True
        )
        assert said.stdout.startswith("largest difference")
        card = (tmp_path / "out" / "MODEL_CARD.md").read_text()
        assert "| client 1 (this one) | 50 |" in card
        with pytest.raises(ConfigError, match="not empty"):
            export(tmp_path / "run", tmp_path / "out", client=1)


def test_decisions_of_the_run(tmp_path):
    rare = {"data.generator": {"nodes": 300, "classes": 2, "features": 40}, "evaluation.positive": 1}
    run(
        load_config(overrides={**BASE, **rare, "method.name": "fedridge", "partition.clients": 1}), out=tmp_path / "run"
    )
    export(tmp_path / "run", tmp_path / "out", client=0)
    said = predict(tmp_path / "run", client=0)
    calibrated, decisions = _model(tmp_path / "out").decide(
        _scores(tmp_path / "out", open_member(tmp_path / "run", client=0)), labelled=True
    )
    assert said.calibrated is not None
    assert np.allclose(calibrated, said.calibrated, atol=1e-5)
    assert decisions.tolist() == said.decisions.tolist()
    assert "| Average precision | AUC |" in (tmp_path / "out" / "MODEL_CARD.md").read_text()
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("\n".join([",".join(["x"] * 40), *[",".join(["1"] * 40)] * 2]))
    printed = subprocess.run(
        [sys.executable, "-I", tmp_path / "out" / "scorer.py", nodes], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert (printed[0], len(printed)) == ("0,1,calibrated,decision", 3)


def test_decisions_elsewhere_are_by_scores_as_they_are_made_there(tmp_path):
    """Threshold and calibration of a given graph go by validation items without the labels around them."""
    own = {"data.generator": {"nodes": 300, "classes": 2, "features": 40}, "evaluation.positive": 1}
    method = {"name": "fedridge", "label_features": "always"}
    run(load_config(overrides={**BASE, **own, "method": method, "partition.clients": 1}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=0)
    asked = open_member(tmp_path / "run", client=0)
    graph, mine = asked.silo.seen.graph, predict(tmp_path / "run", client=0)
    given = predict(tmp_path / "run", client=0, graph=graph)
    assert given.decided != mine.decided
    val = mine.splits == "val"
    odds = np.log(given.scores[val] / (1 - given.scores[val]))
    threshold = asked.decision(elsewhere=True).threshold
    f1 = [
        2 * (found & right).sum() / (found.sum() + right.sum())
        for right in [mine.labels[val] == 1]
        for found in [odds >= threshold, *(odds >= each for each in odds)]
    ]
    assert f1[0] == pytest.approx(max(f1))
    model = _model(tmp_path / "out")
    calibrated, decisions = model.decide(model.score(raw_features(asked, graph), graph.edges))
    assert decisions.tolist() == given.decisions.tolist()
    assert np.allclose(calibrated, given.calibrated, atol=1e-5)


def test_tables_at_the_command_line(tmp_path, capsys):
    """With the labels of its training nodes the silo's own table comes to what the run says; faults are one line."""
    run(load_config(overrides={**BASE, "method": {"name": "fedtrees", "rounds": 3}}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=1)
    said, asked = predict(tmp_path / "run", client=1), open_member(tmp_path / "run", client=1)
    graph, main = asked.silo.seen.graph, _module(tmp_path / "out")._main
    labels = [str(label) if split == "train" else "" for label, split in zip(said.labels, said.splits, strict=True)]
    rows = [[*map(str, cells), label] for cells, label in zip(raw_features(asked, graph), labels, strict=True)]
    names = [*(f"x{column}" for column in range(graph.num_features)), "label"]
    links = "a,b\n" + "".join(f"{a},{b}\n" for a, b in graph.edges.T)

    def score(rows, links=links):
        (tmp_path / "nodes.csv").write_text("\n".join(",".join(cells) for cells in [names, *rows]))
        (tmp_path / "links.csv").write_text(links)
        return main([str(tmp_path / "nodes.csv"), str(tmp_path / "links.csv")])

    assert score(rows) == 0
    told = np.genfromtxt(capsys.readouterr().out.splitlines(), delimiter=",", skip_header=1)
    assert np.allclose(told, said.probabilities, atol=3e-6)
    for fault, message in (
        ({"rows": [*rows[:-1], [*rows[-1][:-1], "mule"]]}, "'mule' is no class; classes are 0, 1, 2"),
        ({"rows": [["much", *rows[0][1:]], *rows[1:]]}, "line 2, column 'x0': 'much' is no number"),
        ({"rows": rows, "links": "a,b\n0,1\n3,50\n"}, "line 3: a link joins two rows of the nodes.* from 0 to 49"),
        ({"rows": [rows[0][1:]]}, "line 2: 40 cells, and 41 headings"),
    ):
        with pytest.raises(SystemExit, match=message):
            score(**fault)


def test_networks_are_refused(tmp_path):
    method = {"name": "fedavg", "rounds": 1}
    run(load_config(overrides={**BASE, "method": method}), out=tmp_path / "run")
    with pytest.raises(UnsupportedError, match="ridges and trees"):
        export(tmp_path / "run", tmp_path / "out", client=1)
