"""Clients by number or name."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.client_names import client_number, find_left_out, list_client_names
from graphsilo.experiments.config import load_config
from graphsilo.experiments.participants import per_client_warnings
from graphsilo.experiments.simulation import prepare


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


def test_silos_of_one_name_are_numbered(tmp_path: Path) -> None:
    """As the report, the warning and `--client` call them."""
    for place, folder in enumerate(("a", "b", "c")):
        (tmp_path / folder).mkdir()
        rows = "".join(f"q{folder}{row},{row + place},{row % 2}\n" for row in range(20))
        (tmp_path / folder / "n.csv").write_text(f"id,x,y\n{rows}")
        (tmp_path / folder / "e.csv").write_text("s,t\n" + f"q{folder}0,q{folder}1\n")
        (tmp_path / folder / "t.yaml").write_text(
            f"name: {'north' if folder == 'b' else 'ward'}\n"
            "nodes: {path: n.csv, id: id, label: y}\nedges: {path: e.csv, source: s, target: t}\n"
        )
    files = [str(tmp_path / folder / "t.yaml") for folder in ("a", "b", "c")]
    made = prepare(load_config({"data": files}))
    assert [row["silo"] for row in made.cut["per_client"]] == ["ward 1", "north", "ward 2"]
    (said,) = [text for text in made.notes if "called" in text]
    assert said.startswith(f"2 silos are called 'ward': {files[0]} is 'ward 1' here, {files[2]} is 'ward 2' here.")
    assert client_number("ward 2", 3, list_client_names(files), "predict") == 2
    for gone, left in (([1, 2], ["ward"]), ([0], ["north", "ward"])):
        made = prepare(load_config({"data": files, "run.without": gone}))
        assert [row["silo"] for row in made.cut["per_client"]] == left
        assert not [text for text in made.notes if "called" in text]


def test_warnings_call_silos_by_their_names() -> None:
    rows = [{"client": 0, "silo": "er", "train": 0, "test": 3}, {"client": 1, "train": 5, "test": 0}]
    assert per_client_warnings(rows) == [
        "client 'er' has no training item: nothing is learned there, only received.",
        "client 1 has no test item, and is left out of the means.",
    ]
