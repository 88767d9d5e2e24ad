"""Structure imbalance: Metis parts whose clients receive new links between like or unlike nodes.

Source: AdaFGL, "structure Non-iid" (Metis split, then homophilous or heterophilous injection by a fair coin).
Deviation: a target ratio of new to old links instead of a probability per node pair, as the protocol recommends.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import edges_inside, undirected_links
from graphsilo.data.partition.pairs import PairKind, PairSpace, sample_unlinked
from graphsilo.data.partition.rule import Cut, Rule
from graphsilo.data.partition.rules.metis import PartOptions, filled_parts
from graphsilo.random import numpy_generator
from graphsilo.settings import setting
from graphsilo.types import NodeIds


class TopologyOptions(PartOptions):
    """Settings of the structure-imbalance split."""

    ratio: float = setting(0.5, "new links of a client over its own links before injection", ge=0)
    kind: Literal["homo", "hetero", "coin"] = setting(
        "coin", "`homo` joins nodes of one class, `hetero` nodes of different classes, `coin` lets each client flip"
    )


def inject(
    nodes: NodeIds,
    labels: NDArray[np.int64],
    links: NDArray[np.int64],
    *,
    ratio: float,
    kind: PairKind,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """New links of one client, drawn uniformly among its unlinked labelled pairs of the kind.

    Args:
        nodes: [n] global ids of the client.
        labels: [N] classes of all nodes; unlabelled nodes receive no link.
        links: [2, m] the client's own links, global ids, each once.
        ratio: New over own links; rounded to whole links.
        kind: ``same`` or ``different`` classes.
        generator: Source of randomness.

    Returns:
        [2, round(ratio · m)] global ids, each link once; fewer where the client has no more such pairs.
    """
    labelled = nodes[labels[nodes] >= 0]
    table = np.full(len(labels), -1, dtype=np.int64)
    table[labelled] = np.arange(len(labelled))
    local = table[links]
    local = local[:, (local >= 0).all(axis=0)]
    space = PairSpace(len(labelled), kind, labels[labelled])
    drawn = sample_unlinked(space, local, round(ratio * links.shape[1]), generator, at_most=True)
    return labelled[drawn]


def cut(graph: Graph, clients: int, seed: int, options: TopologyOptions) -> Cut:
    """Cut with Metis, then add links to each client.

    Raises:
        PartitionError: As for ``metis``.
    """
    nodes = filled_parts(graph, clients, options)
    added = []
    for client, inside in enumerate(edges_inside(graph.edges, nodes, num_nodes=graph.num_nodes)):
        generator = numpy_generator(seed, "partition", "topology", client)
        heads = bool(generator.integers(2))
        same = options.kind == "homo" or (options.kind == "coin" and heads)
        added.append(
            inject(
                nodes[client],
                graph.labels,
                undirected_links(inside),
                ratio=options.ratio,
                kind="same" if same else "different",
                generator=generator,
            )
        )
    return Cut(tuple(nodes), added_edges=tuple(added))


RULES = (
    Rule(
        "topology",
        "structure skew: Metis parts with links added between like or unlike nodes",
        TopologyOptions,
        cut,
        source="AdaFGL (structure Non-iid)",
        with_new={"recursive": False},  # as the published part sizes show
    ),
)
