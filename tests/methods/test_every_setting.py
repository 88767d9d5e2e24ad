"""Every setting of every method is heard: changed alone, it changes what clients have learned after three rounds."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.effects import drop_idle
from graphsilo.federation import noise, registry
from graphsilo.testing.settings import add_starts, cases, check_case, train_states
from kit.broad import BROAD, broadly

METHODS = {name: registry.load(name) for name in registry.names()}

CASES = [
    pytest.param(
        name, case, id=f"{name}-{case}",
        # Tests of a method say what its settings do; that each does something is tried where there is time.
        marks=[] if name in BROAD else [pytest.mark.slow],
    )
    for name, method in METHODS.items()
    for case in cases(method, method.quick)
]  # fmt: skip


@pytest.fixture(autouse=True)
def same_noise(monkeypatch):
    """Noise comes from the operating system, another one each time: here it is the same."""
    monkeypatch.setattr(noise, "_normal", lambda count: np.random.default_rng(0).standard_normal(count))


@pytest.mark.parametrize(("name", "case"), CASES)
def test_it_is_heard_and_idle_where_it_says_so(name, case):
    """And a run that asks for it where it is idle is refused."""
    method = METHODS[name]
    check_case(method, case)
    if case.off is None or case.value == method.config.model_fields[case.field].default:
        return
    said = {f"method.{key}": value for key, value in {**case.settings, case.field: case.value}.items()}
    config = load_config(overrides={"method.name": name, "task": case.task, **said})
    named = "the task" if case.off == "task" else f"method.{case.off}"
    with pytest.raises(ConfigError, match=rf"method\.{case.field} would have no effect: {named} is "):
        drop_idle(config.with_explicit([f"method.{case.field}"]), task=case.task)


@pytest.mark.parametrize(
    "name", broadly(name for name, method in METHODS.items() if method.backbone and not method.pooled)
)
def test_the_precision_of_a_run_is_heard(name):
    method = METHODS[name]
    settings = add_starts(method, method.quick)
    assert train_states(method, settings, "node", "bfloat16") != train_states(method, settings, "node")
