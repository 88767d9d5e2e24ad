"""What deserves a look in tables that can be read."""

from __future__ import annotations

from pathlib import Path

from graphsilo.data.sources.remarks import remarks
from graphsilo.data.sources.tables import read_spec, read_tables


def test_nodes_without_a_time_are_told(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,y,day\na,0,2025-01-01\nb,1,\nc,,\n")
    (tmp_path / "t.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y, time: day}\nedges: {path: e.csv, source: a, target: b}\n"
    )
    (tmp_path / "e.csv").write_text("a,b\na,b\n")
    spec = read_spec(tmp_path / "t.yaml")
    (said,) = [text for where, text in remarks(read_tables(spec), spec) if where == "dates"]
    assert said.startswith("2 of 3 nodes have no time: they count as looked at on the last date")
