"""The form of result.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsilo.errors import RunError
from graphsilo.experiments.storage import reading
from graphsilo.experiments.storage.records import RunRecord, record_of
from kit import SCHEMA, check_result, fits, result_tree, silo_tree


def test_the_published_schema_is_that_of_the_records() -> None:
    stored = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert stored == reading.schema(), f"write it anew: python scripts/result_schema.py > {SCHEMA.name}"


def test_the_schema_refuses_another_form() -> None:
    schema = reading.schema()
    assert fits(result_tree(), schema) == []
    for wrong in (
        {**result_tree(), "novelty": 1},
        {**result_tree(), "format": "1"},
        result_tree([{"accuracy": "high"}]),
        result_tree([{"spread": {"std": 0.1}}]),
        result_tree([]),
        {key: value for key, value in result_tree().items() if key != "summary"},
    ):
        assert fits(wrong, schema)
        with pytest.raises(RunError, match="was wanted of a result"):
            record_of(wrong, RunRecord)


@pytest.mark.parametrize("bins", ["none", 3, [], {"places": "x"}, {"places": [["x"]], "model": [], "found": []}])
def test_damaged_counts_of_scores_keep_nothing_from_being_read(tmp_path: Path, bins: object) -> None:
    tree = result_tree()
    tree["seeds"][0]["score_bins"] = bins
    (tmp_path / "result.json").write_text(json.dumps(tree))
    (seed,) = reading.read_run(tmp_path).seeds
    assert seed.score_bins is not None
    assert seed.score_bins.places == []


def test_a_silos_own_result_is_not_the_runs(tmp_path: Path) -> None:
    own = silo_tree()
    (tmp_path / "result.json").write_text(json.dumps(own))
    assert check_result(tmp_path) == own
    with pytest.raises(RunError, match="what silo north was sent about a run"):
        reading.read_run(tmp_path)
