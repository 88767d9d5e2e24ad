"""The head and tail classifiers of FedLoG.

Differentiated by hand: a step of FedLoG has 64 nodes, 2·s·C prototypes and two classifiers of two layers, as autograd
nodes several hundred tiny operations. The two classifiers are one batch here.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.polynomial import chebyshev
from torch import Tensor

from graphsilo.models.dense import bmm, mm

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
_CACHED = 1 << 17
"""Numbers of a block of interpolation."""
_EPS = 1e-5
_NARROW = 1e-3
"""Least half width of an interpolation interval, relative to its middle plus one."""


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
    network: list[list[Tensor]]
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
        seen, times = (hidden + neighbours, 2.0) if self.distance == "both" else (hidden, 1.0)
        lengths = hidden.square().sum(2, keepdim=True)
        if self.distance == "both":
            lengths.add_(neighbours.square().sum(2, keepdim=True))
        # d without the part that is the same for all prototypes
        apart = bmm(seen * -2.0, prototypes.mT, times * squares[:, None])
        if self.interp == 0:
            points, slope, scaled = apart.add_(lengths), None, None
            weights, network = self._network(parameters, name, base, points)
        else:
            # torch.aminmax takes 18 times as long along rows
            low, high = apart.amin(2, keepdim=True), apart.amax(2, keepdim=True)
            middle = (low + high).mul_(0.5)
            lengths.add_(middle)
            half = torch.maximum((high - low).mul_(0.5), (lengths + 1.0).mul_(_NARROW))
            nodes, transform = _rule(self.interp, apart.dtype, apart.device)
            points = lengths + half * nodes
            values, network = self._network(parameters, name, base, points)
            rows = BRANCHES * apart.shape[1]
            scaled = apart.sub_(middle).div_(half).view(rows, count)
            series = torch.mm(values.view(rows, self.interp), transform).view(rows, 4, -1)
            series[:, 2:].div_(half.view(rows, 1, 1))
            weights, slope = torch.empty_like(apart), torch.empty_like(apart)
            degree = series.shape[2]
            for part in _blocks(rows, count * (degree + 1)):
                basis = _polynomials(scaled[part], degree + 1)
                low, high, *steep = torch.bmm(series[part], basis[:, :degree]).unbind(1)
                torch.addcmul(low, high, basis[:, degree], out=weights.view(rows, count)[part])
                torch.addcmul(steep[0], steep[1], basis[:, degree], out=slope.view(rows, count)[part])
        total = weights.sum(2, keepdim=True)
        pulled = bmm(weights, prototypes)
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
        gradient = gradient * (-1.0 / count)
        to_prototypes += bmm(kept.weights.mT, gradient)
        weights = bmm(gradient, prototypes.mT).sub_((gradient * hidden).sum(2, keepdim=True))
        if kept.scaled is None or kept.slope is None:
            base, distances = self._network_backward(parameters, name, kept, weights, found, points=True)
        else:
            rows = BRANCHES * hidden.shape[1]
            _, transform = _rule(self.interp, weights.dtype, weights.device)
            degree = transform.shape[1] // 4
            series, flat = weights.new_empty(rows, 2, degree), weights.view(rows, count)
            # Polynomials are made again: keeping them would take as many times the distances' memory.
            for part in _blocks(rows, count * (degree + 1)):
                basis = _polynomials(kept.scaled[part], degree + 1)
                pair = torch.stack([flat[part], flat[part] * basis[:, degree]], dim=1)
                torch.bmm(pair, basis[:, :degree].mT, out=series[part])
            values = torch.mm(series.view(rows, -1), transform[:, : 2 * degree].t()).view(kept.points.shape)
            base, _ = self._network_backward(parameters, name, kept, values, found, points=False)
            distances = weights.mul_(kept.slope)
        first, width = parameters[f"{name}message.0.weight"], self.width
        below.baddbmm_(base, first[:, :width].mT)
        to_neighbours.baddbmm_(base, first[:, width : 2 * width].mT)
        found[f"{name}message.0.weight"][:, :width] = torch.bmm(hidden.mT, base)
        found[f"{name}message.0.weight"][:, width : 2 * width] = torch.bmm(neighbours.mT, base)
        found[f"{name}message.0.bias"] = base.sum(1)
        # d = ‖h − p‖² + ‖n − p‖²: 2 (h − p) to h, 2 (n − p) to n, 2 (2p − h − n) to p
        by_target = distances.sum(2, keepdim=True)
        by_prototype = distances.sum(1)[..., None]
        towards = bmm(distances, prototypes)
        below.add_(torch.addcmul(-towards, hidden, by_target), alpha=2.0)
        both = self.distance == "both"
        if both:
            to_neighbours.add_(torch.addcmul(-towards, neighbours, by_target), alpha=2.0)
        to_prototypes.sub_(bmm(distances.mT, hidden + neighbours if both else hidden), alpha=2.0)
        to_prototypes.addcmul_(prototypes, by_prototype, value=4.0 if both else 2.0)
        return below

    def _network(
        self, parameters: Mapping[str, Tensor], name: str, base: Tensor, points: Tensor
    ) -> tuple[Tensor, list[list[Tensor]]]:
        """w [2, T, M] at distances ``points`` [2, T, M]; ``base`` is what the first map makes of the targets."""
        answers, kept = [], []
        for branch in range(BRANCHES):
            part = _of(parameters, name, branch)
            along = part["message.0.weight"][-1]
            inner = [torch.addcmul(base[branch][:, None], points[branch][..., None], along).flatten(0, 1)]
            for linear in ("message.1", "move.0", "move.1"):
                active = F.silu(inner[-1])
                inner += [active, mm(active, part[f"{linear}.weight"], part[f"{linear}.bias"])]
            inner.append(F.silu(inner[-1]))
            answers.append(torch.mm(inner[-1], part["move.2.weight"]).view(points.shape[1:]))
            kept.append(inner)
        return torch.stack(answers), kept

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
        pushed, to_points, grads = [], [], []
        for branch, inner in enumerate(kept.network):
            part, at, flat = _of(parameters, name, branch), kept.points[branch], gradient[branch].reshape(-1, 1)
            mine = {"move.2.weight": torch.mm(inner[-1].t(), flat)}
            down = torch.mm(flat, part["move.2.weight"].t())
            for place, linear in ((6, "move.1"), (4, "move.0"), (2, "message.1")):
                down = torch.ops.aten.silu_backward(down, inner[place])
                mine[f"{linear}.bias"] = down.sum(0)
                mine[f"{linear}.weight"] = mm(inner[place - 1].t(), down)
                down = mm(down, part[f"{linear}.weight"].t())
            down = torch.ops.aten.silu_backward(down, inner[0])
            first = torch.empty_like(part["message.0.weight"])
            first[-1] = torch.mm(at.reshape(1, -1), down)[0]
            mine["message.0.weight"] = first
            if points:
                to_points.append(torch.mv(down, part["message.0.weight"][-1]).view(at.shape))
            pushed.append(down.view(*at.shape, self.width).sum(1))
            grads.append(mine)
        for key in grads[0]:
            found[f"{name}{key}"] = torch.stack([mine[key] for mine in grads])
        return torch.stack(pushed), torch.stack(to_points) if points else gradient


def _of(parameters: Mapping[str, Tensor], layer: str, branch: int) -> Parameters:
    """One branch's parameters of a layer."""
    return {name.removeprefix(layer): value[branch] for name, value in parameters.items() if name.startswith(layer)}


