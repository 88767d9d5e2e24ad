"""The one settings system: what is refused, in which words, and what a table says of a setting."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from graphsilo.errors import ConfigError
from graphsilo.settings import Settings, Share, Width, Widths, must_be, setting
from graphsilo.settings.words import describe, rows


class Door(Settings):
    height: float = setting(2.0, "metres", gt=0, le=3)


class House(Settings):
    section: ClassVar[str] = "house"

    colour: Literal["red", "green"] = setting("red", "of the walls", source="the town")
    storeys: int = setting(2, "how many", ge=1)
    widths: Width | Widths = setting(3, "one, or one per storey")
    shares: tuple[Share, Share] | None = setting(None, "of two owners")
    cellar: bool = setting(False, "is there one")
    doors: list[Door] = setting([], "each with its height")
    more: dict[str, Any] = setting({}, "anything else")
    front: Door = Door()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"storeys": 0}, "house.storeys must be at least 1; got 0."),
        ({"storeys": "2"}, "house.storeys must be a whole number at least 1; got '2'."),
        ({"storeys": 2.0}, "house.storeys must be a whole number at least 1; got 2.0."),
        ({"storeys": True}, "house.storeys must be a whole number at least 1; got True."),
        ({"storeys": None}, "house.storeys must be a whole number at least 1; got None."),
        ({"colour": "rde"}, "house.colour must be one of red, green; got 'rde'. Did you mean 'red'?"),
        ({"colour": 3}, "house.colour must be one of red, green; got 3."),
        ({"cellar": 1}, "house.cellar must be true or false; got 1."),
        ({"widths": 0}, "house.widths must be at least 1 and at most 65536; got 0."),
        ({"widths": []},
         "house.widths must be a whole number at least 1 and at most 65536 or a list of one or more whole numbers "
         "at least 1 and at most 65536; got []."),
        ({"widths": [4, 0]}, "house.widths.1 must be at least 1 and at most 65536; got 0."),
        ({"shares": [0.5, 1.5]}, "house.shares.1 must be at least 0 and at most 1; got 1.5."),
        ({"shares": [1]}, "house.shares must be a list of 2 numbers at least 0 and at most 1 or none; got [1]."),
        ({"front": {"height": 4}}, "house.front.height must be above 0 and at most 3; got 4."),
        ({"front": {"height": float("nan")}},
         "house.front.height must be a finite number above 0 and at most 3; got nan."),
        ({"front": {"height": -2e30}}, "house.front.height must be at most 1e30 in size; got -2e+30."),
        ({"doors": [{}, {"height": -1}]}, "house.doors.1.height must be above 0 and at most 3; got -1."),
        ({"doors": [3]}, "house.doors.0 must be a table of settings; got 3."),
        ({"more": 3}, "house.more must be a table; got 3."),
        ({"storeyz": 3}, "unknown setting 'house.storeyz' for ours; did you mean 'house.storeys'?"),
        ({"front": {"hieght": 3}}, "unknown setting 'house.front.hieght' for ours; did you mean 'house.front.height'?"),
        ({"storeys": 0, "cellar": 1},
         "house.storeys must be at least 1; got 0. house.cellar must be true or false; got 1."),
        ([3], "house must be a table of settings; got [3]."),
    ],
)  # fmt: skip
def test_refusals(values: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        House.of(values, owner="ours")
    assert str(caught.value) == message


def test_all_that_is_misspelt_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as told:
        House.of({"color": "red", "front": {"hight": 2}, "storeys": 0})
    assert str(told.value) == (
        "unknown setting 'house.front.hight'; did you mean 'house.front.height'? unknown setting 'house.color'; did "
        "you mean 'house.colour'? house.storeys must be at least 1; got 0."
    )


def test_a_group_that_is_made_directly_refuses_in_the_same_words() -> None:
    with pytest.raises(ConfigError, match=r"^house\.storeys must be at least 1; got 0\.$"):
        House(storeys=0)
    with pytest.raises(ConfigError, match=r"^house\.front\.height must be above 0 and at most 3; got 4\.$"):
        House(front={"height": 4})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^house\.storeys must be"):
        House.model_validate({"storeys": 0})


def test_section_and_origin_may_be_said() -> None:
    with pytest.raises(ConfigError, match=r"^a\.yaml: height must be a number above 0 and at most 3; got 'x'\.$"):
        Door.of({"height": "x"}, origin="a.yaml")
    with pytest.raises(ConfigError, match=r"^home\.storeys must be"):
        House.of({"storeys": 0}, section="home")
    with pytest.raises(ConfigError, match=r"^unknown setting 'x'; it has no settings of its own\.$"):
        Settings.of({"x": 1})


def test_what_is_taken() -> None:
    assert House.of() == House() == House.of({})
    made = House.of({"widths": np.array([3, 4]), "storeys": np.int64(3), "shares": [np.float32(0.5), 1]})
    assert (made.widths, made.storeys, made.shares) == ((3, 4), 3, (0.5, 1.0))
    assert isinstance(made.shares[1], float)
    assert House.of(made) is made
    assert made.front.height == 2.0


def test_a_validator_says_what_it_wants() -> None:
    from pydantic import field_validator

    class Day(Settings):
        section: ClassVar[str] = "day"
        name: str = setting(..., "of the day")

        @field_validator("name")
        @classmethod
        def _known(cls, value: str) -> str:
            if value == "Caturday":
                raise must_be("a day such as Monday")
            if value == "":
                raise ValueError("an empty name is none")
            return value

    for values, message in (
        ({"name": "Caturday"}, "day.name must be a day such as Monday; got 'Caturday'."),
        ({"name": ""}, "day.name: an empty name is none; got ''."),
        ({}, "day.name is missing; it must be text."),
    ):
        with pytest.raises(ConfigError) as caught:
            Day.of(values)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("annotation", "words", "short"),
    [
        (float, "a number", "number"),
        (int | None, "a whole number or none", "whole number or none"),
        (Literal["a", "b"], "one of a, b", "a, b"),
        (list[Literal["a", "b"]], "a list of words out of a, b", "list of words out of a, b"),
        (tuple[Share, ...], "a list of numbers at least 0 and at most 1", "list of numbers ≥ 0, ≤ 1"),
        (tuple[float, float], "a list of 2 numbers", "list of 2 numbers"),
        (str | dict[str, Any], "text or a table", "text or table"),
        (Any, "a value", "value"),
    ],
    ids=str,
)
def test_what_a_type_allows(annotation: Any, words: str, short: str) -> None:
    assert (describe(annotation), describe(annotation, signs=True)) == (words, short)


def test_rows_of_a_table() -> None:
    found = {name: rest for name, *rest in rows(House)}
    assert found["colour"] == ["red", "red, green", "of the walls", "the town"]
    assert found["storeys"] == [2, "whole number ≥ 1", "how many", ""]
    assert found["doors"][:2] == [[], "list of tables of settings"]
