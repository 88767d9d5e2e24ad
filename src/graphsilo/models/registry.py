"""The list of models, and pools of different ones. Imports no torch: the command line reads it.

A package may add models through the entry point group ``graphsilo.models``, each entry point naming a ModelEntry.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.models.settings import (
    APPNPFeaturesSettings,
    APPNPSettings,
    GAMLPSettings,
    GATSettings,
    GCNIIOpenFGLSettings,
    GCNIISettings,
    GCNSettings,
    GINSettings,
    MLPSettings,
    ModelSettings,
    SAGESettings,
    SGCSettings,
    SIGNSettings,
    SSGCMLPSettings,
    SSGCSettings,
    StackedSGCSettings,
)
from graphsilo.types import Task

GROUP = "graphsilo.models"


@dataclass(frozen=True)
class ModelEntry:
    """One line of the list of models.

    Attributes:
        name: As in configuration files.
        summary: One line for people.
        paper: Citation.
        settings: The class of its settings.
        path: ``module:Class`` of a Model; imported when a model is built.
        tasks: What it can be used for.
        aliases: Other names it answers to.
        edge_weights: Whether it can be run where edges have weights: they enter its sums, or it sees no edge.
    """

    name: str
    summary: str
    paper: str
    settings: type[ModelSettings]
    path: str
    tasks: tuple[Task, ...] = ("node", "link")
    aliases: tuple[str, ...] = ()
    edge_weights: bool = False


_ALL: tuple[Task, ...] = ("node", "link", "graph")
_HERE = "graphsilo.models"

_BUILT_IN = (
    ModelEntry(
        "mlp",
        "linear layers; sees no edge",
        "structure-free baseline",
        MLPSettings,
        f"{_HERE}.mlp:MLP",
        _ALL,
        edge_weights=True,
    ),
    ModelEntry(
        "gcn",
        "graph convolutions with the symmetrically normalised adjacency",
        "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
        GCNSettings,
        f"{_HERE}.gcn:GCN",
        _ALL,
        edge_weights=True,
    ),
    ModelEntry(
        "sage",
        "GraphSAGE with mean aggregation",
        "Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        SAGESettings,
        f"{_HERE}.sage:SAGE",
        _ALL,
        ("graphsage",),
        edge_weights=True,
    ),
    ModelEntry(
        "gat",
        "neighbours weighted by learned attention",
        "Veličković et al., Graph Attention Networks, ICLR 2018",
        GATSettings,
        f"{_HERE}.gat:GAT",
        _ALL,
    ),
    ModelEntry(
        "gin",
        "an MLP on a node plus the sum of its neighbours",
        "Xu et al., How Powerful are Graph Neural Networks?, ICLR 2019",
        GINSettings,
        f"{_HERE}.gin:GIN",
        _ALL,
    ),
    ModelEntry(
        "sgc",
        "a linear model on features propagated K times",
        "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
        SGCSettings,
        f"{_HERE}.sgc:SGC",
        edge_weights=True,
    ),
    ModelEntry(
        "sgc_stacked",
        "OpenFGL's sgc: stacked one-hop layers with ReLU between, in fact a GCN",
        "Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
        StackedSGCSettings,
        f"{_HERE}.gcn:StackedSGC",
        _ALL,
        ("sgc_openfgl",),
        edge_weights=True,
    ),
    ModelEntry(
        "ssgc",
        "S²GC: a linear model on the average of K propagation levels",
        "Zhu and Koniusz, Simple Spectral Graph Convolution, ICLR 2021",
        SSGCSettings,
        f"{_HERE}.ssgc:SSGC",
        aliases=("s2gc",),
        edge_weights=True,
    ),
    ModelEntry(
        "ssgc_mlp",
        "the federated papers' SSGC: an MLP on the mean of the propagation levels",
        "Li et al., FedGTA: Topology-aware Averaging for Federated Graph Learning, VLDB 2024",
        SSGCMLPSettings,
        f"{_HERE}.ssgc:MeanHopsMLP",
        edge_weights=True,
    ),
    ModelEntry(
        "appnp",
        "an MLP whose predictions are propagated by personalised PageRank",
        "Gasteiger, Bojchevski and Günnemann, Predict then Propagate, ICLR 2019",
        APPNPSettings,
        f"{_HERE}.appnp:APPNP",
        edge_weights=True,
    ),
    ModelEntry(
        "appnp_features",
        "O-pFGL's APPNP: personalised PageRank on the features, then an MLP",
        "Yan et al., Personalized One-shot Federated Graph Learning for Heterogeneous Clients, 2024",
        APPNPFeaturesSettings,
        f"{_HERE}.appnp:PropagatedAPPNP",
        edge_weights=True,
    ),
    ModelEntry(
        "gcnii",
        "deep graph convolutions with initial residual and identity mapping",
        "Chen et al., Simple and Deep Graph Convolutional Networks, ICML 2020",
        GCNIISettings,
        f"{_HERE}.gcnii:GCNII",
        _ALL,
        ("gcn2",),
        edge_weights=True,
    ),
    ModelEntry(
        "gcnii_openfgl",
        "OpenFGL's gcnii: two layers, no identity mapping, no activation between them",
        "Li et al., OpenFGL: A Comprehensive Benchmark for Federated Graph Learning, 2024",
        GCNIIOpenFGLSettings,
        f"{_HERE}.gcnii:GCNII",
        _ALL,
        edge_weights=True,
    ),
    ModelEntry(
        "sign",
        "an MLP on the propagation levels side by side",
        "Frasca et al., SIGN: Scalable Inception Graph Neural Networks, 2020",
        SIGNSettings,
        f"{_HERE}.sign:SIGN",
        edge_weights=True,
    ),
    ModelEntry(
        "gamlp",
        "an MLP on the propagation levels, weighed per node by attention",
        "Zhang et al., Graph Attention Multi-Layer Perceptron, KDD 2022",
        GAMLPSettings,
        f"{_HERE}.gamlp:GAMLP",
        edge_weights=True,
    ),
)

_POOLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "opfgl": (
        ("gcn", {"hidden": 64}),
        ("gcn", {"hidden": 128}),
        ("gcn", {"hidden": 256}),
        ("gcn", {"hidden": 512}),
        ("gcn", {"hidden": 64, "layers": 3}),
        ("gcn", {"hidden": 512, "layers": 3}),
        ("appnp", {}),
        ("ssgc", {}),
        ("sgc", {"hops": 2}),
        ("sgc", {"hops": 4}),
    ),
    "fedpg": (
        ("gcn", {"hidden": 64}),
        ("gin", {"hidden": 64}),
        ("sage", {"hidden": 64}),
        ("sgc", {"hidden": 64, "layers": 2}),
        ("gcnii", {"hidden": 64, "layers": 2, "dropout": 0.5}),
    ),
}


@functools.cache
def _registry() -> dict[str, ModelEntry | importlib.metadata.EntryPoint]:
    """Every name and alias. Entry points are listed without importing their package."""
    known: dict[str, ModelEntry | importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        known[point.name.lower()] = point
    # Built-in names win: a package cannot replace a model that published numbers refer to.
    for item in _BUILT_IN:
        for name in (item.name, *item.aliases):
            known[name] = item
    return known


def names() -> tuple[str, ...]:
    """Every model's name, built-in ones first; aliases are left out."""
    built_in = tuple(item.name for item in _BUILT_IN)
    added = sorted(name for name, item in _registry().items() if not isinstance(item, ModelEntry))
    return (*built_in, *added)


