"""What the builders of silos share: subgraphs, global ids in local numbers, and the disjoint union of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import PARTS, SPLITS, Features, Graph
from graphsilo.data.partition.adjacency import both_directions
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.silo import Items, Silo
from graphsilo.types import ClientId, Mask, NodeIds


def induce_subgraph(
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
    """The graph with the links that a rule added, in both directions where ``typed.keep_forward`` does not mind."""
    if partition.added_edges is None:
        return graph
    added = both_directions(np.concatenate(partition.added_edges, axis=1))
    if graph.links is not None or graph.time is not None:
        from graphsilo.data.silos.typed import keep_forward

        added = keep_forward(graph, added, f"the rule '{partition.rule}'")
    weights = graph.edge_weights
    if weights is not None:
        weights = np.concatenate([weights, np.ones(added.shape[1], dtype=np.float32)])
    return replace(graph, edges=np.concatenate([graph.edges, added], axis=1), edge_weights=weights)


def with_more_nodes(graph: Graph, features: Features, edges: NDArray[np.int64]) -> Graph:
    """The graph with unlabelled nodes behind its own, of which nothing is known but features and links.

    Types, tables of links, times and the like, which they do not have, are left out for all.

    Args:
        graph: With n nodes.
        features: [n + m, d] of its nodes and the new ones.
        edges: [2, e] further ones, of weight 1.
    """
    count, weights = features.shape[0] - graph.num_nodes, graph.edge_weights
    unknown: dict[str, Any] = dict.fromkeys(("node_ids", "node_names", "time", *PARTS))
    return replace(
        graph,
        features=features,
        edges=np.concatenate([graph.edges, edges], axis=1),
        labels=np.concatenate([graph.labels, np.full(count, -1, dtype=np.int64)]),
        edge_weights=None if weights is None else np.concatenate([weights, np.ones(edges.shape[1], np.float32)]),
        splits={},
        **unknown,
    )


def detach(graph: Graph, whole: Partition, partition: Partition) -> Graph:
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
    from graphsilo.data.silos.untrained import refuse_untrained

    refuse_untrained(silos, what, split)
