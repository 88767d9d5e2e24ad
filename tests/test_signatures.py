"""Parameters of somebody's own class or function as settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from graphsilo.errors import ConfigError
from graphsilo.settings import Settings
from graphsilo.signatures import parameters_of, settings_of


def made(function):
    return settings_of("Own", Settings, function, ("inputs",), "net")


def typed(inputs, hidden: int, rate: float = 0.5, kind: Literal["a", "b"] = "a", act: Callable = len, **more): ...


def bare(inputs, hidden=16, name=None, sizes=(1, 2)): ...


def test_annotations_are_types():
    found = made(typed)
    assert list(found.model_fields) == ["hidden", "rate", "kind"]  # what is no plain value keeps its default
    assert dict(found.of({"hidden": 3, "rate": 1})) == {"hidden": 3, "rate": 1.0, "kind": "a"}
    for values, text in (
        ({}, "hidden is missing; it must be a whole number"),
        ({"hidden": 3.5}, "hidden must be a whole number; got 3.5"),
        ({"hidden": 3, "kind": "c"}, "kind must be one of a, b; got 'c'"),
        ({"hidden": 3, "act": "relu"}, "unknown setting 'act'"),
    ):
        with pytest.raises(ConfigError, match=text):
            found.of(values)


def test_defaults_are_types_where_nothing_is_said():
    found = made(bare)
    assert found().model_dump() == {"hidden": 16, "name": None, "sizes": (1, 2)}
    with pytest.raises(ConfigError, match="hidden must be a whole number; got 'x'"):
        found.of({"hidden": "x"})
    assert found.of({"name": "x"}).name == "x"


def test_what_has_no_signature():
    assert list(parameters_of(typed, "net")) == ["inputs", "hidden", "rate", "kind", "act"]
    with pytest.raises(ConfigError, match=r"net: its parameters cannot be read\. Wrap it in a function"):
        parameters_of(dict.fromkeys, "net") if False else parameters_of(type, "net")
