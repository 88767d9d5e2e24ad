"""A paper's tables from runs that are there, without running any."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from graphsilo.experiments.reproduce.runs import Plan, plan
from graphsilo.report import reproduced
from graphsilo.report.layout import layout
from kit import result_tree

SCORES = {"FedAvg": [0.80, 0.82, 0.84], "FairFGL": [0.83, 0.85, 0.87], "local only": [0.70, 0.71, 0.72]}


def made(root: Path, scores: dict[str, list[float]], *, quick: bool = False, table: str = "II") -> Plan:
    """Folders of FairFGL's tables on Cora as the runs leave them, each seed with a cut of its own."""
    planned = plan("FairFGL", table, data=["Cora"], methods=["FedAvg", "FairFGL"], out=root, quick=quick)
    for job in planned.jobs:
        label = "FedAvg" if job.line.label == "FedAvg, Adam 0.01" else job.line.label
        if job.seed < len(scores.get(label, [])):
            accuracy = scores[label][job.seed]
            tree = result_tree(
                [{"accuracy": accuracy, "macro_f1": accuracy / 2, "hete_f1": 0.5, "min_f1": 0.4}],
                fingerprint=job.name,
                method={"title": job.line.label},
                partition={"hash": f"cut {job.seed}"},
                config={"partition": {"seed": job.seed}, "method": {"name": label}},
            )
            tree["seeds"][0]["seed"] = job.seed
            job.out.mkdir(parents=True)
            (job.out / "result.json").write_text(json.dumps(tree))
    return planned


def test_seeds_of_runs_are_put_together(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES)
    accuracy, f1 = reproduced.draw(planned)
    assert accuracy.title == "FairFGL, table II: accuracy (Metis, 10 clients, 150 rounds)"
    assert f1.title.startswith("FairFGL, table II: Macro-F1 ")
    lines = {line.label: line for line in layout(accuracy.grid).lines}
    assert [cell.text for cell in lines["FedAvg"].cells] == ["82.0 ± 2.0", "81.1 ± 0.3", "+0.9"]
    assert [cell.text for cell in lines["FairFGL"].cells] == ["85.0 ± 2.0", "82.8 ± 0.7", "+2.1"]
    assert lines["FairFGL"].cells[0].best
    assert lines["local only"].is_reference
    # The reference and the paper's row are the same runs; only one of them is compared
    assert [cell.text for cell in lines["FedAvg, Adam 0.01"].cells] == ["82.0 ± 2.0", "–", "–"]
    assert accuracy.grid.warnings == ()


def test_what_a_paper_leaves_open_is_said_below_its_table(tmp_path: Path) -> None:
    hete, least = reproduced.draw(made(tmp_path, SCORES, table="III"))[:2]
    assumed = "Assumed, as the paper does not say it: 10 clients."
    assert assumed in layout(hete.grid).legend
    assert assumed in layout(least.grid).legend
    assert least.grid.metrics == ("min_f1",)
    assert reproduced.UNDEFINED in layout(least.grid).legend
    assert reproduced.UNDEFINED not in layout(hete.grid).legend
    assert not any(table.published for table in least.grid.tables)


def test_a_seed_that_is_missing_is_said(tmp_path: Path) -> None:
    planned = made(tmp_path, {**SCORES, "FairFGL": [0.83, 0.85]})
    accuracy, _ = reproduced.draw(planned)
    assert not any(cell.best for line in layout(accuracy.grid).lines for cell in line.cells)
    assert any("seeds differ" in text and "FairFGL: 0, 1" in text for text in accuracy.grid.warnings)


def test_the_files(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES)
    files = reproduced.write(planned, reproduced.draw(planned))
    assert [path.name for path in files] == [f"reproduce-II.{ending}" for ending in ("md", "tex", "csv", "html")]
    rows = list(csv.DictReader(files[2].open()))
    [fairfgl] = [row for row in rows if row["method"] == "FairFGL" and row["metric"] == "macro_f1"]
    assert float(fairfgl["mean"]) == pytest.approx(0.425)
    assert (fairfgl["seeds"], fairfgl["column"]) == ("0 1 2", "Cora")
    text = files[0].read_text()
    assert "| *local only* | 71.0 ± 1.0 | – | – |" in text
    assert "References, which the paper's table does not have: local only; FedAvg, Adam 0.01." in text
    assert r"\label{tab:fairfgl-ii-macro_f1}" in files[1].read_text()


