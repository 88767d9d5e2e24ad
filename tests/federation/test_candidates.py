"""Counts and scores of several models by the same items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.evaluate.choice import Judge
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.candidates import Candidates


def test_each_model_is_counted_and_ranked() -> None:
    """Three items: the first model is right twice and ranks one of two pairs right, the second is right in all."""
    judge = Judge(METRICS["accuracy"], np.array([0, 1, 1]))
    outputs = [np.array([[0.4, 0.6], [0.5, 0.5], [0.1, 0.9]]), np.array([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]])]
    outputs[0][1] = [0.45, 0.55]
    found = Candidates.from_outputs(judge, outputs, 2, ["auc"])
    assert found.counts.tolist() == [[[0, 1], [0, 2]], [[1, 0], [0, 2]]]
    assert found.ranked["auc"].tolist() == [[1.5, 3.0], [3.0, 3.0]]
    assert not Candidates.from_outputs(judge, outputs, 2).ranked
    assert set(Candidates.from_outputs(Judge(METRICS["auc"], judge.labels), outputs, 2).ranked) == {"auc"}


def test_counts_that_no_items_give():
    counts = torch.tensor([[[3, 1], [0, 2]], [[4, 0], [1, 1]]])
    right = Candidates(counts=counts, ranked={"auc": torch.tensor([[3.0, 2.0], [6.0, 6.0]], dtype=torch.float64)})
    right.check()
    right.check_size(6.0, 0.0)
    with pytest.raises(MessageError, match="counts 6 items; there are 5 at most"):
        right.check_size(5.0, 0.0)
    Candidates.none(3).check()
    Candidates.none(3).check_size(0.0, 0.0)
    for wrong, text in (
        ({"counts": torch.tensor([[[3, 1], [0, 2]], [[4, 1], [1, 0]]])}, "not the same items"),
        ({"counts": -counts}, "-4 items in one place"),
        ({"ranked": {"auc": torch.tensor([[7.0], [6.0]], dtype=torch.float64)}}, "no mean of scores"),
        ({"ranked": {"auc": torch.tensor([[3.0], [7.0]], dtype=torch.float64)}}, "no mean of scores"),
    ):
        with pytest.raises(MessageError, match=text):
            replace(right, **wrong).check()
