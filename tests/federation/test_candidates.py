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
from graphsilo.federation.message import Empty
from graphsilo.methods.auto import ScoreRequest
from graphsilo.methods.fedtrees.messages import AdoptRequest


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
    right.check_size(Empty(), 6.0, 0.0)
    with pytest.raises(MessageError, match="counts 6 items; there are 5 at most"):
        right.check_size(Empty(), 5.0, 0.0)
    Candidates.none(3).check()
    Candidates.none(3).check_size(Empty(), 0.0, 0.0)
    for wrong, text in (
        ({"counts": torch.tensor([[[3, 1], [0, 2]], [[4, 1], [1, 0]]])}, "not the same items"),
        ({"counts": -counts}, "-4 items in one place"),
        ({"ranked": {"auc": torch.tensor([[7.0, 2.0], [6.0, 6.0]], dtype=torch.float64)}}, "no mean of scores"),
        ({"ranked": {"auc": torch.tensor([[3.0, 2.0], [7.0, 6.0]], dtype=torch.float64)}}, "no mean of scores"),
        ({"ranked": {"auc": torch.tensor([[3.0], [6.0]], dtype=torch.float64)}}, "no mean of scores"),
    ):
        with pytest.raises(MessageError, match=text):
            replace(right, **wrong).check()


def test_an_answer_is_of_the_models_that_were_asked_about():
    """Where only such an answer came, the coordinator chose what is not there."""
    found = Candidates.from_outputs(Judge(METRICS["accuracy"], np.array([0])), 3 * [np.array([[0.4, 0.6]])], 2)
    adopt = AdoptRequest(forest={}, first=0, preferred=0)
    for right, answer in ((adopt, found), (adopt, Candidates.none(2)), (ScoreRequest(choices=3, course=False), found)):
        answer.check_answer(right)
    with pytest.raises(MessageError, match="is of 3 models; 8 were asked about"):
        found.check_answer(ScoreRequest(choices=8, course=False))
