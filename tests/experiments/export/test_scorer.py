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


def _scores(folder, asked):
    spec = util.spec_from_file_location("scorer", folder / "scorer.py")
    scorer = util.module_from_spec(spec)
    spec.loader.exec_module(scorer)
    graph, silo = asked.silo.seen.graph, asked.silo
    labels = np.full(graph.num_nodes, -1)
    labels[graph.rows_of(silo.graph.global_ids[silo.train])] = silo.labels[silo.train]
    return scorer.Model(folder).score(raw_features(asked, graph), graph.edges, labels)


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


def test_networks_are_refused(tmp_path):
    method = {"name": "fedavg", "rounds": 1}
    run(load_config(overrides={**BASE, "method": method}), out=tmp_path / "run")
    with pytest.raises(UnsupportedError, match="ridges and trees"):
        export(tmp_path / "run", tmp_path / "out", client=1)
