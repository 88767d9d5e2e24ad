"""The network of FedLoG: an encoder for nodes without a graph of their own, and the head and tail classifiers.

Both are differentiated by hand. A step of FedLoG has 64 nodes, 2·s·C prototypes and two classifiers of two layers:
as autograd nodes that is several hundred tiny operations. The two classifiers are one batch here.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.polynomial import chebyshev
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.models.base import Dense, Model
from graphsilo.models.dropout import relu_dropout_scale
from graphsilo.models.gcn import GCN
from graphsilo.models.mlp import MLP
from graphsilo.models.sage import SAGE, SageLayer

if TYPE_CHECKING:
    from graphsilo.methods.fedlog.config import FedLoGConfig

Distance: TypeAlias = Literal["both", "embedding"]
"""What a prototype is far from: a node's embedding and its neighbours' mean, or the embedding alone."""
Interaction: TypeAlias = Literal["full", "inert"]
"""Whether the classifiers move an embedding towards the prototypes, or hand on its layer norm."""
Mixing: TypeAlias = Literal["probabilities", "logarithms"]
"""What the two branches' shares weight in the loss: probabilities, or their logarithms."""

BRANCHES = 2
"""Head and tail, in this order: the first dimension of everything that the branches do not share."""
_CACHED = 1 << 18
"""Numbers of a block of interpolation."""
_EPS = 1e-5
_NARROW = 1e-3
"""Least half width of an interpolation interval, relative to its middle plus one."""


# -- nodes without a graph of their own --------------------------------------------------------------------------------


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


class Points(NamedTuple):
    """Encoded points, and what the way back needs.

    Attributes:
        output: [points, E].
        inputs: Per layer its input.
        scales: Per hidden layer the factor of ReLU and dropout.
        alone: How many of the points stand alone; the others are pairs.
    """

    output: Tensor
    inputs: list[Tensor]
    scales: list[Tensor]
    alone: int


class PointEncoder:
    """A model's encoder on points: nodes without neighbours, then the two halves of joined pairs."""

    def __init__(self, model: Model, rate: float):
        self.layers = layers_of(model)
        self.rate = rate
        self.parameters: Sequence[Tensor] = list(model.parameters())

    def forward(self, points: Tensor, alone: int, generator: torch.Generator | None) -> Points:
        """Embeddings of points.

        Args:
            points: [alone + 2 S, d]: nodes without neighbours, S centres, and the centres' only neighbours.
            alone: How many stand alone.
            generator: Source of dropout; None for evaluation.
        """
        inputs, scales = [], []
        hidden = points
        with torch.no_grad():
            for depth, layer in enumerate(self.layers):
                inputs.append(hidden)
                hidden = self._apply(layer, hidden, alone)
                if depth < len(self.layers) - 1:
                    scales.append(relu_dropout_scale(hidden, self.rate, generator))
                    hidden *= scales[-1]
        return Points(hidden, inputs, scales, alone)

    def _apply(self, layer: Layer, hidden: Tensor, alone: int) -> Tensor:
        total = self.parameters[layer.bias].expand(len(hidden), -1).clone()
        for summand in layer.summands:
            weight = self.parameters[summand.place]
            if summand.own and summand.own == summand.alone:
                total.addmm_(hidden, weight, alpha=summand.own)
            else:
                if summand.alone:
                    total[:alone].addmm_(hidden[:alone], weight, alpha=summand.alone)
                if summand.own:
                    total[alone:].addmm_(hidden[alone:], weight, alpha=summand.own)
            if summand.other and len(hidden) > alone:
                total[alone:].addmm_(partners(hidden[alone:]), weight, alpha=summand.other)
        return total

    def backward(self, points: Points, gradient: Tensor, *, wanted: int) -> tuple[list[Tensor], Tensor]:
        """Gradients of the parameters, by place, and of the first ``wanted`` input rows.

        Args:
            points: From ``forward``.
            gradient: [points, E]; may be overwritten.
            wanted: For how many points the inputs' gradient is needed.
        """
        found: dict[int, Tensor] = {}
        alone = points.alone
        with torch.no_grad():
            for depth in range(len(self.layers) - 1, -1, -1):
                layer, hidden = self.layers[depth], points.inputs[depth]
                if depth < len(self.layers) - 1:
                    gradient = gradient * points.scales[depth]
                found[layer.bias] = gradient.sum(0)
                rows = len(hidden) if depth else wanted
                below = hidden.new_zeros(rows, hidden.shape[1])
                for summand in layer.summands:
                    weight = self.parameters[summand.place]
                    seen = self._weigh(summand, gradient, alone)
                    # Rows whose share is 0 take no part in the products.
                    start = alone if not summand.alone else 0
                    found[summand.place] = torch.mm(hidden[start:].t(), seen[start:])
                    if rows > start:
                        below[start:rows].addmm_(seen[start:rows], weight.t())
                gradient = below
        return [found[place] for place in range(len(self.parameters))], gradient

    @staticmethod
    def _weigh(summand: Summand, gradient: Tensor, alone: int) -> Tensor:
        """The transpose of what the summand does to rows."""
        if summand.other == 0.0 and summand.own == summand.alone == 1.0:
            return gradient
        seen = torch.empty_like(gradient)
        torch.mul(gradient[:alone], summand.alone, out=seen[:alone])
        pairs = gradient[alone:]
        torch.add(pairs * summand.own, partners(pairs), alpha=summand.other, out=seen[alone:])
        return seen


