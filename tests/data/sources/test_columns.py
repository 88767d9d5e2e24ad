"""Columns as hospitals have them: empty cells, dates, truth values, words, sheets of Excel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphsilo.data.sources.tables import read_spec, read_tables
from graphsilo.errors import ConfigError, DataError
from kit.columns import ROWS, column, read

SINCE = "seen (days since 2024-01-01)"


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


@pytest.mark.parametrize("order", ["", ", order: day-first"])
def test_dates_of_digits_alone_are_year_first(tmp_path: Path, order: str) -> None:
    """5 March 2024 is day 64, a quarter of a day at 6 o'clock; as text and as whole numbers."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    nodes = f"features: [], dates: {{seen: {{days_since: 2024-01-01{order}}}}}"
    table = "id,seen,y,part\na,20240305,home,\nb,202403050600,home,\nc,20240305120000,home,\n"
    assert column(read(tmp_path, nodes, table=table), SINCE) == [64, 64.25, 64.5]
    whole = pa.table({"id": ["a", "b", "c"], "seen": [20240305, 202403050600, 20240305120000], "y": ["home"] * 3})
    parquet.write_table(whole, tmp_path / "n.parquet")
    said = (tmp_path / "t.yaml").read_text().replace("n.csv", "n.parquet").replace(" split: part,", "")
    (tmp_path / "t.yaml").write_text(said)
    assert column(read_tables(read_spec(tmp_path / "t.yaml")), SINCE) == [64, 64.25, 64.5]
    with pytest.raises(DataError, match=r"there is no such date: row 1 .*'05032024'"):
        read(tmp_path, nodes, table=table.replace("20240305,", "05032024,"))


@pytest.mark.parametrize(
    ("order", "text", "message"),
    [
        ("", "05/03/2024", r"year first and its parts apart: row 1 \(line 2\): '05/03/2024'.*5 March or 3 May"),
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
        ("sheet: A", r"nodes\.sheet belongs to files of Excel, and n\.csv is none"),
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


@pytest.mark.parametrize(("sign", "decimal"), [(".", ","), (",", "."), (" ", ","), ("'", ".")])
def test_thousands_are_set_apart_where_it_is_said_how(tmp_path: Path, sign: str, decimal: str) -> None:
    cells = ["1.805,3", "-12.345.678,25", "7", "1.805"]
    cells = [cell.translate(str.maketrans({".": sign, ",": decimal})) for cell in cells]
    table = "id;age;y;part\n" + "".join(f"{name};{cell};home;\n" for name, cell in zip("abcd", cells, strict=True))
    start = 'features: [age], delimiter: ";"'
    found = read(tmp_path, f'{start}, thousands: "{sign}", decimal: "{decimal}"', table=table)
    assert column(found, "age") == [1805.3, -12345678.25, 7, 1805]
    message = rf"""sign between thousands: row 1 .*nodes\.thousands: "\{sign}" and nodes\.decimal: "\{decimal}\""""
    for other in ".,":
        for some in (table, table.replace("7", "800.000.000")):  # in the second no cell is a number as it stands
            with pytest.raises(DataError, match=message):
                read(tmp_path, f'{start}, decimal: "{other}"', table=some)


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


def test_numbers_that_mean_empty_match_however_they_are_written(tmp_path: Path) -> None:
    table = ROWS.replace("a,40", "a,-99.0").replace("d,80", "d,-99").replace("home,train\nb", "home,train\nb", 1)
    found = read(tmp_path, "features: [age, crp], empty: ['-99', '9,0']", table=table, top="features: {missing: mean}")
    assert found.empty["age"] == 3
    assert found.empty["crp"] == 1
    assert column(found, "age")[:4] == [60, 60, 60, 60]
    decimals = ROWS.replace("b,,2", 'b,"-99,00",2')
    found = read(tmp_path, "features: [age], decimal: ',', empty: ['-99']", table=decimals, top="features: {missing: 1}"
                 .replace("1", "{age: 1}"))  # fmt: skip
    assert found.empty["age"] == 1


def test_row_numbers_that_pandas_left_are_no_features(tmp_path: Path) -> None:
    header, *rows = ROWS.replace(",crp,", ",Unnamed: 0.1,").splitlines()
    table = "\n".join([f",__index_level_0__,{header}", *(f"{k},{k},{row}" for k, row in enumerate(rows))]) + "\n"
    kept = "one_hot: [ward], boolean: [smoker], dates: {seen: {days_since: 2024-01-01}}"
    told = {"top": "features: {missing: median}", "table": table.replace("NA", "3")}
    found = read(tmp_path, kept, **told)
    assert found.graph.feature_names is not None
    assert "age" in found.graph.feature_names
    assert not {"", "__index_level_0__", "Unnamed: 0.1"} & set(found.graph.feature_names)
    (note,) = found.graph.notes
    assert note.startswith("'', '__index_level_0__', 'Unnamed: 0.1': row numbers that a program left in the table")
    asked = read(tmp_path, f'features: ["Unnamed: 0.1", "*"], {kept}', **told)
    assert "Unnamed: 0.1" in (asked.graph.feature_names or ())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("yes", "no"), r"Add it to boolean under nodes \(boolean: \[smoker\]\), to one_hot"),
        (("ja", "nein"), r"\(boolean: \{smoker: \[WORD, WORD\]\}, the word of 0 first and that of 1 behind it\)"),
    ],
)
def test_the_hint_for_truth_values_does_not_guess_which_is_0(tmp_path: Path, words: tuple, hint: str) -> None:
    table = f"id,smoker,y,part\na,{words[0]},u,train\nb,{words[1]},v,train\nc,{words[0]},u,train\n"
    with pytest.raises(DataError, match=hint):
        read(tmp_path, "features: [smoker]", table=table)


