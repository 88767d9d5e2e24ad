"""Links between silos: those of the whole graph that no silo holds, given to the silos at both of their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.silo import CutLinks, Silo
from graphsilo.data.sources.transforms import is_symmetric
from graphsilo.errors import UnsupportedError


def with_cut_links(silos: Sequence[Silo], graph: Graph, partition: Partition) -> list[Silo]:
    """The silos with the links that lead from other silos' nodes to their own, each once.

    Args:
        silos: Of the scenario ``seen``: each holds the nodes of its part, in that order.
        graph: The whole graph.
        partition: Whose nodes are whose.

    Raises:
        UnsupportedError: A node is in several silos, so that its links are not between two; or links have directions.
    """
    owner = np.full(graph.num_nodes, -1, dtype=np.int64)
    place = np.zeros(graph.num_nodes, dtype=np.int64)
    for client, nodes in enumerate(partition.nodes):
        if (owner[nodes] >= 0).any():
            raise UnsupportedError(
                f"links between silos need each node to be in one silo only, and {partition.rule} puts some into "
                f"several. Choose another partition rule."
            )
        owner[nodes], place[nodes] = client, np.arange(len(nodes))
    if not is_symmetric(graph):
        raise UnsupportedError(
            f"links between silos are known at both of their ends, and those of {graph.name} have directions. Load it "
            f"without (--set data.undirected=true)."
        )
    source, target = graph.edges
    between = np.flatnonzero((owner[source] != owner[target]) & (owner[source] >= 0) & (owner[target] >= 0))
    links = np.unique(
        np.stack([owner[target[between]], place[target[between]], source[between]]).astype(np.int64), axis=1
    )
    ends = np.searchsorted(links[0], np.arange(partition.num_clients + 1))
    return [
        replace(
            silo,
            cut=CutLinks(partition.nodes[silo.client], *links[1:, ends[silo.client] : ends[silo.client + 1]]),
        )
        for silo in silos
    ]
