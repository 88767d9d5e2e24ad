"""What only sums over silos are seen of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.evaluate.binned import EDGES
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.sums import agree
from graphsilo.federation.client import ScoreCounts


def test_sums_that_are_none():
    with pytest.raises(FederationError, match="did not count"):
        agree(ScoreCounts(bins={"own/seen/val": torch.zeros(1, 2, 3, dtype=torch.int64)}), 1, "f1", 0.0)


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
