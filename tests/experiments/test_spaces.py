"""The spaces of methods."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import drop_idle
from graphsilo.experiments.spaces import default_spaces
from graphsilo.federation import registry
from graphsilo.federation.settings import LocalTrainingConfig


@pytest.mark.parametrize("name", registry.names())
def test_a_space_is_of_settings_that_the_method_takes_and_that_change_something(name):
    """Whoever trains locally has one."""
    spaces = default_spaces(name)
    assert spaces or not issubclass(registry.load(name).config, LocalTrainingConfig)
    for table in spaces:
        for values in product(*table.values()):
            settings = dict(zip(table, values, strict=True))
            config = load_config(overrides={"method.name": name, **settings})
            drop_idle(config)
            made = config.method_config()
            assert {key: getattr(made, key.removeprefix("method.")) for key in settings} == settings


def test_fedprox_is_tuned_over_its_papers_penalties():
    assert [table["method.mu"] for table in default_spaces("fedprox")] == [[0.001, 0.01, 0.1, 1.0]] * 2


def test_a_method_of_ones_own_that_trains_locally_has_the_learning_rates(monkeypatch):
    assert default_spaces("mine") == []
    avg, ridge = registry.load("fedavg"), registry.load("fedridge")
    monkeypatch.setitem(registry._REGISTERED, "mine", replace(avg, name="mine"))
    monkeypatch.setitem(registry._REGISTERED, "exact", replace(ridge, name="exact"))
    assert default_spaces("mine") == default_spaces("fedavg")
    assert default_spaces("exact") == []