def partners(pairs: Tensor) -> Tensor:
    """[2 S, ...]: each row's partner, centres first."""
    half = len(pairs) // 2
    return torch.cat([pairs[half:], pairs[:half]])


# -- layer norm without its scale and shift ----------------------------------------------------------------------------


def normalise(values: Tensor, wanted: bool = True) -> tuple[Tensor, Tensor | None]:
    """Rows with mean 0 and variance 1 (ε = 1e-5), and the factor that did it, [rows, 1]; as they are, unless wanted."""
    if not wanted:
        return values, None
    centred = values - values.mean(1, keepdim=True)
    factor = centred.square().mean(1, keepdim=True).add_(_EPS).rsqrt_()
    return centred.mul_(factor), factor


def normalise_backward(gradient: Tensor, normal: Tensor, factor: Tensor | None) -> Tensor:
    """Gradient of ``normalise``'s input, [rows, E]."""
    if factor is None:
        return gradient
    along = (gradient * normal).mean(1, keepdim=True)
    return (gradient - gradient.mean(1, keepdim=True)).addcmul_(normal, along, value=-1.0).mul_(factor)


# -- the head and the tail classifier ----------------------------------------------------------------------------------


class BranchTargets(NamedTuple):
    """Nodes to classify.

    Attributes:
        own: [T, E] embeddings, normalised (without scale and shift) where the classifiers have a layer norm.
        around: [T, E] mean of the neighbours', likewise; zero rows where there is none.
        connected: [T] 1 where a node has a neighbour, else 0.
    """

    own: Tensor
    around: Tensor
    connected: Tensor


class Pass(NamedTuple):
    """One run through both classifiers.

    Attributes:
        logits: [2, T, C], up to a constant per row.
    """

    logits: Tensor
    targets: BranchTargets
    normal: Tensor
    prototypes: Tensor
    neighbours: Tensor
    moved: Tensor
    centres: Tensor
    layers: list[_LayerPass]


class _LayerPass(NamedTuple):
    hidden: Tensor
    weights: Tensor
    slope: Tensor | None
    scaled: Tensor | None
    total: Tensor
    network: list[Tensor]
    points: Tensor


Parameters: TypeAlias = "dict[str, Tensor]"


