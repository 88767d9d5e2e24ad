"""FedLoG's step and prediction against the paper's formulas, written once more: node by node, pair by pair, in float64.

Nothing of the method's own arithmetic is used here: autograd differentiates, every synthetic node is a graph of its
own, and a node's share α comes from counting its links.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo

CLASSES, FEATURES, EACH, WIDTH, LAMBDA, BETA = 3, 7, 3, 4, 1.0, 0.37
LINKS = ((0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (1, 2), (3, 4), (3, 7), (5, 8), (8, 9))
NODES = 11  # 0 has six links, 10 none
SETTINGS = {
    "prototypes": EACH,
    "embedding_dim": WIDTH,
    "degree_threshold": LAMBDA,
    "norm_weight": BETA,
    "networks": 2,
    "generator_epochs": 3,
    "interp": 0,
}


def silo_of(client: int) -> Silo:
    """Nodes with none to six links; client 1 has no node of class 2."""
    draw = np.random.default_rng(7 + client)
    both = np.array([*LINKS, *[(b, a) for a, b in LINKS]], dtype=np.int64).T
    labels = (np.arange(NODES) % (CLASSES - client)).astype(np.int64)
    graph = Graph((draw.random((NODES, FEATURES)) < 0.4).astype(np.float32), both, labels, CLASSES)
    train = np.array([0, 1, 3, 5, 9, 10], dtype=np.int64)
    items = {"train": train, "val": np.array([2, 4]), "test": np.array([6, 7, 8])}
    return Silo(client, graph, train, (EvaluationSet("seen", graph, items),), Schema("node", FEATURES, CLASSES))


@pytest.fixture(params=[True, False], ids=["layer norm", "as printed"])
def trained(kit, request):
    """Server and clients after two rounds, with classifiers that matter and a difficulty of every size."""
    silos = [silo_of(0), silo_of(1)]
    settings = {**SETTINGS, "layer_norm": request.param}
    server, federation = kit.build("fedlog", silos, model="sage", **settings)
    federation.at("setup", 0)
    server.set_up(federation)
    for number in (1, 2):
        federation.at("round", number)
        server.round(federation, number)
    clients = [federation.client(number) for number in (0, 1)]
    draw = torch.Generator().manual_seed(3)
    for client in clients:
        for name, value in client.weights.items():
            if name.endswith("move.2.weight"):
                value *= 300.0  # drawn with a gain of 0.001
            if ".norm." in name:
                value += 0.3 * torch.randn(value.shape, generator=draw)
        client.prototypes.mul_(3.0)
        client.difficulty = torch.tensor([0.3, 0.0, 0.8])
    return server, clients


class Reference:
    """One client's network, in float64."""

    def __init__(self, client):
        self.weights = {name: value.double().requires_grad_() for name, value in client.weights.items()}
        self.prototypes = client.prototypes.double().requires_grad_()
        self.layer_norm = any(".norm." in name for name in self.weights)

    def leaves(self):
        return [*self.weights.values(), self.prototypes]

    def encode(self, features, neighbours):
        """Two GraphSAGE layers; ``neighbours`` lists each node's."""
        hidden = list(features)
        for layer in (0, 1):
            w = {name: self.weights[f"encoder.layers.{layer}.{name}"] for name in ("own.weight", "neighbours.weight")}
            bias = self.weights[f"encoder.layers.{layer}.neighbours.bias"]
            means = [mean_of([hidden[j] for j in others], hidden[0]) for others in neighbours]
            hidden = [
                h @ w["own.weight"] + m @ w["neighbours.weight"] + bias for h, m in zip(hidden, means, strict=True)
            ]
            hidden = [h.relu() for h in hidden] if layer == 0 else hidden
        return hidden

    def probabilities(self, embedded, around, alpha):
        """p of one node, from its embedding and its neighbours'."""
        shares = []
        for branch in (0, 1):
            points = self.encode(self.prototypes[branch], [[]] * (CLASSES * EACH))
            points = [self.normalised(point, branch) for point in points]
            h = self.normalised(embedded, branch)
            n = mean_of([self.normalised(other, branch) for other in around], h)
            for layer in (0, 1):
                moves = []
                for p in points:
                    apart = torch.cat([h, n]) - torch.cat([p, p])
                    message = torch.cat([h, n, (apart**2).sum()[None]])
                    for name in ("message.0", "message.1", "move.0", "move.1"):
                        message = silu(
                            message @ self.of(branch, layer, f"{name}.weight") + self.of(branch, layer, f"{name}.bias")
                        )
                    moves.append((h - p) * (message @ self.of(branch, layer, "move.2.weight")))
                h = h + sum(moves) / len(moves)
            centres = [sum(points[c * EACH : (c + 1) * EACH]) / EACH for c in range(CLASSES)]
            far = torch.stack([((h - centre) ** 2).sum() for centre in centres])
            shares.append((-far).exp() / (-far).exp().sum())
        return alpha * shares[0] + (1 - alpha) * shares[1]

    def of(self, branch, layer, name):
        return self.weights[f"classifier.layers.{layer}.{name}"][branch]

    def normalised(self, value, branch):
        if not self.layer_norm:
            return value
        value = (value - value.mean()) / (((value - value.mean()) ** 2).mean() + 1e-5).sqrt()
        return value * self.weights["classifier.norm.weight"][branch] + self.weights["classifier.norm.bias"][branch]

    def answers(self, graph):
        """p of all nodes of a graph."""
        others = [[] for _ in range(NODES)]
        for a, b in graph.edges.T.tolist():
            others[a].append(b)
        embedded = self.encode(torch.from_numpy(graph.features).double(), others)
        alphas = [1 / (1 + math.exp(-(len(found) - (LAMBDA + 1)))) for found in others]
        return torch.stack(
            [
                self.probabilities(embedded[v], [embedded[u] for u in others[v]], alphas[v])
                for v in range(graph.num_nodes)
            ]
        )


