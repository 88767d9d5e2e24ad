"""The neighbour generator of FedLoG: a perceptron that guesses what a node's neighbours look like.

It learns from the features' means over neighbourhoods, and from gradients: a node with its generated neighbour shall
pull randomly drawn networks as the real graph does. All pairs are one graph, and no subgraph is ever made.

Source: Kim et al., ICLR 2025, section 4.3 and appendix; Zhao et al., "Dataset Condensation with Gradient Matching",
ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.models.base import Model
from graphsilo.models.dense import times
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.generated import GeneratedGraph, pairs
from graphsilo.models.operators import Operator, operator
from graphsilo.models.view import GraphTensors, View
from graphsilo.training.optimizer import Adam
from graphsilo.training.upstream import gradients_of

if TYPE_CHECKING:
    from graphsilo.methods.fedlog.config import FedLoGConfig

Output: TypeAlias = Literal["tanh", "identity"]
Matching: TypeAlias = Literal["mean", "last"]
"""Which random networks count: all, or one that is drawn again each epoch, with weight 1/N, as in the release."""
HIDDEN = (256, 512)
"""Widths between input and output (release; the paper gives none)."""
RATE = 0.5
"""Dropout before the last map (release)."""


def draw(features: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Initial weights [inputs, outputs] and biases [outputs], as torch's linear maps."""
    widths = (features, *HIDDEN, features)
    made = {}
    for layer, (inputs, outputs) in enumerate(pairwise(widths)):
        bound = 1.0 / math.sqrt(inputs)
        for name, shape in (("weight", (inputs, outputs)), ("bias", (outputs,))):
            made[f"{layer}.{name}"] = torch.rand(shape, generator=generator) * (2 * bound) - bound
    return made


def draw_each(features: int, seeds: Sequence[torch.Generator]) -> dict[str, Tensor]:
    """Initial weights of as many generators, stacked: each tensor has C in front."""
    each = [draw(features, one) for one in seeds]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def generate(parameters: Mapping[str, Tensor], features: Tensor, output: Output) -> Tensor:
    """One neighbour for each node, without dropout.

    Args:
        parameters: Of C generators, one per class, stacked: each tensor has C in front. One generator for all has 1.
        features: [C · s, d], class by class.
        output: What follows the last map.

    Returns:
        [C · s, d].
    """
    count = len(parameters["0.weight"])
    hidden = features.view(count, -1, features.shape[1])
    for layer in range(len(HIDDEN) + 1):
        hidden = torch.baddbmm(parameters[f"{layer}.bias"][:, None], hidden, parameters[f"{layer}.weight"])
        hidden = hidden.relu_() if layer < len(HIDDEN) else hidden
    return (hidden.tanh() if output == "tanh" else hidden).reshape(features.shape)


def neighbour_means(data: GraphTensors, nodes: NDArray[np.int64], hops: int = 1) -> tuple[Tensor, Tensor]:
    """What the generator shall guess: the mean features of each node's h-hop neighbours, the node itself left out.

    Args:
        data: The graph.
        nodes: [n] whose neighbourhoods.
        hops: h.

    Returns:
        [n, d], and [n] whether there is any neighbour (else the row is 0).

    One sparse product, whatever the number of nodes.
    """
    links = sp.csr_matrix(data.matrix("sum"), copy=True)
    links.data[:] = 1.0
    n = data.num_nodes
    reached = sp.csr_matrix((np.ones(len(nodes), np.float32), (np.arange(len(nodes)), nodes)), shape=(len(nodes), n))
    start = reached
    for _ in range(hops):
        reached = reached @ links + reached
        reached.data[:] = 1.0
    reached = sp.csr_matrix(reached - start)
    reached.eliminate_zeros()
    degree = np.diff(reached.indptr)
    means = sp.diags((1.0 / np.maximum(degree, 1)).astype(np.float32)) @ reached @ data.graph.features
    dense = means.toarray() if sp.issparse(means) else np.asarray(means)
    return (
        torch.from_numpy(np.ascontiguousarray(dense)).to(data.device, data.dtype),
        torch.from_numpy(degree > 0).to(data.device),
    )


class RandomNetwork(NamedTuple):
    """A randomly drawn encoder and linear head, with the gradient that the real graph gives the encoder.

    Attributes:
        model: The encoder.
        head: Weight [E, C] and bias [C].
        real: Gradients of ``model.parameters()``, in that order.
    """

    model: Model
    head: tuple[Tensor, Tensor]
    real: Sequence[Tensor]

    def gradient(self, view: View, labels: Tensor, *, again: bool = False) -> Sequence[Tensor]:
        """Of the mean cross-entropy of a view's first items for the encoder; ``again``: to be differentiated again."""
        weight, bias = self.head
        logits = torch.addmm(bias, self.model(view)[: len(labels)], weight)
        return torch.autograd.grad(F.cross_entropy(logits, labels), list(self.model.parameters()), create_graph=again)


