from __future__ import annotations

from dataclasses import dataclass

import pytest

from graphsilo.data.partition.options import options_dict, parse_options
from graphsilo.errors import ConfigError


@dataclass(frozen=True)
class Example:
    alpha: float = 1.0
    parts: int | None = None
    name: str = "x"
    sure: bool = True


def test_values_are_taken_and_defaults_written_out() -> None:
    found = parse_options(Example, {"alpha": 2, "parts": 3}, owner="it")
    assert options_dict(found) == {"alpha": 2.0, "parts": 3, "name": "x", "sure": True}
    assert isinstance(found.alpha, float)
    assert parse_options(Example, {"parts": None}, owner="it").parts is None
    assert parse_options(Example, found, owner="it") is found
    assert parse_options(Example, None, owner="it") == Example()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alhpa": 1.0}, "unknown setting 'alhpa' for it: did you mean 'alpha'"),
        ({"parts": 1.5}, "it: parts must be int; got 1.5"),
        ({"alpha": True}, "it: alpha must be float"),
        ({"sure": 1}, "it: sure must be bool"),
        ({"name": None}, "it: name must be str"),
        (7, "takes settings by name; got int"),
    ],
)
def test_wrong_names_and_types_are_refused(values, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(Example, values, owner="it")
