"""FedAvg by hand: the whole of a federation in numpy, with the same numbers as graphsilo's.

    python examples/fedavg_from_scratch.py

Five silos cut the demo's graph along its communities. Each trains a graph convolutional network of two layers on its
own part; after each round a server replaces the common weights by the mean of theirs. Only the data, its cut and the
drawn first weights are graphsilo's: what it does with them is below, without messages, checks and checkpoints. At the
end it is run, too, and stands beside.

    one client's step   Z = Â relu(Â X W₀ + b₀) W₁ + b₁,   θ ← θ − η (∂L/∂θ + λ θ)
    the server's        w ← Σ n_k θ_k / Σ n_k,   n_k being the training nodes of client k
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import graphsilo
from graphsilo import models

CLIENTS, ROUNDS, EPOCHS, HIDDEN = 5, 30, 3, 64
RATE, DECAY = 0.5, 5e-4  # η, λ
NAMES = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")  # in the order of W₀, b₀, W₁, b₁


@dataclass
class Silo:
    """What one client has, and nobody else sees.

    Attributes:
        spread: [n, n] Â = D^-½ (A + I) D^-½: row v is the mean over v and its neighbours, by their degrees.
        features: [n, d] X.
        labels: [n] classes.
        train, val, test: Which nodes are for what.
    """

    spread: sp.csr_array
    features: sp.csr_array
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def cut_into_silos() -> list[Silo]:
    """The demo's graph in five parts: links between them belong to nobody."""
    graph = graphsilo.load("citation-sbm")
    cut = graphsilo.partition(graph, "louvain", clients=CLIENTS)
    links = sp.csr_array((np.ones(graph.edges.shape[1]), tuple(graph.edges)), (graph.num_nodes, graph.num_nodes))
    silos = []
    for nodes, *parts in zip(cut.nodes, cut.train, cut.val, cut.test, strict=True):
        nodes = np.sort(nodes)
        own = links[nodes][:, nodes] + sp.eye_array(len(nodes))
        scale = sp.diags_array(own.sum(axis=1) ** -0.5)
        local = [np.searchsorted(nodes, part) for part in parts]  # numbers in the whole graph become own ones
        silos.append(Silo(scale @ own @ scale, sp.csr_array(graph.features[nodes]), graph.labels[nodes], *local))
    return silos


def first_weights(silo: Silo, classes: int) -> list[np.ndarray]:
    """W₀, b₀, W₁, b₁ as graphsilo draws them for seed 0: Xavier-uniform, and biases of 0."""
    drawn = models.build("gcn", num_features=silo.features.shape[1], num_classes=classes, hidden=HIDDEN, seed=0)
    tensors = dict(drawn.named_parameters())
    return [tensors[name].detach().numpy().astype(np.float64) for name in NAMES]


def forward(silo: Silo, weights: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ÂX, the hidden layer H = relu(ÂX W₀ + b₀), and log-probabilities [n, C]."""
    one, bias_one, two, bias_two = weights
    spread = silo.spread @ silo.features
    hidden = np.maximum(spread @ one + bias_one, 0)
    logits = silo.spread @ (hidden @ two) + bias_two
    return spread, hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def gradients(silo: Silo, weights: list[np.ndarray]) -> list[np.ndarray]:
    """Of the mean cross-entropy L over the training nodes, by the chain rule from the last layer to the first."""
    spread, hidden, log_probabilities = forward(silo, weights)
    slope = np.zeros_like(log_probabilities)  # ∂L/∂Z: softmax less one-hot, for training nodes
    slope[silo.train] = np.exp(log_probabilities[silo.train])
    slope[silo.train, silo.labels[silo.train]] -= 1
    slope /= len(silo.train)
    back = silo.spread.T @ slope  # ∂L/∂(H W₁)
    inner = (back @ weights[2].T) * (hidden > 0)  # ∂L/∂(ÂX W₀ + b₀): nothing passes where the unit is off
    return [spread.T @ inner, inner.sum(axis=0), hidden.T @ back, slope.sum(axis=0)]


def train(silo: Silo, weights: list[np.ndarray]) -> list[np.ndarray]:
    """A client's turn: some steps of gradient descent from the common weights."""
    for _ in range(EPOCHS):
        slopes = gradients(silo, weights)
        weights = [value - RATE * (slope + DECAY * value) for value, slope in zip(weights, slopes, strict=True)]
    return weights


def average(trained: list[list[np.ndarray]], counts: list[int]) -> list[np.ndarray]:
    """The server's turn. It needs Σ n_k θ_k and Σ n_k, never one θ_k: that is why secure sums are enough."""
    return [np.average(same, axis=0, weights=counts) for same in zip(*trained, strict=True)]


def accuracy(silos: list[Silo], weights: list[np.ndarray], part: str) -> float:
    """Of the common model: the mean of the silos' accuracies, each counted with its nodes, as papers have it."""
    shares = []
    for silo in silos:
        nodes = getattr(silo, part)
        chosen = forward(silo, weights)[2].argmax(axis=1)
        shares.append((chosen[nodes] == silo.labels[nodes]).mean())
    return float(np.average(shares, weights=[len(silo.labels) for silo in silos]))


def federate() -> tuple[list[np.ndarray], list[tuple[float, float]]]:
    """All rounds: the last common weights, and accuracy on validation and test nodes after each round."""
    silos = cut_into_silos()
    weights = first_weights(silos[0], 1 + max(int(silo.labels.max()) for silo in silos))
    curve = []
    for _ in range(ROUNDS):
        trained = [train(silo, weights) for silo in silos]
        weights = average(trained, [len(silo.train) for silo in silos])
        curve.append((accuracy(silos, weights, "val"), accuracy(silos, weights, "test")))
    return weights, curve


def by_graphsilo(**more: object) -> graphsilo.Result:
    """The same run by graphsilo, without dropout, which is drawn."""
    return graphsilo.run(
        data="citation-sbm", partition="louvain", clients=CLIENTS, rounds=ROUNDS, seeds=[0],
        method={"name": "fedavg", "optimizer": "sgd", "lr": RATE, "weight_decay": DECAY, "local_epochs": EPOCHS},
        model={"name": "gcn", "hidden": HIDDEN, "dropout": 0.0}, **more,
    )  # fmt: skip


if __name__ == "__main__":
    _, ours = federate()
    theirs = [row["modes"]["aggregate_local"] for row in by_graphsilo().tree["seeds"][0]["rounds"]]
    print("round  validation, test by hand    by graphsilo")
    for number, ((val, test), row) in enumerate(zip(ours, theirs, strict=True), 1):
        there = f"{row['validation']['accuracy']:.4f}  {row['test']['accuracy']:.4f}"
        print(f"{number:5}      {val:.4f}  {test:.4f}          {there}")
