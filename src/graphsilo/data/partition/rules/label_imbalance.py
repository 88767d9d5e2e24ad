"""Label imbalance: many small groups, joined into clients by the similarity of their label histograms.

Four rules share the second step (histogram, k-means) and differ in the groups:

- ``louvain+``: the balanced Louvain split into 100 virtual clients, as O-pFGL's tables use it; groups of similar
  size, so clients differ less in size.
- ``louvain+plain``: plain Louvain communities, as in OpenFGL.
- ``metis+``: 100 Metis parts; empty parts are dropped and the others renumbered.
- ``metis+plain``: 100 Metis parts as in OpenFGL, where an empty part has no histogram (0/0): refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import members
from graphsilo.data.partition.rule import OPENFGL, Cut, Rule
from graphsilo.data.partition.rules.louvain import CommunityOptions, LouvainOptions, balance, communities
from graphsilo.data.partition.rules.metis import PartOptions, membership
from graphsilo.errors import ConfigError, PartitionError
from graphsilo.settings import setting
from graphsilo.types import NodeIds


class LouvainPlusOptions(LouvainOptions):
    """Settings of ``louvain+``."""

    virtual_clients: int = setting(100, "groups made before k-means", ge=1)


class LouvainPlainOptions(CommunityOptions):
    """Settings of ``louvain+plain``."""


class MetisPlusOptions(PartOptions):
    """Settings of ``metis+`` and ``metis+plain``."""

    parts: int = setting(100, "groups made before k-means", ge=1)


def label_histograms(labels: NDArray[np.int64], groups: Sequence[NodeIds], num_classes: int) -> NDArray[np.float64]:
    """[groups, classes] share of each class among a group's labelled nodes; zeros where it has none."""
    sizes = np.array([len(group) for group in groups], dtype=np.int64)
    nodes = np.concatenate([*groups, np.zeros(0, dtype=np.int64)])
    number = np.repeat(np.arange(len(groups)), sizes)
    known = labels[nodes] >= 0
    flat = number[known] * num_classes + labels[nodes][known]
    counts = np.bincount(flat, minlength=len(groups) * num_classes).reshape(len(groups), num_classes)
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), dtype=np.float64)


def join(graph: Graph, groups: Sequence[NodeIds], clients: int, *, seed: int, rule: str) -> tuple[NodeIds, ...]:
    """Join groups into clients by k-means on their label histograms (10 starts, seeded).

    Returns:
        Node ids of each client: its groups one after the other.

    Raises:
        PartitionError: Fewer groups, or fewer different histograms, than clients.
    """
    from sklearn.cluster import KMeans

    if len(groups) < clients:
        raise PartitionError(
            f"partition '{rule}' gave {len(groups)} groups, {clients} clients asked for: make more groups "
            f"({'raise resolution' if 'louvain' in rule else 'raise parts'}), ask for fewer clients, or use 'metis'."
        )
    histograms = label_histograms(graph.labels, groups, graph.num_classes)
    different = len(np.unique(histograms, axis=0))
    if different < clients:
        raise PartitionError(
            f"partition '{rule}' gave {len(groups)} groups with only {different} different label histograms, "
            f"{clients} clients asked for: ask for fewer clients, or use 'metis' or 'dirichlet'."
        )
    found = KMeans(n_clusters=clients, random_state=seed, n_init=10).fit(histograms).labels_
    if len(np.unique(found)) < clients:
        raise PartitionError(
            f"partition '{rule}': k-means filled only {len(np.unique(found))} of {clients} clients; ask for fewer."
        )
    return tuple(
        np.concatenate([groups[i] for i in np.flatnonzero(found == client).tolist()]) for client in range(clients)
    )


def cut_louvain_plus(graph: Graph, clients: int, seed: int, options: LouvainPlusOptions) -> Cut:
    """Balanced Louvain into virtual clients, then label histograms and k-means.

    Raises:
        ConfigError: There are fewer virtual clients than clients.
        PartitionError: The groups do not suffice for the clients.

    Source: O-pFGL's release (Yan et al., arXiv 2411.11304).
    """
    if options.virtual_clients < clients:
        raise ConfigError(
            f"'louvain+' joins virtual clients into clients: {clients} clients need at least as many "
            f"virtual_clients; got {options.virtual_clients}."
        )
    groups = [group for group in balance(graph, options.virtual_clients, options) if len(group)]
    return Cut(join(graph, groups, clients, seed=seed, rule="louvain+"))


def cut_louvain_plain(graph: Graph, clients: int, seed: int, options: LouvainPlainOptions) -> Cut:
    """Plain Louvain communities, then label histograms and k-means.

    Raises:
        PartitionError: The communities do not suffice for the clients.

    Source: OpenFGL, "Louvain-based Label Imbalance Split".
    """
    groups = communities(graph, resolution=options.resolution, cut_seed=options.cut_seed)
    return Cut(join(graph, groups, clients, seed=seed, rule="louvain+plain"))


def cut_metis_plus(graph: Graph, clients: int, seed: int, options: MetisPlusOptions) -> Cut:
    """Metis parts without the empty ones, then label histograms and k-means.

    Raises:
        PartitionError: The parts do not suffice for the clients.
    """
    return Cut(join(graph, _parts(graph, options, "metis+"), clients, seed=seed, rule="metis+"))


def cut_metis_plain(graph: Graph, clients: int, seed: int, options: MetisPlusOptions) -> Cut:
    """The same where no part may be empty.

    Raises:
        PartitionError: A part is empty, or the parts do not suffice for the clients.

    Source: OpenFGL, "Metis-based Label Imbalance Split".
    """
    groups = _parts(graph, options, "metis+plain")
    if len(groups) < options.parts:
        raise PartitionError(
            f"partition 'metis+plain': {options.parts - len(groups)} of {options.parts} Metis parts are empty and "
            f"have no label histogram. Lower parts, or use 'metis+', which drops empty parts."
        )
    return Cut(join(graph, groups, clients, seed=seed, rule="metis+plain"))


def _parts(graph: Graph, options: MetisPlusOptions, rule: str) -> list[NodeIds]:
    if options.parts > graph.num_nodes:
        raise PartitionError(
            f"partition '{rule}' cannot make {options.parts} parts of {graph.num_nodes} nodes: set parts from 1 to "
            f"{graph.num_nodes}."
        )
    found = membership(graph, options.parts, recursive=options.recursive, cut_seed=options.cut_seed)
    return [group for group in members(found, options.parts) if len(group)]


RULES = (
    Rule(
        "louvain+", "label imbalance: 100 balanced communities joined by the similarity of their labels",
        LouvainPlusOptions, cut_louvain_plus, source="O-pFGL (Yan et al., arXiv 2411.11304)",
    ),
    Rule(
        "louvain+plain", "label imbalance: plain communities joined by the similarity of their labels",
        LouvainPlainOptions, cut_louvain_plain, source=OPENFGL,
    ),
    Rule(
        "metis+", "label imbalance: 100 Metis parts joined by the similarity of their labels, empty parts dropped",
        MetisPlusOptions, cut_metis_plus, source=OPENFGL,
    ),
    Rule(
        "metis+plain", "label imbalance: 100 Metis parts joined by the similarity of their labels, empty parts refused",
        MetisPlusOptions, cut_metis_plain, source=OPENFGL,
    ),
)  # fmt: skip
