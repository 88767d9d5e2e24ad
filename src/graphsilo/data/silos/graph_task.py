"""Silos for graph classification: each client holds whole graphs of one or several collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from graphsilo.data.graph import GraphCollection
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.joining import disjoint_union
from graphsilo.data.silos.parts import require_training, split_items
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.data.sources.transforms import one_hot_degree
from graphsilo.errors import DataError, several


def build_graph_silos(
    collections: GraphCollection | Sequence[GraphCollection],
    partition: Partition,
    *,
    features: Literal["strict", "degree"] = "strict",
    max_degree: int = 64,
) -> list[Silo]:
    """One silo per client for graph classification; each holds whole graphs.

    Args:
        collections: One collection, or one per client (rule ``domains``).
        partition: Made by ``partition_graphs`` of the same collections.
        features: How collections with different features are brought together: ``strict`` refuses them, ``degree``
            replaces all features by a one-hot degree: of edges out of a node, as ``data.degree_features`` counts.
        max_degree: Larger degrees share the last column.

    Raises:
        DataError: Features differ and ``strict`` was asked for.
        PartitionError: The partition does not fit, or no client has a graph to train on.
    """
    given = [collections] if isinstance(collections, GraphCollection) else list(collections)
    if features == "degree":
        given = [_with_degrees(collection, max_degree) for collection in given]
    dimensions = sorted({collection.num_features for collection in given})
    if len(dimensions) > 1:
        raise DataError(
            f"{', '.join(item.name for item in given)} have {', '.join(map(str, dimensions))} features, but clients "
            f"must agree on one number: use degree features for all of them."
        )
    whole = given[0] if len(given) == 1 else disjoint_union(given)
    assert isinstance(whole, GraphCollection)
    partition.check(whole)
    schema = Schema(
        "graph", whole.num_features, whole.num_classes, class_names=_names(given), **Schema.of_links(whole.union)
    )
    silos = []
    for client in partition.present:
        graphs = partition.nodes[client]
        held = whole.subset(graphs)
        items = split_items(graphs, partition, client)
        silos.append(
            Silo(
                client=client,
                graph=held,
                train=items["train"],
                evaluations=(EvaluationSet("seen", held, items),),
                schema=schema,
                facts={
                    "graphs": len(held),
                    "nodes": held.union.num_nodes,
                    "edges": held.union.num_edges,
                    "train": len(items["train"]),
                },
            )
        )
    require_training(silos, "graph")
    return silos


def _names(collections: Sequence[GraphCollection]) -> tuple[str, ...] | None:
    """What all call their classes, where they do.

    Raises:
        DataError: They name them differently.
    """
    named = {item.union.class_names: item.name for item in collections if item.union.class_names is not None}
    if len(named) > 1:
        (one, first), (other, second) = list(named.items())[:2]
        raise DataError(
            f"all silos must name the same classes in the same order: {first} has {several(one, 8)}, {second} has "
            f"{several(other, 8)}."
        )
    return next(iter(named), None) if all(item.union.class_names is not None for item in collections) else None


def _with_degrees(collection: GraphCollection, max_degree: int) -> GraphCollection:
    """The collection with a one-hot degree, [nodes, max_degree + 1], for features."""
    features = one_hot_degree(collection.union, max_degree=max_degree)
    return replace(collection, union=replace(collection.union, features=features, feature_names=None))
