"""A rule of your own: nodes are dealt out at random, and the first client gets a larger share."""

import numpy as np


def uneven(graph, clients, seed, first: float = 0.5):
    """The first client has a share of all nodes, the others divide the rest."""
    shares = np.full(clients, (1 - first) / max(clients - 1, 1))
    shares[0] = first if clients > 1 else 1.0
    return np.random.default_rng(seed).choice(clients, size=graph.num_nodes, p=shares)  # a client number per node
