"""Clients by number or name."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.client_names import client_number, find_left_out


def test_names_of_silos() -> None:
    names = {0: ("north",), 1: ("er", "tables"), 2: ("icu", "tables")}
    assert find_left_out(["er", 0], 3, names) == (0, 1)
    with pytest.raises(ConfigError, match="clients 1, 2 are all called so"):
        find_left_out(["tables"], 3, names)
    with pytest.raises(ConfigError, match="which is no client; did you mean 'north'"):
        find_left_out(["nort"], 3, names)


def test_a_number_is_no_part_of_a_name() -> None:
    names = {0: "hospital 1", 1: ("7", "north.yaml")}
    assert [client_number(who, 2, names, "predict") for who in ("1", "7", 0, "hospital 1")] == [1, 1, 0, 0]
