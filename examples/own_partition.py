"""A partition by number of nodes: client k gets a share in proportion to a power of its rank. A complete rule."""

import numpy as np

import graphsilo
from graphsilo.data.graph import Graph
from graphsilo.data.partition.registry import register
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule
from graphsilo.random import numpy_generator
from graphsilo.settings import setting


class QuantityOptions(PartitionOptions):
    """Settings of the rule."""

    power: float = setting(1.0, "client k gets a share in proportion to k to this power; 0: equal shares", ge=0)


def cut(graph: Graph, clients: int, seed: int, options: QuantityOptions) -> Cut:
    """Deals nodes out at random, in unequal shares."""
    order = numpy_generator(seed, "partition", "quantity").permutation(graph.num_nodes)
    shares = np.cumsum(np.arange(1, clients + 1) ** options.power)
    ends = np.round(shares[:-1] / shares[-1] * graph.num_nodes).astype(int)
    return Cut(tuple(np.sort(part) for part in np.split(order, ends)))


RULE = Rule("quantity", "nodes dealt out at random, in unequal shares", QuantityOptions, cut)

if __name__ == "__main__":
    register(RULE)
    partition = graphsilo.partition("citation-sbm", "quantity", clients=5, power=2)
    print([len(nodes) for nodes in partition.nodes])
