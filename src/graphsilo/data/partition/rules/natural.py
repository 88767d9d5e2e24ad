"""The institutions that the data names: each is a client with its own nodes, and with those that belong to nobody.

A node at no institution (a shop where customers of two banks pay, a drug that is given in all hospitals) is known to
every institution that has a node linked with it, each of which has a copy of its own. Where it has a label it is
nobody's: what one institution was tested on, another would have learned from.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule
from graphsilo.errors import PartitionError
from graphsilo.settings import setting


class NaturalOptions(PartitionOptions):
    """Settings of the natural split."""

    unowned: Literal["copied", "left_out"] = setting(
        "copied", "nodes at no institution: each that has a node linked with one has a copy of it, or nobody has it"
    )


def cut(graph: Graph, clients: int | None, seed: int, options: NaturalOptions) -> Cut:
    """Each institution's nodes; without a number of clients there are as many as institutions.

    Raises:
        PartitionError: The data names no institutions, another number of them than was asked for, or one has no node.
    """
    if graph.owners is None:
        raise PartitionError(
            f"partition 'natural' gives each institution what is its own, and {graph.name} names none: choose another "
            f"rule, such as louvain."
        )
    names, owner = graph.owners.names, graph.owners.of_node
    count = len(names)
    if clients not in (None, count):
        raise PartitionError(
            f"{graph.name} has {count} institutions, and {clients} clients were asked for: leave the number out, or "
            f"leave some of them out of the run (run.without)."
        )
    sizes = np.bincount(owner[owner >= 0], minlength=count)
    if not sizes.all():
        raise PartitionError(f"{graph.name}: institution '{names[int(np.argmin(sizes))]}' has no node.")
    nodes, client = np.flatnonzero(owner >= 0), owner[owner >= 0]
    if options.unowned == "copied":
        known = _find_known(graph)
        nodes, client = np.concatenate([nodes, known // count]), np.concatenate([client, known % count])
    order = np.lexsort((nodes, client))
    return Cut(tuple(np.split(nodes[order], np.cumsum(np.bincount(client, minlength=count))[:-1])))


def _find_known(graph: Graph) -> np.ndarray:
    """Node · institutions + institution, for each node of nobody that an institution's node is linked with."""
    assert graph.owners is not None
    owner, count = graph.owners.of_node, len(graph.owners.names)
    free = (owner < 0) & (graph.labels < 0)
    tables = [graph.edges] if graph.links is None else [graph.edges, graph.links.ends]
    found = [np.zeros(0, dtype=np.int64)]
    for ends in tables:
        for one, other in (ends, ends[::-1]):
            linked = free[one] & (owner[other] >= 0)
            found.append(np.unique(one[linked].astype(np.int64) * count + owner[other[linked]]))
    return np.unique(np.concatenate(found))


RULES = (
    Rule(
        "natural",
        "the institutions that the data names, each with its own nodes and copies of what belongs to nobody",
        NaturalOptions,
        cut,
        counts=True,
    ),
)
