"""Empty cells and what stands for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.sources.missing import Missing
from graphsilo.data.sources.vocabulary import Learned
from graphsilo.errors import ConfigError, DataError
from kit.columns import ROWS, column, read


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
    rules = Missing.parse({"*": "mean", "lab_*": "median", "lab_x*": "indicator", "lab_x1": 3.0})
    assert [rules.of(name) for name in ("age", "lab_a", "lab_x2", "lab_x1")] == ["mean", "median", "indicator", 3.0]
    assert Missing.parse({"age": "mean"}).of("other") == "refuse"
