"""`graphsilo partition`."""

from __future__ import annotations

import pytest

from graphsilo.data.partition import Partition

DATA = ["--set", "data.nodes=150", "--set", "data.classes=3", "--set", "data.features=40",
        "--set", "data.feature_density=0.1"]  # fmt: skip


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
    assert "held out by the scenario, which after these counts also takes each client's missing classes" in out


@pytest.mark.slow
@pytest.mark.data
def test_partition_of_collections(call, data_root):
    code, out, _ = call("partition", "--data", "MUTAG", "--data-root", data_root, "--clients", "3")
    assert code == 0
    assert "Every graph is held by exactly one client." in out
