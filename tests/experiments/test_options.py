"""What a section may hold beside its own settings."""

from __future__ import annotations

import pytest

from graphsilo.experiments.options import find_homonyms, option_names, spell_name


@pytest.mark.parametrize(
    ("before", "now", "unlike"),
    [
        ("fedprox", "fedpg", {"mu", "server_lr"}),
        ("fedavg", "fedprox", set()),  # one class declares what they share
        ("fedavg", "fedgl", set()),  # weight_by has other defaults and the same choices
        ("fedavg", "feddistill", {"weight_by"}),
        ("fedavg", "no such method", set()),
    ],
)
def test_settings_that_are_called_alike_and_mean_another_thing(before: str, now: str, unlike: set[str]) -> None:
    assert find_homonyms(before, now) - {"participation"} == unlike


def test_of_several_models_what_all_have() -> None:
    assert option_names("model", ["gcn", {"name": "sgc", "hops": 3}]) == {"hidden", "layers", "dropout"}
    assert option_names("model", "sgc") - option_names("model", ["gcn", "sgc"]) == {"hops"}
    assert option_names("partition", "auto") == option_names("partition", "no such rule") == set()


def test_names_as_they_are_registered() -> None:
    spelt = [spell_name(*each) for each in (("data", "cora"), ("model", "GraphSAGE"), ("method", "Fed-PUB"))]
    assert spelt == ["Cora", "sage", "fed_pub"]
    assert spell_name("data", "No-Such") == "No-Such"
