"""Integrated gradients of a network that is linear have nothing left over."""

from __future__ import annotations

import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.why import why


def test_a_linear_network_leaves_no_gap(tmp_path):
    base = {
        "data.name": "citation-sbm", "data.generator": {"nodes": 90, "classes": 3, "features": 20},
        "partition.clients": 2, "partition.rule": "random", "model.name": "sgc",
        "method": {"name": "fedavg", "rounds": 2},
    }  # fmt: skip
    run(load_config(overrides=base), out=tmp_path / "run")
    found = why(tmp_path / "run", 3)
    assert found.gap == pytest.approx(0.0, abs=1e-5)
    assert sum(each.share for each in found.nodes) == pytest.approx(found.score - found.base, abs=1e-4)
