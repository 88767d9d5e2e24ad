"""Every method with every backbone: it runs, or says at once what it wants instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from graphsilo import models
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.registry import Trial
from graphsilo.testing.settings import add_starts
from graphsilo.training import neighbour_sampling
from graphsilo.training.neighbour_sampling import SampledView
from kit.backbones import typed
from kit.broad import broadly

METHODS = {name: method for name in registry.names() if (method := registry.load(name)).backbone}
NODE_MODELS = [name for name in models.names() if "node" in models.entry(name).tasks]
LOAD = catalog.load
OWN = str(Path(__file__).resolve().parents[2] / "examples" / "own_net.py")
ADVICE = (
    r"[Uu]se --model (?P<model>\w+)|--set (?P<setting>\S+)=(?P<value>\w+)|[Ss]et model\.layers to (?P<layers>2)"
    "|[Cc]hoose|give the module a method embed"
)


@pytest.fixture(autouse=True)
def _methods_found_at_once(monkeypatch):
    """Reading every package's entry points anew would be half of these tests."""
    for name, method in METHODS.items():
        monkeypatch.setitem(registry._REGISTERED, name, method)


@pytest.fixture(autouse=True)
def _links_have_tables(monkeypatch):
    """Which backbones that read none do not see."""
    monkeypatch.setattr(catalog, "load", lambda *given, **more: typed(LOAD(*given, **more)))


def config_of(method, model, **more):
    """Two clients with 30 nodes each, one round."""
    entry = METHODS[method]
    shape = {} if model == OWN else models.entry(model).settings.model_fields
    overrides = {
        "data.name": "citation-sbm", "data.generator": {"nodes": 60, "classes": 2, "features": 12},
        "partition.rule": "random", "partition.clients": 2, "model.name": model, "method.rounds": 1,
        "evaluation.models": False, **more,
    }  # fmt: skip
    several = {"method": {"name": method, **add_starts(entry, entry.quick)}}
    if "hidden" in shape or model == OWN:
        several["model"] = {"hidden": 8}
    return load_config(several, overrides=overrides)


def runs(config):
    (seed,) = run(config).tree["seeds"]
    return 0 <= seed["test"]["accuracy"] <= 1


PAIRS = [
    pytest.param(
        method,
        model,
        id=f"{method}-{Path(model).stem}",
        marks=[] if method == "fedavg" or model == "gcn" else [pytest.mark.slow],
    )
    for method in METHODS
    for model in (*NODE_MODELS, OWN)
]
"""A module of one's own is one of the backbones."""


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_it_runs_or_says_with_what_it_would(method, model):
    try:
        assert runs(config_of(method, model))
        return
    except (ConfigError, UnsupportedError) as error:
        text = str(error)
    assert model != (registry.usual_model(method) or {"name": "gcn"}).get("name")
    advice = list(re.finditer(ADVICE, text))
    assert advice, text
    for found in advice:
        if found["layers"]:
            assert runs(config_of(method, model, **{"model.layers": 2, "model.hidden": 8}))
        if found["model"]:
            assert runs(config_of(method, found["model"]))
        if found["setting"]:
            assert runs(config_of(method, model, **{found["setting"]: yaml.safe_load(found["value"])}))


@pytest.mark.parametrize("model", ["mlp", "sign"])
@pytest.mark.parametrize("method", ["fedavg", "fedsage_plus"])
def test_neighbours_are_sampled_where_rows_are_mixed(method, model):
    with pytest.raises(ConfigError, match=f"the model {model}; use another model"):
        run(config_of(method, model, **{"method.fan_out": 2}))


SAMPLING = {
    name: trial.beside
    for name, method in METHODS.items()
    if "fan_out" in method.config.model_fields and not (trial := method.trials.get("fan_out", Trial())).reason
}
"""Methods that sample neighbours, and what must be set for it."""


@pytest.mark.parametrize("method", broadly(SAMPLING))
def test_neighbours_are_sampled_or_that_is_refused(method, monkeypatch):
    steps = []

    def view(data, items, fan_out, generator):
        steps.append(fan_out)
        return SampledView(data, items, fan_out, generator)

    monkeypatch.setattr(neighbour_sampling, "SampledView", view)
    asked = {"method.fan_out": 1, "method.batch_size": 4}
    if SAMPLING[method]:
        with pytest.raises(ConfigError, match=r"exact sums over all of them|every step computes all nodes"):
            run(config_of(method, "sage", **asked))
    beside = {f"method.{name}": value for name, value in SAMPLING[method].items()}
    assert runs(config_of(method, "sage", **asked, **beside))
    assert len(steps) >= 4
    assert set().union(*steps) == {1}
