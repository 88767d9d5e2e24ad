"""Which number of a result a line of the papers' tables shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import papers
import papers_page
import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.reproduce import runs
from graphsilo.experiments.reproduce.published import load_scores
from graphsilo.experiments.spaces import default_spaces

TREE = {
    "title": "Tables",
    "tuning": {"trials": 2, "seed": 10},
    "methods": {"FedAvg": {"set": {"method.name": "fedavg"}, "spaces": [{"method.lr": [0.5]}]}},
    "references": [{"label": "local only", "set": {"method.name": "local"}}],
    "tables": [
        {
            "id": "fairfgl-2",
            "title": "FairFGL, table II",
            "paper": "FairFGL",
            "base": {"partition.rule": "metis", "partition.clients": 10},
            "data": ["Cora"],
            "methods": {each.method: "another time" for each in load_scores() if each.method != "FedAvg"},
            "scores": [{"path": "accuracy", "table": "II"}, {"path": "hete_f1", "table": "III", "metric": "hete_f1"}],
        }
    ],
}
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


def test_what_is_sent_until_a_score_is_reached() -> None:
    rounds = [
        {"round": number, "test": {"accuracy": score}, "upload_bytes": 2_000_000, "download_bytes": 1_000_000}
        for number, score in ((1, 0.5), (2, 0.8), (3, 0.7))
    ]
    setup = {"upload_bytes": 500_000, "download_bytes": 0}
    seed = {"rounds": rounds, "setup": setup, "upload_bytes": 6_500_000, "download_bytes": 3_000_000}
    result = {"evaluates": ["own_local"], "seed": seed}
    assert papers.score(result, "first.own_local.accuracy@80") == 2.0
    assert papers.score(result, "sent.own_local.accuracy@80") == 6.5  # set-up and two rounds of three megabytes
    assert papers.score(result, "sent.own_local.accuracy@81") is None
    assert papers.score(result, "sent.megabytes") == 9.5
    assert papers.score(result, "sent.megabytes@last") is None


def test_digits() -> None:
    assert papers._shown([0.0271], "setup.generated_neighbours") == "0.027"
    assert papers._shown([75.04], "own_local.accuracy") == "75.0"


def _result(own: tuple[float, float], common: tuple[float, float]) -> dict[str, Any]:
    """Validation and test accuracy of a trial's own models and of its common one."""
    modes = {
        mode: {"validation": {"accuracy": validation}, "test": {"accuracy": test}}
        for mode, (validation, test) in (("own_local", own), ("aggregate_local", common))
    }
    return {"evaluates": ["own_local"], "seed": {"modes": modes, "rounds": []}}


def test_a_search_takes_what_validation_prefers_and_never_looks_at_the_test() -> None:
    trials = [_result((0.6, 0.9), (0.5, 0.8)), _result((0.7, 0.6), (0.5, 0.99)), _result((0.6, 1.0), (0.8, 0.7))]
    assert papers.best(trials, "own_local.accuracy") is trials[1]
    assert papers.best(trials, "aggregate_local.accuracy") is trials[2]
    assert papers.best(trials, "chosen.accuracy") is trials[2]  # 0.8 of its common model
    assert papers.score(trials[2], "chosen.accuracy") == 70.0
    assert papers.score(trials[1], "chosen.accuracy") == 60.0
    assert papers.score(_result((0.5, 0.1), (0.5, 0.2)), "chosen.accuracy") == 10.0  # the first of equals


def test_each_client_may_have_a_best_round_of_its_own() -> None:
    """Then a trial is chosen by what the clients' own rounds come to, and scored by it."""
    trials = [_result((0.6, 0.9), (0.5, 0.8)), _result((0.7, 0.6), (0.5, 0.9))]
    trials[0]["seed"]["each"] = _result((0.8, 0.85), (0.9, 0.75))["seed"]["modes"]
    trials[1]["seed"]["each"] = _result((0.7, 0.65), (0.6, 0.95))["seed"]["modes"]
    assert papers.best(trials, "own_local.accuracy@each") is trials[0]
    assert papers.score(trials[0], "own_local.accuracy@each") == 85.0
    assert papers.score(trials[0], "chosen.accuracy@each") == 75.0
    assert papers.score(_result((0.6, 0.9), (0.5, 0.8)), "chosen.accuracy@each") is None  # it was not noted


