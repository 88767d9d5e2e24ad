"""Building models: same generator, same weights; tasks; pools; replaced parameters are heard."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import graphsilo.models as models
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.models import GraphTensors, build, entry, names, pool, resolve
from graphsilo.random import generator
from kit.backbones import SCHEMA

SMALL = {"hidden": 8, "schema": SCHEMA}


@pytest.mark.parametrize("name", names())
def test_same_generator_same_weights(name: str) -> None:
    def make(seed: int) -> dict[str, torch.Tensor]:
        return build(name, num_features=5, num_classes=3, generator=generator(seed, "w"), **SMALL).state_dict()

    first, again, other = make(0), make(0), make(1)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    assert all(torch.isfinite(value).all() for value in first.values())


@pytest.mark.parametrize("name", [name for name in names() if "graph" in entry(name).tasks])
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_graph_task(name: str, pooling: str, make_collection) -> None:
    data = GraphTensors(make_collection())
    model = build(name, num_features=5, num_classes=4, task="graph", seed=0, pooling=pooling, layers=2, **SMALL)
    everything = model(data.full)
    assert everything.shape == (6, 4)
    assert model.head == "output."
    torch.testing.assert_close(everything, model.embed(data.full) @ model.output.weight + model.output.bias)
    chosen = np.array([5, 2])
    torch.testing.assert_close(model(data.view(chosen)), everything[chosen], atol=1e-6, rtol=1e-5)


def test_link_task_gives_embeddings(make_graph) -> None:
    data = GraphTensors(make_graph())
    for name in names():
        model = build(name, num_features=12, num_classes=3, task="link", embedding_dim=16, seed=0, **SMALL)
        assert model(data.full).shape == (30, 16)


def test_refusals() -> None:
    with pytest.raises(UnsupportedError, match=r"'sgc' has no graph task; models that do: classic, gat, gcn"):
        build("sgc", num_features=5, num_classes=3, task="graph", seed=0)
    with pytest.raises(ConfigError, match="exactly one"):
        build("gcn", num_features=5, num_classes=3)
    with pytest.raises(ConfigError, match="exactly one"):
        build("gcn", num_features=5, num_classes=3, seed=0, generator=generator(0))
    with pytest.raises(ConfigError, match="num_features must be at least 1"):
        build("gcn", num_features=0, num_classes=3, seed=0)
    with pytest.raises(ConfigError, match=r"did you mean 'model\.hidden'"):
        build("gcn", num_features=5, num_classes=3, seed=0, hiddn=3)


def test_build_from_settings() -> None:
    settings = resolve("gcn", {"hidden": [7, 6]})
    model = build(settings, num_features=5, num_classes=3, seed=0)
    assert [tuple(layer.weight.shape) for layer in model.layers] == [(5, 7), (7, 6), (6, 3)]


@pytest.mark.parametrize("name", models.pools())
def test_pools_build_and_run(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    widths = set()
    for kind, overrides in pool(name):
        model = build(kind, num_features=12, num_classes=3, seed=0, **overrides)
        assert model(view).shape == (30, 3)
        widths.add(model.embed(view).shape[1])
    if name == "fedpg":
        assert widths == {64}  # its clients exchange embeddings


def test_exports() -> None:
    for name in models.__all__:
        assert getattr(models, name) is not None
    assert set(models.__all__) <= set(dir(models))
    with pytest.raises(AttributeError):
        models.nothing  # noqa: B018