class GradientMatching:
    """Squared distance between what real nodes and pairs (node, generated neighbour) say of a network's weights.

    Args:
        data: The real graph.
        nodes: [n] training nodes, the centres of the pairs.
        labels: [n] their classes.
        elementwise: Divide each parameter's squared distance by its size, as the release does.
    """

    def __init__(self, data: GraphTensors, nodes: NDArray[np.int64], labels: Tensor, *, elementwise: bool = False):
        self.view, self.labels, self.elementwise = data.kept_view(nodes), labels, elementwise
        self.centres = operator(data.graph.features[nodes], data.device, data.dtype).dense()
        self.pairs = GeneratedGraph(torch.cat([self.centres, self.centres]), pairs(2 * len(nodes), len(nodes)))

    def network(self, model: Model, head: tuple[Tensor, Tensor]) -> RandomNetwork:
        """A random network with the gradient that the real graph gives it; dropout is off."""
        found = RandomNetwork(model, head, ())
        return found._replace(real=found.gradient(self.view, self.labels))

    def distance(self, network: RandomNetwork, fake: Tensor) -> Tensor:
        """The squared distance, with a gradient for the generated neighbours.

        Args:
            network: From ``network``.
            fake: [n, d] one neighbour per node.
        """
        graph = self.pairs.with_features(torch.cat([self.centres, fake]))
        said = network.gradient(graph.full, self.labels, again=True)
        squares = [(mine - real).square() for mine, real in zip(said, network.real, strict=True)]
        return torch.stack([each.mean() if self.elementwise else each.sum() for each in squares]).sum()


class Fitting:
    """Trains one generator on one client's training nodes.

    Args:
        data: The client's graph.
        nodes: [n] its labelled training nodes.
        labels: [n] their classes.
        classes: C.
        config: How.
        output: What follows the last map.
        build: Draws an encoder for gradient matching from a generator.
    """

    def __init__(
        self,
        data: GraphTensors,
        nodes: NDArray[np.int64],
        labels: Tensor,
        classes: int,
        config: FedLoGConfig,
        output: Output,
        build: Callable[[torch.Generator], Model],
    ):
        self.data, self.config, self.output, self.build, self.classes = data, config, output, build, classes
        self.inputs: Operator = operator(data.graph.features[nodes], data.device, data.dtype)
        self.targets, known = neighbour_means(data, nodes, config.generator_hops)
        # A node without neighbours has no mean to learn.
        self.known = known.to(data.dtype)[:, None] / max(int(known.sum()), 1)
        self.matching = GradientMatching(data, nodes, labels, elementwise=config.matching == "last")
        if config.matching == "last":
            self.known = self.known / self.targets.shape[1]

    def run(
        self, parameters: Mapping[str, Tensor], generator: torch.Generator
    ) -> tuple[dict[str, Tensor], list[float]]:
        """Fit.

        Args:
            parameters: Where to start, as ``draw`` gives them.
            generator: Source of dropout, of the random networks and of which one an epoch uses.

        Returns:
            The fitted parameters, and each epoch's loss.
        """
        config = self.config
        place = (self.data.device, self.data.dtype)
        leaves = {name: value.to(*place, copy=True).requires_grad_() for name, value in parameters.items()}
        trained = list(leaves.values())
        optimizer = Adam(trained, lr=config.generator_lr)
        networks: list[RandomNetwork] = []
        if config.grad_weight > 0 and config.matching == "mean":
            networks = [self._network(generator) for _ in range(config.networks)]
        losses = []
        for _ in range(config.generator_epochs):
            fake = self._forward(leaves, generator)
            loss = ((fake - self.targets).square() * self.known).sum()
            chosen, share = self._choose(networks, generator)
            for network in chosen:
                loss = loss + share * self.matching.distance(network, fake)
            optimizer.step(gradients_of(loss, trained))
            losses.append(float(loss.detach()))
        return {name: value.detach() for name, value in leaves.items()}, losses

    def _choose(self, networks: list[RandomNetwork], generator: torch.Generator) -> tuple[list[RandomNetwork], float]:
        config = self.config
        if config.grad_weight == 0:
            return [], 0.0
        if config.matching == "last":
            return [self._network(generator)], config.grad_weight / config.networks
        count = min(config.nets_per_epoch, len(networks))
        if count < len(networks):
            order = torch.randperm(len(networks), generator=generator)[:count]
            networks = [networks[index] for index in order.tolist()]
        return networks, config.grad_weight / count

    def _network(self, generator: torch.Generator) -> RandomNetwork:
        model = self.build(generator)
        width = model.num_classes
        bound = 1.0 / math.sqrt(width)
        weight = torch.rand(width, self.classes, generator=generator) * (2 * bound) - bound
        bias = torch.rand(self.classes, generator=generator) * (2 * bound) - bound
        place = (self.data.device, self.data.dtype)
        return self.matching.network(model.to(*place), (weight.to(*place), bias.to(*place)))

    def _forward(self, weights: Mapping[str, Tensor], generator: torch.Generator) -> Tensor:
        hidden = (self.inputs @ weights["0.weight"] + weights["0.bias"]).relu()
        hidden = relu_dropout(times(hidden, weights["1.weight"], weights["1.bias"]), RATE, generator)
        last = times(hidden, weights["2.weight"], weights["2.bias"])
        return last.tanh() if self.output == "tanh" else last
