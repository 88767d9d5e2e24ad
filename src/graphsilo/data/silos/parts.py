"""What the builders of silos share: subgraphs, global ids in local numbers, and the disjoint union of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph, GraphCollection
from graphsilo.data.partition.adjacency import both_directions
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.silo import Items, Silo
from graphsilo.errors import DataError, PartitionError, UnsupportedError
from graphsilo.types import ClientId, Mask, NodeIds

_FEW = 5
"""Items of the commonest class below which there may be as many classes as items."""


def induced(
    graph: Graph,
    nodes: NodeIds,
    columns: NDArray[np.int64] | None = None,
    table: NDArray[np.signedinteger] | None = None,
) -> Graph:
    """The subgraph of ``nodes`` without the graph's own splits; see :meth:`Graph.subgraph`."""
    return replace(graph.subgraph(nodes, columns=columns, table=table), splits={})


def keep_edges(graph: Graph, kept: Mask) -> Graph:
    """The graph with only those edges, and their weights, where the mask over columns is true."""
    weights = None if graph.edge_weights is None else graph.edge_weights[kept]
    return replace(graph, edges=np.ascontiguousarray(graph.edges[:, kept]), edge_weights=weights)


def with_added_links(graph: Graph, partition: Partition) -> Graph:
    """The graph with the links that a rule added, in both directions."""
    if partition.added_edges is None:
        return graph
    added = both_directions(np.concatenate(partition.added_edges, axis=1))
    weights = graph.edge_weights
    if weights is not None:
        weights = np.concatenate([weights, np.ones(added.shape[1], dtype=np.float32)])
    return replace(graph, edges=np.concatenate([graph.edges, added], axis=1), edge_weights=weights)


def detached(graph: Graph, whole: Partition, partition: Partition) -> Graph:
    """The graph without the edges of nodes that only left-out clients hold: no path leads through these any more.

    Args:
        graph: With all edges.
        whole: The cut.
        partition: The same without some clients.
    """
    gone = np.zeros(graph.num_nodes, dtype=bool)
    for client in partition.absent:
        gone[whole.nodes[client]] = True
    gone[np.concatenate(partition.nodes)] = False
    return keep_edges(graph, ~(gone[graph.edges[0]] | gone[graph.edges[1]])) if gone.any() else graph


def local_numbers(nodes: NodeIds, ids: NodeIds) -> Items:
    """Ascending local numbers of those ids that are among ``nodes``. O(nodes · log nodes), however large the graph."""
    return np.flatnonzero(np.isin(nodes, ids))


def split_items(nodes: NodeIds, partition: Partition, client: ClientId) -> dict[str, Items]:
    """Local numbers of a client's training, validation and test items that are among ``nodes``."""
    return {name: local_numbers(nodes, getattr(partition, name)[client]) for name in SPLITS}


NO_LABELS = (
    "Say which column or attribute holds the class (nodes.label in a description of tables, graphsilo.graph_of(data, "
    "labels=...) in Python), or ask for task=link, which needs none."
)


def require_training(silos: Sequence[Silo], what: str, split: str = "stratified") -> None:
    """One client without training items only receives; a federation in which nobody has any learns nothing.

    Args:
        silos: All that are there.
        what: An item.
        split: How the items were divided.

    Raises:
        DataError: Nobody has a label.
        PartitionError: Nobody has a training item for another reason; says it.
    """
    if not silos or any(len(silo.train) for silo in silos):
        return
    labels = np.concatenate([silo.graph.labels for silo in silos])
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    if not len(counts):
        raise DataError(f"none of the {len(labels)} {what}s has a label. {NO_LABELS}")
    if split == "predefined":
        raise PartitionError(
            f"the training masks choose no {what} that has a label, and {counts.sum()} of {len(labels)} {what}s have "
            f"one: mend the masks, or divide the {what}s anew with partition.split=stratified."
        )
    cause = ""
    if counts.max() < _FEW:
        cause = (
            f" The labels name {len(counts)} classes for {counts.sum()} {what}s, at most {counts.max()} of each: do "
            f"they hold ids, or something measured, which must be cut into classes first?"
        )
    raise PartitionError(
        f"no client has a {what} to train on: ask for fewer clients, or raise the training ratio.{cause}"
    )


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
            graph_ids=_joined_ids([collection.graph_ids for collection in many]),
        )
    single = [graph for graph in graphs if isinstance(graph, Graph)]
    if len(single) != len(graphs):
        raise UnsupportedError("silos of single graphs and silos of collections cannot be pooled together.")
    from graphsilo.data.sources.transforms import stack_features

    shifts = first_numbers(single)
    return replace(
        single[0],
        features=stack_features([graph.features for graph in single]),
        edges=np.concatenate([graph.edges + shift for graph, shift in zip(single, shifts, strict=True)], axis=1),
        labels=np.concatenate([graph.labels for graph in single]),
        num_classes=max(graph.num_classes for graph in single),
        name="+".join(dict.fromkeys(graph.name for graph in single)),
        splits={},
        node_ids=_joined_ids([graph.node_ids for graph in single]),
        node_names=_joined_names(single),
        edge_weights=_joined_weights(single),
    )


def _joined_weights(graphs: Sequence[Graph]) -> NDArray[np.float32] | None:
    """[edges] weights of all graphs, 1 for the edges of a graph without weights; None if none has weights."""
    if all(graph.edge_weights is None for graph in graphs):
        return None
    ones = [np.ones(graph.num_edges, dtype=np.float32) for graph in graphs]
    return np.concatenate(
        [one if g.edge_weights is None else g.edge_weights for g, one in zip(graphs, ones, strict=True)]
    )


def _joined_names(graphs: Sequence[Graph]) -> NDArray[np.str_] | None:
    """The table's names by global id where all graphs are parts of one table; None where they come from several."""
    first = graphs[0].node_names
    return first if all(graph.node_names is first and graph.node_ids is not None for graph in graphs) else None


def _joined_ids(ids: Sequence[NodeIds | None]) -> NodeIds | None:
    known = [part for part in ids if part is not None]
    return np.concatenate(known) if len(known) == len(ids) else None
