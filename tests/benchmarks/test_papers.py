"""Which number of a result a line of the papers' tables shows."""

from __future__ import annotations

import papers

RESULT = {
    "evaluates": ["own_local"],
    "seed": {
        "modes": {"own_local": {"test": {"accuracy": 0.75}}},
        "rounds": [{"round": 1, "test": {"accuracy": 0.5}}, {"round": 2, "test": {"accuracy": 0.7}}],
        "setup": {"log": {"generated_neighbours": 0.027}},
        "study": {"0": {"nodes": 1, "missing": 3.0}, "1": {"nodes": 3, "missing": 1.0}},
    },
}


def test_scores() -> None:
    assert papers.score(RESULT, "own_local.accuracy") == 75.0
    assert papers.score(RESULT, "own_local.accuracy@last") == 70.0
    assert papers.score(RESULT, "study.missing") == 1.5  # (1 · 3 + 3 · 1) / 4
    assert papers.score(RESULT, "setup.generated_neighbours") == 0.027
    assert papers.score(RESULT, "setup.generated_neighbours@last") is None
    assert papers.score({**RESULT, "seed": {**RESULT["seed"], "setup": {}}}, "setup.generated_neighbours") is None


def test_digits() -> None:
    assert papers._shown([0.0271], "setup.generated_neighbours") == "0.027"
    assert papers._shown([75.04], "own_local.accuracy") == "75.0"
