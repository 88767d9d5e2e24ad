"""What all agreed on, as plain values."""

from __future__ import annotations

import pytest

from graphsilo.data.silos.schema import schema_of, schema_tree
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError

SCHEMA = Schema(
    "node", 2, 2, ("age", "crp:missing"), ("-1", "+"), {"smoker": (("nein", "-"), ("ja", "+ve"))}, True, True
)


def test_there_and_back() -> None:
    assert schema_of(schema_tree(SCHEMA)) == SCHEMA
    assert len({schema_of(schema_tree(SCHEMA)), SCHEMA}) == 1  # a key, at sites


@pytest.mark.parametrize("name", ["=HYPERLINK(A1)", "a\nb", "\x1b[2J", 7])
@pytest.mark.parametrize("key", ["feature_names", "class_names"])
def test_names_that_no_card_may_have(key: str, name: object) -> None:
    with pytest.raises(MessageError, match="the schema of the federation has the name"):
        schema_of({**schema_tree(SCHEMA), key: ["age", name]})


@pytest.mark.parametrize(
    "booleans", [{"smoker": [["a\nb"], ["c"]]}, {"a\nb": [["no"], ["yes"]]}, {"smoker": [[7], ["c"]]}]
)
def test_words_that_no_card_may_have(booleans: object) -> None:
    with pytest.raises(MessageError, match="the schema of the federation has the name"):
        schema_of({**schema_tree(SCHEMA), "booleans": booleans})
