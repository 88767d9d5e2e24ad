"""What all agreed on, as plain values."""

from __future__ import annotations

import pytest

from graphsilo.data.silos.schema import TABLES, schema_of, schema_tree
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


TYPED = Schema(
    "node", 1, 2, ("account.a",), ("ok", "bad"), types=("account", "shop"), relations=("pays",),
    link_features=("pays.sum",), target="account", ends=(("account", "shop"),),
)  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"num_classes": 2**31}, {"num_classes": -1, "class_names": None}, {"num_features": 7}, {"types": None},
        {"types": ["account", "account"]}, {"types": []}, {"relations": ["pays", "owns"]}, {"ends": []},
        {"ends": [["account"]]}, {"ends": [["account", "car"]]}, {"target": "car"}, {"target": ""},
        {"link_features": "pays.sum"}, {"booleans": {"a": 1}}, {"directed": 1},
    ],
)  # fmt: skip
def test_a_schema_that_no_cards_come_to_is_refused_in_words(changes: dict[str, object]) -> None:
    assert schema_of(schema_tree(TYPED)) == TYPED
    with pytest.raises(MessageError, match=r"the schema of the federation (has no|is one of no silos)"):
        schema_of({**schema_tree(TYPED), **changes})


def test_files_that_were_written_before_there_were_tables_of_links() -> None:
    old = {key: value for key, value in schema_tree(SCHEMA).items() if key not in TABLES}
    assert schema_of(old) == SCHEMA
