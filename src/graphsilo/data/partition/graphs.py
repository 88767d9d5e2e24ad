"""Cutting a collection of graphs for graph classification: each client holds whole graphs.

Source: OpenFGL's graph-level protocol (label, topology and feature skew; cross-domain).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.registry import check_clients
from graphsilo.data.partition.rule import Cut, CutOptions, PartitionOptions, Rule
from graphsilo.data.partition.rules import natural
from graphsilo.data.partition.rules.dirichlet import DirichletOptions, share_out
from graphsilo.data.partition.rules.random_nodes import deal_out
from graphsilo.data.partition.splits import GRAPH_RATIOS, check_ratios, splits_for, stratified_splits
from graphsilo.errors import ConfigError, PartitionError, nearest
from graphsilo.random import numpy_generator
from graphsilo.settings import setting
from graphsilo.types import NodeIds


class GraphOptions(PartitionOptions):
    """What every rule for collections has."""

    features: Literal["strict", "degree"] = setting(
        "strict",
        "collections with different features are refused, or all features become a one-hot degree (of edges "
        "out of a node)",
    )


class GraphDirichletOptions(DirichletOptions, GraphOptions):
    """Settings of the label Dirichlet split of graphs."""


def mean_degrees(collection: GraphCollection) -> NDArray[np.float64]:
    """[graphs] mean degree: edge columns over nodes."""
    sizes = np.diff(collection.pointer)
    owner = np.repeat(np.arange(len(collection)), sizes)
    edges = np.bincount(owner[collection.union.edges[1]], minlength=len(collection))
    return np.asarray(edges / np.maximum(sizes, 1), dtype=np.float64)


def mean_features(collection: GraphCollection) -> NDArray[np.float64]:
    """[graphs] mean feature value over a graph's nodes and columns."""
    features = collection.union.features
    rows = np.asarray(features.sum(axis=1), dtype=np.float64).reshape(-1)
    if not sp.issparse(features):
        rows = features.sum(axis=1, dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(rows)])
    totals = sums[collection.pointer[1:]] - sums[collection.pointer[:-1]]
    return np.asarray(totals / np.maximum(np.diff(collection.pointer) * collection.num_features, 1), dtype=np.float64)


def segments(values: NDArray[np.float64], clients: int, seed: int) -> list[NodeIds]:
    """Sort by value and cut into K contiguous segments of equal size; numbers ascending inside.

    The seed decides among equal values: by number it would be the order of a file, which often is by class.

    Example:
        >>> [part.tolist() for part in segments(np.array([3.0, 1.0, 2.0, 0.0]), 2, seed=0)]
        [[1, 3], [0, 2]]
    """
    ties = numpy_generator(seed, "ties").permutation(len(values))
    return [np.sort(part) for part in np.array_split(np.lexsort((ties, values)), clients)]


def _cut_sorted(collection: GraphCollection, values: NDArray[np.float64], what: str, clients: int, seed: int) -> Cut:
    """Segments by a graph's value.

    Raises:
        PartitionError: It is the same for all graphs, so that their order in the file, often by class, would decide.
    """
    if np.allclose(values, values[0], rtol=1e-9, atol=0):
        raise PartitionError(
            f"graphs were to be sorted by their {what}, and it is {values[0]:.3g} for all {len(values)} graphs of "
            f"{collection.name} (features that are one of several kinds always have one mean). Use another rule."
        )
    return Cut(tuple(segments(values, clients, seed)))


def _cut_dirichlet(given: Sequence[GraphCollection], clients: int, seed: int, options: GraphDirichletOptions) -> Cut:
    alpha, least = options.alpha, options.min_nodes
    return Cut(tuple(share_out(given[0].labels, clients, alpha=alpha, min_items=least, seed=seed, what="graphs")))


def _cut_domains(given: Sequence[GraphCollection], *_: Any) -> Cut:
    sizes = [len(collection) for collection in given]
    return Cut(tuple(np.split(np.arange(sum(sizes), dtype=np.int64), np.cumsum(sizes)[:-1])))


def _as_nodes(collection: GraphCollection) -> Graph:
    """A node for each graph, with its label, and with the owner and the splits that its nodes have."""
    union, first = collection.union, collection.pointer[:-1]
    shortened = union.subgraph(first, columns=np.zeros(0, dtype=np.int64))
    return replace(shortened, labels=collection.labels, num_classes=collection.num_classes, name=collection.name,
                   node_ids=None, links=None, targets=None)  # fmt: skip


