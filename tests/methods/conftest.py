"""Small federations through the real clients, server and runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.server import ServerContext
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing import conformance
from graphsilo.training.objective import Objective


class Quadratic(Objective):
    """a/2 · (x - c)² for every single parameter x: each one walks the path of the 1-D problem."""

    def __init__(self, curvature: float, optimum: float, num_samples: int = 1):
        self.curvature, self.optimum, self.num_samples = curvature, optimum, num_samples
        self.steps = 0

    def batches(self, size, generator):
        self.steps += 1
        yield None

    def loss(self, model, batch, generator):
        squares = [(parameter - self.optimum).square().sum() for parameter in model.parameters()]
        return 0.5 * self.curvature * torch.stack(squares).sum()


def tiny_silo(
    client: int, *, nodes: int = 6, train: Sequence[int] = (0, 1, 2), seed: int = 0, classes: int = 2
) -> Silo:
    """A path with three features, its nodes of each class in turn."""
    draw = np.random.default_rng(100 * seed + client)
    path = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
    graph = Graph(
        features=draw.standard_normal((nodes, 3)).astype(np.float32),
        edges=np.concatenate([path, path[::-1]], axis=1).astype(np.int64),
        labels=(np.arange(nodes) % classes).astype(np.int64),
        num_classes=classes,
    )
    chosen = np.array(train, dtype=np.int64)
    rest = np.setdiff1d(np.arange(nodes), chosen)
    items = {"train": chosen, "val": rest[::2], "test": rest[1::2]}
    return Silo(client, graph, chosen, (EvaluationSet("seen", graph, items),), Schema("node", 3, classes))


def build(
    name: str,
    silos: Sequence[Silo],
    *,
    seed: int = 0,
    model: str = "gcn",
    dropout: float = 0.0,
    model_options: Mapping[str, object] | None = None,
    select_by: str = "accuracy",
    **settings,
):
    """Server and federation of a method over silos."""
    method = registry.load(name)
    config = method.config(**settings)
    options = {
        "hidden": 4,
        **({"dropout": dropout} if model in ("gcn", "sage", "mlp") else {}),
        **(model_options or {}),
    }
    spec = ModelSpec(model, options)
    federation = InProcess(
        [silo.client for silo in silos],
        lambda client: method.client(
            ClientContext(client, next(s for s in silos if s.client == client), config, spec, seed, select_by=select_by)
        ),
        Ledger(),
    )
    return method.server(
        ServerContext(
            config,
            silos[0].schema,
            dict.fromkeys(federation.clients, spec),
            seed,
            federation.clients,
            select_by=select_by,
        )
    ), federation


def quadratic(name: str, problems: Sequence[tuple[float, float]], *, start: float = 1.0, sizes=None, **settings):
    """Clients that minimise a/2 (x - c)² by plain gradient descent with rate 0.1."""
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 2, **settings}
    server, federation = build(name, [tiny_silo(client) for client in range(len(problems))], **settings)
    server.weights = {key: torch.full_like(value, start) for key, value in server.weights.items()}
    for client, (curvature, optimum) in enumerate(problems):
        samples = 1 if sizes is None else sizes[client]
        federation.client(client).trainer.objective = Quadratic(curvature, optimum, samples)
    return server, federation


def rounds(server, federation, count: int = 1, start: int = 1):
    """So many rounds, set-up before the first; the server's model, where it has one."""
    if start == 1:
        federation.at("setup", 0)
        server.set_up(federation)
    for number in range(start, start + count):
        federation.at("round", number)
        server.round(federation, number)
    return server.aggregate()


def scores(name: str, **settings):
    """Everything that a small run of a method scores, in every round."""
    tree = run(conformance.small_config(registry.load(name), settings)).tree["seeds"][0]
    return [[row["validation"], row["test"], row["modes"]] for row in tree["rounds"]]


def value_of(weights) -> float:
    """The value that all entries share."""
    flat = torch.cat([tensor.reshape(-1) for tensor in weights.values()])
    assert float(flat.max() - flat.min()) == 0.0
    return float(flat[0])


class Kit:
    """What the tests of this folder use."""

    Quadratic = Quadratic
    tiny_silo = staticmethod(tiny_silo)
    build = staticmethod(build)
    quadratic = staticmethod(quadratic)
    value_of = staticmethod(value_of)
    rounds = staticmethod(rounds)
    scores = staticmethod(scores)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit
