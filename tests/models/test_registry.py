"""The list of models: complete, light to import, open to other packages."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import ClassVar

import pytest

from graphsilo.errors import ConfigError
from graphsilo.models import registry
from graphsilo.models.backbones.mlp import MLP
from graphsilo.models.registry import ModelEntry, entry, names, resolve
from graphsilo.models.settings import ModelSettings
from graphsilo.settings import setting
from graphsilo.settings.words import rows


def test_importing_the_list_imports_no_torch() -> None:
    code = (
        "import sys, graphsilo.models as m; [m.listing(name).summary for name in m.names()]; m.pool('opfgl');"
        "print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


@pytest.mark.parametrize("name", names())
def test_every_entry_is_complete(name: str) -> None:
    item = entry(name)
    assert item.settings.model == item.name == name
    assert item.summary
    assert item.paper
    assert "node" in item.tasks
    default = resolve(name)
    assert resolve(name, default.as_dict()) == default
    assert all(text and values for _, _, values, text, _ in rows(item.settings))


def test_aliases_and_spelling() -> None:
    assert entry("GraphSAGE").name == entry("SAGE").name == "sage"
    assert entry("appnp-features").name == "appnp_features"
    with pytest.raises(ConfigError, match="did you mean 'gamlp'"):
        entry("gamlpp")


class OtherSettings(ModelSettings):
    head_counts: ClassVar[bool] = False
    width: int = setting(3, "a width", ge=1)


OTHER = ModelEntry(
    name="other", summary="a model from elsewhere", paper="nobody, 2024", settings=OtherSettings, network=MLP
)


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        importlib.metadata.EntryPoint(name, f"{__name__}:{value}", registry.GROUP)
        for name, value in (("other", "OTHER"), ("broken", "random"), ("gcn", "OTHER"))
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    registry._registry.cache_clear()
    try:
        assert names()[-1] == "other"
        assert "broken" in names()
        assert resolve("other", {"width": 5}).width == 5
        assert entry("gcn").settings.model == "gcn"  # a built-in model cannot be replaced
    finally:
        monkeypatch.undo()
        registry._registry.cache_clear()