@pytest.mark.parametrize("word", ["unknown", "NA", "n/a", "Null", "none", "NaN", "?", "-", "", "-99.0"])
@pytest.mark.parametrize("top", ["", "classes: [home, stays]"])
def test_words_for_unlabelled(tmp_path: Path, word: str, top: str) -> None:
    found = read(tmp_path, "empty: ['-99'], features: [age]", table=ROWS.replace("b,,", "b,1,").replace(
        "home,train\nc", f"{word},train\nc"), top=top).graph  # fmt: skip
    assert (found.class_names, found.labels.tolist()) == (("home", "stays"), [0, -1, 1, 1, 0])
    said = [] if word in ("", "-99.0") else [
        f"column 'y' (nodes.label): nodes with '{word}' (1) count as unlabelled; where such a word is a class, list it "
        f"in classes"
    ]  # fmt: skip
    assert list(found.notes) == said
    kept = read(
        tmp_path,
        table=ROWS.replace("b,,", "b,1,").replace("stays", word or "x"),
        top=f"classes: [home, '{word or 'x'}']",
    )
    assert kept.graph.labels.tolist() == [0, 0, 1, 1, 0]
    assert kept.graph.notes == ()


@pytest.mark.parametrize("one", ["1", "+1"])
def test_minus_one_is_a_class_where_the_other_is_one(tmp_path: Path, one: str) -> None:
    told = {"table": ROWS.replace("b,,", "b,1,").replace("home", "-1").replace("stays", one)}
    graph = read(tmp_path, **told).graph
    assert (graph.class_names, graph.labels.tolist()) == (("-1", "1"), [0, 0, 1, 1, 0])
    more = {"table": told["table"].replace(f"{one},val", "2,val")}
    assert read(tmp_path, **more).graph.labels.tolist() == [-1, -1, 0, 1, -1]


def test_truth_values_as_labels_are_one_class_however_they_are_written(tmp_path: Path) -> None:
    told = ROWS.replace("b,,", "b,1,").replace("home", "True").replace("stays", "false")
    assert read(tmp_path, table=told).graph.class_names == ("false", "true")
    graph = read(tmp_path, table=told, top='classes: ["True", "False"]').graph
    assert (graph.class_names, graph.labels.tolist()) == (("True", "False"), [0, 0, 1, 1, 0])


@pytest.mark.parametrize("value", [lambda row: f"id{row}", lambda row: row / 7])
def test_a_label_column_of_ids_or_measurements(tmp_path: Path, value: Callable) -> None:
    rows = "".join(f"p{row},{row},{value(row)},train\n" for row in range(30))
    with pytest.raises(
        DataError, match=r"'y' \(nodes\.label\) has 30 different values in 30 rows, .* not like classes"
    ):
        read(tmp_path, table=f"id,age,y,part\n{rows}", links="a,b\np0,p1\n")
    top = f"classes: [{', '.join(repr(str(value(row))) for row in range(30))}]"
    assert read(tmp_path, table=f"id,age,y,part\n{rows}", links="a,b\np0,p1\n", top=top).graph.num_classes == 30
