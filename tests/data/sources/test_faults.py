"""All that is wrong with a table, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import DataError
from kit.columns import ROWS, read


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
