"""The head and tail classifiers of FedLoG, two of a kind in one batch.

Source: Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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
_NARROW = 1e-3
"""Least half width of an interpolation interval, relative to its middle plus one."""


class BranchTargets(NamedTuple):
    """Nodes to classify.

    Attributes:
        own: [T, E] embeddings, as ``Classifiers.normalise`` gives them.
        around: [T, E] mean of the neighbours', likewise; zero rows where there is none.
        connected: [T] 1 where a node has a neighbour, else 0.
    """

    own: Tensor
    around: Tensor
    connected: Tensor


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

    def normalise(self, values: Tensor) -> Tensor:
        """Rows with mean 0 and variance 1, which both branches scale and shift; as they are without a layer norm."""
        return F.layer_norm(values, (self.width,)) if self.layer_norm else values

    def logits(self, parameters: Mapping[str, Tensor], targets: BranchTargets, embedded: Tensor) -> Tensor:
        """[2, T, C] of both branches, up to a constant per row.

        Args:
            parameters: As ``draw`` names them.
            targets: What is classified.
            embedded: [2, P, E] embeddings of the head and the tail prototypes, class by class; normalised, unless the
                interaction is inert.
        """
        hidden, prototypes, around = targets.own, embedded, targets.around
        if self.layer_norm:
            scale, shift = parameters["norm.weight"][:, None], parameters["norm.bias"][:, None]
            hidden, around = hidden * scale + shift, around * scale + shift * targets.connected[:, None]
            prototypes = prototypes if self.interaction == "inert" else prototypes * scale + shift
        hidden, around = (each.expand(BRANCHES, -1, -1) for each in (hidden, around))
        for layer in range(0 if self.interaction == "inert" else self.depth):
            name = f"layers.{layer}."
            part = {key.removeprefix(name): value for key, value in parameters.items() if key.startswith(name)}
            hidden = self._move(part, hidden, around, prototypes)
        centres = prototypes.view(BRANCHES, self.classes, self.per_class, self.width).mean(2)
        # −‖h − μ‖² without ‖h‖², which is the same for every class.
        return 2.0 * hidden @ centres.mT - centres.square().sum(2)[:, None]

    def _move(self, part: Mapping[str, Tensor], hidden: Tensor, around: Tensor, prototypes: Tensor) -> Tensor:
        """h + mean_j (h − p_j) w_j of one layer's parameters; [2, T, E]."""
        apart = _squared_distances(hidden, prototypes)
        if self.distance == "both":
            apart = apart + _squared_distances(around, prototypes)
        first = part["message.0.weight"]
        base = torch.cat([hidden, around], dim=2) @ first[:, :-1] + part["message.0.bias"][:, None]
        if self.interp == 0:
            weights = self._perceptrons(part, base, apart)
        else:
            # torch.aminmax takes several times as long along rows.
            low, high = (end(apart.detach(), 2, keepdim=True) for end in (torch.amin, torch.amax))
            middle = (low + high) / 2
            half = torch.maximum((high - low) / 2, (middle + 1.0) * _NARROW)
            nodes, transform = _chebyshev(self.interp, apart.dtype, apart.device)
            values = self._perceptrons(part, base, middle + half * nodes)
            weights = _series(values @ transform, (apart - middle) / half)
        return hidden + (hidden * weights.sum(2, keepdim=True) - weights @ prototypes) / prototypes.shape[1]

    def _perceptrons(self, part: Mapping[str, Tensor], base: Tensor, points: Tensor) -> Tensor:
        """w [2, T, M] at distances ``points`` [2, T, M]; ``base`` is what the first map makes of the targets."""
        along = part["message.0.weight"][:, None, None, -1]
        value = torch.addcmul(base[:, :, None], points[..., None], along).flatten(1, 2)
        for linear in ("message.1", "move.0", "move.1"):
            value = torch.baddbmm(part[f"{linear}.bias"][:, None], F.silu(value), part[f"{linear}.weight"])
        return (F.silu(value) @ part["move.2.weight"]).view(points.shape)


def _squared_distances(rows: Tensor, prototypes: Tensor) -> Tensor:
    """[2, T, P] ‖h − p‖²."""
    squares = rows.square().sum(2, keepdim=True) + prototypes.square().sum(2)[:, None]
    return torch.baddbmm(squares, rows, prototypes.mT, alpha=-2.0)


@cache
def _chebyshev(count: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Chebyshev nodes [M], and the matrix [M, M] from values there to the coefficients of T_0, T_1, …"""
    angles = np.pi * (np.arange(count) + 0.5) / count
    transform = 2.0 / count * np.cos(np.outer(angles, np.arange(count)))
    transform[:, 0] /= 2.0
    return tuple(torch.from_numpy(each).to(device, dtype) for each in (np.cos(angles), transform))  # type: ignore[return-value]


def _series(coefficients: Tensor, places: Tensor) -> Tensor:
    """Σ_k a_k T_k(x) by Clenshaw's recurrence, for coefficients [..., M] and places [..., P]."""
    first, *others = coefficients.unsqueeze(-2).unbind(-1)
    twice, last, before = 2.0 * places, torch.zeros_like(places), torch.zeros_like(places)
    for each in reversed(others):
        last, before = torch.addcmul(each - before, twice, last), last
    return torch.addcmul(first - before, places, last)


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
) -> Tensor:
    """[T] loss of targets.

    Args:
        logits: [2, T, C].
        trust: [T] logit of α.
        labels: [T].
        mixing: ``logarithms`` is the release's α log p_head + (1 − α) log p_tail.
    """
    if mixing == "probabilities":
        return F.nll_loss(log_probabilities(logits, trust), labels, reduction="none")
    head, tail = F.log_softmax(logits, dim=2)
    alpha = torch.sigmoid(trust)[:, None]
    return F.nll_loss(alpha * head + (1.0 - alpha) * tail, labels, reduction="none")
