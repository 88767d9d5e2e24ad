"""FedLoG's encoder on nodes without a graph of their own: alone, or joined in pairs. Differentiated by hand.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.models.base import Dense, Model
from graphsilo.models.dense import mm
from graphsilo.models.dropout import relu_dropout_scale
from graphsilo.models.gcn import GCN
from graphsilo.models.mlp import MLP
from graphsilo.models.sage import SAGE, SageLayer


class Summand(NamedTuple):
    """One product of a layer, seen from a node in a pair: (own · h + other · h_partner) W.

    Attributes:
        place: Where its weight stands among the model's parameters.
        own, other: Share of the node itself and of its only neighbour.
        alone: Share of the node itself where it has no neighbour.
    """

    place: int
    own: float
    other: float
    alone: float


class Layer(NamedTuple):
    """Summands, and where the bias stands."""

    summands: tuple[Summand, ...]
    bias: int


def layers_of(model: Model) -> tuple[Layer, ...]:
    """How each layer of a backbone treats a node alone and a pair of joined nodes.

    Raises:
        UnsupportedError: The backbone is none of sage, gcn and mlp, or scales its rows.
    """
    places = {id(parameter): place for place, parameter in enumerate(model.parameters())}

    def at(parameter: Tensor | None) -> int:
        return places[id(parameter)]

    if isinstance(model, SAGE) and model.unit_rows:
        raise UnsupportedError(
            "FedLoG optimises nodes through its encoder, which is known here without rows of unit length. Leave "
            "model.unit_rows at false."
        )
    found = []
    for layer in getattr(model, "layers", ()):
        if isinstance(model, SAGE) and isinstance(layer, SageLayer):
            summands: tuple[Summand, ...] = (
                Summand(at(layer.neighbours.weight), 0.0, 1.0, 0.0),
                Summand(at(layer.own.weight), 1.0, 0.0, 1.0),
            )
            found.append(Layer(summands, at(layer.neighbours.bias)))
        elif isinstance(model, GCN) and isinstance(layer, Dense):
            # With loops both nodes of a pair have degree 2, hence weights 1/2; alone it is 1.
            found.append(Layer((Summand(at(layer.weight), 0.5, 0.5, 1.0),), at(layer.bias)))
        elif isinstance(model, MLP) and isinstance(layer, Dense):
            found.append(Layer((Summand(at(layer.weight), 1.0, 0.0, 1.0),), at(layer.bias)))
    if not found:
        raise UnsupportedError(
            f"FedLoG optimises nodes through its encoder, which is known here for sage, gcn and mlp; "
            f"{model.called} was asked for. Use --model sage, the paper's."
        )
    return tuple(found)


class Mixture(NamedTuple):
    """The weights that one kind of row meets in a layer: Σ share · W over the layer's summands.

    Attributes:
        shares: By summand.
        weight: The sum; None where all shares are 0.
    """

    shares: tuple[float, ...]
    weight: Tensor | None


class LayerInput(NamedTuple):
    """What a layer takes: nodes alone, and the sums and the differences of the two nodes of each pair."""

    alone: Tensor
    plus: Tensor
    minus: Tensor


class Points(NamedTuple):
    """Encoded points, and what the way back needs.

    Attributes:
        output: [points, E]: nodes alone, centres, and the centres' only neighbours.
        inputs: Per layer its input.
        scales: Per hidden layer the factor of ReLU and dropout.
    """

    output: Tensor
    inputs: list[LayerInput]
    scales: list[Tensor]


class PointEncoder:
    """A model's encoder on points: nodes without neighbours, then the two halves of joined pairs.

    A pair (c, n) needs own · c W + other · n W and the same with c and n exchanged. With c + n and c − n that is one
    product each, not two: the first meets (own + other) W / 2, the second (own − other) W / 2, and the results' sum and
    difference are the pair's.
    """

    def __init__(self, model: Model, rate: float):
        self.layers = layers_of(model)
        self.rate = rate
        self.parameters: Sequence[Tensor] = list(model.parameters())

    @torch.no_grad()
    def forward(self, alone: Tensor, pairs: Tensor, generator: torch.Generator | None) -> Points:
        """Embeddings of points.

        Args:
            alone: [a, d] nodes without neighbours.
            pairs: [2 S, d] centres, and the centres' only neighbours.
            generator: Source of dropout; None for evaluation.
        """
        inputs: list[LayerInput] = []
        scales: list[Tensor] = []
        for depth, layer in enumerate(self.layers):
            given = LayerInput(alone, *_plus_minus(pairs))
            inputs.append(given)
            bias = self.parameters[layer.bias]
            hidden = bias.new_empty(len(alone) + len(pairs), len(bias))
            mixtures = self._mixtures(layer, bool(len(pairs)))
            for values, mixture, part in zip(given, mixtures, _parts(hidden, len(alone)), strict=True):
                if mixture.weight is None:
                    part.zero_()
                else:
                    part.copy_(mm(values, mixture.weight))
            _exchange(hidden[len(alone) :])
            hidden += bias
            if depth < len(self.layers) - 1:
                scales.append(relu_dropout_scale(hidden, self.rate, generator))
                hidden *= scales[-1]
            alone, pairs = hidden[: len(alone)], hidden[len(alone) :]
        return Points(hidden, inputs, scales)

    @torch.no_grad()
    def backward(self, points: Points, gradient: Tensor, *, wanted: int) -> tuple[list[Tensor], Tensor]:
        """Gradients of the parameters, by place, and of the first ``wanted`` inputs alone.

        Args:
            points: From ``forward``.
            gradient: [points, E]; may be overwritten.
            wanted: For how many points the inputs' gradient is needed.
        """
        found: dict[int, Tensor] = {}
        for depth in range(len(self.layers) - 1, -1, -1):
            layer, given = self.layers[depth], points.inputs[depth]
            if depth < len(self.layers) - 1:
                gradient *= points.scales[depth]
            found[layer.bias] = gradient.sum(0)
            count, wide = len(given.alone), given.alone.shape[1]
            mixtures = self._mixtures(layer, bool(len(given.plus)))
            _exchange(gradient[count:])
            pushed = _parts(gradient, count)
            self._gradients(layer, mixtures, given, pushed, found)
            if depth == 0:
                pushed, mixtures = (pushed[0][:wanted],), mixtures[:1]
            below = [_below(each, mixture, wide) for each, mixture in zip(pushed, mixtures, strict=True)]
            gradient = torch.cat(below)
            _exchange(gradient[count:])
        return [found[place] for place in range(len(self.parameters))], gradient

    def _mixtures(self, layer: Layer, paired: bool) -> tuple[Mixture, ...]:
        """What nodes alone, sums and differences meet; the latter two only where there are pairs."""
        kinds: tuple[Callable[[Summand], float], ...] = (
            lambda each: each.alone,
            lambda each: 0.5 * (each.own + each.other),
            lambda each: 0.5 * (each.own - each.other),
        )
        shares = [tuple(map(kind, layer.summands)) for kind in kinds]
        return tuple(self._mixture(layer, each, made=paired or not place) for place, each in enumerate(shares))

    def _mixture(self, layer: Layer, shares: tuple[float, ...], *, made: bool) -> Mixture:
        weight: Tensor | None = None
        for share, summand in zip(shares, layer.summands, strict=True):
            if share and made:
                mine = self.parameters[summand.place]
                mine = mine if share == 1.0 else mine * share
                weight = mine if weight is None else weight + mine
        return Mixture(shares, weight)

    def _gradients(
        self,
        layer: Layer,
        mixtures: Sequence[Mixture],
        given: LayerInput,
        pushed: Sequence[Tensor],
        found: dict[int, Tensor],
    ) -> None:
        """Puts the gradients of the layer's weights to what was found."""
        for values, mixture, each in zip(given, mixtures, pushed, strict=True):
            if mixture.weight is None:
                continue
            whole = mm(values.t(), each)
            for share, summand in zip(mixture.shares, layer.summands, strict=True):
                if share and summand.place in found:
                    found[summand.place].add_(whole, alpha=share)
                elif share:
                    found[summand.place] = whole * share
        for summand in layer.summands:
            if summand.place not in found:
                found[summand.place] = torch.zeros_like(self.parameters[summand.place])


def _plus_minus(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """[S, ...] sums and differences of centres and their neighbours."""
    centres, others = pairs.chunk(2) if len(pairs) else (pairs, pairs)
    return centres + others, centres - others


def _exchange(pairs: Tensor) -> None:
    """Two halves of rows become their sum and their difference, in place."""
    if len(pairs):
        first, second = pairs.chunk(2)
        first += second
        second.mul_(-2.0).add_(first)


def _parts(rows: Tensor, alone: int) -> tuple[Tensor, ...]:
    half = (len(rows) - alone) // 2
    return rows[:alone], rows[alone : alone + half], rows[alone + half :]


def _below(gradient: Tensor, mixture: Mixture, width: int) -> Tensor:
    """Gradient of what met a mixture, [rows, width]."""
    if mixture.weight is None:
        return gradient.new_zeros(len(gradient), width)
    return mm(gradient, mixture.weight.t())
