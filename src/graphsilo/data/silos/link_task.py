"""Silos for link prediction: each client's own links, cut into training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import positions_inside, undirected_links
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.pairs import PairSpace, pair_keys, sample_unlinked
from graphsilo.data.partition.splits import GRAPH_RATIOS, Ratios, check_ratios, cut_points
from graphsilo.data.silos.parts import induce_subgraph, keep_edges, local_numbers, with_added_links
from graphsilo.data.silos.silo import EvaluationSet, Links, Schema, Silo
from graphsilo.errors import PartitionError, UnsupportedError
from graphsilo.random import numpy_generator
from graphsilo.types import ClientId


def has_enough_links(count: int, ratios: Ratios) -> bool:
    """Whether training, validation and test have a link each."""
    train_end, val_end = cut_points(count, ratios)
    return 1 <= train_end < val_end < count


def build_link_silos(
    graph: Graph,
    partition: Partition,
    *,
    ratios: Sequence[float] | None = None,
    global_graph: bool = False,
    first_client: ClientId = 0,
) -> list[Silo]:
    """One silo per client for link prediction on its own subgraph.

    Links (undirected, each once) are shuffled and cut by the ratios. Messages pass along the edges of training links
    only, in training and in every evaluation. Validation and test have as many negatives as positives:
    pairs that are linked nowhere in the client's graph, no pair in both. Items of the evaluation set number the
    columns of ``Links``; ``train`` of the silo keeps the partition's labelled nodes, for pre-training an encoder.

    Args:
        graph, partition: As for ``scenarios.build_silos``.
        ratios: Shares of training, validation and test links; 0.8/0.1/0.1 by default.
        global_graph: Not available for links.
        first_client: Number of the first client; links and negatives are drawn by it.

    Raises:
        ConfigError: The ratios are not possible.
        PartitionError: A client has too few links, or too few unlinked pairs.
        UnsupportedError: The pooled graph is to be scored, or the split is one by time.
    """
    if global_graph:
        raise UnsupportedError(
            "link prediction is scored on each client's own graph: leave out the evaluation modes that end in _global "
            "(evaluation.modes, --set evaluation.modes=[own_local])."
        )
    if partition.split == "time":
        raise UnsupportedError(
            f"link prediction draws links for training, validation and test at random, and split=time divides nodes: "
            f"links of {graph.name} are not divided by time. Leave out the split. To say of new rows, such as "
            f"transfers, what they are, describe their table as one of nodes with keys."
        )
    partition.check(graph)
    shares = GRAPH_RATIOS if ratios is None else check_ratios(ratios)
    base = with_added_links(graph, partition)
    schema = Schema.of(graph, "link")
    inside = positions_inside(base.edges, partition.nodes, num_nodes=base.num_nodes)
    silos = []
    for part in partition.present:
        client, nodes = first_client + part, partition.nodes[part]
        whole = induce_subgraph(base, nodes, inside[part])
        links = undirected_links(whole.edges)
        train_end, val_end = cut_points(links.shape[1], shares)
        if not has_enough_links(links.shape[1], shares):
            raise PartitionError(
                f"client {client} has {links.shape[1]} links: too few for training, validation and test links at "
                f"{shares[0]:g}/{shares[1]:g}/{shares[2]:g}. Give each a share, ask for fewer clients, or "
                f"use 'louvain' or 'metis'."
            )
        generator = numpy_generator(partition.seed, "links", client)
        links = links[:, generator.permutation(links.shape[1])]
        train, val, test = links[:, :train_end], links[:, train_end:val_end], links[:, val_end:]
        negatives = sample_unlinked(PairSpace(len(nodes)), links, val.shape[1] + test.shape[1], generator)
        message = keep_edges(whole, np.isin(pair_keys(whole.edges, len(nodes)), pair_keys(train, len(nodes))))
        items = {"val": np.arange(val.shape[1]), "test": np.arange(test.shape[1])}
        silos.append(
            Silo(
                client=client,
                graph=message,
                train=local_numbers(nodes, partition.train[part]),
                evaluations=(EvaluationSet("seen", message, items),),
                schema=schema,
                links=Links(train, val, negatives[:, : val.shape[1]], test, negatives[:, val.shape[1] :]),
                facts={
                    "nodes": len(nodes),
                    "edges": message.num_edges,
                    "train_links": train.shape[1],
                    "val_links": val.shape[1],
                    "test_links": test.shape[1],
                },
            )
        )
    return silos


def count_links(rows: Sequence[dict[str, Any]], silos: Sequence[Silo]) -> None:
    """Where links are predicted, each client's items are links, and not the nodes that the cut divides."""
    held = {silo.client: silo.links for silo in silos}
    for row in rows:
        if (links := held.get(row["client"])) is not None:
            row.update(train=links.train.shape[1], val=links.val.shape[1], test=links.test.shape[1])
