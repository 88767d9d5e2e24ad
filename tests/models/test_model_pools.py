"""Pools of different models."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.models import pool, pools, resolve


def test_pools() -> None:
    assert pools() == ("opfgl", "fedpg")
    ten = pool("opfgl")
    assert len(ten) == 10
    assert [name for name, _ in ten].count("gcn") == 6
    assert [name for name, _ in pool("fedpg")] == ["gcn", "gin", "sage", "sgc", "gcnii"]
    for name in pools():
        for model, overrides in pool(name):
            resolve(model, overrides)
    ten[0][1]["hidden"] = 1  # a copy: the list of models stays as it is
    assert pool("opfgl")[0][1]["hidden"] == 64
    with pytest.raises(ConfigError, match="opfgl"):
        pool("opfg")