def mean_of(rows, like):
    return sum(rows) / len(rows) if rows else torch.zeros_like(like)


def silu(value):
    return value / (1 + (-value).exp())


def synthetic_answers(server, client, reference):
    """p of each synthetic node: drawn to their mean by its class's difficulty, joined to its generated neighbour."""
    nodes, answers = server.synthetic.double(), []
    mean = sum(nodes) / len(nodes)
    for place, node in enumerate(nodes):
        label = place // EACH
        node = node + float(client.difficulty[label]) * (mean - node)
        made = node
        for layer in (0, 1, 2):
            part = {name: client.generators[f"{layer}.{name}"][label].double() for name in ("weight", "bias")}
            made = made @ part["weight"] + part["bias"]
            made = made.relu() if layer < 2 else made.tanh()
        own, other = reference.encode([node, made], [[1], [0]])
        answers.append(reference.probabilities(own, [other], 0.5))
    return torch.stack(answers)


def generalised(server, client, reference):
    """L_g."""
    answers = synthetic_answers(server, client, reference)
    return sum(-answers[place, place // EACH].log() for place in range(len(answers))) / len(answers)


def close(mine, theirs):
    """Float32 arithmetic against float64: relative to the largest entry."""
    assert float((mine.double() - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max()) + 1e-6


@pytest.mark.parametrize("number", [0, 1])
def test_a_step_is_the_papers_loss_and_its_gradient(trained, number):
    server, clients = trained
    client, reference = clients[number], Reference(clients[number])
    graph, batch = client.silo.graph, torch.tensor([0, 2, 4, 5])
    nodes = client.silo.train[batch.numpy()]
    p = reference.answers(graph)
    fitted = sum(-p[v, graph.labels[v]].log() for v in nodes) / len(nodes)
    norms = sum((branch**2).sum().sqrt() for branch in reference.prototypes) / 2
    loss = fitted + BETA * norms + generalised(server, client, reference)
    wanted = torch.autograd.grad(loss, reference.leaves())
    value, modules, prototypes = client.gradients(batch, client.customise(server.synthetic), None)
    assert value == pytest.approx(loss.item(), rel=1e-5)
    for mine, theirs in zip([*modules, prototypes], wanted, strict=True):
        close(mine, theirs)


@pytest.mark.parametrize("number", [0, 1])
def test_prediction_weighs_the_branches_by_degree(trained, number):
    _, clients = trained
    client, reference = clients[number], Reference(clients[number])
    with torch.no_grad():
        close(client.predict(client.data), reference.answers(client.silo.graph).log())


def test_steps_of_their_own_on_synthetic_nodes_have_the_loss_of_these_nodes_alone(trained):
    server, clients = trained
    client, reference = clients[0], Reference(clients[0])
    synthetic = client.customise(server.synthetic)
    everything = client.gradients(torch.zeros(0, dtype=torch.int64), synthetic, None, norm_weight=0.0)
    loss = generalised(server, client, reference)
    assert everything[0] == pytest.approx(loss.item(), rel=1e-5)
    close(everything[2], torch.autograd.grad(loss, reference.prototypes)[0])
    # Half and half are the whole, each node with the neighbour that was made for it.
    order = torch.tensor([8, 3, 0, 5, 1, 2, 4, 7, 6])
    parts = [
        client.gradients(torch.zeros(0, dtype=torch.int64), synthetic.take(chosen), None, norm_weight=0.0)
        for chosen in order.split([6, 3])
    ]
    torch.testing.assert_close((2 * parts[0][2] + parts[1][2]) / 3, everything[2], rtol=1e-4, atol=1e-6)


def test_a_synthetic_node_is_recognised_by_both_branches_alike(trained):
    server, clients = trained
    recognised = 0
    for client in clients:
        synthetic = client.customise(server.synthetic)
        with torch.no_grad():
            answers = synthetic_answers(server, client, Reference(client))
        # Among labels of every kind, since hardly any node is of its own class yet.
        for shift in range(CLASSES):
            labels = (synthetic.labels + shift) % CLASSES
            found = client.network.recognise(client.prototypes, client.judge(synthetic._replace(labels=labels), None))
            assert found.tolist() == (answers.argmax(1) == labels).tolist()
            recognised += int(found.sum())
    assert recognised == 2 * CLASSES * EACH
