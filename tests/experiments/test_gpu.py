"""Every method on a CUDA device: it comes close to the CPU and repeats itself, and models are computed there.

In bfloat16 as well, which comes close to float32. And a run there is the same however it is carried out.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo import models
from graphsilo.data.sources import catalog
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.models import GraphTensors
from graphsilo.training.local import LocalTrainer
from kit import runs
from kit.stopped import Stop, StopAfter

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)  # at once: its tests are many
pytestmark = pytest.mark.gpu
METHODS = registry.names()
PRECISIONS = ["float32", "bfloat16"]
IN_BOTH = [
    (method, precision)
    for method in METHODS
    for precision in PRECISIONS
    if precision == "float32" or registry.load(method).backbone
]
"""A method without a backbone refuses bfloat16."""


def scores(small, method, device, **more):
    config = small(method__name=method, run__device=device, method__rounds=3, **runs.quick(method), **more)
    (seed,) = run(config).tree["seeds"]
    return [row["test"]["accuracy"] for row in seed["rounds"]]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("method", [method for method in METHODS if registry.load(method).backbone])
def test_computes_on_the_device(small, method, precision):
    gc.collect()  # what an earlier run left would be freed in this one, and its room taken
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = scores(small, method, "cuda", run__precision=precision)
    assert torch.cuda.max_memory_allocated() > before
    assert all(0 <= value <= 1 for value in found)


@pytest.mark.parametrize(("method", "precision"), IN_BOTH)
def test_repeats_itself(small, method, precision):
    again = {"run__precision": precision}
    assert scores(small, method, "cuda", **again) == scores(small, method, "cuda", **again)


@pytest.mark.parametrize("model", [name for name in models.names() if "node" in models.entry(name).tasks])
def test_bfloat16_rounds_the_products_of_every_backbone(model):
    """Forwards and backwards, with the float32 results of the same weights beside them."""
    options = {"hidden": 8, **({"layers": 3} if model.startswith("gcnii") else {})}
    graph = catalog.load("citation-sbm", options={"generator": {"nodes": 60, "classes": 3, "features": 12}})
    view = GraphTensors(graph, device="cuda").full
    found = []
    for precision in PRECISIONS:
        built = models.build(model, num_features=12, num_classes=3, seed=0, precision=precision, **options).to("cuda")
        output = built(view)
        slopes = torch.autograd.grad(output.square().sum(), list(built.parameters()))
        assert output.dtype is torch.float32
        found.append((output, torch.cat([slope.flatten() for slope in slopes])))
    for exact, rounded in zip(*found, strict=True):
        assert not torch.equal(exact, rounded)
        assert (exact - rounded).norm() <= 0.1 * exact.norm()


def test_bfloat16_learns_as_float32_does(small):
    settings = {"model__dropout": 0.0, "run__seeds": [0]}
    assert scores(small, "fedavg", "cuda", **settings, run__precision="bfloat16") == pytest.approx(
        scores(small, "fedavg", "cuda", **settings), abs=0.05
    )


def test_without_dropout_the_cpu_is_followed_closely(small):
    settings = {"model__dropout": 0.0, "run__seeds": [0]}
    assert scores(small, "fedavg", "cuda", **settings) == pytest.approx(
        scores(small, "fedavg", "cpu", **settings), abs=0.05
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", ["gcn", "sage", "sgc", "mlp"])
def test_a_step_waits_for_nothing(small, model, precision, monkeypatch):
    """Reading a number back, or copying a mask over, stops the device: no step after the first may."""
    seen, epochs = set(), LocalTrainer.run

    def strict(self, *arguments, **options):
        if self not in seen:  # the first time constants are made and copied
            seen.add(self)
            return epochs(self, *arguments, **options)
        torch.cuda.set_sync_debug_mode("error")
        try:
            return epochs(self, *arguments, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(LocalTrainer, "run", strict)
    scores(small, "fedavg", "cuda", model__name=model, run__precision=precision)
    assert seen


@pytest.fixture
def learned(small, tmp_path):
    """The numbers of a run and every byte of its models."""

    def carry_out(name, method, **more):
        settings = {"method__name": method, **runs.quick(method), "run__device": "cuda", "evaluation__models": True}
        return runs.learned(small(**{**settings, **more}), tmp_path / name)

    return carry_out


@pytest.mark.parametrize("method", METHODS)
def test_the_same_offloaded_and_in_workers(learned, method):
    whole = learned("whole", method)
    assert whole == learned("offloaded", method, run__resident_clients=1)
    assert whole == learned("spread", method, run__workers=2)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_after_a_stop(small, learned, tmp_path, method):
    again = {"run__checkpoint_every": 1}
    whole = learned("whole", method, **again)
    config = small(method__name=method, **runs.quick(method), run__device="cuda", evaluation__models=True, **again)
    try:
        run(config, out=tmp_path / "stopped", observer=StopAfter(0, 2))
        pytest.skip("it has no second round to be stopped after")
    except Stop:
        assert whole == learned("stopped", method, **again)


NODE_MODELS = [name for name in models.names() if "node" in models.entry(name).tasks]


@pytest.mark.parametrize("model", NODE_MODELS)
def test_every_backbone_follows_the_cpu(small, model):
    settings = {"model__name": model, "run__seeds": [0], **({"model__layers": 3} if model.startswith("gcnii") else {})}
    if "dropout" in models.entry(model).settings.model_fields:
        settings["model__dropout"] = 0.0
    assert scores(small, "fedavg", "cuda", **settings) == pytest.approx(
        scores(small, "fedavg", "cpu", **settings), abs=0.1
    )


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_neighbourhoods_are_drawn(learned, model):
    plain = {"model__name": model, "method__batch_size": 16}
    drawn = learned("drawn", "fedavg", **plain, method__fan_out=[3, 2])
    assert drawn == learned("again", "fedavg", **plain, method__fan_out=[3, 2])
    assert drawn[1] != learned("whole", "fedavg", **plain)[1]


@pytest.mark.parametrize(
    "more",
    [
        *runs.AROUND,
        {"method__participation": 0.5, "evaluation__share": 0.5},
    ],
    ids=str,
)
def test_what_surrounds_a_method_works(small, more):
    tree = run(small(run__device="cuda", **more)).tree
    assert all(0 <= seed["test"]["accuracy"] <= 1 for seed in tree["seeds"])


@pytest.mark.parametrize(
    ("method", "task"),
    [(method, task) for method in METHODS for task in ("graph", "link") if task in registry.load(method).tasks],
)
def test_graphs_and_links_repeat_themselves(learned, molecules, method, task):
    data = {"data__name": str(molecules), "data__generator": None} if task == "graph" else {}
    assert learned("once", method, task=task, **data) == learned("again", method, task=task, **data)


def test_predictions_on_the_cpu_of_models_from_the_gpu(small, tmp_path):
    run(small(run__device="cuda", evaluation__models=True), out=tmp_path / "run")
    found = graphsilo.predict(tmp_path / "run", client=0).probabilities
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)
