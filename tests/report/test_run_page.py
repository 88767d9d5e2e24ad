"""What the page of a run says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from graphsilo import report
from graphsilo.report.html import render_comparison
from graphsilo.report.record import load
from graphsilo.report.run_page import sentence
from kit import result_tree, round_tree, seed_tree
from kit.pages import Page


def test_a_bare_result_makes_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result_tree([{}])))
    page = Page(report.write(tmp_path).read_text())
    assert page.open == []
    assert "Clock time of the whole run, to this page not recorded" in page.words
    assert "no readable ledger.parquet" in page.words
    assert "One seed" in page.words
    assert (tmp_path / "report.html").stat().st_size < 100_000  # nothing to draw, nothing embedded


def test_missing_values_do_not_stop_the_page(tmp_path: Path) -> None:
    holder = {"client": 0, "nodes": 5, "train": 1, "val": 1, "test": 3}
    seed = seed_tree(
        0,
        {"accuracy": None, "macro_f1": None, "min_f1": 0.5},
        per_class_f1=[None, 0.5],
        confusion=[[1, 2], [0, 3]],
        clients=[
            {"client": 0, "test_items": None, "test": {}},
            {"client": 7, "test_items": 1, "test": {"accuracy": 1}},
        ],
        rounds=[round_tree(1), round_tree(2, {"min_f1": 0.4}, failures=["client 0 failed"])],
        scenarios={"new_client": {"accuracy": 0.4}, "unseen_node": {"accuracy": None}},
    )
    content = result_tree([{}], seeds=[seed], partition={"per_client": [holder]})
    (tmp_path / "result.json").write_text(json.dumps(content))
    page = Page(report.write(tmp_path).read_text())
    assert "New client" in page.words
    again = tmp_path / "again"
    again.mkdir()
    (again / "result.json").write_text(json.dumps(content))
    assert Page(render_comparison([load(tmp_path), load(again)])).open == []


def test_scenarios_and_missing_groups(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", rounds=2, seeds=2)
    content = json.loads((folder / "result.json").read_text())
    for seed in content["seeds"]:
        seed["test"]["hete_min_f1"] = None
        seed["test"]["macro_f1_present"] = 0.875  # the groups' rule: classes among the labels
        seed["scenarios"] = {"missing_class": {"accuracy": 0.25}, "unseen_node": {"accuracy": 0.5}}
    (folder / "result.json").write_text(json.dumps(content))
    words = Page(report.write(folder).read_text()).words
    assert "Missing class 25.0 ± 0.0" in words
    assert "rare class and heterophilous at once no such items" in words
    assert "All every test item 87.5" in words


def test_other_readings_of_the_run(tmp_path: Path) -> None:
    def mode(accuracy: float) -> dict[str, Any]:
        return {"best_round": 2, "validation": {}, "test": {"accuracy": accuracy}, "scenarios": {}}

    modes = {"aggregate_local": mode(0.5), "own_global": mode(0.75), "own_local": mode(0.125)}
    seed = seed_tree(0, test_last={"accuracy": 0.25}, modes=modes, rounds=[round_tree(1)])
    config = {"model": {"pool": ["gcn", {"name": "sage"}, "gcn"]}, "scenario": {"name": "unseen"}}
    (tmp_path / "result.json").write_text(json.dumps(result_tree(seeds=[seed], config=config)))
    words = Page(report.write(tmp_path).read_text()).words
    for text in (
        "trained GCN and SAGE models, one kind per client, on",
        "scenario unseen",
        "Reported: common model (aggregate), round chosen by validation 50.0",
        "Last round 25.0",
        "Clients' own models, test data of all 75.0",
        "Clients' own models 12.5",
    ):
        assert text in words
    assert words.count("Aggregate") == 0  # the reported row says it already


@pytest.mark.parametrize(("method", "promised"), [("global", False), ("fedavg", True)])
def test_pooled_data_are_not_called_private(tmp_path: Path, sample: ModuleType, method: str, promised: bool) -> None:
    folder = sample.make_run(tmp_path / "run", method=method, rounds=2, seeds=1, clients=3)
    words = Page(report.write(folder).read_text()).words
    assert ("no disclosure kind" in words) is promised
    assert ("not federated learning" in words) is not promised


@pytest.mark.slow
def test_a_thousand_clients_list_the_worst(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", clients=1000, classes=5, rounds=2, seeds=1)
    text = report.write(folder).read_text()
    table = text[text.index('id="client-table"') :]
    table = table[: table.index("</table>")]
    assert table.count("<tr") == 201
    assert table.count('class="later"') == 180
    scores = [float(row) for row in re.findall(r'</td><td data-value="([0-9.]+)">[0-9.]+<span', table)]
    assert len(scores) > 200
    assert "The worst 200 of 1\u202f000 clients are listed" in text
    accuracies = sorted(row.test.numbers["accuracy"] or 0.0 for row in load(folder).seeds[0].clients)
    assert f"{accuracies[0]!r}" in table
    assert f"{accuracies[250]!r}" not in table


def test_scenario_scores_of_references_stand_below_the_runs(tmp_path: Path, sample: ModuleType) -> None:
    folder = sample.make_run(tmp_path / "run", seeds=2, rounds=3)
    tree = json.loads((folder / "result.json").read_text())
    for seed in tree["seeds"]:
        seed["scenarios"] = {"unseen_node": {"accuracy": 0.61}}
    tree["references"]["local"]["scenarios"] = {"unseen_node": {"accuracy": {"mean": 0.523, "std": 0.01}}}
    (folder / "result.json").write_text(json.dumps(tree))
    words = Page(report.write(folder).read_text(encoding="utf-8")).words
    assert "Unseen node, Local only" in words
    assert "52.3 ± 1.0" in words
    assert "Unseen node, Centralised" not in words
    assert (
        "Local only: every silo trains the backbone by itself; Centralised (cut): one place holds everything but the"
        in words
    )


def test_no_deviation_is_explained_where_there_is_one_seed(tmp_path: Path, sample: ModuleType) -> None:
    one, other = (
        sample.make_run(tmp_path / name, seeds=1, rounds=3, clients=3, payload=size, title=name, method=name)
        for name, size in (("fedavg", 10), ("fedprox", 50))
    )
    assert "standard deviation" not in report.write(one).read_text()
    assert "standard deviation" not in render_comparison([load(one), load(other)])
    many = [load(sample.make_run(tmp_path / name, seeds=2, rounds=3, clients=3, title=name)) for name in ("a", "b")]
    assert "standard deviation" in render_comparison(many)


@pytest.mark.parametrize(
    ("had", "said"),
    [([3, 3], "for 3 rounds,"), ([2], "for 2 of at most 3 rounds,"), ([1, 3], "for 1 to 3 of at most 3 rounds,")],
    ids=str,
)
def test_a_run_that_ended_early_says_how_many_rounds_it_had(tmp_path: Path, had: list[int], said: str) -> None:
    tree = result_tree(method={"rounds": 3})
    tree["seeds"] = [
        seed_tree(seed, rounds=[round_tree(number) for number in range(1, rounds + 1)])
        for seed, rounds in enumerate(had)
    ]
    (tmp_path / "result.json").write_text(json.dumps(tree))
    assert said in sentence(load(tmp_path))