def test_a_run_that_failed_is_in_every_file_with_its_reason(tmp_path: Path) -> None:
    planned = made(tmp_path, {**SCORES, "FairFGL": [0.83, 0.85]})
    failed = {
        "fairfgl-2.Cora, FairFGL, seed 2": "the loss of client 1\nis not a number <nan>",
        "fairfgl-2.Cora, FedAvg, SGD 0.5, seed 0": "it diverged",
        "fairfgl-2.Cora, FedAvg, Adam 0.01, seed 1": "no memory",  # whose run is FedAvg's, too
    }
    markdown, latex, table, page = reproduced.write(planned, reproduced.draw(planned), failed)
    for name, error in failed.items():
        said = f"{name}: {error}".replace("\n", " ")
        escaped = said.replace("<", "&lt;").replace(">", "&gt;")
        assert f"- {escaped}\n" in markdown.read_text()
        assert f"% {said}\n" in latex.read_text()
        assert f"<li>{escaped}</li>" in page.read_text()
    rows = [row for row in csv.DictReader(table.open()) if row["failed"]]
    found = [(row["method"], row["row"], row["seeds"], row["mean"], row["failed"]) for row in rows]
    assert found == [
        ("FedAvg, Adam 0.01", "reference", "1", "", "no memory"),
        ("FedAvg, SGD 0.5", "reference", "0", "", "it diverged"),
        ("FedAvg", "method", "1", "", "no memory"),
        ("FairFGL", "method", "2", "", "the loss of client 1 is not a number <nan>"),
    ]
    assert {(row["paper"], row["table"], row["column"], row["runs"]) for row in rows} == {
        ("FairFGL", "II", "Cora", "full")
    }


def test_where_nothing_failed_no_file_says_so(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES)
    markdown, latex, table, page = reproduced.write(planned, reproduced.draw(planned))
    assert not any("ailed" in path.read_text() for path in (markdown, latex))
    assert "<h2>Failed" not in page.read_text()
    assert {row["failed"] for row in csv.DictReader(table.open())} == {""}


def test_the_best_is_of_the_papers_methods_and_references_ahead_are_named(tmp_path: Path) -> None:
    planned = made(tmp_path, {**SCORES, "FedRidge": [0.84, 0.86, 0.88]})
    accuracy, _ = reproduced.draw(planned)
    drawn = layout(accuracy.grid)
    lines = {line.label: line for line in drawn.lines}
    assert lines["FairFGL"].cells[0].best
    assert not lines["FedRidge"].cells[0].best
    assert any("bold: best mean, references aside." in text for text in drawn.legend)
    assert "References ahead of the best of the paper's methods: FedRidge." in drawn.legend  # 86 against 85
    level, _ = reproduced.draw(made(tmp_path / "level", {**SCORES, "FedRidge": SCORES["FairFGL"]}))
    assert not any("ahead" in text for text in layout(level.grid).legend)


def test_a_quick_look_says_in_all_files_that_its_runs_are_shortened(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES, quick=True)
    tables = reproduced.draw(planned)
    assert tables[0].title == "Shortened runs: FairFGL, table II: accuracy (Metis, 10 clients, 150 rounds)"
    markdown, latex, table, page = (path.read_text() for path in reproduced.write(planned, tables))
    for text in (markdown, latex, page):
        assert "shortened runs: 5 rounds at most" in text
    assert {row["runs"] for row in csv.DictReader(table.splitlines())} == {"shortened"}


def test_parts_of_one_table_have_labels_of_their_own(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES)
    tables = reproduced.draw(planned)
    text = reproduced.write(planned, [*tables, *tables, tables[0]])[1].read_text()
    for label in ("accuracy", "accuracy-2", "accuracy-3", "macro_f1", "macro_f1-2"):
        assert text.count(rf"\label{{tab:fairfgl-ii-{label}}}") == 1


def test_short_in_a_session(tmp_path: Path) -> None:
    planned = made(tmp_path, SCORES)
    found = reproduced.Reproduction(tuple(reproduced.draw(planned)), (), {}, tmp_path)
    assert repr(found) == f"Reproduction({tmp_path}: FairFGL, table II: accuracy; FairFGL, table II: Macro-F1)"
    assert found._repr_html_().count("<table") == 2
