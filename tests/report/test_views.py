"""Which number of a run a column shows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from graphsilo.errors import ConfigError
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage.records import BesideScores, Scores
from graphsilo.report import comparison
from graphsilo.report.layout import layout
from graphsilo.report.record import load
from graphsilo.report.views import Column, _describe_undefined, columns
from kit import result_tree, round_tree, seed_tree


def folder(root: Path, name: str = "run", **more: Any) -> Path:
    """One seed: own models 0.8 (pooled 0.82, worst client 0.5), aggregate 0.7, unseen nodes 0.6; five rounds of which
    those with an even number were evaluated, at 3000 bytes each and as many in set-up."""
    test = {
        "accuracy": 0.8, "macro_f1": 0.75, "pooled": {"accuracy": 0.82, "macro_f1": 0.77},
        "worst_client": {"client": 1, "accuracy": 0.5},
    }  # fmt: skip
    common = {"accuracy": 0.7, "macro_f1": 0.65, "worst_client": {"client": 0, "accuracy": 0.4}}
    modes = {
        mode: {"best_round": 1, "validation": {}, "test": scores, "scenarios": {}}
        for mode, scores in (("own_local", test), ("aggregate_local", common))
    }
    curve = [None, {"accuracy": 0.4}, None, {"accuracy": 0.6}, None]
    rounds = [round_tree(number + 1, scores) for number, scores in enumerate(curve)]
    rounds[1]["modes"] = {"aggregate_local": {"validation": {"accuracy": 0.6}, "test": {}}}
    clients = [
        {"client": client, "nodes": 10, "test_items": 4, "test": {"accuracy": accuracy, "macro_f1": f1}}
        for client, accuracy, f1 in ((0, 0.9, 0.3), (1, 0.5, 0.6))
    ]
    seed = seed_tree(0, test, modes=modes, scenarios={"unseen_node": {"accuracy": 0.6}}, rounds=rounds, clients=clients)
    tree = result_tree(method={"name": name, "title": name}, fingerprint=name, seeds=[seed])
    tree |= more
    (root / name).mkdir()
    (root / name / "result.json").write_text(json.dumps(tree))
    return root / name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", 0.8),
        ("own.accuracy", 0.8),
        ("aggregate.accuracy", 0.7),
        ("aggregate_local.macro_f1", 0.65),
        ("pooled.macro_f1", 0.77),
        ("worst.accuracy", 0.5),
        ("worst_client", 0.5),
        ("worst.macro_f1", 0.3),  # the least of 0.3 and 0.6; of accuracy the other client
        ("aggregate.worst", 0.4),
        ("unseen_node.accuracy", 0.6),
    ],
)
def test_a_column_by_name(tmp_path: Path, name: str, expected: float) -> None:
    table = comparison([folder(tmp_path)], metrics=[name])
    [score] = table.rows[0].scores.values()  # type: ignore[union-attr]
    assert score is not None
    assert score.mean == expected


def test_the_view_is_said(tmp_path: Path) -> None:
    runs = [folder(tmp_path)]
    said = [comparison(runs, mode=mode).legend[0] for mode in (None, "aggregate", "pooled", "own.worst")]
    assert said == [
        "Scored: clients' own models; node-weighted mean over clients.",
        "Scored: common model (aggregate); node-weighted mean over clients.",
        "Scored: clients' own models; counts of all clients summed.",
        "Scored: clients' own models; the client with the least.",
    ]
    both = layout(comparison(runs, metrics=["own.accuracy", "aggregate.accuracy"]), costs=False)
    assert [heading.title for heading in both.headings] == [
        "Accuracy (clients' own models)",
        "Accuracy (common model (aggregate))",
    ]


def test_what_it_takes_to_a_target(tmp_path: Path) -> None:
    run = load(folder(tmp_path))
    seed = run.seeds[0]
    # Round 4 is the first evaluated one at 0.6 or more: set-up and four rounds, 3000 bytes each
    assert Column("bytes_to_target", target=0.6).of(seed) == 15_000
    assert Column("rounds_to_target", target=0.6).of(seed) == 4
    assert Column("rounds_to_target", "aggregate_local", target=0.6).of(seed) == 2
    assert Column("rounds_to_target", target=0.61).of(seed) is None
    table = comparison([run.path], target=0.6)
    assert [cell.text for cell in layout(table, costs=False).lines[0].cells][-2:] == ["15.0 kB", "4.0"]
    assert any("until validation accuracy is at the target of 60 %" in text for text in table.legend)


def test_what_a_run_cost(tmp_path: Path) -> None:
    seed = load(folder(tmp_path)).seeds[0]
    assert Column("bytes_sent").of(seed) == 18_000  # set-up and five rounds
    assert Column("values_sent").of(seed) == 125  # 1000 bytes of four each in a round, of two clients
    assert Column("training_seconds").of(seed) == 2.0
    assert Column("distance_mended").of(seed) is None
    study = {"0": {"nodes": 1, "distance_mended": 0.4}, "1": {"nodes": 3, "distance_mended": 0.2}, "2": {"nodes": 9}}
    assert Column("distance_mended").of(structs.replace(seed, study=study)) == pytest.approx(0.25)
    assert not metric_of("bytes_sent").higher_is_better
    assert Column("accuracy").is_score
    assert not Column("bytes_sent").is_score


def test_fewer_bytes_are_better_and_a_seed_that_fails_gives_none(tmp_path: Path) -> None:
    slow = folder(tmp_path, "slow")
    quick = folder(tmp_path, "quick")
    tree = json.loads((quick / "result.json").read_text())
    tree["seeds"][0]["rounds"][1]["validation"] = {"accuracy": 0.9}
    (quick / "result.json").write_text(json.dumps(tree))
    table = comparison([slow, quick], target=0.6)
    assert table.best["bytes_to_target"] == (1,)  # type: ignore[union-attr]
    tree["seeds"].append(seed_tree(1))
    (quick / "result.json").write_text(json.dumps(tree))
    assert comparison([slow, quick], target=0.6).rows[1].scores["bytes_to_target"] is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mode": "aggregat"}, "did you mean 'aggregate'"),
        ({"mode": "own_global"}, "The runs have 'own_local' and 'aggregate_local'"),
        ({"metrics": ["aggregate.acuracy"]}, "in the view 'aggregate_local' was wanted, got 'aggregate.acuracy'"),
        ({"metrics": ["bytes_to_target"]}, "give a target"),
        ({"target": 80}, "did you mean 0.8"),
        ({"target": 0.0}, "such as 0.8 for 80 %; got 0"),
    ],
)
def test_views_that_are_not_there(tmp_path: Path, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        comparison([folder(tmp_path)], **asked)


def test_without_a_metric_all_usual_ones_of_the_view_are_shown(tmp_path: Path) -> None:
    runs = [load(folder(tmp_path))]
    assert [column.name for column in columns(runs, None, "aggregate")] == [
        "aggregate_local.accuracy",
        "aggregate_local.macro_f1",
    ]


def test_over_how_many_clients_a_score_is_that_not_all_have():
    """Of three clients one finds nothing, in the second run two: 1 to 2 of 3."""
    scores = [Scores({"threshold_precision": value, "auc": 0.5}, BesideScores()) for value in (0.5, 0.2, None, None)]
    rows = [SimpleNamespace(test=each) for each in scores]
    runs = [SimpleNamespace(seeds=[SimpleNamespace(clients=rows[first : first + 3])]) for first in (0, 1)]
    said = "Precision at threshold: over the 1 to 2 of 3 clients that have one."
    assert _describe_undefined(Column("threshold_precision"), runs) == said
    assert _describe_undefined(Column("auc"), runs) == ""
