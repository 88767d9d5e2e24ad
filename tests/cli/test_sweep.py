"""`graphsilo sweep`, and the same in Python."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import graphsilo
from cli.conftest import SMALL


def test_a_sweep(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["sweep", "method.mu=0.1,1", "--method", "fedprox", *SMALL, "--rounds", "2", "--seeds", "0,1"]
    code, out, err = call(*asked)
    assert code == 0
    assert "2 of 2: FedProx, mu 1: done" in err
    assert out.splitlines()[0].split()[:4] == ["mu", "Chosen", "Validation", "accuracy"]
    assert "Majority class (accuracy)" in out
    assert "Validation chose mu" in out
    folder = Path("runs/sweep-citation-sbm-random3-fedprox")
    page = (folder / "sweep.html").read_text()
    assert "Majority class" in page
    assert "FedProx by mu on citation-sbm" in page
    made = {path: path.stat().st_mtime_ns for path in folder.glob("points/*/*/result.json")}
    assert len(made) == 2
    # The same command goes on there, another one elsewhere
    assert call(*asked, "-q") == (0, f"{folder}\n", "")
    assert call(*asked, "--set", "method.lr=0.02", "-q")[:2] == (0, f"{folder}-2\n")
    assert {path: path.stat().st_mtime_ns for path in made} == made
    code, _, err = call(*asked, "--set", "method.lr=0.03", "--out", folder)
    assert (code, "holds another sweep: method.lr was 0.01" in " ".join(err.split())) == (2, True)


def test_a_point_that_fails_is_said_and_the_others_are_drawn(call, tmp_path: Path) -> None:
    code, out, err = call(
        "sweep", "method.lr=0.01,1e30", "--method", "fedavg", *SMALL, "--rounds", "2", "--seeds", "0", "--out",
        tmp_path / "out",
    )  # fmt: skip
    assert code == 1
    assert "1 of 2 points failed" in " ".join(err.split())
    assert "One seed: nothing says" in (tmp_path / "out/sweep.html").read_text()
    assert "FedAvg, lr 1e+30" in (tmp_path / "out/sweep.html").read_text()
    assert "0.01" in out


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["method.mu"], "such as method.mu=0.01,0.1,1"),
        (["method.mu=1,2", "a.yaml", "b.yaml"], "one configuration is swept"),
        (["method.mu=1,2", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["partition.clients=2,3", "--clients", "4"], "partition.clients is swept, and is also said to be 4"),
        (["method.mu=1,2", "--method", "fedavg"], "unknown setting 'method.mu' for fedavg"),
        (["method.lr=1,2", "--jobs", "0"], "--jobs takes a number"),
    ],
)
def test_mistakes(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], text: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call("sweep", *asked)
    assert (code, text in " ".join(err.split())) == (2, True), err
    assert not list(tmp_path.iterdir())


def test_in_python_with_a_graph_in_memory(tmp_path: Path) -> None:
    graph = graphsilo.load("citation-sbm", nodes=100, classes=3, features=30)
    found = graphsilo.sweep(
        data=graph, partition="random", rounds=2, seeds=[0], grid={"partition.clients": range(2, 4)},
        methods=["fedavg", "local"], out=tmp_path / "out",
    )  # fmt: skip
    assert [(row.series, row.label) for row in found.rows] == [
        ("FedAvg", "clients 2"), ("FedAvg", "clients 3"), ("Local only", "clients 2"), ("Local only", "clients 3"),
    ]  # fmt: skip
    assert [path.name for path in found.files] == ["sweep.html", "sweep.csv"]
    assert not any(row.chosen for row in found.rows)  # nothing of the method is swept
    assert "<td" in found._repr_html_()
    assert repr(found).startswith("Swept(")
    assert {row["row"] for row in csv.DictReader(found.files[1].open())} >= {"test", "Majority class"}
