"""Several graphs, or collections of them, as one: their disjoint union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.links import join_parts
from graphsilo.data.sources.transforms import stack_features
from graphsilo.errors import UnsupportedError
from graphsilo.types import NodeIds


def first_numbers(graphs: Sequence[Graph | GraphCollection]) -> NDArray[np.int64]:
    """[graphs] the number that the first item of each gets in their disjoint union."""
    sizes = np.array([graph.num_items for graph in graphs], dtype=np.int64)
    return np.cumsum(sizes) - sizes


def disjoint_union(graphs: Sequence[Graph | GraphCollection]) -> Graph | GraphCollection:
    """Disjoint union: numbers run on from one graph to the next.

    Raises:
        UnsupportedError: Some are single graphs and others collections.
    """
    if len(graphs) == 1:
        return graphs[0]
    if all(isinstance(graph, GraphCollection) for graph in graphs):
        many = [graph for graph in graphs if isinstance(graph, GraphCollection)]
        sizes = np.concatenate([np.diff(collection.pointer) for collection in many])
        return GraphCollection(
            union=disjoint_union([collection.union for collection in many]).union,
            pointer=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            labels=np.concatenate([collection.labels for collection in many]),
            num_classes=max(collection.num_classes for collection in many),
            name="+".join(dict.fromkeys(collection.name for collection in many)),
            graph_ids=_join_ids([collection.graph_ids for collection in many]),
        )
    single = [graph for graph in graphs if isinstance(graph, Graph)]
    if len(single) != len(graphs):
        raise UnsupportedError("silos of single graphs and silos of collections cannot be pooled together.")
    shifts = first_numbers(single)
    return replace(
        single[0],
        features=stack_features([graph.features for graph in single]),
        edges=np.concatenate([graph.edges + shift for graph, shift in zip(single, shifts, strict=True)], axis=1),
        labels=np.concatenate([graph.labels for graph in single]),
        num_classes=max(graph.num_classes for graph in single),
        name="+".join(dict.fromkeys(graph.name for graph in single)),
        splits={},
        node_ids=_join_ids([graph.node_ids for graph in single]),
        node_names=_join_names(single),
        edge_weights=_join_weights(single),
        owners=None,
        **join_parts(single, shifts.tolist()),
    )


def _join_weights(graphs: Sequence[Graph]) -> NDArray[np.float32] | None:
    """[edges] weights of all graphs, 1 for the edges of a graph without weights; None if none has weights."""
    if all(graph.edge_weights is None for graph in graphs):
        return None
    ones = [np.ones(graph.num_edges, dtype=np.float32) for graph in graphs]
    return np.concatenate(
        [one if g.edge_weights is None else g.edge_weights for g, one in zip(graphs, ones, strict=True)]
    )


def _join_names(graphs: Sequence[Graph]) -> NDArray[np.str_] | None:
    """The table's names by global id where all graphs are parts of one table; None where they come from several."""
    first = graphs[0].node_names
    return first if all(graph.node_names is first and graph.node_ids is not None for graph in graphs) else None


def _join_ids(ids: Sequence[NodeIds | None]) -> NodeIds | None:
    known = [part for part in ids if part is not None]
    return np.concatenate(known) if len(known) == len(ids) else None
