"""Training on what there is up to the last training node, where nodes have times.

What passes along edges comes from earlier nodes anyway. A method that looks at all nodes at once, as for clusters or
contrasts, would learn from the features of nodes that it is tested on, and that nobody has when it is used.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.column_scales import last_learned, visible_graph
from graphsilo.data.silos.silo import Silo


def past_graph(silo: Silo) -> Graph:
    """As :func:`graphsilo.data.silos.column_scales.visible_graph`, without later rows of links between these nodes."""
    graph, seen = silo.graph, visible_graph(silo)
    if not isinstance(graph, Graph) or graph.time is None or seen.links is None or seen.links.time is None:
        return seen
    last = last_learned(silo, graph.time)
    later = seen.links.time > last
    return replace(seen, links=seen.links.where(~later)) if later.any() and last > -np.inf else seen


def train_on_past(silo: Silo) -> Silo:
    """The silo with a training graph of no node, and no row of links, that is later than its last training node; the
    same where there is none, for links that are predicted, and for graphs. Evaluation sets stay."""
    graph = silo.graph
    seen = past_graph(silo) if isinstance(graph, Graph) and silo.links is None else graph
    if seen is graph:
        return silo
    assert isinstance(graph, Graph)
    kept = np.flatnonzero(np.isin(graph.global_ids, seen.union.global_ids))
    noisy = silo.noisy_labels
    return replace(
        silo, graph=seen, train=np.searchsorted(kept, silo.train),
        noisy_labels=None if noisy is None else noisy[kept],
    )  # fmt: skip
