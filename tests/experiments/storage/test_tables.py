"""The tables of a run."""

from __future__ import annotations

from graphsilo.experiments.runner import run


def test_rounds_table(small, tmp_path):
    import pyarrow.parquet as pq

    tree = run(small(evaluation__every=2), out=tmp_path / "run").tree
    table = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pydict()
    assert table["round"] == [1, 2, 3]
    expected = [row.get("test", {}).get("accuracy") for row in tree["seeds"][0]["rounds"]]
    assert table["test.accuracy"] == expected
    assert expected[0] is None
