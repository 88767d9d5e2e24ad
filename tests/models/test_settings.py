"""The list of models: light to import, strict about settings."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from graphsilo.errors import ConfigError
from graphsilo.models import settings
from graphsilo.models.settings import ModelEntry, Settings, describe, entry, names, pool, pools, resolve, setting


def test_importing_the_list_imports_no_torch() -> None:
    code = (
        "import sys, graphsilo.models as m; m.names(); m.resolve('gcn', {'hidden': 32}); m.pool('opfgl');"
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
    assert all(text and values for _, _, values, text in describe(name))


def test_aliases_and_spelling() -> None:
    assert entry("GraphSAGE").name == entry("SAGE").name == "sage"
    assert entry("appnp-features").name == "appnp_features"
    with pytest.raises(ConfigError, match="did you mean 'gamlp'"):
        entry("gamlpp")


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("gcn", {"hiden": 3}, "unknown setting 'hiden' for gcn; did you mean 'hidden'"),
        ("gcn", {"hidden": 0}, "hidden must be a whole number at least 1, or a list of these; got 0"),
        ("gcn", {"hidden": "64"}, "hidden must be"),
        ("gcn", {"hidden": []}, "empty list"),
        ("gcn", {"hidden": [64, 0]}, "hidden must be"),
        ("gcn", {"hidden": True}, "hidden must be"),
        ("gcn", {"layers": 2.0}, "layers must be a whole number"),
        ("gcn", {"dropout": 1.0}, "dropout must be a number at least 0 and below 1; got 1.0"),
        ("gcn", {"dropout": float("nan")}, "dropout must be"),
        ("gcn", {"pooling": "summ"}, "did you mean 'sum'"),
        ("gcn", {"hidden": [64, 64], "layers": 5}, "makes 3 layers, but layers is 5"),
        ("gin", {"train_eps": 1}, "train_eps must be true or false; got 1"),
        ("gat", {"hidden": 64, "heads": 5}, "multiple of heads"),
        ("appnp", {"alpha": 1.5}, "at most 1"),
        ("gcnii", {"hidden": [64]}, "hidden must be"),
        ("gamlp", {"layers": 1}, "at least 2"),
    ],
)
def test_refusals(name: str, overrides: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name, overrides)
    assert message in str(caught.value)


def test_accepted_forms() -> None:
    assert resolve("gcn", {"dropout": 0}).dropout == 0.0
    listed = resolve("gcn", {"hidden": [32, 16]})
    assert (listed.hidden, listed.layers) == ((32, 16), 3)
    assert listed.arguments("node")["hidden"] == [32, 16]
    assert resolve("gcn", {"layers": 3}).arguments("node")["hidden"] == [64, 64]
    assert resolve("gcn", {"layers": 3}).arguments("graph")["hidden"] == [64, 64, 64]
    assert resolve("sgc").arguments("node")["hidden"] == []
    with pytest.raises(FrozenInstanceError):
        listed.layers = 5  # type: ignore[misc]


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


@dataclass(frozen=True)
class OtherSettings(Settings):
    model: ClassVar[str] = "other"
    head_counts: ClassVar[bool] = False
    width: int = setting(3, "a width", low=1)


OTHER = ModelEntry("other", "a model from elsewhere", "nobody, 2024", OtherSettings, "graphsilo.models.mlp:MLP")


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        importlib.metadata.EntryPoint(name, f"{__name__}:{value}", settings.GROUP)
        for name, value in (("other", "OTHER"), ("broken", "random"), ("gcn", "OTHER"))
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    settings._registry.cache_clear()
    try:
        assert names()[-1] == "other"
        assert "broken" in names()
        assert resolve("other", {"width": 5}).width == 5
        assert entry("gcn").settings.model == "gcn"  # a built-in model cannot be replaced
    finally:
        monkeypatch.undo()
        settings._registry.cache_clear()
