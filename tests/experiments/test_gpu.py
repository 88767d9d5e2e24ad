"""Every method on a CUDA device: it really computes there, comes close to the CPU, and repeats itself."""

from __future__ import annotations

import pytest
import torch

from graphsilo.experiments.conformance import SHORT
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.training.local import LocalTrainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
METHODS = registry.names()


def scores(small, method, device, **more):
    settings = {f"method__{key}": value for key, value in SHORT.get(method, {}).items()}
    config = small(method__name=method, run__device=device, method__rounds=3, **settings, **more)
    (seed,) = run(config).tree["seeds"]
    return [row["test"]["accuracy"] for row in seed["rounds"]]


@pytest.mark.parametrize("method", METHODS)
def test_computes_on_the_device(small, method):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = scores(small, method, "cuda")
    assert torch.cuda.max_memory_allocated() > before
    assert all(0 <= value <= 1 for value in found)


@pytest.mark.parametrize("method", METHODS)
def test_repeats_itself(small, method):
    assert scores(small, method, "cuda") == scores(small, method, "cuda")


def test_without_dropout_the_cpu_is_followed_closely(small):
    settings = {"model__dropout": 0.0, "run__seeds": [0]}
    assert scores(small, "fedavg", "cuda", **settings) == pytest.approx(
        scores(small, "fedavg", "cpu", **settings), abs=0.05
    )


@pytest.mark.parametrize("model", ["gcn", "sage", "sgc", "mlp"])
def test_a_step_waits_for_nothing(small, model, monkeypatch):
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
    scores(small, "fedavg", "cuda", model__name=model)
    assert seen