def test_a_search_tries_the_same_settings_every_time_and_none_twice() -> None:
    description = {"trials": 5, "first": [{"a": 1}], "spaces": [{"a": [1, 2], "b": [3]}, {"a": [4, 5], "b": [6]}]}
    trials = papers.search(description)
    assert trials == papers.search(description)
    assert trials[0] == {"a": 1}
    assert sorted((trial["a"], trial["b"]) for trial in trials[1:]) == [(1, 3), (2, 3), (4, 6), (5, 6)]


def test_a_trial_that_diverged_is_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(papers, "KEPT", tmp_path)

    def run_of(trial: int, seed: int) -> papers.Run:
        return papers.Run(
            "f", "row", "data", "label", {"x": trial}, seed, ("own_local.accuracy",), (None,), (None,), 1, trials=2
        )

    papers.write_json(run_of(0, 0).place, {"failed": "it diverged"})
    papers.write_json(run_of(1, 0).place, _result((0.5, 0.4), (0.1, 0.1)))
    papers.write_json(run_of(0, 1).place, _result((0.5, 0.4), (0.1, 0.1)))  # of seed 1 one of two was run
    found = papers.results([run_of(trial, seed) for seed in (0, 1) for trial in (0, 1)])
    assert {seed: len(trials) for seed, trials in found.items()} == {0: 1}


@pytest.mark.slow
def test_every_comparison_can_be_read() -> None:
    for path in papers.FILES.values():
        _, runs = papers.read(path.stem)
        assert runs
    tuned = [run for run in runs_of("fedridge", "cora-louvain-10") if run.trials > 1]
    deeper = ("FedAvg, deep, best of 3", "all data in one place, best of 10")  # references: FedAvg may try more
    assert {run.trials for run in tuned if run.label not in deeper} == {16}  # every method the same number
    assert sum({"method.optimizer": "sgd", "method.lr": 0.5}.items() <= run.overrides.items() for run in tuned) > 0


def runs_of(name: str, row: str) -> list[papers.Run]:
    return [run for run in papers.read(name)[1] if run.row == row]


def test_differences_are_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.7, 1: 0.7, 2: 0.1}}
    runs = [
        papers.Run("f", "row", "data", label, {}, seed, ("own_local.accuracy",), (None,), (None,), 1)
        for label, each in values.items()
        for seed in each
    ]
    monkeypatch.setattr(
        papers,
        "results",
        lambda mine: {run.seed: [_result((0.5, values[run.label][run.seed]), (0.4, 0.0))] for run in mine},
    )
    lines = list(papers.differences(runs, "b", "own_local.accuracy"))
    assert "| row | +15.0 ± 7.1 |" in lines  # 20 and 10: their mean, and 10 / √2


def _keep(run: papers.Run, validation: float, test: float) -> None:
    result = {**_result((validation, test), (0.0, 0.0)), "overrides": run.overrides, "partition": "c" * 64}
    result["seed"] |= {"cpu_seconds": 1.0}
    run.place.parent.mkdir(parents=True, exist_ok=True)
    run.place.write_text(json.dumps({**result, "commit": "d" * 40}), encoding="utf-8")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(papers, "KEPT", tmp_path)
    monkeypatch.setattr(papers, "RECORDED", tmp_path / "results")
    papers.recorded.cache_clear()
    monkeypatch.setattr(papers.documents, "read", lambda *args, **options: TREE)
    yield
    papers.recorded.cache_clear()


@pytest.mark.usefixtures("tables")
def test_a_papers_table_holds_what_it_prints_and_references() -> None:
    _, runs = papers.read("tables")
    assert [run.label for run in runs] == ["local only"] * 3 + ["FedAvg"] * 3 + ["FedAvg, trials"] * 2
    fedavg = runs[3]
    assert fedavg.scores[:2] == ("own_local.accuracy", "own_local.hete_f1")  # the view that its paper reports, first
    assert fedavg.published == (81.13, 44.94, None, None)  # the paper's tables II and III
    assert [run.overrides["partition.seed"] for run in runs[3:]] == [0, 1, 2, 10, 10]


