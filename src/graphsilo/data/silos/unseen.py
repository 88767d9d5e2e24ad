"""Silos that are asked about what they never saw: classes, nodes, a new client (scenarios ``unseen`` and ``open``).

Source: FedLoG (Kim et al., ICLR 2025, appendix F).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.silos.parts import induce_subgraph, keep_edges, split_items
from graphsilo.data.silos.scenarios import Context, facts_of
from graphsilo.data.silos.silo import EvaluationSet, Silo
from graphsilo.types import Mask, NodeIds


def missing_classes(
    labels: NDArray[np.int64],
    nodes: NodeIds,
    train: NodeIds,
    *,
    num_classes: int,
    missing: str = "smallest_present",
    min_missing_nodes: int = 0,
) -> list[int]:
    """Classes that a client loses, ascending.

    Args:
        labels: [N] classes of all nodes.
        nodes, train: Global ids of the client's nodes and training nodes.
        num_classes: C.
        missing: ``smallest_present`` or ``absent``; see ``ScenarioOptions``.
        min_missing_nodes: Smallest number of local nodes to remove, as long as one class stays.

    Source: FedLoG, appendix F, as its published node counts show.
    """
    counts = np.bincount(labels[train], minlength=num_classes)
    own = labels[nodes]
    local = np.bincount(own[own >= 0], minlength=num_classes)
    present = [int(label) for label in np.argsort(counts, kind="stable") if counts[label] > 0]
    lost = np.flatnonzero(counts == 0).tolist()
    if missing == "absent":
        return sorted(lost)
    while len(present) > 1:
        lost.append(present.pop(0))
        if local[lost].sum() >= min_missing_nodes:
            break
    return sorted(lost)


def grow(adjacency: sp.csr_matrix, nodes: NodeIds, *, hops: int, allowed: Mask | None = None) -> NodeIds:
    """Nodes within ``hops`` of ``nodes`` and not among them, ascending; only through and to ``allowed`` nodes."""
    reached = np.zeros(adjacency.shape[0], dtype=bool)
    reached[nodes] = True
    frontier = nodes
    added = [np.zeros(0, dtype=np.int64)]
    for _ in range(hops):
        fresh = np.unique(adjacency[frontier].indices).astype(np.int64)
        fresh = fresh[~reached[fresh]]
        if allowed is not None:
            fresh = fresh[allowed[fresh]]
        reached[fresh] = True
        added.append(fresh)
        frontier = fresh
    return np.sort(np.concatenate(added))


def build_unseen(context: Context, client: int) -> Silo:
    part, options = context.partition, context.options
    assert context.adjacency is not None
    labels = context.graph.labels
    nodes = part.nodes[client]
    lost = missing_classes(
        labels,
        nodes,
        part.train[client],
        num_classes=context.graph.num_classes,
        missing=options.missing,
        min_missing_nodes=options.min_missing_nodes,
    )
    kept = nodes[~np.isin(labels[nodes], lost)]
    graph = induce_subgraph(context.graph, kept, context.inside[client], context.table)
    items = split_items(kept, part, client)

    returned = grow(context.adjacency, kept, hops=options.hops, allowed=context.cropped)
    grown = induce_subgraph(context.graph, np.concatenate([kept, returned]), table=context.table)
    if options.edges == "touching":
        grown = keep_edges(grown, grown.edges.min(axis=0, initial=grown.num_nodes) < len(kept))
    scored = labels[returned] >= 0
    if part.cropped is not None and context.scenario == "open":
        scored &= np.isin(returned, part.cropped)
    lacking = np.isin(labels[returned], lost)
    index = len(kept) + np.arange(len(returned))
    questions = {"missing_class": index[scored & lacking], "unseen_node": index[scored & ~lacking]}
    return Silo(
        client=client,
        graph=graph,
        train=items["train"],
        evaluations=(EvaluationSet("seen", graph, items), EvaluationSet("grown", grown, questions), *context.shared),
        schema=context.schema,
        facts={
            **facts_of(graph, items["train"]),
            "missing_classes": lost,
            "removed_nodes": len(nodes) - len(kept),
            "returned_nodes": len(returned),
        },
    )
