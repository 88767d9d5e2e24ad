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


def _model(folder):
    spec = util.spec_from_file_location("scorer", folder / "scorer.py")
    scorer = util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    return scorer.Model(folder)


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
        assert "| 1 (this one) | 50 |" in card
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
        _scores(tmp_path / "out", open_member(tmp_path / "run", client=0))
    )
    assert said.calibrated is not None
    assert np.allclose(calibrated, said.calibrated, atol=1e-5)
    assert decisions.tolist() == said.decisions.tolist()
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("\n".join([",".join(["x"] * 40), *[",".join(["1"] * 40)] * 2]))
    printed = subprocess.run(
        [sys.executable, "-I", tmp_path / "out" / "scorer.py", nodes], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert (printed[0], len(printed)) == ("0,1,calibrated,decision", 3)


def test_networks_are_refused(tmp_path):
    method = {"name": "fedavg", "rounds": 1}
    run(load_config(overrides={**BASE, "method": method}), out=tmp_path / "run")
    with pytest.raises(UnsupportedError, match="ridges and trees"):
        export(tmp_path / "run", tmp_path / "out", client=1)