@pytest.mark.usefixtures("tables")
def test_tuning_is_by_validation_on_a_cut_of_its_own() -> None:
    *_, first, second = papers.read("tables")[1]
    _keep(first, validation=0.6, test=0.9)
    assert len(papers.read("tables")[1]) == 8  # not before all trials are there
    _keep(second, validation=0.7, test=0.1)
    tuned = papers.read("tables")[1][8:]
    assert [(run.label, run.seed) for run in tuned] == [("FedAvg, tuned", seed) for seed in (0, 1, 2)]
    assert all(run.overrides["method.lr"] == 0.5 for run in tuned)
    assert [run.overrides["partition.seed"] for run in tuned] == [0, 1, 2]


def _page(runs: list[papers.Run], kept: dict[str, papers_page.Section]) -> str:
    return "\n".join(papers_page.page(TREE, papers_page.updated(runs, kept)))


@pytest.mark.usefixtures("tables")
def test_the_page_of_the_papers_tables() -> None:
    for run, test in zip(papers.read("tables")[1], [0.8, 0.8, 0.8, 0.83, 0.86, 0.89], strict=False):
        _keep(run, validation=0.5, test=test)
    text = _page(papers.read("tables")[1], {})
    assert "<td><em>local only</em></td><td>accuracy</td><td>–</td>" in text
    # 86.0 ± 3.0 against 81.13 is 4.87 points above: more than three, less than eight.
    assert '<td data-value="86.000">86.0 ± 3.0</td><td data-value="4.870" class="above-2">+4.9</td>' in text
    assert "cuts cccccccc; commits ddddddd." in text


@pytest.mark.usefixtures("tables")
def test_the_file_keeps_what_was_measured_elsewhere(tmp_path: Path) -> None:
    _, runs = papers.read("tables")
    for run in runs[:6]:
        _keep(run, validation=0.5, test=0.8)
    papers_page.write(tmp_path / "numbers.csv", papers_page.updated(runs, {}))
    kept = papers_page.read(tmp_path / "numbers.csv")
    assert kept == papers_page.updated(runs, {})
    for run in runs[1:6]:  # what is left: one seed of the references' three, and none of FedAvg's
        run.place.unlink()
    _keep(runs[0], validation=0.5, test=0.9)
    assert papers_page.updated(runs, kept) == kept
    for run in runs[1:3]:
        _keep(run, validation=0.5, test=0.9)
    lines = papers_page.updated(runs, kept)["fairfgl-2.Cora"].lines
    assert lines["local only", "accuracy"]["ours"] == "90.0000 ± 0.0000"
    assert lines["FedAvg", "accuracy"]["ours"] == "80.0000 ± 0.0000"


def test_numbers_are_exact_and_shown_with_one_digit() -> None:
    assert papers_page.number("95.636 ± 0.113 (2 of 3)") == (95.636, 0.113)
    assert papers_page.number("95.6 (1 of 3)") == (95.6, 0.0)
    assert papers_page._cell("95.636 ± 0.113 (2 of 3)") == '<td data-value="95.636">95.6 ± 0.1 (2 of 3)</td>'
    assert papers_page._cell("") == "<td>–</td>"


def test_a_checkout_and_the_package_run_the_same() -> None:
    """What ``graphsilo reproduce`` runs, setting for setting, seed for seed."""
    mine = {(run.row, run.label, run.seed): run for name in ("tables", "fedsage_plus") for run in papers.read(name)[1]}
    count = 0
    for paper in dict.fromkeys(table.paper for table in papers.description.tables()):
        for row in (row for table in papers.description.find_tables(paper) for row in table.rows):
            for line in row.lines:
                for seed in row.seeds:
                    run = mine[row.id, line.label, seed]
                    settings = {**run.overrides, "run.seeds": [seed], "evaluation.models": False}
                    settings["evaluation.model"] = "first"
                    if settings.get("task") != "link":
                        settings.setdefault("evaluation.select_by", "accuracy")
                    if settings["method.name"] == "local":
                        settings.setdefault("method.best_round", "common")
                    expected = {name: value for name, value in settings.items() if value is not None}
                    asked = runs.settings_of(row, line, seed)
                    # Which view is reported changes no run: the checkout reads it from the same result
                    if "evaluation.modes" not in expected:
                        assert run.scores[0].startswith(asked.pop("evaluation.modes", [""])[0])
                    assert asked == expected
                    count += 1
    assert count > 1000


