"""Label Dirichlet: each class is shared out by proportions drawn from a symmetric Dirichlet distribution.

Source: OpenFGL's protocol (α = 10, at least 5 nodes); FedGCN uses α in {1, 100, 10000} and at least 10 nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import OPENFGL, Cut, PartitionOptions, Rule
from graphsilo.errors import PartitionError
from graphsilo.settings import setting
from graphsilo.types import NodeIds

TRIES = 100
"""Whole draws after which a small α is given up."""


class DirichletOptions(PartitionOptions):
    """Settings of the label Dirichlet split."""

    alpha: float = setting(
        10.0, "α, concentration: large is nearly independent and identical, small gives each class to few clients", gt=0
    )
    min_nodes: int = setting(5, "the draw is repeated until every client has this many items", ge=0)


def share_out(
    labels: NDArray[np.int64], clients: int, *, alpha: float, min_items: int, seed: int, what: str = "nodes"
) -> list[NodeIds]:
    """Share items out class by class.

    For each class: shuffle its items, draw q ~ Dir(α·1), take 0 for clients that already own N/K items, renormalise
    and cut at floor(cumsum(q)·n_c). Items without a label are treated as one more class, drawn first.

    Args:
        labels: [n] classes, -1 where unknown.
        clients: K.
        alpha: α, above 0.
        min_items: Smallest client that is accepted.
        seed: Seed of the legacy stream (shuffle, then Dirichlet, class by class).
        what: The word for items in messages.

    Returns:
        Item numbers of each client, class by class in shuffled order.

    Raises:
        PartitionError: 100 draws left a client below ``min_items``.
    """
    needed = max(1, min_items)
    if clients * needed > len(labels):
        raise PartitionError(
            f"partition 'dirichlet': {clients} clients of at least {needed} {what} need {clients * needed}, "
            f"but there are {len(labels)}: ask for fewer clients or lower min_nodes."
        )
    # The legacy stream keeps cuts comparable with the benchmark's; it is private to this call.
    generator = np.random.RandomState(seed)
    classes = np.unique(labels)
    fair = len(labels) / clients
    smallest = 0
    for _ in range(TRIES):
        held: list[list[NodeIds]] = [[] for _ in range(clients)]
        load = np.zeros(clients, dtype=np.int64)
        for label in classes:
            index = np.flatnonzero(labels == label)
            generator.shuffle(index)
            share = generator.dirichlet(np.full(clients, alpha)) * (load < fair)
            total = share.sum()
            if not np.isfinite(total) or total <= 0:
                # A tiny α can put the whole draw on clients that are full, or underflow to nothing.
                share, total = (load == load.min()).astype(np.float64), float((load == load.min()).sum())
            ends = (np.cumsum(share / total) * len(index)).astype(np.int64)[:-1]
            for client, piece in enumerate(np.split(index, ends)):
                held[client].append(piece)
                load[client] += len(piece)
        smallest = int(load.min())
        if smallest >= needed:
            return [np.concatenate(pieces) for pieces in held]
    raise PartitionError(
        f"partition 'dirichlet': after {TRIES} draws with alpha {alpha:g} the smallest of {clients} clients still had "
        f"{smallest} {what}, {needed} are wanted: raise alpha, lower min_nodes, or ask for fewer clients."
    )


def cut(graph: Graph, clients: int, seed: int, options: DirichletOptions) -> Cut:
    """Cut a graph by label proportions. Few edges survive: about 1/K of them where α is large.

    Raises:
        PartitionError: α is too small for ``min_nodes``.
    """
    return Cut(tuple(share_out(graph.labels, clients, alpha=options.alpha, min_items=options.min_nodes, seed=seed)))


RULES = (
    Rule(
        "dirichlet",
        "label skew: every class shared out by Dirichlet proportions, edges ignored",
        DirichletOptions,
        cut,
        source=OPENFGL,
    ),
)
