"""Columns as hospitals have them: empty cells, dates, truth values, words, sheets of Excel."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.sources.columns import Learned
from graphsilo.data.sources.missing import Missing
from graphsilo.data.sources.tables import Reading, read_spec, read_tables
from graphsilo.errors import ConfigError, DataError

ROWS = """id,age,crp,ward,smoker,seen,y,part
a,40,1,icu,yes,2024-01-01,home,train
b,,2,er,no,2024-01-03,home,train
c,60,NA,,Yes,,stays,train
d,80,6,er,,2024-02-01,stays,val
e,1000,9,er,no,2024-01-02,home,test
"""


def read(
    folder: Path,
    nodes: str = "features: [age]",
    *,
    table: str = ROWS,
    links: str = "a,b\na,b\nb,c\n",
    top: str = "",
    learned: Learned | None = None,
) -> Reading:
    """A table of five patients, described by what stands under ``nodes`` and beside it."""
    (folder / "n.csv").write_text(table)
    (folder / "e.csv").write_text(links)
    (folder / "t.yaml").write_text(
        f"nodes: {{path: n.csv, id: id, label: y, split: part, {nodes}}}\n"
        f"edges: {{path: e.csv, source: a, target: b}}\n{top}\n"
    )
    return read_tables(read_spec(folder / "t.yaml"), learned=learned)


SINCE = "seen (days since 2024-01-01)"


def column(found: Reading, name: str) -> list[float]:
    assert found.graph.feature_names is not None
    return np.asarray(found.graph.features)[:, found.graph.feature_names.index(name)].tolist()


@pytest.mark.parametrize(
    ("rule", "filled"),
    [("mean", 60.0), ("median", 60.0), ("{age: 33}", 33.0), ('{"a*": median, "*": refuse}', 60.0)],
)
def test_an_empty_cell_is_filled(tmp_path: Path, rule: str, filled: float) -> None:
    """Of 40, 60, 80 the mean and the median are 60; the 1000 belongs to a test node and does not count."""
    found = read(tmp_path, top=f"features: {{missing: {rule}}}")
    assert column(found, "age") == [40, filled, 60, 80, 1000]
    assert found.graph.fills == {"age": filled}
    assert found.empty == {"age": 1}


def test_an_indicator_is_a_column_of_its_own(tmp_path: Path) -> None:
    """Also where no cell is empty: every silo has the column. (1 + 2 + 6) / 3 = 3 stands for crp."""
    found = read(tmp_path, "features: [age, crp]", top="features: {missing: {crp: indicator, age: indicator}}")
    assert found.graph.feature_names == ("age", "age:missing", "crp", "crp:missing")
    assert column(found, "crp") == [1, 2, 3, 6, 9]
    assert column(found, "crp:missing") == [0, 0, 1, 0, 0]
    full = read(tmp_path, table=ROWS.replace("b,,", "b,50,"), top="features: {missing: indicator}")
    assert full.graph.feature_names == ("age", "age:missing")
    assert column(full, "age:missing") == [0, 0, 0, 0, 0]


def test_words_are_filled_with_the_most_frequent_one(tmp_path: Path) -> None:
    """Of the rows that count, er stands twice and icu once."""
    ward = "features: [], one_hot: {ward: [icu, er]}"
    found = read(tmp_path, ward, top="features: {missing: median}")
    assert [column(found, "ward=icu"), column(found, "ward=er")] == [[1, 0, 0, 0, 0], [0, 1, 1, 1, 1]]
    found = read(tmp_path, ward, top="features: {missing: indicator}")
    assert found.graph.feature_names == ("ward=icu", "ward=er", "ward:missing")
    assert np.asarray(found.graph.features)[2].tolist() == [0, 0, 1]
    with pytest.raises(ConfigError, match=r"holds words, and features\.missing fills it with the number 3"):
        read(tmp_path, ward, top="features: {missing: {ward: 3}}")


def test_later_rows_are_filled_as_the_model_learned(tmp_path: Path) -> None:
    top = "features: {missing: {age: mean, ward: indicator}}"
    ward = "features: [age], one_hot: [ward]"
    first = read(tmp_path, ward, top=top)
    assert first.graph.feature_names == ("age", "ward=er", "ward=icu", "ward:missing")
    later = "id,age,ward,y,part\nz,,er,home,train\na,10,,home,train\nb,1,er,,\nc,1,er,,\n"
    learned = Learned(first.graph.feature_names, first.graph.fills)
    second = read(tmp_path, ward, table=later, top=top, learned=learned)
    assert second.graph.feature_names == first.graph.feature_names
    assert np.asarray(second.graph.features)[:2].tolist() == [[60, 1, 0, 0], [10, 0, 0, 1]]
    with pytest.raises(DataError, match="'age' has 1 empty cells, and the model knows nothing to fill them with"):
        read(tmp_path, ward, table=later, top=top, learned=Learned(first.graph.feature_names, {}))
    strange = later.replace("b,1,er", "b,1,ward9")
    with pytest.raises(DataError, match=r"not among nodes\.one_hot\.ward \(er, icu\): row 3 \(line 4\): 'ward9'"):
        read(tmp_path, ward, table=strange, top=top, learned=learned)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        ("avg", ConfigError, r"features\.missing must be one of refuse, mean, median, indicator or .*got 'avg'"),
        ("{age: medain}", ConfigError, r"features\.missing\.age must be .* or a number.*Did you mean 'median'"),
        ("7", ConfigError, r"must be a number column by column, as in \{age: 60\}.*; got 7"),
        ("{agee: mean}", DataError, r"'agee' is no column of features; did you mean 'age'"),
        ('{"lab_*": mean}', DataError, r"'lab_\*' is no column of features"),
        ("refuse", DataError, r"'age' has one value where the feature is missing: row 2 \(line 3\)\. .*missing: mean"),
        ("{age: true}", ConfigError, r"must be one of"),
    ],
)
def test_rules_that_are_none(tmp_path: Path, rule: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path, top=f"features: {{missing: {rule}}}")


@pytest.mark.parametrize("rule", ["mean", "median", "indicator"])
def test_nothing_to_go_by(tmp_path: Path, rule: str) -> None:
    table = "id,age,y,part\na,,home,train\nb,NaN,home,\nc,5,home,test\n"
    with pytest.raises(DataError, match=r"'age' is empty in every row that counts.*\{COLUMN: 1\.5\}"):
        read(tmp_path, table=table, top=f"features: {{missing: {rule}}}")
    assert column(read(tmp_path, table=table, top="features: {missing: {age: 1.5}}"), "age") == [1.5, 1.5, 5]


def test_the_most_particular_rule_holds() -> None:
    rules = Missing.said({"*": "mean", "lab_*": "median", "lab_x*": "indicator", "lab_x1": 3.0})
    assert [rules.of(name) for name in ("age", "lab_a", "lab_x2", "lab_x1")] == ["mean", "median", "indicator", 3.0]
    assert Missing.said({"age": "mean"}).of("other") == "refuse"


def test_truth_values(tmp_path: Path) -> None:
    found = read(tmp_path, "features: [], boolean: [smoker]", top="features: {missing: mean}")
    assert column(found, "smoker") == pytest.approx([1, 0, 1, 2 / 3, 0])
    german = ROWS.replace("yes", "ja").replace("Yes", "ja").replace(",no,", ",nein,")
    found = read(tmp_path, "features: [], boolean: {smoker: [nein, ja]}", table=german, top="features: {missing: mean}")
    assert column(found, "smoker") == pytest.approx([1, 0, 1, 2 / 3, 0])
    with pytest.raises(DataError, match=r"none of true, false, yes, no, 1, 0 .*'ja'.*the words of 0 and 1"):
        read(tmp_path, "features: [], boolean: [smoker]", table=german, top="features: {missing: mean}")
    with pytest.raises(ConfigError, match=r"nodes\.boolean\.smoker must be the words of 0 and 1"):
        read(tmp_path, "boolean: {smoker: [nein, ja, weiss]}")
    with pytest.raises(DataError, match=r"words such as 'yes', not numbers\. Add it to boolean"):
        read(tmp_path, "features: [smoker]")


def test_dates_become_days_or_ages(tmp_path: Path) -> None:
    """2024-01-01 is 31 days before 1 February; to 2025-01-01 it is 366 days, 1.002 years of 365.25."""
    fill = "features: {missing: {seen: 5}}"
    since = read(tmp_path, "features: [], dates: {seen: {days_since: 2024-01-01}}", top=fill)
    assert column(since, SINCE) == [0, 2, 5, 31, 1]
    ages = read(tmp_path, "features: [], dates: {seen: {years_at: 2025-01-01}}", top=fill)
    assert column(ages, "seen (years)")[0] == pytest.approx(366 / 365.25)
    clock = ROWS.replace("2024-01-03", "2024-01-03 12:00").replace("2024-01-02", "2024-01-02T06:00:00Z")
    found = read(tmp_path, "features: [], dates: {seen: {days_since: 2024-01-01}}", table=clock, top=fill)
    assert column(found, SINCE) == [0, 2.5, 5, 31, 1.25]


@pytest.mark.parametrize(
    ("order", "text", "day"),
    [
        ("", "2024/3/5", 64), ("", "2024.03.05", 64),
        (", order: day-first", "05/03/2024", 64), (", order: day-first", "5.3.2024", 64),
        (", order: month-first", "03/05/2024", 64),
    ],
)  # fmt: skip
def test_orders_of_dates(tmp_path: Path, order: str, text: str, day: int) -> None:
    """5 March 2024 is day 31 + 29 + 4 of the year, counted from 0."""
    table = f"id,seen,y,part\na,{text},home,\nb,{text},home,\nc,{text},home,\n"
    found = read(tmp_path, f"features: [], dates: {{seen: {{days_since: 2024-01-01{order}}}}}", table=table)
    assert column(found, SINCE) == [day] * 3


@pytest.mark.parametrize(
    ("order", "text", "message"),
    [
        ("", "05/03/2024", r"not written with the year first: row 1 \(line 2\): '05/03/2024'.*5 March or 3 May"),
        ("", "2024-02-30", "there is no such date: row 1 .*'2024-02-30'"),
        ("", "2024-03-05 25:00", "there is no such date"),
        ("", "05.03.24", "not written with the year first"),
        (", order: day-first", "03/25/2024", "there is no such date"),
        (", order: day-first", "2024-03-05", "not written with the day first"),
        ("", "soon", "not written with the year first"),
    ],
)
def test_dates_that_are_none(tmp_path: Path, order: str, text: str, message: str) -> None:
    table = f"id,seen,y,part\na,{text},home,\nb,,home,\nc,,home,\n"
    with pytest.raises(DataError, match=message):
        read(
            tmp_path, f"features: [], dates: {{seen: {{days_since: 2024-01-01{order}}}}}", table=table,
            top="features: {missing: {seen: 1}}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("dates: [seen]", r"nodes\.dates must be a table"),
        ("dates: {seen: {}}", r"must be a table with one of days_since .* and years_at "),
        (
            "dates: {seen: {days_since: 2024-01-01, years_at: 2024-01-01}}",
            "must be a table with one of days_since .* and years_at ",
        ),
        ("dates: {seen: {days_since: tomorrow}}", r"nodes\.dates\.seen\.days_since must be a day such as"),
        ("dates: {seen: {days_since: 2024-01-01, order: ymd}}", r"order must be one of year-first"),
        ("dates: {ward: {days_since: 2024-01-01}}, one_hot: [ward]", "'ward' stands under two of"),
        ("boolean: [y]", "'y' is the label column and cannot be a feature"),
        ('decimal: ";"', r"nodes\.decimal must be"),
        ("sheet: A", r"nodes\.sheet belongs to an Excel file, and n\.csv is none"),
    ],
)
def test_mistakes_in_the_description(tmp_path: Path, nodes: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, nodes if "features" in nodes else f"features: [], {nodes}")


def test_a_column_of_dates_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"words such as '2024-01-01', not numbers\. If they are dates, .*days_since"):
        read(tmp_path, "features: [seen]", top="features: {missing: mean}")


def test_decimal_commas_only_where_they_are_declared(tmp_path: Path) -> None:
    table = 'id;age;y;part\na;"40,5";home;\nb;1;home;\nc;-0,25;home;\n'
    assert column(read(tmp_path, 'features: [age], delimiter: ";", decimal: ","', table=table), "age") == [
        40.5,
        1,
        -0.25,
    ]
    with pytest.raises(DataError, match=r"a decimal comma: row 1 .*'40,5'.*nodes\.decimal: \",\""):
        read(tmp_path, 'features: [age], delimiter: ";"', table=table)
    with pytest.raises(DataError, match=r"a decimal point: row 2 \(line 3\): '1\.5'"):
        read(tmp_path, 'features: [age], delimiter: ";", decimal: ","', table=table.replace("b;1", "b;1.5"))


def test_words_that_mean_an_empty_cell(tmp_path: Path) -> None:
    table = "id,age,ward,y,part\na,-99,icu,home,\nb,10,?,home,\nc,30,icu,home,\n"
    found = read(
        tmp_path, 'features: [age], one_hot: {ward: [icu, er]}, empty: ["-99", "?"]', table=table,
        top="features: {missing: mean}",
    )  # fmt: skip
    assert column(found, "age") == [20, 10, 30]
    assert column(found, "ward=icu") == [1, 1, 1]


def test_any_other_word(tmp_path: Path) -> None:
    found = read(
        tmp_path, 'features: [], one_hot: {ward: [icu, "*"]}', table=ROWS.replace("c,60,NA,,", "c,60,NA,new,"),
    )  # fmt: skip
    assert found.graph.feature_names == ("ward=icu", "ward=*")
    assert column(found, "ward=*") == [0, 1, 1, 1, 1]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """Eight of them, in two tables; one line each."""
    table = (
        ROWS.replace("a,40,1", "a,forty,1").replace("b,,2,er", "b,1,2,ambulance").replace("d,80", "a,inf")
        .replace("home,test", "Home,tset")
    )  # fmt: skip
    with pytest.raises(DataError) as caught:
        read(
            tmp_path, "features: [age, hight], one_hot: {ward: [icu, er]}", table=table, links="a,b\na,zz\n",
            top="classes: [home, stays]\nfeatures: {missing: {ward: median}}",
        )  # fmt: skip
    (head, *lines) = str(caught.value).split("\n")
    assert head == f"{tmp_path / 't.yaml'}: 8 faults are to be mended."
    for line, words in zip(
        lines,
        (
            "'id' has one value where the id occurred before: row 4 (line 5): 'a'",
            "the split is none of train, val, test: row 5 (line 6): 'tset'. Did you mean 'test' where it says 'tset'?",
            "has no column 'hight' (nodes.features)",
            "'age' has one value where the feature is not a number: row 1 (line 2): 'forty'",
            "'age' has one value where the feature is infinite",
            "'ward' has one value where the word is not among nodes.one_hot.ward (icu, er): row 2 (line 3): 'ambul",
            "Did you mean 'home' where it says 'Home'? Otherwise add it to 'classes'",
            "unknown node: row 1 (line 2)",
        ),
        strict=True,
    ):
        assert words in line


@pytest.mark.parametrize(
    ("old", "new", "top", "message"),
    [
        ("id,age", "id,=age", "", r"the name '=age' of a feature begins with '='"),
        ("home,train", "=1+1,train", "", r"names the class '=1\+1', which begins with '='"),
        ("a,40", '"a\n1",40', "", r"the id holds a line break or another unseen character: row 1"),
        ("", "", 'name: "a\\nb"', r"name is 'a\\nb', which holds the unseen character U\+000A"),
        ("", "", 'classes: [home, "st\\eays"]', r"holds the unseen character U\+001B"),
    ],
)
def test_names_that_could_pass_for_something_else(tmp_path: Path, old: str, new: str, top: str, message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        read(tmp_path, 'features: ["*"]' if "=age" in new else "features: []", table=ROWS.replace(old, new), top=top)


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
        ("sheet: Stays, ", 'sheet: Stays, delimiter: ";", ', r"nodes\.delimiter belongs to a CSV"),
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
    with pytest.raises(DataError, match=r"must be a \.csv, \.tsv \(both also with \.gz\), \.parquet or \.xlsx file"):
        read_tables(read_spec(tmp_path / "t.yaml"))


def test_excel_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.xlsx").write_bytes(b"PK")
    (tmp_path / "e.csv").write_text("a,b\n")
    (tmp_path / "t.yaml").write_text("nodes: {path: n.xlsx, id: id}\nedges: {path: e.csv, source: a, target: b}\n")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(DataError, match=r"python-calamine; it is not installed\. .*graphsilo\[excel\]"):
        read_tables(read_spec(tmp_path / "t.yaml"))
