"""What deserves a look in tables that can be read."""

from __future__ import annotations

from pathlib import Path

from graphsilo.data.sources.remarks import remarks
from graphsilo.data.sources.tables import read_spec, read_tables


def test_dates_far_outside_the_others_are_told(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,y,week\n" + "".join(f"{row},{row % 2},{row}\n" for row in range(99)))
    links = "".join(f"{row},{row + 1},2025-03-{row % 28 + 1:02d}\n" for row in range(98))
    (tmp_path / "e.csv").write_text(f"a,b,day\n{links}3,4,1970-01-01\n")
    (tmp_path / "t.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y, time: {column: week, steps: true}}\n"
        "edges: {path: e.csv, source: a, target: b, time: day}\n"
    )
    spec = read_spec(tmp_path / "t.yaml")
    said = [text for where, text in remarks(read_tables(spec), spec) if where == "link"]
    assert said == [
        "one row is dated long before nearly all others (2025-03-01 to 2025-03-28), up to 1970-01-01: a slip, or a "
        "word for an unknown date? List such words under `empty` of the table"
    ]


def test_nodes_without_a_time_are_told(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,y,day\na,0,2025-01-01\nb,1,\nc,,\n")
    (tmp_path / "t.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y, time: day}\nedges: {path: e.csv, source: a, target: b}\n"
    )
    (tmp_path / "e.csv").write_text("a,b\na,b\n")
    spec = read_spec(tmp_path / "t.yaml")
    (said,) = [text for where, text in remarks(read_tables(spec), spec) if where == "dates"]
    assert said.startswith("2 of 3 nodes have no time: they count as looked at on the last date")
