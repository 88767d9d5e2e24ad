"""NeighGen: what of a node's neighbourhood is missing, learned by hiding some of one's own nodes.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021, sections 3.2
and 3.3. Layer sizes as in the authors' release.

Four parts: an *encoder* (two graph layers on the impaired graph), *dGen* (how many neighbours a node lacks), *fGen*
(their features, from the embedding and noise) and an auxiliary *classifier* on the graph mended with both. fGen's last
layer is kept as one block of weights per *slot* (the first generated neighbour, the second, …): a slot that no node has
needs no arithmetic, no memory and no message, and its weights are drawn when it is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphsilo.data.graph import Features
from graphsilo.federation.codec_fast import outgoing
from graphsilo.methods.fedsage_plus.impaired import (
    MAX_SLOTS,
    AllNodes,
    Impaired,
    Targets,
    feature_loss,
    random_neighbours,
)
from graphsilo.methods.fedsage_plus.mended import mend_adjacency
from graphsilo.models.base import draw_uniform
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.operators import Operator, SparseOperator, operator, product
from graphsilo.models.view import normalise
from graphsilo.training.optimizer import Adam

CHUNK_ENTRIES = 1 << 24
"""Entries of generated features computed at once where no gradient is needed."""

Counting: TypeAlias = Literal["round", "truncate", "stochastic"]
"""How a predicted count becomes a number of neighbours. Rounding takes halves to the even number; ``stochastic`` takes
the whole part and one more with the probability of the rest, so that the numbers are right on average."""
FeatureError: TypeAlias = Literal["sum", "mean"]
Draw = Callable[[str], torch.Generator]
"""A generator for one purpose, the same whenever it is asked for."""


# -- the networks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Widths of a NeighGen.

    Attributes:
        features: d.
        classes: C.
        encoder: Hidden and output width of the encoder; the first is also the classifier's hidden width.
        body: Hidden widths of fGen.
        dropout: Rate in the encoder, in the classifier and before fGen's last layer.
    """

    features: int
    classes: int
    encoder: tuple[int, int] = (32, 128)
    body: tuple[int, ...] = (256, 2048)
    dropout: float = 0.5


Weights = dict[str, Tensor]
"""Parameters by name. A weight is stored [inputs, outputs], but a slot's [features, inputs]: products with its gradient
are several times faster so."""

FGEN = ("body.", "slot.")
"""How names of fGen's parameters begin."""


def is_fgen(name: str) -> bool:
    """Whether a parameter belongs to the feature generator."""
    return name.startswith(FGEN)


def slot_names(slot: int) -> tuple[str, str]:
    """Names of one slot's weight and bias."""
    return f"slot.{slot}.weight", f"slot.{slot}.bias"


def count_slots(weights: Iterable[str]) -> int:
    """How many slots these weights reach."""
    return sum(1 for name in weights if name.startswith("slot.") and name.endswith(".weight"))


def initial_weights(sizes: Sizes, generator: torch.Generator, count_bias: float) -> Weights:
    """Everything but the slots: graph layers Xavier-uniform with zero bias, linear ones as torch's own."""
    weights: Weights = {}
    for part, outputs in (("encoder", sizes.encoder[1]), ("classifier", sizes.classes)):
        hidden = sizes.encoder[0]
        for layer, shape in enumerate([(sizes.features, hidden), (hidden, outputs)]):
            weight = torch.empty(shape)
            draw_uniform(weight, sum(shape), generator)
            weights[f"{part}.{layer}.weight"], weights[f"{part}.{layer}.bias"] = weight, torch.zeros(shape[1])
    weights["count.weight"], _ = _linear(sizes.encoder[1], 1, generator)
    # dGen's ReLU must not start dead: without a predicted neighbour fGen learns nothing.
    weights["count.bias"] = torch.full((1,), float(count_bias))
    widths = (sizes.encoder[1], *sizes.body)
    for layer in range(len(sizes.body)):
        weights[f"body.{layer}.weight"], weights[f"body.{layer}.bias"] = _linear(
            widths[layer], widths[layer + 1], generator
        )
    return weights