_GRAPH_RULES = (
    Rule(
        "random", "graphs dealt out at random in equal shares", GraphOptions,
        lambda given, clients, seed, _: Cut(tuple(deal_out(len(given[0]), clients, seed))),
    ),
    Rule(
        "dirichlet", "label skew: every class shared out by Dirichlet proportions", GraphDirichletOptions,
        _cut_dirichlet,
    ),
    Rule(
        "topology", "graphs sorted by mean degree, cut into equal segments", GraphOptions,
        lambda given, clients, seed, _: _cut_sorted(given[0], mean_degrees(given[0]), "mean degree", clients, seed),
    ),
    Rule(
        "features", "graphs sorted by mean feature value, cut into equal segments", GraphOptions,
        lambda given, clients, seed, _: _cut_sorted(
            given[0], mean_features(given[0]), "mean feature value", clients, seed
        ),
    ),
    Rule(
        "natural", "the institutions that the data names, each with its own graphs", GraphOptions,
        lambda given, clients, seed, _: natural.cut(_as_nodes(given[0]), clients, seed, natural.NaturalOptions()),
        counts=True,
    ),
    Rule("domains", "cross-domain: one data set per client", GraphOptions, _cut_domains, counts=True),
)  # fmt: skip


def graph_rules() -> list[Rule]:
    """Every rule for collections of graphs."""
    return list(_GRAPH_RULES)


def partition_graphs(
    collections: GraphCollection | Sequence[GraphCollection],
    rule: str,
    *,
    clients: int | None = None,
    seed: int = 2024,
    ratios: Sequence[float] | None = None,
    options: Mapping[str, Any] | object | None = None,
) -> Partition:
    """Share whole graphs out to clients and split each client's graphs class by class.

    Args:
        collections: One collection; for ``domains`` one per client.
        rule: A name from ``graph_rules()``.
        clients: K; for ``domains`` it is the number of collections and may be left out.
        seed: Of the cut and of the splits.
        ratios: Train, val and test shares; 0.8/0.1/0.1 by default.
        options: Settings of the rule.

    Returns:
        A partition of kind ``graph``: ids are numbers of graphs, running on from one collection to the next.

    Raises:
        ConfigError: The rule, a setting or the ratios are not known, or the number of collections does not fit.
        PartitionError: There are fewer graphs than clients, or α is too small.
    """
    given = [collections] if isinstance(collections, GraphCollection) else list(collections)
    chosen = next((candidate for candidate in _GRAPH_RULES if candidate.name == rule.lower()), None)
    if chosen is None:
        tail = nearest(rule, [known.name for known in _GRAPH_RULES])
        raise ConfigError(f"there is no partition rule '{rule}' for collections of graphs: {tail}")
    CutOptions.of({"seed": seed, **({} if clients is None else {"clients": clients})})
    settings = chosen.options.of(options, owner=chosen.name)
    shares = GRAPH_RATIOS if ratios is None else check_ratios(ratios)
    if chosen.name == "domains":
        if not given or (clients is not None and clients != len(given)):
            raise ConfigError(
                f"partition 'domains' gives one data set to each client: {clients or 'some'} clients, but "
                f"{len(given)} data sets. Name as many data sets as clients."
            )
        clients = len(given)
    elif len(given) != 1:
        raise ConfigError(
            f"partition '{chosen.name}' cuts one data set, {len(given)} came; use 'domains' for one per client."
        )
    elif clients is None and not chosen.counts:
        raise ConfigError(f"partition '{chosen.name}' needs the number of clients.")
    total = sum(len(collection) for collection in given)
    if clients is not None:
        check_clients(clients, total, rule=chosen.name, what="graphs")
    nodes = (
        (np.arange(total),) if clients == 1 and not chosen.counts else chosen.cut(given, clients, seed, settings).nodes
    )
    empty = [client for client, part in enumerate(nodes) if not len(part)]
    if empty:
        raise PartitionError(
            f"partition '{chosen.name}' left client {empty[0]} without a graph: ask for fewer clients."
        )
    own = ratios is None and len(given) == 1 and given[0].union.has_own_splits
    if own:
        splits = splits_for(_as_nodes(given[0]), nodes, mode="predefined", ratios=shares, seed=seed)
    else:
        labels = np.concatenate([collection.labels for collection in given])
        splits = stratified_splits(labels, nodes, shares, seed=seed)
    return Partition(
        rule=chosen.name,
        seed=seed,
        data="+".join(collection.name for collection in given),
        num_nodes=total,
        nodes=nodes,
        train=tuple(part[0] for part in splits),
        val=tuple(part[1] for part in splits),
        test=tuple(part[2] for part in splits),
        options=settings.model_dump(exclude={"features"}),
        split="predefined" if own else "stratified",
        ratios=None if own else shares,
        kind="graph",
    )