class Classifiers:
    """The head and the tail classifier: layer norm, interaction with the prototypes, distance to class centres.

    Layer l, for a target v and the prototypes j of a branch (after the norm; n_v the neighbours' mean):

        d_vj = ‖h_v − p_j‖² + ‖n_v − p_j‖²            (``distance="embedding"``: the first alone)
        w_vj = MLP_trans(MLP_msg([h_v ‖ n_v ‖ d_vj]))  (five linear maps, SiLU between)
        h_v ← h_v + mean_j (h_v − p_j) w_vj

    and a branch's logits are −‖h_v − mean_i p_(c,i)‖². For one target w_vj depends on j through d_vj alone, so the MLPs
    run at ``interp`` Chebyshev nodes of [min_j d_vj, max_j d_vj] and a polynomial gives the rest (0: at all pairs). The
    interval's ends count as constants.

    Args:
        config: ``interaction="inert"`` takes the layer norm of the embedding, against plain prototypes, as the release
            does; without ``layer_norm`` embeddings and prototypes come as they are.
        classes: C.
    """

    def __init__(self, config: FedLoGConfig, classes: int):
        self.width, self.classes, self.per_class = config.embedding_dim, classes, config.prototypes
        self.depth, self.interp = config.interaction_layers, config.interp
        if classes * config.prototypes <= config.interp:
            self.interp = 0
        self.distance, self.interaction, self.layer_norm = config.distance, config.interaction, config.layer_norm

    def draw(self, generator: torch.Generator) -> Parameters:
        """Initial parameters; linear maps as torch's default, the last one Xavier-uniform with gain 0.001."""
        width = self.width
        made: Parameters = {}
        if self.layer_norm:
            made = {"norm.weight": torch.ones(BRANCHES, width), "norm.bias": torch.zeros(BRANCHES, width)}

        def uniform(bound: float, *shape: int) -> Tensor:
            return torch.rand(BRANCHES, *shape, generator=generator) * (2 * bound) - bound

        for layer in range(self.depth):
            for name in ("message.0", "message.1", "move.0", "move.1"):
                inputs = 2 * width + 1 if name == "message.0" else width
                bound = 1.0 / math.sqrt(inputs)
                made[f"layers.{layer}.{name}.weight"] = uniform(bound, inputs, width)
                made[f"layers.{layer}.{name}.bias"] = uniform(bound, width)
            made[f"layers.{layer}.move.2.weight"] = uniform(0.001 * math.sqrt(6.0 / (width + 1)), width, 1)
        return made

    def forward(self, parameters: Mapping[str, Tensor], targets: BranchTargets, embedded: Tensor) -> Pass:
        """Logits of both branches.

        Args:
            parameters: As ``draw`` names them.
            targets: What is classified.
            embedded: [2, P, E] embeddings of the head and the tail prototypes, class by class; normalised (without
                scale and shift) where there is a layer norm, unless the interaction is inert.
        """
        scale, shift = self._scale_and_shift(parameters)
        hidden = torch.addcmul(shift, targets.own, scale)
        if self.interaction == "inert":
            prototypes, neighbours = embedded, hidden
            passes: list[_LayerPass] = []
        else:
            prototypes = torch.addcmul(shift, embedded, scale)
            neighbours = torch.addcmul(shift * targets.connected[:, None], targets.around, scale)
            squares = prototypes.square().sum(2)
            passes = []
            for layer in range(self.depth):
                hidden, kept = self._layer(parameters, f"layers.{layer}.", hidden, neighbours, prototypes, squares)
                passes.append(kept)
        centres = prototypes.view(BRANCHES, self.classes, self.per_class, self.width).mean(2)
        # −‖h − μ‖² without ‖h‖², which is the same for every class.
        logits = torch.baddbmm(-centres.square().sum(2)[:, None], hidden, centres.mT, alpha=2.0)
        return Pass(logits, targets, embedded, prototypes, neighbours, hidden, centres, passes)

    def backward(
        self, parameters: Mapping[str, Tensor], run: Pass, gradient: Tensor
    ) -> tuple[Parameters, Tensor, Tensor, Tensor]:
        """From the gradient of the logits, [2, T, C] with rows that sum to 0, to those of everything before.

        Returns:
            Parameters, ``targets.own`` [T, E], ``targets.around`` [T, E], and the prototypes' embeddings [2, P, E].
        """
        found: Parameters = {}
        scale, _ = self._scale_and_shift(parameters)
        hidden = torch.bmm(gradient, run.centres).mul_(2.0)
        centres = torch.bmm(gradient.mT, run.moved).addcmul_(gradient.sum(1)[..., None], run.centres, value=-1.0)
        centres.mul_(2.0 / self.per_class)
        shape = (BRANCHES, self.classes, self.per_class, self.width)
        prototypes = centres[:, :, None].expand(shape).reshape(run.prototypes.shape)
        if self.interaction == "inert":
            own, (weight, bias) = (hidden * scale).sum(0), _affine(hidden, run.targets.own)
            found["norm.weight"], found["norm.bias"] = weight, bias
            for name, value in parameters.items():
                found.setdefault(name, torch.zeros_like(value))
            return found, own, torch.zeros_like(own), prototypes
        neighbours = torch.zeros_like(run.neighbours)
        for layer in range(self.depth - 1, -1, -1):
            hidden = self._layer_backward(
                parameters, f"layers.{layer}.", run.layers[layer], run.neighbours, run.prototypes, hidden, neighbours,
                prototypes, found,
            )  # fmt: skip
        if self.layer_norm:
            weight, bias = _affine(hidden, run.targets.own)
            more, _ = _affine(neighbours, run.targets.around)
            most, late = _affine(prototypes, run.normal)
            found["norm.weight"] = weight + more + most
            found["norm.bias"] = bias + late + (neighbours * run.targets.connected[:, None]).sum(1)
        return found, (hidden * scale).sum(0), (neighbours * scale).sum(0), prototypes * scale

    def _scale_and_shift(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """[2, 1, E] those of the layer norm; 1 and 0 without one."""
        if self.layer_norm:
            return parameters["norm.weight"][:, None], parameters["norm.bias"][:, None]
        like = parameters["layers.0.message.0.bias"]
        return like.new_ones(BRANCHES, 1, self.width), like.new_zeros(BRANCHES, 1, self.width)

    def _layer(
        self,
        parameters: Mapping[str, Tensor],
        name: str,
        hidden: Tensor,
        neighbours: Tensor,
        prototypes: Tensor,
        squares: Tensor,
    ) -> tuple[Tensor, _LayerPass]:
        first = parameters[f"{name}message.0.weight"]
        width, count = self.width, prototypes.shape[1]
        base = torch.baddbmm(parameters[f"{name}message.0.bias"][:, None], hidden, first[:, :width])
        base = base.baddbmm_(neighbours, first[:, width : 2 * width])
        if self.distance == "both":
            lengths = hidden.square().sum(2).add_(neighbours.square().sum(2))[..., None]
            distances = torch.baddbmm(lengths + 2.0 * squares[:, None], hidden + neighbours, prototypes.mT, alpha=-2.0)
        else:
            lengths = hidden.square().sum(2)[..., None]
            distances = torch.baddbmm(lengths + squares[:, None], hidden, prototypes.mT, alpha=-2.0)
        if self.interp == 0:
            weights, network = self._network(parameters, name, base, distances)
            slope, scaled, points = None, None, distances
        else:
            low, high = torch.aminmax(distances, dim=2, keepdim=True)
            middle = (low + high).mul_(0.5)
            half = torch.maximum((high - low).mul_(0.5), (middle + 1.0).mul_(_NARROW))
            nodes, transform = _rule(self.interp, distances.dtype, distances.device)
            points = middle + half * nodes
            values, network = self._network(parameters, name, base, points)
            rows = BRANCHES * distances.shape[1]
            scaled = (distances - middle).div_(half).view(rows, count)
            series = torch.mm(values.view(rows, self.interp), transform).view(rows, 2, self.interp)
            both = distances.new_empty(rows, 2, count)
            for part in _blocks(rows, count * self.interp):
                torch.bmm(series[part], _polynomials(scaled[part], self.interp), out=both[part])
            both = both.view(*distances.shape[:2], 2, count)
            weights, slope = both[:, :, 0], both[:, :, 1] / half
        total = weights.sum(2, keepdim=True)
        pulled = torch.bmm(weights, prototypes)
        moved = torch.addcmul(hidden, hidden, total, value=1.0 / count).sub_(pulled, alpha=1.0 / count)
        return moved, _LayerPass(hidden, weights, slope, scaled, total, network, points)

    def _layer_backward(
        self,
        parameters: Mapping[str, Tensor],
        name: str,
        kept: _LayerPass,
        neighbours: Tensor,
        prototypes: Tensor,
        gradient: Tensor,
        to_neighbours: Tensor,
        to_prototypes: Tensor,
        found: Parameters,
    ) -> Tensor:
        """Adds to the gradients of neighbours and prototypes; returns that of the layer's input."""
        hidden, count = kept.hidden, prototypes.shape[1]
        below = torch.addcmul(gradient, gradient, kept.total, value=1.0 / count)
        to_prototypes.baddbmm_(kept.weights.mT, gradient, alpha=-1.0 / count)
        lengths = (gradient * hidden).sum(2, keepdim=True)
        weights = torch.baddbmm(lengths, gradient, prototypes.mT, beta=1.0 / count, alpha=-1.0 / count)
        if kept.scaled is None or kept.slope is None:
            base, distances = self._network_backward(parameters, name, kept, weights, found, points=True)
        else:
            rows = BRANCHES * hidden.shape[1]
            _, transform = _rule(self.interp, weights.dtype, weights.device)
            series, flat = weights.new_empty(rows, 1, self.interp), weights.reshape(rows, 1, count)
            # Polynomials are made again: keeping them would take as many times the distances' memory.
            for part in _blocks(rows, count * self.interp):
                torch.bmm(flat[part], _polynomials(kept.scaled[part], self.interp).mT, out=series[part])
            values = torch.mm(series[:, 0], transform[:, : self.interp].t()).view(kept.points.shape)
            base, _ = self._network_backward(parameters, name, kept, values, found, points=False)
            distances = weights * kept.slope
        first, width = parameters[f"{name}message.0.weight"], self.width
        below.baddbmm_(base, first[:, :width].mT)
        to_neighbours.baddbmm_(base, first[:, width : 2 * width].mT)
        found[f"{name}message.0.weight"][:, :width] = torch.bmm(hidden.mT, base)
        found[f"{name}message.0.weight"][:, width : 2 * width] = torch.bmm(neighbours.mT, base)
        found[f"{name}message.0.bias"] = base.sum(1)
        # d = ‖h − p‖² + ‖n − p‖²: 2 (h − p) to h, 2 (n − p) to n, 2 (2p − h − n) to p
        by_target = distances.sum(2, keepdim=True)
        by_prototype = distances.sum(1)[..., None]
        towards = torch.bmm(distances, prototypes)
        below.add_(torch.addcmul(-towards, hidden, by_target), alpha=2.0)
        if self.distance == "both":
            to_neighbours.add_(torch.addcmul(-towards, neighbours, by_target), alpha=2.0)
            to_prototypes.baddbmm_(distances.mT, hidden + neighbours, alpha=-2.0)
            to_prototypes.addcmul_(prototypes, by_prototype, value=4.0)
        else:
            to_prototypes.baddbmm_(distances.mT, hidden, alpha=-2.0)
            to_prototypes.addcmul_(prototypes, by_prototype, value=2.0)
        return below

    def _network(
        self, parameters: Mapping[str, Tensor], name: str, base: Tensor, points: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """w [2, T, M] at distances ``points`` [2, T, M]; ``base`` is what the first map makes of the targets."""
        along = parameters[f"{name}message.0.weight"][:, None, None, -1]
        kept = [torch.addcmul(base[:, :, None], points[..., None], along).flatten(1, 2)]
        for linear in ("message.1", "move.0", "move.1"):
            active = F.silu(kept[-1])
            kept.append(active)
            bias = parameters[f"{name}{linear}.bias"][:, None]
            kept.append(torch.baddbmm(bias, active, parameters[f"{name}{linear}.weight"]))
        kept.append(F.silu(kept[-1]))
        return torch.bmm(kept[-1], parameters[f"{name}move.2.weight"]).view(points.shape), kept

    def _network_backward(
        self,
        parameters: Mapping[str, Tensor],
        name: str,
        kept: _LayerPass,
        gradient: Tensor,
        found: Parameters,
        *,
        points: bool,
    ) -> tuple[Tensor, Tensor]:
        """Gradients of ``base`` [2, T, E] and of the points (empty unless asked for)."""
        *inner, last = kept.network
        shape = kept.points.shape
        flat = gradient.reshape(BRANCHES, -1, 1)
        found[f"{name}move.2.weight"] = torch.bmm(last.mT, flat)
        down = torch.bmm(flat, parameters[f"{name}move.2.weight"].mT)
        for place, linear in ((6, "move.1"), (4, "move.0"), (2, "message.1")):
            down = torch.ops.aten.silu_backward(down, inner[place])
            found[f"{name}{linear}.bias"] = down.sum(1)
            found[f"{name}{linear}.weight"] = torch.bmm(inner[place - 1].mT, down)
            down = torch.bmm(down, parameters[f"{name}{linear}.weight"].mT)
        down = torch.ops.aten.silu_backward(down, inner[0])
        first = torch.empty_like(parameters[f"{name}message.0.weight"])
        first[:, -1] = torch.bmm(kept.points.reshape(BRANCHES, 1, -1), down)[:, 0]
        found[f"{name}message.0.weight"] = first
        along = parameters[f"{name}message.0.weight"][:, -1, :, None]
        to_points = torch.bmm(down, along).view(shape) if points else gradient
        return down.view(*shape, self.width).sum(2), to_points


def _affine(gradient: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scale and shift, [2, E] each."""
    return (gradient * normal).sum(1), gradient.sum(1)


@cache
def _rule(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Chebyshev nodes [M], and the matrix [M, 2 M] from values there to the series of a function and its derivative."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    series = 2.0 / count * np.cos(np.outer(angles, np.arange(count)))
    series[:, 0] /= 2.0
    derived = np.zeros((count, count))
    if count > 1:
        derived[:, : count - 1] = chebyshev.chebder(series, axis=1)
    both = np.concatenate([series, derived], axis=1)
    return (
        torch.from_numpy(np.cos(angles)).to(device, dtype),
        torch.from_numpy(both).to(device, dtype).contiguous(),
    )


def _blocks(rows: int, each: int) -> Iterator[slice]:
    """Rows in blocks whose numbers, ``each`` a row, stay in a processor's cache."""
    size = max(1, _CACHED // each)
    for start in range(0, rows, size):
        yield slice(start, start + size)


def _polynomials(values: Tensor, count: int) -> Tensor:
    """[rows, count, columns]: the first Chebyshev polynomials at [rows, columns] numbers."""
    rows, columns = values.shape
    basis = values.new_empty(rows, count, columns)
    basis[:, 0] = 1.0
    if count > 1:
        basis[:, 1] = values
        twice = values * 2.0
    for degree in range(2, count):
        torch.mul(twice, basis[:, degree - 1], out=basis[:, degree]).sub_(basis[:, degree - 2])
    return basis


# -- probabilities -----------------------------------------------------------------------------------------------------


def log_probabilities(logits: Tensor, trust: Tensor) -> Tensor:
    """log(α p_head + (1 − α) p_tail), [T, C].

    Args:
        logits: [2, T, C].
        trust: [T] logit of α, e.g. deg(v) − (λ + 1).
    """
    each = F.log_softmax(logits, dim=2)
    head = each[0] + F.logsigmoid(trust)[:, None]
    return torch.logaddexp(head, each[1] + F.logsigmoid(-trust)[:, None])


def negative_log_likelihood(
    logits: Tensor, trust: Tensor, labels: Tensor, *, mixing: Mixing = "probabilities"
) -> tuple[Tensor, Tensor]:
    """Mean loss over targets, and its gradient for the logits.

    Args:
        logits: [2, T, C].
        trust: [T] logit of α.
        labels: [T].
        mixing: ``logarithms`` is the release's α log p_head + (1 − α) log p_tail.
    """
    each = F.log_softmax(logits, dim=2)
    index = labels[None, :, None].expand(BRANCHES, -1, 1)
    share = torch.stack([F.logsigmoid(trust), F.logsigmoid(-trust)])
    right = each.gather(2, index)[..., 0]
    if mixing == "probabilities":
        joint = right + share
        whole = torch.logaddexp(joint[0], joint[1])
        loss, share = -whole.mean(), (joint - whole).exp_()
    else:
        share = share.exp_()
        loss = -(share * right).sum(0).mean()
    gradient = each.exp_()
    gradient.scatter_add_(2, index, gradient.new_full((1, 1, 1), -1.0).expand_as(index))
    return loss, gradient.mul_((share / max(len(labels), 1))[..., None])
