"""Sheets of Excel."""

from __future__ import annotations

import datetime
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.sources.tables import read_spec, read_tables
from graphsilo.errors import ConfigError, DataError, installing
from kit.columns import column


def sheet(path: Path, rows: list[list[object]], *others: str) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Stays"
    for row in rows:
        book.active.append(row)
    for name in others:
        book.create_sheet(name)
    book.save(path)


def test_sheets_of_excel(tmp_path: Path) -> None:
    """Typed as Excel has them; whole numbers are ids, empty rows are no rows."""
    rows: list[list[object]] = [
        [],
        ["id", "age", "smoker", "seen", "y", "mixed"],
        [1001, 40.5, True, datetime.date(2024, 1, 3), "home", 1],
        [],
        [1002, None, False, datetime.datetime(2024, 1, 1, 12), "stays", "x"],
    ]
    sheet(tmp_path / "n.xlsx", rows, "Links")
    (tmp_path / "e.csv").write_text("a,b\n1001,1002\n")
    text = (
        "nodes: {path: n.xlsx, sheet: Stays, id: id, label: y, features: [age, smoker], dates: {seen: {days_since: "
        "2024-01-01}}}\nedges: {path: e.csv, source: a, target: b}\nfeatures: {missing: mean}\n"
    )
    (tmp_path / "t.yaml").write_text(text)
    found = read_tables(read_spec(tmp_path / "t.yaml"))
    assert found.graph.node_names is not None
    assert found.graph.node_names.tolist() == ["1001", "1002"]
    assert np.asarray(found.graph.features).tolist() == [[40.5, 1, 2], [40.5, 0, 0.5]]
    for old, new, message in (
        ("sheet: Stays, ", "", r"has the sheets 'Stays', 'Links': say which one to read, as nodes\.sheet"),
        ("sheet: Stays", "sheet: stays", r"has no sheet 'stays' \(nodes\.sheet\); it has 'Stays', 'Links'"),
        ("sheet: Stays", "sheet: Links", r"is empty"),
        ("[age, smoker]", "[age, mixed]", r"'mixed' has one value where the feature is not a number: row 2 \(line 5\)"),
        ("[age, smoker]", "[age, seen, smoker]", r"'seen' .*'seen' stands|days_since"),
        ("sheet: Stays, ", 'sheet: Stays, delimiter: ";", ', r"nodes\.delimiter belongs to files of CSV"),
    ):
        (tmp_path / "t.yaml").write_text(
            text.replace(old, new).replace(", dates: {seen: {days_since: 2024-01-01}}" if "seen, " in new else "\0", "")
        )
        with pytest.raises((DataError, ConfigError), match=message):
            read_tables(read_spec(tmp_path / "t.yaml"))


EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tables"


def test_the_export_of_the_documentation() -> None:
    """p03 was born on 27 September 1968: 20,549 days before the end of 2024."""
    found = read_tables(read_spec(EXAMPLES / "export.yaml"))
    names = found.graph.feature_names
    assert names == (
        "lab_crp", "lab_crp:missing", "lab_leu", "ward=icu", "ward=er", "ward=*", "smoker", "born (years)",
        "admitted (days since 2024-01-01)",
    )  # fmt: skip
    days = (datetime.date(2024, 12, 31) - datetime.date(1968, 9, 27)).days
    assert days == 20549
    assert column(found, "born (years)")[3] == pytest.approx(20549 / 365.25)
    assert column(found, "admitted (days since 2024-01-01)")[3] == 33
    assert column(found, "lab_crp:missing")[:5] == [0, 0, 0, 1, 0]
    assert found.empty == {"lab_crp": 10, "lab_leu": 2, "ward": 0, "smoker": 7, "born": 0, "admitted": 1}


def test_files_that_are_no_sheets(tmp_path: Path) -> None:
    text = "nodes: {path: n.xlsx, id: id}\nedges: {path: e.csv, source: a, target: b}\n"
    (tmp_path / "t.yaml").write_text(text)
    (tmp_path / "e.csv").write_text("a,b\n")
    (tmp_path / "n.xlsx").write_text("id,age\n1,2\n")
    with pytest.raises(DataError, match=r"n\.xlsx cannot be read as an Excel file"):
        read_tables(read_spec(tmp_path / "t.yaml"))
    sheet(tmp_path / "n.xlsx", [["id", None], [1, 2]])
    with pytest.raises(DataError, match=r"column B holds values but has no name in the header \(row 1\)"):
        read_tables(read_spec(tmp_path / "t.yaml"))
    (tmp_path / "t.yaml").write_text(text.replace("n.xlsx", "n.xls"))
    (tmp_path / "n.xls").write_text("id")
    with pytest.raises(DataError, match=r"must be a file that ends in \.csv, .*, \.xlsx"):
        read_tables(read_spec(tmp_path / "t.yaml"))


@pytest.mark.parametrize(
    "row",
    [
        '<row r="1048576"><c r="XFD1048576" t="n"><v>1</v></c></row>',
        "<row r='1048576'>" + "<c t='n'><v>1</v></c>" * 60 + "</row>",  # cells that do not say where they are
        "<row>" + "<c/>" * 6_000 + "</row>" + "<row><c/></row>" * 10_000,  # nor rows
    ],
)
def test_a_cell_far_out_takes_no_memory(tmp_path: Path, row: str) -> None:
    sheet(tmp_path / "whole.xlsx", [["id", "y"], *([number, "a"] for number in range(5))])
    with zipfile.ZipFile(tmp_path / "whole.xlsx") as whole, zipfile.ZipFile(tmp_path / "n.xlsx", "w") as far:
        for name in whole.namelist():
            text = whole.read(name)
            far.writestr(name, text.replace(b"</sheetData>", row.encode() + b"</sheetData>"))
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    text = "nodes: {path: n.xlsx, id: id, label: y}\nedges: {path: e.csv, source: a, target: b}\n"
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(DataError, match=r"reaches to row [0-9]+ and column .* cells, where 50,000,000 are read"):
        read_tables(read_spec(tmp_path / "t.yaml"))


def test_excel_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.xlsx").write_bytes(b"PK")
    (tmp_path / "e.csv").write_text("a,b\n")
    (tmp_path / "t.yaml").write_text("nodes: {path: n.xlsx, id: id}\nedges: {path: e.csv, source: a, target: b}\n")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(DataError, match=rf"python-calamine; it is not installed\. {re.escape(installing('excel'))}"):
        read_tables(read_spec(tmp_path / "t.yaml"))
