"""Two silos of FedGL that share two nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np


def overlapping(kit, train=(0,)):
    """Nodes 0 to 5 at client 0, and at client 1, by another order, 6, 4 and 5."""
    one, other = kit.tiny_silo(0), kit.tiny_silo(1, nodes=3, train=train)
    ids = np.array([6, 4, 5])
    return [
        replace(one, shares_ids=True),
        replace(other, graph=replace(other.graph, node_ids=ids), shares_ids=True),
    ]


def ready(kit, silos, **settings):
    server, federation = kit.build("fedgl", silos, **settings)
    federation.at("setup", 0)
    server.set_up(federation)
    federation.at("round", 1)
    return server, federation, [federation.client(client) for client in range(len(silos))]