def entry(name: str) -> ModelEntry:
    """The list's line for a name or alias, in any case; ``-`` and ``_`` are the same.

    Raises:
        ConfigError: Nothing is known by this name, or a package's entry point is not a ModelEntry.
    """
    known = _registry()
    found = known.get(name.lower()) or known.get(name.lower().replace("-", "_"))
    if found is None:
        raise ConfigError(f"unknown model '{name}'; {nearest(name, known)}")
    if isinstance(found, ModelEntry):
        return found
    loaded = found.load()
    if not isinstance(loaded, ModelEntry):
        raise ConfigError(
            f"the entry point '{found.name}' of group {GROUP} must name a graphsilo.models.ModelEntry; "
            f"'{found.value}' is a {type(loaded).__name__}."
        )
    return loaded


def resolve(name: str, overrides: Mapping[str, Any] | None = None) -> ModelSettings:
    """The settings of a model, defaults changed by ``overrides``.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type or lies outside its range.
    Example:
        >>> resolve("gcn", {"hidden": [128, 64]}).as_dict()
        {'hidden': [128, 64], 'layers': 3, 'dropout': 0.5, 'pooling': 'sum'}
    """
    item = entry(name)
    return item.settings.of(overrides, owner=item.name)


def pools() -> tuple[str, ...]:
    """Names of the pools of different models."""
    return tuple(_POOLS)


def pool(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The models of a published experiment with different models, as (name, overrides); client k takes k mod length.

    ``opfgl``: the ten of O-pFGL. The papers' APPNP and SSGC are taken at their word; the release ran
    ``appnp_features`` for one and, by a mistake in a name test, SGC with K = 2 for the other.
    ``fedpg``: FedPG's five, all with embeddings of width 64; SGC gets a hidden layer for this, GCNII two convolutions.

    Raises:
        ConfigError: There is no such pool.
    """
    if name.lower() not in _POOLS:
        raise ConfigError(f"unknown pool of models '{name}'; {nearest(name, _POOLS)}")
    return [(model, dict(overrides)) for model, overrides in _POOLS[name.lower()]]
