"""Dates of tables that can hardly be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert [*read_tables(spec).graph.notes] == [  # and nothing of weeks from 0 on
        "'link': one row is dated long before nearly all others (2025-03-01 to 2025-03-28), up to 1970-01-01: "
        "a slip, or a word for an unknown date? List such words under `empty` of the table"
    ]


@pytest.mark.parametrize("how", ["days_since: 2020-01-01", "years_at: 2025-01-01"])
def test_a_placeholder_in_a_column_of_dates_is_told(how: str, tmp_path: Path) -> None:
    """Of people born from 1930 on, three on a day that stands for an unknown one."""
    days = [f"19{30 + row % 69}-03-{row % 28 + 1:02d}" for row in range(297)] + 3 * ["1900-01-01"]
    rows = "".join(f"{row},{row % 2},{day}\n" for row, day in enumerate(days))
    (tmp_path / "n.csv").write_text(f"id,y,born\n{rows}")
    (tmp_path / "e.csv").write_text("a,b,opened\n" + "".join(f"{row},{row + 1},2025-01-02\n" for row in range(99)))
    (tmp_path / "t.yaml").write_text(
        f"nodes: {{path: n.csv, id: id, label: y, dates: {{born: {{{how}}}}}}}\n"
        f"edges: {{path: e.csv, source: a, target: b, dates: {{opened: {{{how}}}}}}}\n"
    )
    spec = read_spec(tmp_path / "t.yaml")
    (said,) = [text for text in read_tables(spec).graph.notes if "dated long" in text]
    assert said.startswith("'born (")
    assert "3 rows are dated long before nearly all others (193" in said
    assert "up to 1900-01-01: a slip, or a word for an unknown date?" in said


@pytest.mark.parametrize(("steps", "later"), [("false", True), ("true", False)])
def test_dates_that_are_not_yet_are_told(steps: str, later: bool, tmp_path: Path) -> None:
    """All of a year that lies ahead, so that none is far from the others; of steps none is a date."""
    days = [f"2091{row % 12 + 1:02d}{row % 28 + 1:02d}" for row in range(50)]
    (tmp_path / "n.csv").write_text("id,y,day\n" + "".join(f"{row},{row % 2},{day}\n" for row, day in enumerate(days)))
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t.yaml").write_text(
        f"nodes: {{path: n.csv, id: id, label: y, time: {{column: day, steps: {steps}}}}}\n"
        "edges: {path: e.csv, source: a, target: b}\n"
    )
    said = [text for text in read_tables(read_spec(tmp_path / "t.yaml")).graph.notes if "today" in text]
    warning = "'nodes': 50 rows are dated later than today, up to 2091-12-24: is the year right?"
    assert said == ([warning] if later else [])