def test_every_method_of_the_tables_is_one_and_stands_in_a_paper() -> None:
    tree = papers.documents.read(papers.FILES["tables"], "the description of rows", references=500)
    printed = {each.method for each in load_scores()}
    assert set(tree["methods"]) <= printed
    for method in tree["methods"].values():
        assert default_spaces(method["set"]["method.name"])
        load_config(overrides={"data.name": "Cora", "data.root": ".", **method["set"]})


@pytest.mark.parametrize(
    ("last_line", "kept"),
    [
        ("graphsilo.errors.TrainingError: the loss is not finite", True),
        ("ModuleNotFoundError: No module named 'torch'", False),  # says nothing of the settings
    ],
)
def test_only_a_refusal_of_graphsilo_is_a_failed_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_line: str, kept: bool
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise papers.ChildFailed(last_line)

    monkeypatch.setattr(papers, "KEPT", tmp_path)
    monkeypatch.setattr(papers, "run_code", fail)
    run = papers.Run(
        "f", "row", "data", "a", {"method.name": "fedavg"}, 0, ("own_local.accuracy",), (None,), (None,), 1, 2
    )
    assert last_line in papers.execute(run, "root", 1.0)
    assert (run.result is not None) == kept


@pytest.mark.usefixtures("tables")
def test_another_machine_goes_on_from_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, runs = papers.read("tables")
    _keep(runs[0], 0.5, 0.4)
    trials = [run for run in runs if run.label == "FedAvg, trials"]
    _keep(trials[0], 0.6, 0.1)
    papers.write_json(trials[1].place, {"failed": "it diverged", "overrides": trials[1].overrides, "commit": "d"})
    assert papers.record("tables", runs) == 3
    monkeypatch.setattr(papers, "KEPT", tmp_path / "elsewhere")
    again = papers.read("tables")[1]
    first = again[0].result
    assert first is not None
    assert (papers.score(first, "own_local.accuracy"), first["partition"]) == (40.0, "c" * 64)
    assert [run.label for run in again].count("FedAvg, tuned") == 3  # both trials are known: the defaults are better
    assert again[-1].overrides.get("method.lr") is None
    before = (tmp_path / "results" / "tables.jsonl").read_text(encoding="utf-8")
    assert papers.record("tables", again) == 3
    assert (tmp_path / "results" / "tables.jsonl").read_text(encoding="utf-8") == before
    _keep(runs[0], 0.5, 0.7)  # measured again, elsewhere
    papers.record("tables", again)
    assert papers.recorded("tables")[runs[0].key]["seed"]["modes"]["own_local"]["test"] == {"accuracy": 0.7}


def test_only_what_tables_show_is_recorded() -> None:
    test = {"accuracy": 1 / 3, "auc": None, "per_class_f1": [0.1], "pooled": {"accuracy": 0.5}}
    kinds = {"unseen_node": {"accuracy": 0.25, "pooled": {"accuracy": 0.5}}}
    mode = {"validation": {"accuracy": 0.5, "auc": 0.1}, "test": test, "scenarios": kinds}
    seed = {"modes": {"own_local": mode}, "rounds": [{}], "cpu_seconds": 2.0}
    paths = ["accuracy", "auc", "unseen_node.accuracy", "missing_class.accuracy"]
    assert papers.compact({"evaluates": ["own_local"], "seed": seed}, paths)["seed"] == {
        "modes": {
            "own_local": {
                "validation": {"accuracy": 0.5},
                "test": {"accuracy": 0.333333},
                "scenarios": {"unseen_node": {"accuracy": 0.25}},
            }
        },
        "cpu_seconds": 2.0,
    }


