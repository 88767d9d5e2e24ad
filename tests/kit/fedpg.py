"""What several tests of fedpg are made of."""

from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.server import ServerContext
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.training.local import weights_of

SHORT = {"server_epochs": 5, "mu": 0.5, "centred": False, "confidence": 0.0}


def silo_of(client: int, nodes: int = 24, classes: int = 3, seed: int = 0, only: tuple[int, ...] | None = None) -> Silo:
    """A sparse random graph whose features tell the class; a third of the nodes train."""
    draw = np.random.default_rng(1000 * seed + client)
    labels = draw.integers(0, classes, nodes) if only is None else draw.choice(only, nodes)
    features = np.eye(classes + 2)[labels] + 0.5 * draw.standard_normal((nodes, classes + 2))
    ends = draw.integers(0, nodes, (2, 3 * nodes))
    ends = ends[:, (ends[0] != ends[1])]
    edges = np.unique(np.concatenate([ends, ends[::-1]], axis=1), axis=1)
    graph = Graph(features.astype(np.float32), edges.astype(np.int64), labels.astype(np.int64), classes)
    order = draw.permutation(nodes)
    items = {"train": np.sort(order[: nodes // 3]), "val": np.sort(order[nodes // 3 : nodes // 2])}
    items["test"] = np.setdiff1d(np.arange(nodes), np.concatenate(list(items.values())))
    schema = Schema("node", classes + 2, classes)
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), schema)


def federation_of(silos, models, **settings):
    """As the kit's ``build``, with a model of each client's own."""
    method = registry.load("fedpg")
    config = method.config(**{**SHORT, **settings})
    federation = InProcess(
        [silo.client for silo in silos],
        lambda client: method.client(ClientContext(client, silos[client], config, ModelSpec(*models[client]), 0)),
        Ledger(),
    )
    return method.server(
        ServerContext(
            config, silos[0].schema, {k: ModelSpec(*model) for k, model in enumerate(models)}, 0, federation.clients
        )
    ), federation


def weights_in(federation):
    return [weights_of(federation.client(client).model) for client in federation.clients]
