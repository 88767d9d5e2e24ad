"""What is said of an outcome, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphsilo.data.silos.silo import Schema
from graphsilo.experiments.evaluation import SetScores
from graphsilo.experiments.outcome import outcome_warnings, untrained
from graphsilo.experiments.storage.records import Seed, record_of
from graphsilo.federation import registry
from kit import COSTS, round_tree, seed_tree


def tables(*clients: tuple[list[int], list[int]]) -> SetScores:
    """Of clients with so many training and test items of each class, every one predicted as class 0."""
    counts = np.zeros((len(clients), 2, 4, 3, 3), dtype=np.int64)
    for place, rows in enumerate(clients):
        for kind, items in enumerate(rows):
            counts[place, kind, place % 4, :, 0] = items
    return SetScores(("train", "test"), counts, np.ones(len(clients), np.int64), {}, tuple(range(len(clients))))


def said(seeds: list[dict[str, Any]], *, has_data: bool = False) -> list[str]:
    rows = [{"client": 0, "silo": "north"}, {"client": 1, "silo": "south"}]
    participants: Any = SimpleNamespace(
        has_data=has_data, cut={"per_client": rows}, schema=Schema("node", 2, 3, class_names=("home", "rehab", "again"))
    )
    return outcome_warnings([record_of(seed, Seed) for seed in seeds], registry.load("fedavg"), participants)


def test_classes_that_nobody_trains_are_found_in_the_tables() -> None:
    found = untrained(tables(([5, 0, 0], [1, 2, 0]), ([4, 1, 0], [1, 0, 7])), 2)
    assert found == [[2, 7]]
    assert said([seed_tree(untrained=found)]) == [
        "no client trains the class 'again', and 7 items of it are asked for at test time: they cannot be found."
    ]
    assert said([seed_tree(untrained=found)], has_data=True) == []


def test_nothing_is_said_of_classes_where_a_client_sent_no_table() -> None:
    assert untrained(tables(([5, 0, 0], [1, 2, 0])), 2) == []
    assert untrained(SetScores(("test",), np.ones((1, 1, 4, 3, 3), dtype=np.int64)), 0) == []


@pytest.mark.parametrize(
    ("setup", "rounds", "when"),
    [
        (["train"], [[], []], "set-up"),
        ([], [["train", "evaluate"], []], "1 of 2 rounds"),
        (["open"], [["train"], ["train"]], "2 of 2 rounds and in set-up"),
    ],
)
def test_who_failed_is_told_once(setup: list[str], rounds: list[list[str]], when: str) -> None:
    def row(steps: list[str]) -> dict[str, Any]:
        failures = [f"client 1 failed in '{step}' (Gone: away)" for step in steps]
        return {**COSTS, **({"failures": failures} if steps else {})}

    first = next(step for steps in (setup, *rounds) for step in steps)
    assert said([seed_tree(setup=row(setup), rounds=[round_tree(1, **row(steps)) for steps in rounds])]) == [
        f"client 'south' failed in {when}, which went on without it; first in '{first}' (Gone: away)"
    ]
