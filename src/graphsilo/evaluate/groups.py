"""Node groups that accuracy hides: nodes of minority classes and nodes among unlike neighbours.

Source: Wu et al., "Towards Unbiased Federated Graph Learning: Label and Topology Perspectives" (FairFGL, 2025). The
groups belong to the client's data, not to the method, so that Min-F1, Hete-F1 and Hete-Min-F1 can be printed for any.

Worked by hand: four nodes on a path 0-1-2-3 with labels 0, 0, 0, 1. Class 0 has 3 nodes, class 1 has 1, the mean over
the present classes is 2: class 1 is the minority. Shares of like neighbours are 1, 1, 1/2, 0, so nodes 0 and 1 are
the upper half and nodes 2 and 3 are heterophilous; node 3 is in both groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import DataError
from graphsilo.types import Mask


@dataclass(frozen=True, eq=False)
class Groups:
    """Membership of every node; a node without a label is in neither group.

    Attributes:
        minority: [n] its class has no more nodes on this client than the client's mean over its present classes.
        hete: [n] it is in the lower half of the client's nodes when ranked by homophily.
    """

    minority: Mask
    hete: Mask

    @property
    def cell(self) -> NDArray[np.int64]:
        """[n] number of the group cell: 0 neither, 1 hete only, 2 minority only, 3 both."""
        return 2 * self.minority.astype(np.int64) + self.hete


def homophily(
    graph: Graph, labels: NDArray[np.int64] | None = None, part: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Share of each node's 1-hop neighbours that carry its label. O(nodes + edges).

    Neighbours are taken in both directions and parallel edges once; self-loops, neighbours without a label and, with
    ``part``, neighbours of another part are left out.

    Args:
        graph: The client's graph.
        labels: [n] class numbers, -1 where unknown; the graph's own by default. A method that may not look at test
            labels passes training labels with -1 elsewhere.
        part: [n] the client that each node belongs to, where one graph pools several.
    Returns:
        [n] shares from 0 to 1; NaN for a node without a label or without a labelled neighbour.
    Raises:
        DataError: ``labels`` or ``part`` do not have one entry per node.
    """
    labels = _per_node(graph, graph.labels if labels is None else labels, "labels")
    source, target = graph.edges
    keep = (source != target) & (labels[source] >= 0) & (labels[target] >= 0)
    if part is not None:
        part = _per_node(graph, part, "part")
        keep &= part[source] == part[target]
    source, target = source[keep], target[keep]
    n = graph.num_nodes
    # Both directions are entered; CSR merges what was there twice. Only the pattern is used.
    rows, columns = np.concatenate([target, source]), np.concatenate([source, target])
    pattern = sp.csr_matrix((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(n, n))
    degree = np.diff(pattern.indptr)
    alike = labels[pattern.indices] == np.repeat(labels, degree)
    same = np.bincount(np.repeat(np.arange(n), degree)[alike], minlength=n)
    share = np.full(n, np.nan)
    np.divide(same, degree, out=share, where=degree > 0)
    return share


def node_groups(graph: Graph | GraphCollection, part: NDArray[np.int64] | None = None) -> Groups:
    """Who belongs to the minority classes and who sits among unlike neighbours, per client.

    Minority: classes whose count is not above the mean over the client's present classes; every node with a label
    counts. With one class, or with classes of equal size, every node is therefore in the minority.
    Hete: nodes with a label are ranked by :func:`homophily`, descending, ties by global id; the first
    ``floor(labelled / 2)`` are homophilous, the rest heterophilous. Nodes without a labelled neighbour come last
    and are heterophilous even where they would reach the upper half; where a client has no other, nothing is.

    Args:
        graph: The client's graph. In a collection the items are whole graphs: they have no neighbours, so nothing
            is ``hete``.
        part: [n] the client of each node where one graph pools several (-1: nobody's). Each part is grouped as if it
            stood alone, over its own edges, so that a client's groups are the same on its own graph and on the pool.
    Returns:
        Two boolean arrays over the nodes (or graphs of the collection).
    Raises:
        DataError: ``part`` does not have one entry per node.
    Source: FairFGL, evaluation metrics. The paper does not say who gets the middle node and how ties are broken.
    """
    labels = graph.labels
    n = len(labels)
    known = labels >= 0
    if part is None:
        owner = np.zeros(n, dtype=np.int64)
    else:
        owner = _per_node(graph, part, "part")
        known = known & (owner >= 0)
    who = np.flatnonzero(known)
    minority, hete = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    if not len(who):
        return Groups(minority, hete)

    parts, classes = int(owner.max()) + 1, max(graph.num_classes, int(labels.max()) + 1)
    code = owner[who] * classes + labels[who]
    counts = np.bincount(code, minlength=parts * classes).reshape(parts, classes)
    # count <= total / present, kept in whole numbers so that a class exactly at the mean is decided exactly
    small = counts * (counts > 0).sum(axis=1, keepdims=True) <= counts.sum(axis=1, keepdims=True)
    minority[who] = small.ravel()[code]

    if isinstance(graph, Graph):
        share = homophily(graph, labels, part)[who]
        sizes = np.bincount(owner[who], minlength=parts)
        # NaN sorts last. Ties go by global id: a silo's rows may stand in any order.
        order = np.lexsort((graph.global_ids[who], -share, owner[who]))
        place = np.empty(len(who), dtype=np.int64)
        place[order] = np.arange(len(who))
        place -= (np.cumsum(sizes) - sizes)[owner[who]]
        compared = np.bincount(owner[who], weights=~np.isnan(share), minlength=parts) > 0
        hete[who] = ((place >= (sizes // 2)[owner[who]]) | np.isnan(share)) & compared[owner[who]]
    return Groups(minority, hete)


def _per_node(graph: Graph | GraphCollection, values: NDArray[np.int64], what: str) -> NDArray[np.int64]:
    n = graph.num_items
    if values.shape != (n,):
        raise DataError(f"{graph.name}: {what} must hold one number for each of {n} items; got shape {values.shape}.")
    return values
