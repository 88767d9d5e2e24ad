"""`graphsilo predict`."""

from __future__ import annotations

import csv

import numpy as np

from graphsilo.data.partition import Partition


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
    assert call("predict", "--run", tmp_path, "--client", "0")[0] == 2
    assert call("predict", "--run", finished, "--client", "1", "--nodes", "a")[0] == 2


def test_predict_speaks_of_the_users_ids(call, tmp_path):
    ids = ["q1", "q,2", "007", "=1+1", "@q5", "-6", "q7", "q8", "q9", "q0"]
    (tmp_path / "n.csv").write_text("id,a,y\n" + "".join(f'"{node}",{row},{row % 2}\n' for row, node in enumerate(ids)))
    (tmp_path / "e.csv").write_text("s,t\n" + "".join(f'"{ids[row]}","{ids[row - 1]}"\n' for row in range(10)))
    (tmp_path / "g.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y}\nedges: {path: e.csv, source: s, target: t}\n"
    )
    run = tmp_path / "run"
    assert call("run", "--data", tmp_path / "g.yaml", "--clients", "1", "--rounds", "1", "--out", run)[0] == 0
    ask = ("predict", "--run", run, "--client", "0")
    shown = [*ids[:3], "'=1+1", "'@q5", *ids[5:]]  # what a spreadsheet would compute
    assert [row["node"] for row in csv.DictReader(call(*ask)[1].splitlines())] == shown
    code, out, _ = call(*ask, "--nodes", "q,2", "--nodes", "q9, 007")
    assert code == 0
    assert [row["node"] for row in csv.DictReader(out.splitlines())] == ["q,2", "q9", "007"]
    code, _, err = call(*ask, "--nodes", "7")
    assert code == 2
    assert "node 7 is not on client 0's own graph, which holds 10 nodes with the ids of their table" in err
    assert call(*ask, "--nodes", " , ")[0] == 2