def _affine(gradient: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scale and shift, [2, E] each."""
    return (gradient * normal).sum(1), gradient.sum(1)


@cache
def _rule(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Chebyshev nodes [M], and the matrix [M, 4 h] from values there to what makes a function and its derivative.

    With h = ⌈M / 2⌉ a series of 2 h polynomials is Σ_(k<h) a_k T_k + T_h Σ_(k<h) b_k T_k, as T_(h+k) = 2 T_h T_k −
    T_(h−k): half as many polynomials to make and to keep. The columns are a and b of the function, then of its
    derivative, for polynomials with the signs of ``_polynomials``.
    """
    angles = np.pi * (np.arange(count) + 0.5) / count
    series = 2.0 / count * np.cos(np.outer(angles, np.arange(count)))
    series[:, 0] /= 2.0
    degree = (count + 1) // 2
    signs = np.where(np.arange(degree + 1) % 4 < 2, 1.0, -1.0)
    columns = []
    for each in (series, chebyshev.chebder(series, axis=1) if count > 1 else np.zeros((count, 1))):
        whole = np.zeros((count, 2 * degree))
        whole[:, : each.shape[1]] = each
        low, high = whole[:, :degree].copy(), 2.0 * whole[:, degree:]
        high[:, 0] /= 2.0
        low[:, 1:] -= whole[:, :degree:-1]
        columns += [low * signs[:degree], high * signs[:degree] * signs[degree]]
    return (
        torch.from_numpy(np.cos(angles)).to(device, dtype),
        torch.from_numpy(np.concatenate(columns, axis=1)).to(device, dtype).contiguous(),
    )


def _blocks(rows: int, each: int) -> Iterator[slice]:
    """Rows in blocks whose numbers, ``each`` a row, stay in a processor's cache."""
    size = max(1, _CACHED // each)
    for start in range(0, rows, size):
        yield slice(start, start + size)


def _polynomials(values: Tensor, count: int) -> Tensor:
    """[rows, count, columns]: the first Chebyshev polynomials at [rows, columns] numbers, of alternating signs.

    With signs + + − − the recurrence T_k = 2 x T_(k−1) − T_(k−2) adds where it subtracts: one operation, not two.
    """
    rows, columns = values.shape
    basis = values.new_empty(rows, count, columns)
    each = basis.unbind(1)
    each[0].fill_(1.0)
    if count > 1:
        each[1].copy_(values)
    for degree in range(2, count):
        sign = 2.0 if degree % 2 else -2.0
        torch.addcmul(each[degree - 2], values, each[degree - 1], value=sign, out=each[degree])
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
    logits: Tensor, trust: Tensor, labels: Tensor, *, mixing: Mixing = "probabilities", counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Loss of targets, and its gradient for the logits.

    Args:
        logits: [2, T, C].
        trust: [T] logit of α.
        labels: [T].
        mixing: ``logarithms`` is the release's α log p_head + (1 − α) log p_tail.
        counts: [T] what each target counts; 1 / T by default.
    """
    if counts is None:
        counts = logits.new_full((len(labels),), 1.0 / max(len(labels), 1))
    each = F.log_softmax(logits, dim=2)
    index = labels[None, :, None].expand(BRANCHES, -1, 1)
    share = torch.stack([F.logsigmoid(trust), F.logsigmoid(-trust)])
    right = each.gather(2, index)[..., 0]
    if mixing == "probabilities":
        joint = right + share
        whole = torch.logaddexp(joint[0], joint[1])
        loss, share = -whole.dot(counts), (joint - whole).exp_()
    else:
        share = share.exp_()
        loss = -(share * right).sum(0).dot(counts)
    gradient = each.exp_()
    gradient.scatter_add_(2, index, gradient.new_full((1, 1, 1), -1.0).expand_as(index))
    return loss, gradient.mul_((share * counts)[..., None])
