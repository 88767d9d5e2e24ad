"""What a card says of a silo, and cards that agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from graphsilo.data.silos.cards import card, card_notes, compare_cards
from graphsilo.data.silos.own import SiloFile, read_silo_file
from graphsilo.data.silos.silo import Schema
from graphsilo.data.silos.union import dense
from graphsilo.errors import DataError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.simulation import prepare
from kit.silos import WORDS

# -- cards ------------------------------------------------------------------------------------------------------------


def make_card(name: str, **changes: Any) -> dict[str, Any]:
    counts = {"nodes": 9, "links": 8, "edges": 16, "graphs": 0, "train": 3, "val": 3, "test": 3, "classes": 2}
    return {
        "graphsilo": "0.1.0", "name": name, "tasks": ["node", "link"], "features": 3, "feature_names": ["a", "b", "c"],
        "one_hot": {}, "open_words": [], "booleans": {}, "classes": 2, "class_names": ["no", "yes"],
        "classes_declared": True, "directed": False, "weighted": False, "sparse": False, "scale": "none",
        "scale_by": "silo", "counts": counts, "split": {"mode": "random"}, **changes,
    }  # fmt: skip


def test_a_card_holds_plain_values_and_no_row(trio: list[SiloFile]) -> None:
    import msgspec

    made = card(trio[1], 1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made)) == made
    assert set(made) == {*make_card("x"), "outside", "layout"}
    edges = trio[1].read().graph.num_edges
    assert made["counts"] == {
        "nodes": 31, "links": edges // 2, "edges": edges, "graphs": 0, "train": 12, "val": 9, "test": 10, "classes": 2,
    }  # fmt: skip
    assert made["one_hot"] == {"word": WORDS}
    text = str(made)
    for private in ("south3", "id'", "nodes.csv", str(trio[1].path.parent)):
        assert private not in text


def test_cards_that_agree() -> None:
    assert compare_cards([make_card("a"), make_card("b", tasks=["node"])]) == Schema(
        "node", 3, 2, ("a", "b", "c"), ("no", "yes")
    )
    assert compare_cards([make_card("a", tasks=["link"]), make_card("b")]).task == "link"
    one_way = compare_cards([make_card("a", directed=True, weighted=True)])
    assert (one_way.directed, one_way.weighted) == (True, True)
    # One silo knows numbers of columns only: the names come from the other.
    assert compare_cards([make_card("a", feature_names=None), make_card("b")]).feature_names == ("a", "b", "c")


def test_words_of_truth_values_are_told_and_compared() -> None:
    cards = [make_card(name, booleans={"b": [[off], [on]]}) for name, off, on in (("a", "nein", "ja"), ("b", "-", "+"))]
    assert compare_cards(cards).booleans == {"b": (("nein", "-"), ("ja", "+"))}
    assert card_notes(cards) == (
        "truth values in column 'b' are written [nein, ja] at silo 'a' and [-, +] at silo 'b' (0 first): do they mean "
        "the same?",
    )


def test_a_declared_vocabulary_wins() -> None:
    some = make_card("b", classes=1, class_names=["yes"], classes_declared=False)
    none = make_card("c", classes=0, class_names=[], classes_declared=False)
    assert compare_cards([some, none, make_card("a")]).class_names == ("no", "yes")
    assert compare_cards([some, none]).class_names == ("yes",)
    ten = make_card("d", classes=2, class_names=["10", "9"], classes_declared=False)
    two = make_card("e", classes=1, class_names=["2"], classes_declared=False)
    assert compare_cards([ten, two]).class_names == ("2", "9", "10")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"features": 2, "feature_names": ["a", "weight"]},
            r"silo 'a' has 3 features, silo 'b' 2: feature 2 is 'b' at 'a' and 'weight' at 'b'",
        ),
        ({"features": 2, "feature_names": ["a", "b"]}, r"3 features, silo 'b' 2: feature 3, 'c', is only at 'a'"),
        (
            {"features": 4, "feature_names": ["a", "b", "c", "b:missing"]},
            r"Write the rules of empty cells \(features\.m",
        ),
        (
            {"feature_names": ["a", "b", "d (days since 2020-01-01)"]},
            r"Write the columns .* and the days to count from",
        ),
        ({"features": 4, "feature_names": None}, r"silo 'a' has 3 features, silo 'b' 4\. "),
        ({"class_names": ["yes", "no"]}, r"class 1 is 'no' at 'a' and 'yes' at 'b'.*the same order"),
        ({"classes": 3, "class_names": ["no", "yes", "x"]}, r"'a' declares 2 classes \(no, yes\), silo 'b' 3 classes"),
        (
            {"class_names": ["maybe", "no"], "classes_declared": False},
            r"silo 'b' has nodes of class 'maybe', which silo 'a' does not declare",
        ),
        ({"directed": True}, r"direction at silo 'b' and none at silo 'a'"),
        ({"weighted": True}, r"links have weights at silo 'b' and none at silo 'a'"),
        ({"tasks": ["graph"]}, r"the task is node, as most silos say first, and silo 'b' can serve graph alone"),
        ({"tasks": ["0"]}, r"the card of silo 'b' is not one .*\$\.tasks"),
        ({"tasks": []}, r"the card of silo 'b' is not one .*\$\.tasks"),
        ({"graphsilo": "0.2.0"}, r"silo 'a' runs graphsilo 0\.1\.0, silo 'b' 0\.2\.0"),
        ({"name": "a"}, r"two silos are called 'a'"),
        ({"booleans": {"b": [["yes"], ["no"]]}}, r"'yes' is 0 at silo 'b', which reads \[yes, no\], and 1 at silo 'a'"),
        ({"booleans": {"b": [["n\u202eo"], ["yes"]]}}, r"the word .* holds the unseen character U\+202E"),
        ({"booleans": {"b": [["no"]]}}, r"the card of silo 'b' is not one"),
        (
            {"classes": 1001, "class_names": list(map(str, range(1001)))},
            r"the card of silo 'b' is not one .*1001 classes are more than it can have; at most 1000",
        ),
        (
            {"classes": 99, "class_names": list(map(str, range(99))), "classes_declared": False},
            r"the card of silo 'b' is not one .*99 classes are more than it can have",
        ),
        ({"one_hot": {"a": list(map(str, range(10_001)))}}, r"the card of silo 'b' .*more than 10000 words"),
        ({"features": "3"}, r"the card of silo 'b' is not one of graphsilo .*\$\.features"),
        ({"features": -3}, r"the card of silo 'b' is not one"),
        ({"features": 4}, r"numbers and names of features or classes do not agree"),
        ({"labels": [0, 1]}, r"unknown entry 'labels'"),
        ({"split": {"mode": "random", "ratios": b"\xff"}}, r"the card of silo 'b' is not one .*\$\.split\.ratios"),
        ({"split": {"mode": "random", "ratios": [float("nan")]}}, r"the card of silo 'b' .*\$\.split\.ratios"),
        ({"split": {"mode": "random", "more": b"\xff"}}, r"the card of silo 'b' .*unknown entry 'more'"),
        ({"split": {"mode": "\x1b[2J"}}, r"the card of silo 'b' .*the split"),
    ],
)
def test_cards_that_do_not_agree(other: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        compare_cards([make_card("a"), {**make_card("b"), **other}])


def test_one_silo_does_not_change_the_task_of_all() -> None:
    cards = [make_card("liar", tasks=["link"]), make_card("b"), make_card("c")]
    with pytest.raises(DataError, match=r"silo 'liar' can serve link alone.* such as task=link"):
        compare_cards(cards)
    assert compare_cards(cards, "link").task == "link"
    assert compare_cards([make_card("first", tasks=["link", "node"]), *cards[1:]]).task == "node"


def test_numbers_that_are_0_and_1_at_one_silo_alone_are_numbers() -> None:
    plain, measured = ["multilabel", "regression"], ["regression"]
    assert compare_cards([make_card("a", tasks=plain), make_card("b", tasks=measured)]).task == "regression"
    assert compare_cards([make_card("a", tasks=plain), make_card("b", tasks=plain)]).task == "multilabel"
    with pytest.raises(DataError, match="the task is multilabel, as most silos say first, and silo 'c' can serve"):
        compare_cards([make_card("a", tasks=plain), make_card("b", tasks=plain), make_card("c", tasks=measured)])


def test_a_federation_without_silos_or_classes() -> None:
    with pytest.raises(DataError, match="at least one"):
        compare_cards([])
    with pytest.raises(DataError, match="no silo has a label"):
        compare_cards([make_card("a", classes=0, class_names=[], classes_declared=False)])
    assert compare_cards([make_card("a", classes=0, class_names=[], classes_declared=False)], "link").num_classes == 0


def test_minus_one_is_a_class_at_all_silos_or_at_none() -> None:
    signed, other = (
        make_card(name, classes=2, class_names=words, classes_declared=False)
        for name, words in (("a", ["-1", "1"]), ("b", ["0", "1"]))
    )
    assert compare_cards([signed]).class_names == ("-1", "1")
    assert [text for text in card_notes([signed]) if "-1 and 1, which are taken as two classes" in text]
    with pytest.raises(DataError, match=r"silo 'a' has the labels -1 and 1 alone.*others have more \(-1, 0, 1\)"):
        compare_cards([signed, other])
    assert not card_notes([other])


def declare_words(folder: Path, **words: list[str] | None) -> list[SiloFile]:
    """The silos with other words under one_hot; None leaves them open."""
    for name, chosen in words.items():
        tree = yaml.safe_load((folder / f"{name}.tables.yaml").read_text())
        tree["nodes"]["one_hot"] = {"word": chosen}
        (folder / f"{name}.tables.yaml").write_text(yaml.safe_dump(tree))
    return [read_silo_file(folder / f"{name}.yaml") for name in words]


def test_words_that_none_declares_are_all_that_occur(trio: list[SiloFile], tmp_path: Path) -> None:
    """Between machines and in one process alike."""
    silos = declare_words(tmp_path, north=None, south=None)
    cards = [card(silo, client) for client, silo in enumerate(silos)]
    assert cards[0]["open_words"] == ["word"]
    assert cards[0]["feature_names"] != cards[1]["feature_names"]
    schema = compare_cards(cards)
    occurring = {name for told in cards for name in told["feature_names"]}
    assert set(schema.feature_names or ()) == occurring
    files = [str(tmp_path / f"{name}.tables.yaml") for name in ("north", "south")]
    config = RunConfig.of({"data": {"name": files}, "partition": {"ratios": [0.4, 0.3, 0.3], "seed": 11}})
    together = prepare(config).silos
    for client, silo in enumerate(silos):
        apart = silo.load(client, schema=schema, sparse=any(told["sparse"] for told in cards))
        assert apart.schema.feature_names == together[client].schema.feature_names
        np.testing.assert_array_equal(dense(apart.graph.features), dense(together[client].graph.features))


def test_words_that_one_declares_hold_for_all(trio: list[SiloFile], tmp_path: Path) -> None:
    silos = declare_words(tmp_path, north=WORDS, south=None)
    schema = compare_cards([card(silo, client) for client, silo in enumerate(silos)])
    assert schema.feature_names == ("age", "weight", *(f"word={word}" for word in WORDS))
    few = declare_words(tmp_path, north=WORDS[:30], south=None)
    with pytest.raises(DataError, match=r"silo 'south' has the word 'w30' in column 'word', which silo 'north' does"):
        compare_cards([card(silo, client) for client, silo in enumerate(few)])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("age\n2026-11-22 05:00:00 job 0001 is done", r"U\+000A"),
        ("age\x1b[2J", r"U\+001B"),
        ("\u202eega", r"U\+202E"),
        ("=HYPERLINK(A1)", "a spreadsheet takes for a formula"),
        ("+cmd|' /C calc'!A0", "a spreadsheet takes for a formula"),
        ("a\u2028b", r"U\+2028"),
    ],
)
@pytest.mark.parametrize("place", ["feature", "class", "word", "name"])
def test_names_of_cards_cannot_pass_for_lines_of_a_log(name: str, said: str, place: str) -> None:
    changes: dict[str, Any] = {
        "feature": {"feature_names": ["a", "b", name]},
        "class": {"class_names": ["no", name]},
        "word": {"one_hot": {"ward": [name]}},
        "name": {"name": name},
    }[place]
    with pytest.raises(DataError, match=said) as caught:
        compare_cards([make_card("a"), make_card("b") | changes])
    assert str(caught.value).isprintable()
