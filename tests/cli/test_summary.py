"""The table at the end of a run, on a made-up result."""

from __future__ import annotations

from typing import Any

from graphsilo.cli.summary import describe_scoring, remarks, sheet
from graphsilo.experiments.storage.records import RunRecord, record_of
from kit import result_tree, round_tree, seed_tree

FAILURE = "client 2 failed in 'train' (E: x)"
ROUND = round_tree(1, failures=[FAILURE])
TREE = result_tree(
    summary={
        "test": {
            "accuracy": {"mean": 0.8, "std": 0.01},
            "macro_f1": {"mean": 0.7, "std": None},
            "worst_client": {"accuracy": {"mean": 0.5, "std": 0.0}},
        },
        "scenarios": {"unseen_node": {"accuracy": {"mean": 0.6, "std": 0.0}}},
        "upload_bytes": 1500, "download_bytes": 2_000_000,
    },
    references={
        "local": {
            "accuracy": {"mean": 0.75, "std": 0.0},
            "scenarios": {"unseen_node": {"accuracy": {"mean": 0.55, "std": 0.0}}},
        },
        "global": {"accuracy": {"mean": 0.85, "std": 0.0}},
        "gap_closed": {"accuracy": 0.5},
    },
    seeds=[
        seed_tree(0, best_round=3, cpu_seconds=1.0, server_cpu_seconds=0.4, rounds=[ROUND]),
        seed_tree(1, best_round=5, cpu_seconds=2.0, rounds=[{**ROUND, "round": 4}]),
    ],
    warnings=["client 1 has no test item."],
)  # fmt: skip


def record(**more: Any) -> RunRecord:
    return record_of({**TREE, **more}, RunRecord)


def test_run_and_references():
    found = sheet(record())
    assert found.corner == "Test, % (2 seeds)"
    run = dict(zip(found.columns, found.rows[0][1], strict=True))
    assert found.rows[0][0] == "FedAvg"
    assert run == {
        "Accuracy": "80.0 ± 1.0", "Macro-F1": "70.0", "Worst client": "50.0 ± 0.0", "Unseen node": "60.0 ± 0.0",
        "Best round": "3, 5", "Sent": "1.5 kB", "Received": "2.0 MB", "CPU": "1.5 s", "of it server": "0.4 s",
        "Gap closed": "50 %",
    }  # fmt: skip
    assert [name for name, _, _ in found.rows[1:]] == ["Local only", "Centralised"]
    assert found.rows[1][1][:4] == ["75.0 ± 0.0", "–", "–", "55.0 ± 0.0"]
    assert found.rows[2][1][3] == "–"
    assert all(len(cells) == len(found.columns) for _, cells, _ in found.rows)


def test_what_is_scored_is_said():
    mode = seed_tree()["modes"]["own_local"]
    seed = seed_tree(modes={"own_global": mode, "aggregate_local": mode})
    assert describe_scoring(record(seeds=[seed])) == (
        "Scored: clients' own models, test data of all (own_global) at the round that validation chose; "
        "aggregate_local is in result.json. Sent and received: for training, per seed; what evaluation takes is in "
        "ledger.parquet."
    )


def test_nothing_is_chosen_by_validation_that_there_is_not():
    seed = seed_tree(validation={"accuracy": None})
    assert "(own_local) at the last round. Sent" in describe_scoring(record(seeds=[seed]))


def test_seeds_that_draw_nothing_say_so_once():
    seed = seed_tree()
    assert (
        describe_scoring(record(seeds=[seed, {**seed, "seed": 1}])).count(
            "All seeds gave the same numbers: nothing here"
        )
        == 1
    )
    assert "All seeds" not in describe_scoring(record(seeds=[seed]))
    other = {**seed, "seed": 1, "test": {**seed["test"], "accuracy": 0.125}}
    assert "All seeds" not in describe_scoring(record(seeds=[seed, other]))


def test_that_a_part_of_the_silos_is_scored_is_said():
    tests: list[dict[str, float]] = [{"accuracy": 0.5}, {}, {}]
    clients = [{"client": client, "test_items": 9, "test": test} for client, test in enumerate(tests)]
    scored_one = record(
        seeds=[seed_tree(clients=clients)],
        config={"evaluation": {"share": 0.5}},
        partition={**TREE["partition"], "clients": 4, "without": [{"client": 3}]},
    )
    text = "1 of 3 silos was scored (evaluation.share=0.5); Centralised: all 3. Sent and received:"
    assert text in describe_scoring(scored_one)
    assert "Worst scored client" in sheet(scored_one).columns
    assert sheet(scored_one).corner == "Test, % (1 seed, without client 3)"


def test_remarks():
    assert remarks(record()) == ["client 1 has no test item."]
    worse = record(references={"gap_closed": {"accuracy": None}})
    assert any("no gap to close" in text for text in remarks(worse))