def _section(**of_methods: dict[str, str]) -> papers_page.Section:
    """A section with these cells of accuracy by method; others are empty."""
    names = {"local": "local only", "all": "all data in one place"}
    empty = dict.fromkeys(papers_page.KEPT, "")
    lines = {(names.get(method, method), "accuracy"): {**empty, **said} for method, said in of_methods.items()}
    return papers_page.Section(["cut"], ["commit"], lines)


def test_a_paper_s_method_is_held_against_the_best_other_one() -> None:
    section = _section(
        FairFGL={"published": "83.0", "ours": "80.0 ± 0.4", "tuned": "81.0"},
        MOON={"published": "82.0", "ours": "79.0", "other view": "81.5 ± 0.1"},
        FedAvg={"ours": "81.0", "tuned": "80.5"},
        FedRidge={"ours": "90.0"},
    )
    assert papers_page._leads(section, "accuracy", "FairFGL") == ([1.0, -1.5, 0.5], "MOON")
    # References that have other rounds than the table's methods are no rivals; the paper's own model has two views, too
    section.lines["FairFGL", "accuracy"]["other view"] = "82.0"
    assert papers_page._leads(section, "accuracy", "FairFGL", own_rounds=True) == ([1.0, 0.5, None], "MOON")
    section.lines["FairFGL", "accuracy"]["other view"] = ""
    (drawn,) = papers_page.leads(TREE, {"fairfgl-2.Cora": section}, "FairFGL")
    assert "II: Cora, accuracy: +1.0, -1.5, +0.5" in drawn
    assert ">MOON</text>" in drawn


def test_coverage_counts_every_printed_score_once() -> None:
    head, *rows = papers_page.coverage(papers_page.read())
    words = head.partition("\n")[0].split(" | ")[1:-1]
    papers_ = {}
    for row in rows:
        paper, *numbers = row.removeprefix("| ").split(" | ")
        counts = dict(zip(words, map(int, numbers[:-1]), strict=True))
        others = sum(int(part.partition(":")[0]) for part in numbers[-1].removesuffix(" |").split("; ") if ":" in part)
        assert counts["printed"] == counts["measured"] + counts["no data"] + counts["no method"] + others, paper
        assert counts["measured"] == counts["within 3 points"] + counts["above"] + counts["below"]
        papers_[paper] = counts
    assert sum(counts["printed"] for counts in papers_.values()) == len(load_scores())
    assert papers_["FedLoG"]["measured"] > 300


@pytest.mark.parametrize(
    ("ours", "stands"),
    [
        ("78.1 ± 9.0", ["measured", "below"]),
        ("84.2", ["measured", "above"]),
        ("83.9", ["measured", "within 3 points"]),
        ("", ["not run yet"]),
    ],
)
def test_a_cell_stands_above_or_below_beyond_three_points(ours: str, stands: list[str]) -> None:
    cell = next(
        each for each in papers_page.reproduced.cells() if (each.row, each.path) == ("fairfgl-2.Cora", "accuracy")
    )
    assert (cell.label, cell.printed.mean) == ("FedAvg", 0.8113)
    lines = {("FedAvg", "accuracy"): {**dict.fromkeys(papers_page.KEPT, ""), "ours": ours}}
    sections = {"fairfgl-2.Cora": papers_page.Section(lines=lines)}
    assert papers_page._stands(cell, sections) == stands


def test_what_a_measured_process_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also every client's own best round, which a table may ask for: no worse on validation than one for all."""
    small = {"data.name": "citation-sbm", "data.nodes": 120, "partition.clients": 2, "method.rounds": 3}
    settings = {**small, "method.name": "fedavg", "evaluation.modes": ["own_local"], "evaluation.models": False}
    monkeypatch.setattr("sys.argv", ["-c", json.dumps(settings)])

    exec(papers.CHILD, {})

    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    each = result["seed"]["each"]["own_local"]
    assert each["validation"]["accuracy"] >= result["seed"]["modes"]["own_local"]["validation"]["accuracy"]
    assert papers.score(result, "own_local.accuracy@each") == 100 * each["test"]["accuracy"]
