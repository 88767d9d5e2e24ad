"""Flags that stand for several values."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.cli.values import clients_of, data_and_cut, whole_numbers
from graphsilo.errors import ConfigError


def test_whole_numbers() -> None:
    assert whole_numbers("0,1,4-6", "--seeds") == [0, 1, 4, 5, 6]
    assert whole_numbers("3 1", "--seeds") == [3, 1]
    for text, told in (("", "takes whole numbers"), ("a", "got 'a'"), ("1-", "got '1-'"), ("5-3", "3-5 may be meant")):
        with pytest.raises(ConfigError, match=told):
            whole_numbers(text, "--seeds")


def test_clients_by_number_or_name() -> None:
    assert clients_of(["3,er", "icu"]) == [3, "er", "icu"]
    assert clients_of(["0 2, hospital 1,"]) == [0, 2, "hospital 1"]
    with pytest.raises(ConfigError, match="got nothing"):
        clients_of([" , "])


def test_one_data_set_is_a_name_and_several_are_a_list() -> None:
    one = data_and_cut(["Cora"], None, "metis", 3, None, None)
    assert (one["data"], one["partition"], one["partition.clients"]) == ("Cora", "metis", 3)
    assert one["partition.seed"] is None
    several = data_and_cut(["a.npz", "b.npz"], Path("~/x"), None, None, None, None)
    assert several["data"] == ["a.npz", "b.npz"]
    assert several["data.root"] == str(Path("~/x").expanduser())
