"""Random nodes: equal shares without regard to edges or labels; the lower bound of what a cut can keep."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule
from graphsilo.random import numpy_generator
from graphsilo.types import NodeIds


class RandomOptions(PartitionOptions):
    """The random split has no settings."""


def deal_out(items: int, clients: int, seed: int) -> list[NodeIds]:
    """Items in a random order; sizes differ by at most one, numbers ascending inside a client."""
    order = numpy_generator(seed, "partition", "random").permutation(items)
    return [np.sort(part) for part in np.array_split(order, clients)]


def cut(graph: Graph, clients: int, seed: int, options: RandomOptions) -> Cut:
    """Deal all nodes out."""
    return Cut(tuple(deal_out(graph.num_nodes, clients, seed)))


RULES = (Rule("random", "nodes dealt out at random in equal shares", RandomOptions, cut),)
