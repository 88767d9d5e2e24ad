"""Every method on a CUDA device: it really computes there, comes close to the CPU, and repeats itself.

In bfloat16 as well, which comes close to float32.
"""

from __future__ import annotations

import pytest
import torch

from graphsilo import models
from graphsilo.data.sources import catalog
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.models import GraphTensors
from graphsilo.training.local import LocalTrainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
METHODS = registry.names()
PRECISIONS = ["float32", "bfloat16"]


def scores(small, method, device, **more):
    settings = {f"method__{key}": value for key, value in registry.load(method).quick.items()}
    config = small(method__name=method, run__device=device, method__rounds=3, **settings, **more)
    (seed,) = run(config).tree["seeds"]
    return [row["test"]["accuracy"] for row in seed["rounds"]]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("method", METHODS)
def test_computes_on_the_device(small, method, precision):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = scores(small, method, "cuda", run__precision=precision)
    assert torch.cuda.max_memory_allocated() > before
    assert all(0 <= value <= 1 for value in found)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("method", METHODS)
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
