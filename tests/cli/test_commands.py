"""The commands beside ``run``."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from graphsilo.cli import doctor
from graphsilo.data.partition import Partition

DATA = ["--set", "data.nodes=150", "--set", "data.classes=3", "--set", "data.features=40",
        "--set", "data.feature_density=0.1"]  # fmt: skip


def test_lists(call):
    assert "fedprox" in call("list", "methods")[1]
    code, out, _ = call("list", "data")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["citation-sbm", "heterophily-sbm"]
    assert "louvain+plain" in call("list", "partitions")[1]
    out = call("list", "models")[1]
    assert "sage, graphsage" in out
    assert "fedpg" in out
    assert "inductive" in call("list", "scenarios")[1]


@pytest.mark.data
def test_list_data_sees_files(call, data_root):
    out = call("list", "data", "--data-root", data_root)[1]
    assert next(line for line in out.splitlines() if line.startswith("Cora")).endswith("here")


def test_explain_a_method_says_what_every_field_discloses(call):
    code, out, _ = call("explain", "FedProx")
    assert code == 0
    assert 'Li et al. "Federated Optimization in Heterogeneous Networks"' in out
    assert "only sums over clients" in out
    rows = [line.split("  ") for line in out.splitlines()]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["train", "receives", "weights", "model weights"] in rows
    assert ["sends", "weights", "model weights (in a sum times num_samples)"] in rows
    assert any(row[:1] == ["num_samples"] for row in rows)
    assert ["mu", "0.01", "number ≥ 0"] in [row[:3] for row in rows]
    settings = [row[0] for row in rows[rows.index(["setting", "default", "values", "meaning"]) + 1 :]]
    assert settings.index("mu") < settings.index("rounds")  # its own settings first


def test_explain_names_the_papers_model(call):
    assert "sage with model.hidden=64, unless --model names another" in call("explain", "fedsage")[1]
    assert "gamlp (task node); gin (task graph), unless --model names another" in call("explain", "fedpg")[1]


def test_explain_others(call):
    assert "cross-client" in call("explain", "global")[1] or "pooled" in call("explain", "global")[1]
    assert "attention heads" in call("explain", "gat")[1]
    assert "concentration" in call("explain", "dirichlet")[1]
    assert "It has no settings of its own." in call("explain", "random")[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedprox", "number ≥ 0"), ("gcn", "number ≥ 0, < 1"), ("GraphSAGE", "whole number ≥ 1"),
        ("dirichlet", "number > 0"), ("features", "strict, degree"), ("Citation-SBM", "number > 0, ≤ 0.5"),
        ("cora", "whole number ≥ 1 or none"), ("open", "number > 0, < 1"), ("perturb", "number ≥ 0, ≤ 1"),
        ("run", "whole number ≥ 1"), ("policy", "whole number ≥ 1 or none"),
    ],
)  # fmt: skip
def test_explain_shows_the_bounds_of_every_kind(call, name, words):
    assert words in call("explain", name)[1]


def test_partition_stores_and_audits(call, tmp_path):
    path = tmp_path / "p.npz"
    code, out, err = call("partition", *DATA, "--rule", "dirichlet", "--clients", "3", "--seed", "1",
                          "--set", "alpha=0.3", "--out", path)  # fmt: skip
    assert (code, err) == (0, "")
    stored = Partition.load(path)
    assert stored.options["alpha"] == 0.3
    assert stored.num_clients == 3
    rows = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert [int(row[1]) for row in rows] == [len(nodes) for nodes in stored.nodes]
    assert [int(row[3]) for row in rows] == [len(nodes) for nodes in stored.train]
    assert "Every node is held by exactly one client." in out
    assert "No node is trained on at one client and tested at another." in out
    assert "kept (" in out
    again = call("partition", *DATA, "--file", path)[1]
    assert again.splitlines()[2:-1] == out.splitlines()[2:-2]


def test_partition_of_a_scenario_says_what_is_held_out(call):
    out = call("partition", *DATA, "--rule", "random", "--clients", "3", "--scenario", "unseen")[1]
    assert "held out by the scenario" in out


@pytest.mark.data
def test_partition_of_collections(call, data_root):
    code, out, _ = call("partition", "--data", "MUTAG", "--data-root", data_root, "--clients", "3")
    assert code == 0
    assert "Every graph is held by exactly one client." in out


def test_compare(call, finished, tmp_path):
    page = tmp_path / "c.html"
    code, out, _ = call("compare", finished, finished / "references/local", "--report", page)
    assert code == 0
    assert out.splitlines()[0].split("  ")[0] == "Test, %"
    assert "*: best mean" in out
    assert page.exists()
    assert call("compare", finished, "--format", "markdown")[1].startswith("| Method |")
    assert "\\toprule" in call("compare", finished, "-f", "latex")[1]
    rows = list(csv.reader(call("compare", finished, "--format", "csv", "--metric", "accuracy")[1].splitlines()))
    run = next(row for row in rows if row[1] == "run")
    expected = json.loads((finished / "result.json").read_text())["summary"]["test"]["accuracy"]["mean"]
    assert float(run[rows[0].index("accuracy_mean")]) == pytest.approx(expected)
    assert call("compare", finished, "--metric", "accurate")[0] == 2
    assert call("compare", tmp_path)[0] == 1


def test_report(call, finished, tmp_path):
    code, out, _ = call("report", finished, "--out", tmp_path / "page.html")
    assert code == 0
    assert out.strip() == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!")


def test_predict(call, finished, tmp_path):
    code, out, _ = call("predict", "--run", finished, "--client", "1")
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    stored = Partition.load(finished / "partition.npz")
    assert [int(row["node"]) for row in rows] == stored.nodes[1].tolist()
    chances = np.array([[float(row[f"p_{index}"]) for index in range(3)] for row in rows])
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-4)
    assert [int(row["class"]) for row in rows] == chances.argmax(axis=1).tolist()
    wanted = f"{rows[4]['node']},{rows[0]['node']}"
    path = tmp_path / "p.csv"
    code, told, _ = call("predict", "--run", finished, "--client", "1", "--nodes", wanted, "--out", path)
    assert code == 0
    assert told.startswith("2 predictions on client 1's own graph")
    assert list(csv.DictReader(path.read_text().splitlines())) == [rows[4], rows[0]]
    other = next(node for node in range(150) if node not in stored.nodes[1])
    code, _, err = call("predict", "--run", finished, "--client", "1", "--nodes", str(other))
    assert code == 2
    assert f"node {other} is not on client 1's own graph" in err
    assert call("predict", "--run", finished, "--client", "9")[0] == 2
    assert call("predict", "--run", tmp_path, "--client", "0")[0] == 1
    assert call("predict", "--run", finished, "--client", "1", "--nodes", "a")[0] == 2


def test_predict_speaks_of_the_users_ids(call, tmp_path):
    ids = ["q1", "q,2", "007", "q4", "q5", "q6", "q7", "q8", "q9", "q0"]
    (tmp_path / "n.csv").write_text("id,a,y\n" + "".join(f'"{node}",{row},{row % 2}\n' for row, node in enumerate(ids)))
    (tmp_path / "e.csv").write_text("s,t\n" + "".join(f'"{ids[row]}","{ids[row - 1]}"\n' for row in range(10)))
    (tmp_path / "g.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y}\nedges: {path: e.csv, source: s, target: t}\n"
    )
    run = tmp_path / "run"
    assert call("run", "--data", tmp_path / "g.yaml", "--clients", "1", "--rounds", "1", "--out", run)[0] == 0
    ask = ("predict", "--run", run, "--client", "0")
    assert [row["node"] for row in csv.DictReader(call(*ask)[1].splitlines())] == ids
    code, out, _ = call(*ask, "--nodes", "q,2", "--nodes", "q9, 007")
    assert code == 0
    assert [row["node"] for row in csv.DictReader(out.splitlines())] == ["q,2", "q9", "007"]
    code, _, err = call(*ask, "--nodes", "7")
    assert code == 2
    assert "node 7 is not on client 0's own graph, which holds 10 nodes with the ids of their table" in err
    assert call(*ask, "--nodes", " , ")[0] == 2


def test_doctor_runs_a_federation(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHSILO_DATA", raising=False)
    found = {finding.what: finding for finding in doctor.examine()}
    assert found["federation"].status == "ok", found["federation"].told
    assert set(found) == {"python", "packages", "torch", "data", "cache", "disk", "federation"}


def test_doctor_says_what_is_broken(call, tmp_path, monkeypatch):
    def fail():
        raise RuntimeError("no workers")
        yield

    monkeypatch.setattr(doctor, "_federation", fail)
    monkeypatch.setenv("GRAPHSILO_DATA", str(tmp_path / "none"))
    code, out, _ = call("doctor")
    assert code == 1
    assert "RuntimeError: no workers" in out
    assert "GRAPHSILO_DATA names" in out
    assert out.splitlines()[-1].startswith("Broken: ")
    assert "federation" in out.splitlines()[-1]


def test_doctor_and_packages(monkeypatch):
    monkeypatch.setattr(doctor, "requirements", lambda: {"numpy": "1.26", "no-such-package": "", "scipy": "99.0"})
    (finding,) = doctor._packages()
    assert finding.status == "broken"
    assert "missing: no-such-package" in finding.told
    assert "(at least 99.0)" in finding.told
    monkeypatch.setattr(doctor, "requirements", lambda: {"numpy": "1.26"})
    monkeypatch.setattr(doctor, "TESTED", {"numpy": "0.1"})
    (finding,) = doctor._packages()
    assert finding.status == "note"


def test_tested_versions_are_those_of_the_constraints():
    from pathlib import Path

    path = Path(__file__).resolve().parents[2] / "constraints.txt"
    if not path.exists():
        pytest.skip("no constraints.txt")
    pinned = dict(line.split("==") for line in path.read_text().split() if "==" in line)
    pinned = {name.lower(): version.partition("+")[0] for name, version in pinned.items()}
    assert {name: pinned.get(name) for name in doctor.TESTED} == doctor.TESTED
