"""OpenFGL's SGC, in fact a GCN: stacked one-hop layers with ReLU between them."""

from __future__ import annotations

from graphsilo.models.backbones.gcn import GCN
from graphsilo.models.settings import LayeredSettings, ModelEntry


class StackedSGCSettings(LayeredSettings):
    """Settings of ``sgc_stacked``."""


class StackedSGC(GCN):
    """What OpenFGL calls ``sgc``: SGConv layers with K = 1 each, ReLU and dropout between them, which is a GCN.

    Kept under its own name so that its published numbers are not taken for SGC's; the true one is ``sgc``.
    """


BACKBONE = ModelEntry(
    name="sgc_stacked",
    summary="OpenFGL's sgc: stacked one-hop layers with ReLU between, in fact a GCN",
    paper="Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
    settings=StackedSGCSettings,
    network=StackedSGC,
    graphs=True,
    aliases=("sgc_openfgl",),
    edge_weights=True,
)
