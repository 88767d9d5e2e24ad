"""Every method with every backbone: it runs, or says at once what it wants instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo import models
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.training import objective
from graphsilo.training.neighbour_sampling import SampledView
from kit.broad import BROAD

METHODS = {name: method for name in registry.names() if (method := registry.load(name)).backbone}
NODE_MODELS = [name for name in models.names() if "node" in models.entry(name).tasks]
NO_HIDDEN_LAYER = {"sgc", "ssgc"}
"""One linear layer on propagated features: an embedding would be the features themselves."""
PROPAGATED_ONCE = {"appnp_features", "ssgc", "ssgc_mlp"}
"""No gradient for features."""
EMBEDDINGS = ("fedpg", "fedproto", "fedtgp", "fpl", "moon")

QUICKER = {
    "fedgen": {"generator_steps": 2},
    "fedlog": {"generator_epochs": 1, "networks": 1},
    "fedsage_plus": {"local_generator_epochs": 1, "generator_epochs": 1},
    "opfgl": {"surrogate_steps": 20, "stage1_epochs": 10, "stage2_epochs": 10},
}


@pytest.fixture(autouse=True)
def _methods_found_at_once(monkeypatch):
    """Reading every package's entry points anew would be half of these tests."""
    for name, method in METHODS.items():
        monkeypatch.setitem(registry._REGISTERED, name, method)


def config_of(method, model, **more):
    """Two clients with 30 nodes each, one round."""
    overrides = {
        "data.name": "citation-sbm", "data.generator": {"nodes": 60, "classes": 2, "features": 12},
        "partition.rule": "random", "partition.clients": 2, "model.name": model, "method.name": method,
        "method.rounds": 1, "evaluation.models": False,
        **{f"method.{name}": value for name, value in {**METHODS[method].quick, **QUICKER.get(method, {})}.items()},
        **({"model.hidden": 8} if model not in NO_HIDDEN_LAYER else {}),
        **({"model.layers": 2} if model.startswith("gcnii") else {}), **more,
    }  # fmt: skip
    return load_config(overrides=overrides)


def runs(config):
    (seed,) = run(config).tree["seeds"]
    return 0 <= seed["test"]["accuracy"] <= 1


PAIRS = [
    pytest.param(method, model, marks=[pytest.mark.slow] if method not in BROAD and model != "gcn" else [])
    for method in METHODS
    for model in NODE_MODELS
]


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_it_runs_or_refuses(method, model):
    config = config_of(method, model)
    if method == "fedstar" and model != "gin_fedstar":
        with pytest.raises(
            UnsupportedError, match=rf"gin_fedstar has; {model} was asked for\. Use --model gin_fedstar"
        ):
            run(config)
    elif method in EMBEDDINGS and model in NO_HIDDEN_LAYER:
        with pytest.raises(ConfigError, match=rf"{model} as it is set has no hidden layer.*Set model\.layers to 2"):
            run(config)
    elif method in ("co_boosting", "dense", "fedlog") and model in PROPAGATED_ONCE:
        with pytest.raises(UnsupportedError, match=r"propagates features once and for all.*choose gcn, sage"):
            run(config)
    elif method == "fedgen" and models.build(model, num_features=2, num_classes=2, task="node", seed=0).reach:
        with pytest.raises(UnsupportedError, match=r"cannot classify vectors that are no nodes\. Choose mlp, sgc"):
            run(config)
    elif method == "fedgcn" and model not in ("gcn", "sgc_stacked"):
        with pytest.raises(
            UnsupportedError, match=rf"{model} makes no such sums\. Use --model gcn, or --set method\.hops=0"
        ):
            run(config)
        assert runs(config_of(method, model, **{"method.hops": 0}))
    else:
        assert runs(config)


@pytest.mark.parametrize("model", sorted(NO_HIDDEN_LAYER))
@pytest.mark.parametrize("method", EMBEDDINGS)
def test_what_they_advise_works(method, model):
    assert runs(config_of(method, model, **{"model.layers": 2, "model.hidden": 8}))


@pytest.mark.parametrize("model", ["mlp", "sign"])
@pytest.mark.parametrize("method", ["fedavg", "fedsage_plus"])
def test_neighbours_are_sampled_where_rows_are_mixed(method, model):
    with pytest.raises(ConfigError, match=f"the model {model}; use another model"):
        run(config_of(method, model, **{"method.fan_out": 2}))


SAMPLING = [name for name, method in METHODS.items() if "fan_out" in method.config.model_fields]


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in BROAD else [pytest.mark.slow]) for name in SAMPLING]
)
def test_neighbours_are_sampled_or_that_is_refused(method, monkeypatch):
    steps = []

    def view(data, items, fan_out, generator):
        steps.append(fan_out)
        return SampledView(data, items, fan_out, generator)

    monkeypatch.setattr(objective, "SampledView", view)
    model = {"fedstar": "gin_fedstar", "fedgen": "gcnii"}.get(method, "sage")
    asked = {"method.fan_out": 1, "method.batch_size": 4}
    settings = {"fedgcn": {"method.hops": 0}, "moon": {"method.contrast": "train"}}.get(method, {})
    if settings:
        with pytest.raises(ConfigError, match=r"exact sums over all of them|every step computes all nodes"):
            run(config_of(method, model, **asked))
    assert runs(config_of(method, model, **asked, **settings))
    assert len(steps) >= 4
    assert set().union(*steps) == {1}


# -- a module of one's own -----------------------------------------------------------------------------------------

OWN_REFUSED = {
    "fedstar": r"gin_fedstar has; own_net\.Net was asked for",
    "fedgcn": r"own_net\.Net makes no such sums",
    "fedgen": r"'own_net\.Net' cannot classify vectors that are no nodes, .* give the module a method embed",
}
"""Methods that need a backbone which they know, or one whose head classifies vectors."""


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in BROAD else [pytest.mark.slow]) for name in METHODS]
)
def test_a_module_of_one_s_own_runs_or_is_refused(method):
    net = Path(__file__).resolve().parents[2] / "examples" / "own_net.py"
    config = config_of(method, str(net))
    if method in OWN_REFUSED:
        with pytest.raises(UnsupportedError, match=OWN_REFUSED[method]):
            run(config)
    else:
        assert runs(config)
