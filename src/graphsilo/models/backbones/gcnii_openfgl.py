"""OpenFGL's GCNII: two layers, no identity mapping, no activation between them."""

from __future__ import annotations

from typing import Any

from graphsilo.models.backbones.gcnii import GCNII
from graphsilo.models.settings import MOST, EvenSettings, ModelEntry
from graphsilo.settings import setting
from graphsilo.types import Task


class GCNIIOpenFGLSettings(EvenSettings):
    """Settings of ``gcnii_openfgl``."""

    layers: int = setting(2, "graph convolutions; a linear layer stands before and behind them", ge=1, le=MOST)
    alpha: float = setting(0.1, "share of the first hidden layer in each convolution's input", ge=0, le=1)

    def arguments(self, task: Task) -> dict[str, Any]:
        return {**super().arguments(task), "theta": None, "activate": False}


BACKBONE = ModelEntry(
    name="gcnii_openfgl",
    summary="OpenFGL's gcnii: two layers, no identity mapping, no activation between them",
    paper="Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
    settings=GCNIIOpenFGLSettings,
    network=GCNII,
    graphs=True,
    edge_weights=True,
)
