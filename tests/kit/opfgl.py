"""What several tests of opfgl are made of."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.server import ServerContext
from graphsilo.methods import opfgl
from graphsilo.methods.opfgl import stages as opfgl_stages
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.training.local import weights_of

SHORT = {
    "surrogate_steps": 100, "lr_features": 5e-2, "stage1_epochs": 60, "stage1_check": 10, "stage1_lr": 1e-2,
    "stage2_epochs": 40, "stage2_check": 10, "stage2_lr": 1e-2, "patience": 2,
}  # fmt: skip


METHOD = opfgl.METHOD


def graph_of(pairs, labels, features=None, classes=2):
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    labels = np.array(labels, dtype=np.int64)
    if features is None:
        features = np.random.default_rng(0).standard_normal((len(labels), 3))
    return Graph(
        features=np.array(features, dtype=np.float32),
        edges=np.concatenate([ends, ends[::-1]], axis=1),
        labels=labels,
        num_classes=classes,
    )


def silo_of(client, graph, train, val=(), test=()):
    items = {"val": np.array(val, dtype=np.int64), "test": np.array(test, dtype=np.int64)}
    schema = Schema("node", graph.num_features, graph.num_classes)
    return Silo(client, graph, np.array(train, dtype=np.int64), (EvaluationSet("seen", graph, items),), schema)


def federation_of(silos, *, specs=None, seed=0, **settings):
    config = METHOD.config(**{**SHORT, **settings})
    specs = specs or [ModelSpec("gcn", {"hidden": 4})]
    chosen = {silo.client: specs[place % len(specs)] for place, silo in enumerate(silos)}
    by_client = {silo.client: silo for silo in silos}
    federation = InProcess(
        sorted(by_client),
        lambda client: METHOD.client(ClientContext(client, by_client[client], config, chosen[client], seed)),
        Ledger(),
    )
    server = METHOD.server(
        ServerContext(config, silos[0].schema, chosen, seed, federation.clients)
    )  # fmt: skip
    return server, federation


def train(server, federation):
    federation.at("setup", 0)
    server.set_up(federation)
    federation.at("round", 1)
    server.round(federation, 1)


def blocks(clients=3, nodes=24, classes=3, seed=0, **more):
    """Clients whose classes are told apart by features and links."""
    silos = []
    for client in range(clients):
        draw = np.random.default_rng(10 * seed + client)
        labels = np.arange(nodes) % classes
        same = np.array([(i, i + classes) for i in range(nodes - classes)])
        features = np.eye(classes)[labels] + 0.3 * draw.standard_normal((nodes, classes))
        order = draw.permutation(nodes)
        graph = graph_of(same, labels, features, classes)
        silos.append(silo_of(client, graph, np.sort(order[:12]), order[12:18], order[18:]))
    return silos


def own_weights(federation):
    return {client: opfgl_stages.copy_of(weights_of(federation.client(client).model)) for client in federation.clients}


def same(left, right):
    return all(torch.equal(left[client][name], right[client][name]) for client in left for name in left[client])