def slot_weights(sizes: Sizes, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Weight [d, width] and bias [d] of one slot of fGen's last layer."""
    weight, bias = _linear((sizes.encoder[1], *sizes.body)[-1], sizes.features, generator)
    return weight.view(sizes.features, -1), bias


def fgen_shapes(sizes: Sizes, slots: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of fGen's parameters with so many slots."""
    widths = (sizes.encoder[1], *sizes.body)
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(len(sizes.body)):
        shapes[f"body.{layer}.weight"] = (widths[layer], widths[layer + 1])
        shapes[f"body.{layer}.bias"] = (widths[layer + 1],)
    for slot in range(slots):
        weight, bias = slot_names(slot)
        shapes[weight], shapes[bias] = (sizes.features, widths[-1]), (sizes.features,)
    return shapes


def count_fgen(sizes: Sizes, slots: int) -> int:
    """Numbers in fGen with so many slots."""
    return sum(math.prod(shape) for shape in fgen_shapes(sizes, slots).values())


def count_others(sizes: Sizes) -> int:
    """Numbers in encoder, dGen and classifier."""
    hidden, width = sizes.encoder
    return 2 * (sizes.features + 1) * hidden + (hidden + 1) * (width + sizes.classes) + width + 1


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    bound = 1.0 / math.sqrt(inputs)
    weight = torch.empty((inputs, outputs)).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(outputs).uniform_(-bound, bound, generator=generator)


def generate(
    weights: Mapping[str, Tensor],
    embeddings: Tensor,
    counts: NDArray[np.int64],
    noise: torch.Generator | Tensor,
    dropout_rate: float,
    mask: torch.Generator | Tensor | None,
    into: Mapping[str, Tensor] | None = None,
) -> list[Tensor]:
    """Features of the predicted neighbours: tanh of an MLP on embedding + N(0, I).

    Args:
        weights: fGen's.
        embeddings: [rows, p], rows in descending order of ``counts``.
        counts: [rows] how many neighbours to generate for each, at least 1.
        noise: Where N(0, I) is drawn from, or the draws [rows, p]. There is noise in evaluation, too.
        dropout_rate: Before the last layer.
        mask: Where dropout is drawn from, or its factors; None for evaluation.
        into: Where a backward pass is to put the gradients of the slots' weights, by name; None: anywhere.

    Returns:
        Per slot p, [rows with more than p, d].
    """
    if isinstance(noise, torch.Generator):
        noise = torch.randn(embeddings.shape, generator=noise)
    hidden = embeddings + noise
    layer = 0
    while f"body.{layer}.weight" in weights:
        hidden = torch.addmm(weights[f"body.{layer}.bias"], hidden, weights[f"body.{layer}.weight"])
        layer += 1
        if f"body.{layer}.weight" in weights or isinstance(mask, Tensor):
            hidden = hidden.relu()
        else:
            hidden = relu_dropout(hidden, dropout_rate, mask)
    hidden = hidden * mask if isinstance(mask, Tensor) else hidden
    result = []
    for slot, rows in enumerate(rows_per_slot(counts)):
        name, bias = slot_names(slot)
        place = None if into is None else into[name]
        result.append(_SlotLayer.apply(hidden[:rows], weights[name], weights[bias], place).tanh())  # type: ignore[no-untyped-call]
    return result


class _SlotLayer(torch.autograd.Function):
    """hidden · weightᵀ + bias, with the weight's gradient written to a given place: it is the largest of all."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, into: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.into = into
        return torch.addmm(bias, hidden, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        inner, own, bias, _ = ctx.needs_input_grad
        return (
            torch.mm(gradient, weight) if inner else None,
            torch.mm(gradient.t(), hidden, out=ctx.into) if own else None,
            gradient.sum(0) if bias else None,
            None,
        )


def whole(predicted: Tensor, counting: Counting, generator: torch.Generator | None = None) -> NDArray[np.int64]:
    """Predicted counts as numbers of neighbours.

    Args:
        predicted: [n] not negative.
        counting: How.
        generator: Where ``stochastic`` draws from; nothing else draws.
    """
    values = predicted.detach().cpu().numpy().astype(np.float64)
    if counting == "stochastic":
        assert generator is not None
        values += torch.rand(len(values), generator=generator, dtype=torch.float64).numpy()
    found: NDArray[np.int64] = (np.rint(values) if counting == "round" else np.trunc(values)).astype(np.int64)
    return found


def rows_per_slot(counts: NDArray[np.int64]) -> list[int]:
    """How many rows have a first generated neighbour, a second, …"""
    largest = int(counts.max(initial=0))
    return [int((counts > slot).sum()) for slot in range(largest)]


# -- training --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Demand:
    """Which nodes get how many neighbours.

    Attributes:
        nodes: [r] numbers in the impaired graph, in descending order of ``counts``.
        counts: [r] from 1 to 5.
    """

    nodes: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: NDArray[np.int64], among: NDArray[np.int64]) -> Demand:
        """The nodes ``among`` with a count above 0; ``counts``: [n̄]."""
        limited = np.minimum(counts[among], MAX_SLOTS)
        order = np.argsort(-limited, kind="stable")
        order = order[limited[order] > 0]
        return cls(among[order], limited[order])

    def __len__(self) -> int:
        return len(self.nodes)

    def anchors(self) -> NDArray[np.int64]:
        """The node that each generated one belongs to, slot by slot."""
        return np.concatenate([np.zeros(0, np.int64), *(self.nodes[:rows] for rows in rows_per_slot(self.counts))])


@dataclass(frozen=True)
class Strength:
    """λ_d, λ_f and λ_c: how much each loss counts."""

    counts: float = 1.0
    features: float = 1.0
    classes: float = 1.0


class Sight(NamedTuple):
    """A graph as the encoder sees it.

    Attributes:
        average: D̃^-1 (A + I), [n, n].
        features: The same times the features, [n, d].
    """

    average: Operator
    features: Operator

    @classmethod
    def of(cls, adjacency: sp.csr_matrix, features: Features) -> Sight:
        """Of a graph given by its adjacency without self-loops and its features."""
        average = SparseOperator(normalise(adjacency, "row"))
        return cls(average, product(average, operator(features, "cpu", torch.float32)))


Reach = Callable[[int], Weights]
"""Gives the weights with at least so many slots."""


class NeighGen:
    """One client's generator on its impaired graph.

    Args:
        impaired: The graph and what was hidden.
        features: [n, d] of the whole graph, which the targets are rows of.
        sizes: Widths.
        draw: Gives the generator of the initial weights (``weights``) and of each slot (``slot 0`` to ``slot 4``).
        count_bias: Where dGen's bias starts.
        lr, weight_decay: Of Adam.
        feature_error: ``sum`` of squares over slots and features, or its ``mean``; see ``local_feature_loss``.
    """

    def __init__(
        self,
        impaired: Impaired,
        features: Features,
        sizes: Sizes,
        draw: Draw,
        *,
        count_bias: float = 1.0,
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        feature_error: FeatureError = "sum",
    ):
        self.impaired, self.sizes, self.draw = impaired, sizes, draw
        self.feature_error = feature_error
        self.lr, self.weight_decay = lr, weight_decay
        self.weights = initial_weights(sizes, draw("weights"), count_bias)
        self.features = operator(impaired.features, "cpu", torch.float32)
        self._sight = Sight.of(impaired.adjacency, impaired.features)
        self.targets = Targets.of(features, impaired.missing, impaired.pointer)
        self._true_counts = torch.from_numpy(impaired.counts[impaired.train].astype(np.float32))
        self._labels = torch.from_numpy(impaired.labels)
        # Only these influence the auxiliary classifier's output on training nodes through what is generated for them.
        matrix = impaired.adjacency
        self.influential = np.unique(np.concatenate([matrix[impaired.train].indices, impaired.train])).astype(np.int64)
        self.is_train = np.zeros(impaired.num_nodes, dtype=bool)
        self.is_train[impaired.train] = True
        self._propagated: tuple[Demand, SparseOperator, SparseOperator] | None = None
        self._finished: list[int] = []
        self._steps = 0
        self._trained: list[str] = []
        self._optimizers: dict[str, Adam] = {}

    # -- parts -------------------------------------------------------------------------------------------------------

    def encode(
        self,
        generator: torch.Generator | None = None,
        weights: Mapping[str, Tensor] | None = None,
        sight: Sight | None = None,
    ) -> Tensor:
        """Embeddings [n̄, p] of the impaired graph, or of another; dropout from the generator, none in evaluation."""
        weights, sight = weights or self.weights, sight or self._sight
        hidden = (sight.features @ weights["encoder.0.weight"]) + weights["encoder.0.bias"]
        hidden = relu_dropout(hidden, self.sizes.dropout, generator)
        hidden = (sight.average @ torch.mm(hidden, weights["encoder.1.weight"])) + weights["encoder.1.bias"]
        return hidden.relu()

    def predict_counts(self, embeddings: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """dGen: how many neighbours each node lacks, [n̄] ≥ 0."""
        weights = weights or self.weights
        return torch.addmm(weights["count.bias"], embeddings, weights["count.weight"]).relu().squeeze(1)

    def classify(
        self,
        generated: Sequence[Tensor],
        rows: Demand,
        generator: torch.Generator | None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits [b, C] of the auxiliary classifier for the training nodes on the mended impaired graph."""
        weights = weights or self.weights
        average, last = self._propagation(rows)
        hidden = self.features @ weights["classifier.0.weight"]
        if generated:
            hidden = torch.cat([hidden, torch.cat(list(generated)) @ weights["classifier.0.weight"]])
        hidden = (average @ hidden) + weights["classifier.0.bias"]
        hidden = relu_dropout(hidden, self.sizes.dropout, generator)
        hidden = torch.mm(hidden, weights["classifier.1.weight"])
        logits: Tensor = (last @ hidden) + weights["classifier.1.bias"]
        return logits

    def _propagation(self, rows: Demand) -> tuple[SparseOperator, SparseOperator]:
        """D̃^-1 (A + I) of the mended impaired graph: all rows, and those of B."""
        if self._propagated is None or self._propagated[0] is not rows:
            average = normalise(mend_adjacency(self.impaired.adjacency, rows.anchors()), "row")
            self._propagated = rows, SparseOperator(average), SparseOperator(average[self.impaired.train])
        return self._propagated[1:]

    def compared(self, rows: Demand) -> NDArray[np.int64]:
        """Which of the rows enter the feature loss: training nodes that do lack a neighbour."""
        return np.flatnonzero(self.is_train[rows.nodes] & (self.impaired.counts[rows.nodes] > 0))

    def local_feature_loss(self, generated: Sequence[Tensor], rows: Demand) -> Tensor:
        """L_f = 1/|B| Σ_{v∈B, n_v>0} Σ_p min_u ‖x̂_vp − x_vu‖², or 1/(5|B|d) times that sum."""
        chosen = self.compared(rows)
        owners = [rows.nodes[chosen[chosen < len(features)]] for features in generated]
        return feature_loss(compared_features(generated, chosen), owners, self.targets) * self.feature_scale

    @property
    def feature_scale(self) -> float:
        """What a sum of squared distances is multiplied by: 1 / |B|, or 1 / (5 |B| d)."""
        nodes = max(len(self.impaired.train), 1)
        return 1.0 / nodes if self.feature_error == "sum" else 1.0 / (MAX_SLOTS * nodes * self.sizes.features)

    # -- losses ------------------------------------------------------------------------------------------------------

    def joint_loss(
        self, weights: Weights, generator: torch.Generator, strength: Strength, counting: Counting, reach: Reach
    ) -> Tensor:
        """λ_d L_d + λ_f L_f + λ_c L_c with every part in training; noise and dropout from the generator.

        Args:
            weights: Leaves; those of slots are asked for with ``reach`` once the counts are known.
            generator: Source of noise and dropout.
            strength: The three λ.
            counting: How a predicted count becomes a number of neighbours.
            reach: Gives the weights with at least so many slots.
        """
        embeddings = self.encode(generator, weights)
        predicted = self.predict_counts(embeddings, weights)
        rows = Demand.of(whole(predicted, counting, generator), self.influential)
        weights = reach(int(rows.counts.max(initial=0)))
        loss = strength.counts * self.count_loss(predicted)
        return (
            loss + self.generated_loss(weights, embeddings[torch.from_numpy(rows.nodes)], rows, generator, strength)[0]
        )

    def generated_loss(
        self,
        weights: Mapping[str, Tensor],
        embeddings: Tensor,
        rows: Demand,
        generator: torch.Generator,
        strength: Strength,
        *,
        frozen: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """λ_f L_f + λ_c L_c, and the generated features of the rows.

        Args:
            weights: By name.
            embeddings: [rows, p].
            rows: Nodes with a predicted neighbour.
            generator: Source of noise and dropout.
            strength: The λ.
            frozen: The classifier is not in training: it has no dropout.
        """
        generated: list[Tensor] = []
        if len(rows):
            generated = generate(weights, embeddings, rows.counts, generator, self.sizes.dropout, generator)
        loss = torch.zeros(())
        if strength.features:
            loss = loss + strength.features * self.local_feature_loss(generated, rows)
        if strength.classes:
            logits = self.classify(generated, rows, None if frozen else generator, weights)
            loss = loss + strength.classes * self.class_loss(logits)
        return loss, generated

    def count_loss(self, predicted: Tensor) -> Tensor:
        """L_d: mean smooth-L1 of the predicted counts on B."""
        return F.smooth_l1_loss(predicted[torch.from_numpy(self.impaired.train)], self._true_counts)

    def class_loss(self, logits: Tensor) -> Tensor:
        """L_c: mean cross-entropy on B."""
        return F.cross_entropy(logits, self._labels)

    # -- the federated generator -------------------------------------------------------------------------------------

    def freeze(self, counting: Counting, generator: torch.Generator | None = None) -> None:
        """From now on only fGen is trained: embeddings and predicted counts stay as they are, without dropout."""
        with torch.no_grad():
            self.embeddings = self.encode()
            self.predicted = self.predict_counts(self.embeddings)
        self.rows = Demand.of(whole(self.predicted, counting, generator), self.influential)
        self.begin(is_fgen)
        self.reach(int(self.rows.counts.max(initial=0)))

    def offered(self) -> tuple[Demand, Weights]:
        """The rows that are compared with features, and the weights that generate for them."""
        chosen = self.compared(self.rows)
        rows = Demand(self.rows.nodes[chosen], self.rows.counts[chosen])
        slots = {name for slot in range(int(rows.counts.max(initial=0))) for name in slot_names(slot)}
        return rows, {
            name: weight for name, weight in self.weights.items() if name.startswith("body.") or name in slots
        }

    def frozen_loss(self, generator: torch.Generator, strength: Strength) -> tuple[Tensor, Weights, list[Tensor]]:
        """λ_f L_f + λ_c L_c (λ_d L_d is constant), the leaves to differentiate it by, and the generated features."""
        leaves = self.trainable(int(self.rows.counts.max(initial=0)))
        inputs = self.embeddings[torch.from_numpy(self.rows.nodes)]
        loss, generated = self.generated_loss(leaves, inputs, self.rows, generator, strength, frozen=True)
        return loss, leaves, generated

    # -- weights and their optimiser ---------------------------------------------------------------------------------

    def begin(self, names: Callable[[str], bool]) -> None:
        """Start training the parameters that ``names`` picks, with fresh moments."""
        if self._steps:
            self._finished.append(self._steps)
        self._steps = 0
        drawn = count_slots(self.weights)
        self._trained = [name for name in self.weights if names(name) and not name.startswith("slot.")]
        self._optimizers = {"": self._adam(self._trained)}
        for slot in range(drawn):
            self._optimizers[str(slot)] = self._adam(slot_names(slot))

    def _adam(self, names: Iterable[str]) -> Adam:
        return Adam([self.weights[name] for name in names], lr=self.lr, weight_decay=self.weight_decay)

    def reach(self, slots: int) -> None:
        """Have weights for so many slots, as if they had been there, unused, from the beginning."""
        for slot in range(count_slots(self.weights), slots):
            weight, bias = slot_weights(self.sizes, self.draw(f"slot {slot}"))
            for steps in self._finished:
                decay(Adam([weight, bias], lr=self.lr, weight_decay=self.weight_decay), steps)
            optimizer = Adam([weight, bias], lr=self.lr, weight_decay=self.weight_decay)
            decay(optimizer, self._steps)
            self.weights.update(zip(slot_names(slot), (weight, bias), strict=True))
            self._optimizers[str(slot)] = optimizer

    def trainable(self, slots: int = 0) -> Weights:
        """The parameters in training, the first ``slots`` slots included, as leaves that take gradients.

        They share memory with ``weights``; what is not in training is there, too, without a gradient.
        """
        self.reach(slots)
        trained = {*self._trained, *(name for slot in range(slots) for name in slot_names(slot))}
        return {name: weight.detach().requires_grad_(name in trained) for name, weight in self.weights.items()}

    def epoch(self, generator: torch.Generator, strength: Strength, counting: Counting) -> None:
        """One step of local training of all parts, on all of B."""
        leaves = self.trainable()

        def reach(slots: int) -> Weights:
            more = self.trainable(slots)
            leaves.update({name: more[name] for slot in range(slots) for name in slot_names(slot)})
            return leaves

        loss = self.joint_loss(leaves, generator, strength, counting, reach)
        self.step(gradients_of(loss, leaves))

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step of Adam; parameters without a gradient only decay."""
        for key, optimizer in self._optimizers.items():
            names = slot_names(int(key)) if key else self._trained
            optimizer.step(
                [gradients[name] if name in gradients else torch.zeros_like(self.weights[name]) for name in names]
            )
        self._steps += 1

    def borrow(self, weights: Mapping[str, Tensor]) -> Weights:
        """Compute with these weights instead of own ones, without writing to them; returns them as leaves."""
        self.weights, self._trained, self._optimizers = dict(weights), [], {}
        return {name: weight.detach().requires_grad_() for name, weight in weights.items()}

    def give_back(self) -> None:
        """Forget the borrowed weights."""
        self.weights = {}


def gradients_of(loss: Tensor, leaves: Mapping[str, Tensor]) -> Weights:
    """Gradients by name of the leaves that the loss depends on."""
    if not loss.requires_grad:
        return {}
    names = [name for name, leaf in leaves.items() if leaf.requires_grad]
    found = torch.autograd.grad(loss, [leaves[name] for name in names], allow_unused=True)
    return {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}


def decay(optimizer: Adam, steps: int) -> None:
    """Steps of an optimiser over parameters that no loss depends on: only weight decay moves them."""
    for _ in range(steps):
        optimizer.step([torch.zeros_like(parameter) for parameter in optimizer.parameters])


def compared_features(generated: Sequence[Tensor], chosen: NDArray[np.int64]) -> list[Tensor]:
    """Per slot, the generated features of the chosen rows."""
    parts = []
    for features in generated:
        mine = chosen[chosen < len(features)]
        parts.append(features[torch.from_numpy(mine)])
    return parts


def cross_targets(
    adjacency: sp.csr_matrix, features: Features, rows: int, generator: torch.Generator
) -> Targets | None:
    """Per row the features of five random neighbours of a random node; None in a graph without edges."""
    nodes = random_neighbours(adjacency, rows, generator)
    if not len(nodes):
        return None
    return Targets.of(features, nodes, np.arange(rows + 1) * MAX_SLOTS)


def cross_gradient(
    weights: Mapping[str, Tensor],
    embeddings: Tensor,
    counts: NDArray[np.int64],
    targets: Targets | AllNodes,
    dropout_rate: float,
    generator: torch.Generator,
) -> Weights:
    """Gradient by fGen's weights of Σ min_u ‖x̂ − x_u‖², x̂ generated for another client's nodes.

    Args:
        weights: The other client's fGen.
        embeddings: [rows, p] of its nodes.
        counts: [rows] how many neighbours it predicts, descending, at least 1.
        targets: A row each.
        dropout_rate: Before the last layer.
        generator: Source of noise and dropout.

    Returns:
        By name, to be sent and not written to (see ``outgoing``).
    """
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    places = outgoing(weights)
    generated = generate(leaves, embeddings, counts, generator, dropout_rate, generator, places)
    owners = [np.arange(len(features)) for features in generated]
    found = gradients_of(feature_loss(generated, owners, targets), leaves)
    if found.keys() != places.keys():
        return found
    for name, gradient in found.items():
        if gradient.data_ptr() != places[name].data_ptr():
            places[name].copy_(gradient)
    return places


def fill(
    weights: Mapping[str, Tensor],
    embeddings: Tensor,
    rows: Demand,
    sizes: Sizes,
    generator: torch.Generator,
) -> Tensor:
    """Generated features [m, d] of rows, slot by slot, computed in pieces; noise from the generator, no dropout.

    Args:
        weights: fGen's.
        embeddings: [n̄, p] of all nodes.
        rows: Which nodes get how many.
        sizes: Widths.
        generator: Source of the noise.
    """
    per_slot = rows_per_slot(rows.counts)
    starts = np.concatenate([[0], np.cumsum(per_slot)]).astype(np.int64)
    filled = torch.empty((int(starts[-1]), sizes.features))
    widest = max(sizes.features * len(per_slot), *sizes.body, 1)
    size = max(1, CHUNK_ENTRIES // widest)
    with torch.no_grad():
        for begin in range(0, len(rows), size):
            part = slice(begin, begin + size)
            inputs = embeddings[torch.from_numpy(rows.nodes[part])]
            for slot, features in enumerate(generate(weights, inputs, rows.counts[part], generator, 0.0, None)):
                start = int(starts[slot]) + begin
                filled[start : start + len(features)] = features
    return filled
