"""Which answers to an evaluation are taken."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphsilo.errors import FederationError
from graphsilo.evaluate.binned import COLUMNS
from graphsilo.experiments.believed import drop_unbelievable
from graphsilo.federation import registry
from graphsilo.federation.client import EvaluateReply
from graphsilo.federation.interface import Replies
from graphsilo.testing import conformance


def counted(*kinds: str) -> EvaluateReply:
    counts = torch.zeros(len(kinds), 4, 2, 2, dtype=torch.int32)
    return EvaluateReply(kinds={"own/seen": list(kinds)}, parts=[1], counts=counts, sizes=torch.tensor([9]), scores={})


def test_kinds_of_items_are_those_that_most_silos_count() -> None:
    """With as many on the one side as on the other nobody is named."""
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    federation.limits = dict.fromkeys(federation.clients, 100.0)
    answers = {0: counted("test", "val"), 1: counted("val", "test"), 2: counted("val", "test")}
    believed = drop_unbelievable(federation, Replies(answers), ["own"], 2)
    assert (believed.clients, list(believed.failures)) == ((1, 2), [0])
    assert "other kinds of items than the other silos" in believed.failures[0].reason
    del answers[2]
    with pytest.raises(FederationError, match="nobody can say which"):
        drop_unbelievable(federation, Replies(answers), ["own"], 2)
    federation.limits = {}  # in one process nobody lies
    assert drop_unbelievable(federation, Replies(answers), ["own"], 2).clients == (0, 1)


@pytest.mark.parametrize("names", [("x/y", "x/y"), ("own/made-up", "own/made-up"), ("own", "own"), ("own/seen/x", "x")])
def test_who_scores_what_nobody_asked_for_has_failed(names: tuple[str, str]) -> None:
    """Two of five, who do not even agree: no word of theirs counts, and the run goes on with the others."""
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    federation.limits = dict.fromkeys(range(5), 100.0)
    answers = {client: counted("test", "val") for client in range(5)}
    for liar, name in zip((3, 4), names, strict=True):
        answers[liar] = replace(answers[liar], kinds={**answers[liar].kinds, name: [f"of {liar}"]})
    believed = drop_unbelievable(federation, Replies(answers), ["own"], 2)
    assert (believed.clients, sorted(believed.failures)) == ((0, 1, 2), [3, 4])
    assert all("it scores what was not asked for" in failure.reason for failure in believed.failures.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("target_mae@2", 1.0), ("target_mae@01", 1.0), ("mae@0", 1.0), ("mae", -1.0), ("mae", 1e200), ("r2", 1.5)],
)
def test_scores_of_targets_that_there_are_not(name: str, value: float) -> None:
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    federation.limits = dict.fromkeys(range(3), 100.0)
    none = replace(counted(), counts=torch.zeros(0, 4, 2, 2, dtype=torch.int32))
    good = {"own/seen/test/target_mae@1": [7.5, 9.0], "own/seen/test/r2": [-3.0, 9.0]}
    answers = {client: replace(none, scores=good) for client in range(3)}
    answers[1] = replace(none, scores={**good, f"own/seen/test/{name}": [value, 9.0]})
    assert drop_unbelievable(federation, Replies(answers), ["own"], 2).clients == (0, 2)


def test_scores_are_counted_as_by_most_silos() -> None:
    """Of two that differ nobody is named, whoever answers first."""
    _, federation, _ = conformance.assemble(registry.load("fedavg"), {})
    federation.limits = dict.fromkeys(range(3), 100.0)
    binned = replace(counted("test"), bins={"own/seen/test": torch.zeros(1, 2, COLUMNS, dtype=torch.int64)})
    answers = {0: counted("test"), 1: binned}
    with pytest.raises(FederationError, match=r"silos count scores of different items, .* nobody can say which"):
        drop_unbelievable(federation, Replies(answers), ["own"], 2)
    answers[2] = binned
    assert drop_unbelievable(federation, Replies(answers), ["own"], 2).clients == (1, 2)
