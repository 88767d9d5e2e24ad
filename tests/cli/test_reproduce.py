"""`graphsilo reproduce`."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import graphsilo
from graphsilo.cli.reproduce import estimate, list_missing
from graphsilo.experiments.reproduce import runs
from graphsilo.experiments.reproduce.description import find_tables
from graphsilo.report import reproduced
from report.test_grid import check_latex


def test_all_tables_are_listed(call) -> None:
    code, out, _ = call("reproduce")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("FairFGL   II "))
    assert "Metis, 10 clients, 150 rounds" in row
    [table] = find_tables("FairFGL", "II")
    methods = {line.label for line in table.rows[0].lines if line.paper and line.is_default}
    minutes = sum(each.minutes or 0.0 for each in table.rows)
    assert len(methods) >= 7
    assert minutes >= 31.8  # 4.6 + 7.9 + 9.3 + 5.7 + 4.3, of the first five data sets
    assert row.replace(">", " ").split()[-2:] == [str(len(methods)), f"{minutes:.0f}"]


def test_what_a_table_takes_is_said_before_it_runs() -> None:
    cora = [row.minutes for row in find_tables("FairFGL", "II")[0].rows if row.data == "Cora"]
    said = estimate(runs.plan("FairFGL", "II", data=["Cora"]))
    assert said == f" With all methods and seeds about {sum(cora):.0f} minutes of one core."
    assert "more than about" in estimate(runs.plan("FairFGL", "II"))  # nobody measured some of its data sets
    assert not estimate(runs.plan("FairFGL", "II", quick=True))


def test_what_is_left_out_is_said_in_a_few_lines(capsys) -> None:
    list_missing("fedpg", "v")
    assert capsys.readouterr().out.splitlines() == [
        "Table V, not run: ogbn-papers100M (no such data set here).",
        "Large graphs, not run unless --data names them: ogbn-arxiv, ogbn-products, Flickr, Reddit.",
    ]


def test_all_figures_are_listed(call) -> None:
    lines = call("reproduce")[1].splitlines()
    assert next(line for line in lines if line.startswith("FairFGL   fig5")).split()[1:] == [
        "fig5", "Convergence", "Cora,", "Minesweeper,", "PubMed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["fairfg"], "did you mean 'FairFGL'"),
        (["fairfgl", "V"], "those that can be run are II, III"),
        (["fairfgl", "fig3"], "those that can be drawn are 2, 4, 5"),
        (["fairfgl", "fig4", "--data", "Coraa"], "did you mean 'Cora'"),
        (["fairfgl", "--data", "Coraa"], "did you mean 'Cora'"),
        (["fairfgl", "--clients", "3"], "take 10"),
        (["fairfgl", "--jobs", "2", "--executor", "processes:2"], "give one of them"),
        (["fairfgl", "--executor", "process:2"], "did you mean 'processes'"),
        (["fairfgl", "--seeds", "x"], "--seeds takes whole numbers"),
    ],
)
def test_mistakes(call, tmp_path, asked, said) -> None:
    code, _, err = call("reproduce", *asked, "--out", tmp_path / "out")
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert said in err


def test_data_that_is_missing_is_one_paragraph(call, tmp_path) -> None:
    arguments = ["--quick", "--methods", "FedAvg", "--data-root", tmp_path / "nowhere", "--out", tmp_path / "out"]
    code, out, err = call("reproduce", "fairfgl", "II", *arguments)
    assert code == 2
    assert out == ""
    assert "nowhere" in err
    assert "1 of 5" not in err  # said once, and not by run after run
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flags", "status"), [([], 1), (["--quick"], 0)], ids=str)
def test_runs_that_fail_are_said_and_a_quick_look_goes_on(call, tmp_path, monkeypatch, flags, status) -> None:
    failed = {"fedpg-8.PROTEINS.dir0.3, FedDC, seed 0": "the training diverged"}
    monkeypatch.setattr(reproduced, "reproduce", lambda *_, **__: reproduced.Reproduction((), (), failed, tmp_path))
    code, _, err = call("reproduce", "fedpg", "VIII", *flags, "--out", tmp_path / "out")
    assert code == status
    assert "1 run failed" in " ".join(err.split())
    assert "FedDC, seed 0: the training diverged" in " ".join(err.split())


@pytest.mark.data
@pytest.mark.slow
def test_a_quick_look_at_a_table(call, tmp_path, data_root) -> None:
    folder = tmp_path / "out"
    arguments = ["--quick", "--methods", "FedProx,Moon", "--out", folder, "--data-root", data_root]
    code, out, err = call("reproduce", "fairfgl", "II", *arguments)
    assert code == 0
    assert "7 of 7: " in err
    assert "Shortened runs: FairFGL, table II: accuracy (Metis, 10 clients, 150 rounds)" in out
    assert "Its numbers are no reproduction." in out
    rows = list(csv.DictReader((folder / "reproduce-II-quick.csv").open()))
    of_fedprox = next(row for row in rows if row["method"] == "FedProx" and row["metric"] == "accuracy")
    assert (of_fedprox["column"], of_fedprox["published"], of_fedprox["row"]) == ("Cora", "0.8119", "method")
    result = json.loads((folder / "quick/fairfgl-2.Cora/fedprox/0/result.json").read_text())
    assert float(of_fedprox["mean"]) == result["seeds"][0]["test"]["accuracy"]
    assert {row["method"] for row in rows if row["row"] == "reference"} >= {"local only", "FedRidge"}
    for table in (folder / "reproduce-II-quick.tex").read_text().split("% needs")[1:]:
        check_latex(table)
    assert ">local only<" in (folder / "reproduce-II-quick.html").read_text()
    # In Python the same; nothing is run again
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    again = graphsilo.reproduce(
        "FairFGL", "II", quick=True, methods=["FedProx", "Moon"], out=folder, data_root=data_root
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")} == before
    assert [table.number for table in again.tables] == ["II", "II"]
    assert list(csv.DictReader((folder / "reproduce-II-quick.csv").open())) == rows


@pytest.mark.data
@pytest.mark.slow
def test_a_quick_look_at_a_figure(call, tmp_path, data_root) -> None:
    asked = ["fairfgl", "fig2", "--quick", "--methods", "FairFGL", "--out", tmp_path, "--data-root", data_root]
    code, out, _ = call("reproduce", *asked)
    assert code == 0
    folder = tmp_path / "figures/quick/2"
    assert str(folder / "figure-2.html") in out
    page = (folder / "figure-2.html").read_text()
    assert "FairFGL, figure 2: Labels of each client" in page
    assert 'id="label-map"' in page
    again = graphsilo.reproduce(
        "FairFGL", "fig2", quick=True, methods="FairFGL", out=tmp_path, data_root=data_root, executor=None
    )
    assert [row.series for row in again.rows] == ["FairFGL"]
    with pytest.raises(graphsilo.GraphsiloError, match="name one of fig5a, fig5b"):
        graphsilo.reproduce("FedPG", "fig5")


@pytest.mark.data
@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(tmp_path, data_root) -> None:
    def command(folder: Path) -> list[str]:
        asked = ["fairfgl", "II", "--quick", "--methods", "FedProx,Moon", "--data-root", str(data_root)]
        return [sys.executable, "-m", "graphsilo", "reproduce", *asked, "--out", str(folder)]

    killed, whole = tmp_path / "killed", tmp_path / "whole"
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen(command(killed), start_new_session=True, **silent)
    while len(list(killed.rglob("result.json"))) < 2 and first.poll() is None:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    done = {path: path.stat().st_mtime_ns for path in killed.rglob("result.json")}
    assert 2 <= len(done) < 7
    for folder in (killed, whole):
        subprocess.run(command(folder), check=True, **silent)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert (killed / "reproduce-II-quick.csv").read_text() == (whole / "reproduce-II-quick.csv").read_text()
