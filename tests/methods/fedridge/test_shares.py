"""Shares of all kinds of ridges add up to the score."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.why import explain_items, open_member

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", [{"features": "separate"}, {"features": "separate", "dim": 16}, {"features": "sgc", "dim": 16, "hops": 1}]
)
def test_shares_of_other_ridges_add_up(tmp_path, kind):
    method = {"name": "fedridge", "label_features": "always", **kind}
    run(load_config(overrides={**BASE, "method": method}), out=tmp_path / "run")
    asked = open_member(tmp_path / "run", client=0)
    for each in explain_items(asked, np.arange(4)):
        assert sum(node.share for node in each.nodes) == pytest.approx(each.score - each.base, abs=2e-5)
