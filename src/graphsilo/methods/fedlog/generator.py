"""The neighbour generator of FedLoG: a perceptron that guesses what a node's neighbours look like.

It learns from the features' means over neighbourhoods, and from gradients: a node with its generated neighbour shall
pull randomly drawn networks as the real graph does. That loss needs a gradient of a gradient; with ReLU networks on
pairs of nodes both are a few matrix products, written out here. All pairs are one batch, and no subgraph is ever made.

Source: Kim et al., ICLR 2025, section 4.3 and appendix; Zhao et al., "Dataset Condensation with Gradient Matching",
ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.methods.fedlog.points import Summand, layers_of
from graphsilo.models.base import Model
from graphsilo.models.dense import bmm, mm, tanh_
from graphsilo.models.dropout import relu_dropout_scale
from graphsilo.models.operators import Operator, operator
from graphsilo.models.view import GraphTensors
from graphsilo.training.optimizer import Adam

if TYPE_CHECKING:
    from graphsilo.methods.fedlog.config import FedLoGConfig

Output: TypeAlias = Literal["tanh", "identity"]
Matching: TypeAlias = Literal["mean", "last"]
"""Which random networks count: all, or one that is drawn anew each epoch, with weight 1/N, as in the release."""
HIDDEN = (256, 512)
"""Widths between input and output (release; the paper gives none)."""
_KEPT = 8
"""Of how many difficulties a class's customised nodes are kept."""
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
        hidden = bmm(hidden, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"][:, None])
        hidden = hidden.relu_() if layer < len(HIDDEN) else hidden
    return (tanh_(hidden) if output == "tanh" else hidden).reshape(features.shape)


class _Made(NamedTuple):
    """What was customised of some nodes: by class, what its latest difficulties gave."""

    tensors: list[tuple[ReferenceType[Tensor], int]]
    output: Output
    points: list[dict[float, Tensor]]

    def serves(self, tensors: Sequence[Tensor], output: Output) -> bool:
        """Whether it was made of these very tensors, which nobody has written to since."""
        known = zip(self.tensors, tensors, strict=True)
        return self.output == output and all(seen() is each and each._version == now for (seen, now), each in known)


_made: _Made | None = None


def customise(generators: Mapping[str, Tensor], nodes: Tensor, difficulty: Tensor, output: Output) -> Tensor:
    """Global synthetic nodes drawn towards their mean by each class's difficulty, and a generated neighbour of each.

    Clients of one process have the same generators and nodes, and many the same difficulty of a class: what was made
    for others is used again. Each class is computed for itself, so that this changes no bit.

    Args:
        generators: By class, as ``generate`` takes them.
        nodes: [C · s, d], class by class.
        difficulty: [C] from 0 to 1.
        output: What follows a generator's last map.

    Returns:
        [2 · C · s, d]: the nodes, then their neighbours.
    """
    global _made
    tensors = [nodes, *generators.values()]
    if _made is None or not _made.serves(tensors, output):
        points = [dict[float, Tensor]() for _ in difficulty]
        _made = _Made([(ref(each), each._version) for each in tensors], output, points)
    mean = nodes.mean(0)
    found = []
    for label, (factor, own) in enumerate(zip(difficulty.tolist(), nodes.chunk(len(difficulty)), strict=True)):
        known = _made.points[label]
        if factor not in known:
            centres = own + factor * (mean - own)
            alone = {name: value[label : label + 1] for name, value in generators.items()}
            known[factor] = torch.stack([centres, generate(alone, centres, output)])
            if len(known) > _KEPT:
                del known[next(iter(known))]
        found.append(known[factor])
    return torch.cat(found, dim=1).flatten(0, 1)


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


class GradientMatching:
    """Squared distance between what real nodes and pairs (node, generated neighbour) say of a network's weights.

    Args:
        data: The real graph.
        nodes: [n] training nodes, the centres of the pairs.
        labels: [n] their classes.
        classes: C.
        elementwise: Divide each parameter's squared distance by its size, as the release does.
    """

    def __init__(
        self, data: GraphTensors, nodes: NDArray[np.int64], labels: Tensor, classes: int, *, elementwise: bool = False
    ):
        self.data, self.nodes, self.elementwise = data, nodes, elementwise
        self.centres: Operator = operator(data.graph.features[nodes], data.device, data.dtype)
        self.hot = F.one_hot(labels, classes).to(data.dtype)

    def network(self, model: Model, head: tuple[Tensor, Tensor]) -> RandomNetwork:
        """A random network with the gradient that the real graph gives it; dropout is off."""
        trace = model.trace(self.data.kept_view(self.nodes), None)
        if trace is None:
            raise ValueError(f"{type(model).__name__} has no backward pass without autograd")
        with torch.no_grad():
            logits = torch.addmm(head[1], trace.logits, head[0])
            real = trace.pull((logits.softmax(1) - self.hot).div_(len(self.hot)) @ head[0].t())
        return RandomNetwork(model, head, real)

    @torch.no_grad()
    def distance(self, network: RandomNetwork, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The squared distance, and its gradient for the generated neighbours.

        Args:
            network: From ``network``.
            fake: [n, d] one neighbour per node.
        """
        weights, biases = network.weights, network.biases
        count, depth = len(fake), len(network.layers)
        first = network.layers[0]

        # Forward. Rows: centres, then neighbours.
        outer = _split(self.centres.mm(network.first), first)
        inner = _split(mm(fake, network.first), first)
        hidden = [fake]
        passed: list[Tensor] = []
        value = biases[0].expand(2 * count, -1).clone()
        for summand, mine, theirs in zip(first, outer, inner, strict=True):
            value += _pair(mine, theirs, summand)
        for layer in range(1, depth):
            passed.append(value > 0)
            hidden.append(value * passed[-1])
            value = biases[layer].expand(2 * count, -1).clone()
            for summand, weight in zip(network.layers[layer], weights[layer], strict=True):
                value.addmm_(_mix(hidden[layer], summand), weight)
        head, shift = network.head
        shares = torch.addmm(shift, value[:count], head).softmax(1)

        # Backward: what the pairs say.
        down = torch.zeros_like(value)
        down[:count] = (shares - self.hot).div_(count) @ head.t()
        downs = [down] * depth
        for layer in range(depth - 1, 0, -1):
            below = torch.zeros_like(hidden[layer])
            for summand, weight in zip(network.layers[layer], weights[layer], strict=True):
                below.addmm_(_mix(downs[layer], summand), weight.t())
            downs[layer - 1] = below.mul_(passed[layer - 1])

        # Differences from what the real graph says, doubled: the gradient of the squared distance.
        loss = value.new_zeros(())
        to_inner = torch.cat([_of_neighbour(downs[0], summand) for summand in first], dim=1)
        to_outer = torch.cat([_of_centre(downs[0], summand) for summand in first], dim=1)
        change = self.centres.tmm(to_outer).add_(mm(fake.t(), to_inner)).sub_(network.real_first)
        loss, change = self._doubled(loss, change, len(change) * (change.shape[1] // len(first)))
        gradient = mm(to_inner, change.t())
        bias_changes = []
        weight_changes: list[list[Tensor]] = [[]]
        for layer in range(depth):
            loss, difference = self._doubled(loss, downs[layer].sum(0) - network.real_biases[layer])
            bias_changes.append(difference)
            if layer:
                weight_changes.append([])
                for summand, wanted in zip(network.layers[layer], network.real_weights[layer], strict=True):
                    said = torch.mm(_mix(hidden[layer], summand).t(), downs[layer])
                    loss, difference = self._doubled(loss, said - wanted)
                    weight_changes[layer].append(difference)

        # The way back through the backward pass: first layer first.
        outer, inner = _split(self.centres.mm(change), first), _split(mm(fake, change), first)
        back = bias_changes[0].expand(2 * count, -1).clone()
        for summand, mine, theirs in zip(first, outer, inner, strict=True):
            back += _pair(mine, theirs, summand)
        ups: list[Tensor] = [back]
        for layer in range(1, depth):
            back = back * passed[layer - 1]
            after = bias_changes[layer].expand(2 * count, -1).clone()
            up = torch.zeros_like(hidden[layer])
            for index, summand in enumerate(network.layers[layer]):
                after.addmm_(_mix(back, summand), weights[layer][index])
                after.addmm_(_mix(hidden[layer], summand), weight_changes[layer][index])
                up.addmm_(_mix(downs[layer], summand), weight_changes[layer][index].t())
            ups.append(up)
            back = after
        pushed = back[:count] @ head
        pushed = shares * (pushed - (shares * pushed).sum(1, keepdim=True)) / count

        # And through the forward pass: last layer first.
        value = torch.zeros_like(value)
        value[:count] = pushed @ head.t()
        for layer in range(depth - 1, 0, -1):
            below = ups[layer]
            for summand, weight in zip(network.layers[layer], weights[layer], strict=True):
                below.addmm_(_mix(value, summand), weight.t())
            value = below.mul_(passed[layer - 1])
        last = torch.cat([_of_neighbour(value, summand) for summand in first], dim=1)
        return loss, gradient.add_(mm(last, network.first.t()))

    def _doubled(self, loss: Tensor, difference: Tensor, size: int | None = None) -> tuple[Tensor, Tensor]:
        """Adds ‖difference‖² to the loss; returns its gradient."""
        scale = 1.0 / (size or difference.numel()) if self.elementwise else 1.0
        return loss + scale * difference.square().sum(), difference * (2.0 * scale)


def _split(values: Tensor, summands: Sequence[Summand]) -> tuple[Tensor, ...]:
    return values.chunk(len(summands), dim=1)


def _mix(rows: Tensor, summand: Summand) -> Tensor:
    """own · h + other · h_partner, [2 n, width]; its own transpose."""
    if summand.other == 0.0:
        return rows if summand.own == 1.0 else rows * summand.own
    swapped = partners(rows)
    return swapped if (summand.own, summand.other) == (0.0, 1.0) else rows * summand.own + swapped * summand.other


def partners(pairs: Tensor) -> Tensor:
    """[2 S, ...]: each row's partner, centres first."""
    half = len(pairs) // 2
    return torch.cat([pairs[half:], pairs[:half]])


def _pair(mine: Tensor, theirs: Tensor, summand: Summand) -> Tensor:
    """The same from centres [n, width] and neighbours [n, width]."""
    return _mix(torch.cat([mine, theirs]), summand)


def _of_centre(rows: Tensor, summand: Summand) -> Tensor:
    return _mix(rows, summand)[: len(rows) // 2]


def _of_neighbour(rows: Tensor, summand: Summand) -> Tensor:
    return _mix(rows, summand)[len(rows) // 2 :]


class RandomNetwork:
    """A randomly drawn encoder and linear head, with the gradient that the real graph gives the encoder.

    Args:
        model: The encoder.
        head: Weight [E, C] and bias [C].
        real: Gradients of ``model.parameters()``, in that order.
    """

    def __init__(self, model: Model, head: tuple[Tensor, Tensor], real: Sequence[Tensor]):
        layers = layers_of(model)
        parameters = [parameter.detach() for parameter in model.parameters()]
        self.layers: list[tuple[Summand, ...]] = [layer.summands for layer in layers]
        self.head = head
        self.weights = [[parameters[item.place] for item in layer.summands] for layer in layers]
        self.biases = [parameters[layer.bias] for layer in layers]
        self.first = torch.cat(self.weights[0], dim=1)
        self.real_first = torch.cat([real[item.place] for item in layers[0].summands], dim=1)
        self.real_weights = [[], *([real[item.place] for item in layer.summands] for layer in layers[1:])]
        self.real_biases = [real[layer.bias] for layer in layers]


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
        self.matching = GradientMatching(data, nodes, labels, classes, elementwise=config.matching == "last")
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
        weights = {name: value.to(self.data.device, self.data.dtype).clone() for name, value in parameters.items()}
        optimizer = Adam(list(weights.values()), lr=config.generator_lr)
        networks: list[RandomNetwork] = []
        if config.grad_weight > 0 and config.matching == "mean":
            networks = [self._network(generator) for _ in range(config.networks)]
        losses = []
        for _ in range(config.generator_epochs):
            with torch.no_grad():
                fake, kept = self._forward(weights, generator)
                difference = fake - self.targets
                loss = (difference.square() * self.known).sum()
                gradient = difference.mul_(2.0 * self.known)
                chosen, share = self._choose(networks, generator)
                for network in chosen:
                    distance, more = self.matching.distance(network, fake)
                    loss = loss + share * distance
                    gradient.add_(more, alpha=share)
                optimizer.step(self._backward(weights, fake, kept, gradient))
                losses.append(float(loss))
        return weights, losses

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

    def _forward(self, weights: Mapping[str, Tensor], generator: torch.Generator) -> tuple[Tensor, list[Tensor]]:
        first = self.inputs.mm(weights["0.weight"]).add_(weights["0.bias"]).relu_()
        second = mm(first, weights["1.weight"], weights["1.bias"])
        scale = relu_dropout_scale(second, RATE, generator)
        second *= scale
        last = mm(second, weights["2.weight"], weights["2.bias"])
        return (tanh_(last) if self.output == "tanh" else last), [first, second, scale]

    def _backward(
        self, weights: Mapping[str, Tensor], fake: Tensor, kept: list[Tensor], gradient: Tensor
    ) -> list[Tensor]:
        """Gradients in the order of ``draw``; overwrites ``gradient``."""
        first, second, scale = kept
        if self.output == "tanh":
            gradient.addcmul_(gradient, fake.square(), value=-1.0)
        found = [mm(second.t(), gradient), gradient.sum(0)]
        gradient = mm(gradient, weights["2.weight"].t()).mul_(scale)
        found = [mm(first.t(), gradient), gradient.sum(0), *found]
        gradient = mm(gradient, weights["1.weight"].t()).mul_(first > 0)
        return [self.inputs.tmm(gradient), gradient.sum(0), *found]
