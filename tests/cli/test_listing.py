"""`graphsilo listing`."""

from __future__ import annotations

import pytest


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
