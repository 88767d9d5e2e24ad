"""What result.json holds: every kind of result has the published form, and another form is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

from graphsilo.evaluate.metrics import summarise
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.runner import run
from graphsilo.experiments.storage.records import BesideMeans, Means, References, RunRecord, Scores, record_of, tree_of
from graphsilo.federation import registry
from kit import check_result, molecules, result_tree, seed_tree

LINKS = {"data__generator": {"nodes": 400, "classes": 3, "features": 40}, "task": "link", "method__rounds": 1}
KINDS: dict[str, dict[str, Any]] = {
    "everything": {
        "evaluation__auc": True,
        "evaluation__modes": ["own_local", "aggregate_global"],
        "run__references": ["local", "majority", "fedridge", "global", "global_cut"],
        "run__seeds": [0, 1],
        "run__checkpoint_every": 1,
        "method__rounds": 2,
    },
    "links": LINKS,
    "open": {"scenario__name": "open", "partition__rule": "louvain", "method__rounds": 1},
    "overlap": {"partition__rule": "overlap", "partition__clients": 10, "method__rounds": 1},
    "left out": {"run__without": [1], "method__rounds": 1},
    "own best rounds": {"method__name": "local", "method__rounds": 2},
    "pooled": {"method__name": "global", "method__rounds": 1},
    "log": {"method__name": "fedsage_plus", "evaluation__study": True, "method__rounds": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_has_the_published_form(
    kind: str, small: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Workers, failed silos, resumed runs and runs between machines: where such runs are tested."""
    quick = registry.load(KINDS[kind].get("method__name", "fedavg")).quick
    settings = {**{f"method__{name}": value for name, value in quick.items()}, **KINDS[kind]}
    result = run(small(**settings), out=tmp_path / "run")
    tree = check_result(tmp_path / "run")
    assert result.tree == tree
    for name in settings.get("run__references", ()):
        own = check_result(tmp_path / "run" / "references" / name)
        spent = tree["references"][name]["spent"]
        assert spent["cpu_seconds"] == pytest.approx(fmean(seed["cpu_seconds"] for seed in own["seeds"]))
        # Bytes are exchanged: not where all data are in one place, nor where each silo is alone.
        sent = None if own["method"]["pooled"] or own["method"].get("alone") else own["summary"]["upload_bytes"]
        assert spent.get("upload_bytes") == sent


def test_collections_of_graphs_have_it_too(small: Callable[..., RunConfig], tmp_path: Path) -> None:
    path = molecules(tmp_path / "rings.npz")
    config = small(data__name=str(path), data__generator={}, partition__rule="random", method__rounds=1)
    run(config, out=tmp_path / "run")
    assert check_result(tmp_path / "run")["data"]["graphs"] == 40


def test_metrics_stand_beside_fields_in_the_tree() -> None:
    import numpy as np

    counts = np.zeros((2, 4, 2, 2), dtype=np.int64)
    counts[0, 0] = [[2, 1], [0, 1]]  # 3 of 4 right; the other client has nothing to score
    tree = summarise(counts, [4, 6])
    scores = Scores.of(tree)
    assert scores.tree() == tree
    assert scores.numbers["accuracy"] == 0.75
    assert scores.numbers["hete_f1"] is None
    assert "per_class_f1" not in scores.numbers
    assert scores.per_class("per_class_recall") == [2 / 3, 1.0]
    assert scores.per_class("accuracy") is None
    assert scores.beside.worst_client is not None
    assert (scores.beside.worst_client.client, scores.beside.items) == (0, 4)
    assert scores.beside.pooled is not None
    assert scores.beside.pooled.numbers["accuracy"] == 0.75
    assert scores == Scores.of(tree)
    assert scores != Means.of({})


def test_what_is_missing_stays_missing_and_numbers_their_kind() -> None:
    tree = result_tree(seeds=[seed_tree(0, setup={**seed_tree()["setup"], "log": {"whole": 3, "part": 3.0}})])
    again = tree_of(record_of(tree, RunRecord))
    assert again == tree
    assert json.dumps(again["seeds"][0]["setup"]["log"]) == '{"whole": 3, "part": 3.0}'
    assert "confusion" not in again["seeds"][0]


def test_every_reference_row_that_a_run_may_ask_for_is_shown() -> None:
    means = Means({}, BesideMeans())
    record = record_of(result_tree(), RunRecord)
    record = msgspec.structs.replace(record, references=References(trees_alone=means, majority=means, global_=means))

    assert list(record.reference_rows) == ["majority", "trees_alone", "global"]
