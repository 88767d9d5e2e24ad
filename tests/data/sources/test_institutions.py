"""Tables of institutions: what each of them has, as it would export it."""

from __future__ import annotations

import numpy as np

from graphsilo.data.sources.institutions import LinkRows, NodeTable, Tables, gather, spread

WORDS = ("red", "green")
"""Two shops: customers 0 and 2 are of the first one, 1 of the second; goods are nobody's."""
TABLES = Tables(
    {
        "customer": NodeTable(
            np.array(["a", "b", "c"]),
            {"age": np.array([30.0, 40, 50]), **spread(WORDS, np.array([1, 0, 1]), "colour")},
            np.array([0, 1, 0]), np.array([1, 0, -1]), np.array([10.0, 11, 12]),
        ),
        "good": NodeTable(np.array(["x", "y"]), {}, np.array([-1, -1])),
    },
    {
        "bought": LinkRows("customer", "good", np.array([[0, 1, 2], [1, 1, 0]]), {"price": np.array([5.0, 6, 7])}),
        "knows": LinkRows("customer", "customer", np.array([[0, 1], [1, 2]]), time=np.array([3.0, 4])),
    },
    ["north", "south"],
    ["no", "yes"],
)  # fmt: skip


def test_an_institution_has_its_own_nodes_nobodys_and_rows_with_one_of_its_own() -> None:
    found = {
        name: {column: values.tolist() for column, values in table.items()} for name, table in TABLES.export(1).items()
    }
    assert found == {
        "customer": {"customer": ["b"], "age": [40.0], "colour": ["red"], "day": [11.0], "label": ["no"]},
        "good": {"good": ["x", "y"]},
        "bought": {"from": ["b"], "to": ["y"], "price": [6.0]},
        "knows": {"from": ["a", "b"], "to": ["b", "c"], "day": [3.0, 4.0]},
    }
    assert TABLES.export(0)["customer"]["label"].tolist() == ["yes", ""]


def test_words_that_were_spread_are_gathered() -> None:
    chosen = np.array([1, 0, 0, 1])
    assert gather(spread(WORDS, chosen, "colour"))["colour"].tolist() == [WORDS[each] for each in chosen]
