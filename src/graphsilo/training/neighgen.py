"""NeighGen: what of a node's neighbourhood is missing, learned by hiding some of one's own nodes.

Zhang, Yang, Li, Sun, Yiu. "Subgraph Federated Learning with Missing Neighbor Generation". NeurIPS 2021, sections 3.2
and 3.3. Layer sizes as in the authors' release.

Four parts: an *encoder* (two graph layers on the impaired graph), *dGen* (how many neighbours a node lacks), *fGen*
(their features, from the embedding and noise) and an auxiliary *classifier* on the graph mended with both. fGen's last
layer is kept as one block of weights per *slot* (the first generated neighbour, the second, …): a slot that no node has
needs no arithmetic and no message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Features
from graphsilo.models.base import draw_uniform
from graphsilo.models.dense import times
from graphsilo.models.dropout import relu_dropout
from graphsilo.models.operators import Operator, SparseOperator, operator, product
from graphsilo.models.view import normalise
from graphsilo.training.impaired import (
    MAX_SLOTS,
    AllNodes,
    Impaired,
    Targets,
    feature_loss,
    mend_adjacency,
    random_neighbours,
)
from graphsilo.training.optimizer import Adam

CHUNK_ENTRIES = 1 << 24
"""Entries of generated features computed at once where no gradient is needed."""

Counting: TypeAlias = Literal["round", "truncate", "stochastic"]
"""How a predicted count becomes a number of neighbours. Rounding takes halves to the even number; ``stochastic`` takes
the whole part and one more with the probability of the rest, so that the numbers are right on average."""
Draw = Callable[[str], torch.Generator]
"""A generator for one purpose, the same whenever it is asked for."""


class GeneratorConfig(Protocol):
    """Settings of a generator; what each means stands with the methods that have them."""

    @property
    def encoder_widths(self) -> tuple[int, int]: ...
    @property
    def generator_hidden(self) -> tuple[int, ...]: ...
    @property
    def generator_dropout(self) -> float: ...
    @property
    def generator_lr(self) -> float: ...
    @property
    def generator_weight_decay(self) -> float: ...
    @property
    def count_bias(self) -> float: ...
    @property
    def lambda_d(self) -> float: ...
    @property
    def lambda_f(self) -> float: ...
    @property
    def lambda_c(self) -> float: ...
    @property
    def feature_error(self) -> Literal["sum", "mean"]: ...
    @property
    def loss_counts(self) -> Counting: ...


# -- the networks ----------------------------------------------------------------------------------------------------


Weights = dict[str, Tensor]
"""Parameters by name. A weight is stored [inputs, outputs], but a slot's [features, inputs]: products with its gradient
are several times faster so."""

FGEN = ("body.", "slot.")
"""How names of fGen's parameters begin."""


def is_fgen(name: str) -> bool:
    """Whether a parameter belongs to the feature generator."""
    return name.startswith(FGEN)


def initial_weights(
    config: GeneratorConfig, features: int, classes: int, draw: Draw, made: int | None = None
) -> Weights:
    """Graph layers Xavier-uniform with zero bias, linear ones as torch's own.

    Args:
        config: Widths.
        features: d.
        classes: C.
        draw: Gives the generator of each slot (``slot 0`` to ``slot 4``), and of all else (``weights``).
        made: Width of what is generated; None: d.
    """
    weights: Weights = {}
    generator, (hidden, width) = draw("weights"), config.encoder_widths
    for part, outputs in (("encoder", width), ("classifier", classes)):
        for layer, shape in enumerate([(features, hidden), (hidden, outputs)]):
            weight = torch.empty(shape)
            draw_uniform(weight, sum(shape), generator)
            weights[f"{part}.{layer}.weight"], weights[f"{part}.{layer}.bias"] = weight, torch.zeros(shape[1])
    weights["count.weight"], _ = _linear(width, 1, generator)
    # dGen's ReLU must not start dead: without a predicted neighbour fGen learns nothing.
    weights["count.bias"] = torch.full((1,), float(config.count_bias))
    for layer, ends in enumerate(pairwise(_widths(config))):
        weights[f"body.{layer}.weight"], weights[f"body.{layer}.bias"] = _linear(*ends, generator)
    for slot in range(MAX_SLOTS):
        weight, bias = _linear(_widths(config)[-1], made or features, draw(f"slot {slot}"))
        weights[f"slot.{slot}.weight"], weights[f"slot.{slot}.bias"] = weight.view(made or features, -1), bias
    return weights


def _widths(config: GeneratorConfig) -> tuple[int, ...]:
    """Of fGen's layers, from the embedding to the input of the last one."""
    return config.encoder_widths[1], *config.generator_hidden


def fgen_shapes(config: GeneratorConfig, features: int, slots: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of fGen's parameters with so many slots."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, ends in enumerate(pairwise(_widths(config))):
        shapes[f"body.{layer}.weight"], shapes[f"body.{layer}.bias"] = ends, ends[1:]
    for slot in range(slots):
        shapes[f"slot.{slot}.weight"], shapes[f"slot.{slot}.bias"] = (features, _widths(config)[-1]), (features,)
    return shapes


def count_fgen(config: GeneratorConfig, features: int, slots: int) -> int:
    """Numbers in fGen with so many slots."""
    return sum(math.prod(shape) for shape in fgen_shapes(config, features, slots).values())


def count_others(config: GeneratorConfig, features: int, classes: int) -> int:
    """Numbers in encoder, dGen and classifier."""
    hidden, width = config.encoder_widths
    return 2 * (features + 1) * hidden + (hidden + 1) * (width + classes) + width + 1


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
) -> list[Tensor]:
    """Features of the predicted neighbours: tanh of an MLP on embedding + N(0, I).

    Args:
        weights: fGen's.
        embeddings: [rows, p], rows in descending order of ``counts``.
        counts: [rows] how many neighbours to generate for each, at least 1.
        noise: Where N(0, I) is drawn from, or the draws [rows, p]. There is noise in evaluation, too.
        dropout_rate: Before the last layer.
        mask: Where dropout is drawn from, or its factors; None for evaluation.

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
    return [
        times(hidden[:rows], weights[f"slot.{slot}.weight"].t(), weights[f"slot.{slot}.bias"]).tanh()
        for slot, rows in enumerate(rows_per_slot(counts))
    ]


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


class NeighGen:
    """One client's generator on its impaired graph.

    Args:
        impaired: The graph and what was hidden.
        features: [n, d] of the whole graph, which the targets are rows of; or other rows, to be generated instead.
        classes: C.
        config: Widths, weights of the losses, Adam's settings.
        draw: As for ``initial_weights``.
    """

    def __init__(
        self,
        impaired: Impaired,
        features: Features,
        classes: int,
        config: GeneratorConfig,
        draw: Draw,
    ):
        self.impaired, self.config, self.num_features = impaired, config, features.shape[1]
        self.weights = initial_weights(config, impaired.features.shape[1], classes, draw, self.num_features)
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
        hidden = relu_dropout(hidden, self.config.generator_dropout, generator)
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
            hidden = torch.cat([hidden, *(made @ weights["classifier.0.weight"] for made in generated)])
        hidden = (average @ hidden) + weights["classifier.0.bias"]
        hidden = relu_dropout(hidden, self.config.generator_dropout, generator)
        hidden = torch.mm(hidden, weights["classifier.1.weight"])
        logits: Tensor = (last @ hidden) + weights["classifier.1.bias"]
        return logits

    def _propagation(self, rows: Demand) -> tuple[SparseOperator, SparseOperator]:
        """D̃^-1 (A + I) of the mended impaired graph: all rows, and those of B."""
        if self._propagated is None or self._propagated[0] is not rows:
            average = normalise(mend_adjacency(self.impaired.adjacency, rows.anchors()), "row")
            self._propagated = rows, SparseOperator(average), SparseOperator(average[self.impaired.train])
        return self._propagated[1:]

    def choose_compared(self, rows: Demand) -> NDArray[np.int64]:
        """Which of the rows enter the feature loss: training nodes that do lack a neighbour."""
        return np.flatnonzero(self.is_train[rows.nodes] & (self.impaired.counts[rows.nodes] > 0))

    def local_feature_loss(self, generated: Sequence[Tensor], rows: Demand) -> Tensor:
        """L_f = 1/|B| Σ_{v∈B, n_v>0} Σ_p min_u ‖x̂_vp − x_vu‖², or 1/(5|B|d) times that sum."""
        chosen = self.choose_compared(rows)
        parts = rows_of_slots(generated, chosen)
        return feature_loss(generated, [rows.nodes[part] for part in parts], self.targets, parts) * self.feature_scale

    @property
    def feature_scale(self) -> float:
        """What a sum of squared distances is multiplied by: 1 / |B|, or 1 / (5 |B| d)."""
        nodes = max(len(self.impaired.train), 1)
        return 1.0 / nodes if self.config.feature_error == "sum" else 1.0 / (MAX_SLOTS * nodes * self.num_features)

    # -- losses ------------------------------------------------------------------------------------------------------

    def joint_loss(self, leaves: Weights, generator: torch.Generator) -> Tensor:
        """λ_d L_d + λ_f L_f + λ_c L_c with every part in training.

        Args:
            leaves: By name.
            generator: Source of noise, dropout and counts.
        """
        embeddings = self.encode(generator, leaves)
        predicted = self.predict_counts(embeddings, leaves)
        rows = Demand.of(whole(predicted, self.config.loss_counts, generator), self.influential)
        generated = self.generate(leaves, embeddings[torch.from_numpy(rows.nodes)], rows, generator)
        return self.config.lambda_d * self.count_loss(predicted) + self.local_loss(leaves, generated, rows, generator)

    def generate(
        self, weights: Mapping[str, Tensor], embeddings: Tensor, rows: Demand, generator: torch.Generator
    ) -> list[Tensor]:
        """Features generated for rows, from their embeddings [rows, p], in training."""
        if not len(rows):
            return []
        return generate(weights, embeddings, rows.counts, generator, self.config.generator_dropout, generator)

    def local_loss(
        self,
        weights: Mapping[str, Tensor],
        generated: Sequence[Tensor],
        rows: Demand,
        generator: torch.Generator | None,
    ) -> Tensor:
        """λ_f L_f + λ_c L_c; without a generator the classifier is not in training, and has no dropout."""
        config, loss = self.config, torch.zeros(())
        if config.lambda_f:
            loss = loss + config.lambda_f * self.local_feature_loss(generated, rows)
        if config.lambda_c:
            loss = loss + config.lambda_c * self.class_loss(self.classify(generated, rows, generator, weights))
        return loss

    def count_loss(self, predicted: Tensor) -> Tensor:
        """L_d: mean smooth-L1 of the predicted counts on B."""
        return F.smooth_l1_loss(predicted[torch.from_numpy(self.impaired.train)], self._true_counts)

    def class_loss(self, logits: Tensor) -> Tensor:
        """L_c: mean cross-entropy on B."""
        return F.cross_entropy(logits, self._labels)

    # -- the federated generator -------------------------------------------------------------------------------------

    def freeze(self, generator: torch.Generator | None = None) -> None:
        """From now on only fGen is trained: embeddings and predicted counts stay as they are, without dropout."""
        with torch.no_grad():
            self.embeddings = self.encode()
            self.predicted = self.predict_counts(self.embeddings)
        self.rows = Demand.of(whole(self.predicted, self.config.loss_counts, generator), self.influential)
        self.begin(is_fgen)

    def make_offer(self) -> tuple[Demand, Weights]:
        """The rows that are compared with features, and the weights that generate for them."""
        chosen = self.choose_compared(self.rows)
        rows = Demand(self.rows.nodes[chosen], self.rows.counts[chosen])
        names = fgen_shapes(self.config, self.num_features, int(rows.counts.max(initial=0)))
        return rows, {name: self.weights[name] for name in names}

    def generate_frozen(self, generator: torch.Generator) -> tuple[Weights, list[Tensor]]:
        """Leaves, and the features that are generated with them."""
        leaves = self.trainable()
        return leaves, self.generate(leaves, self.embeddings[torch.from_numpy(self.rows.nodes)], self.rows, generator)

    def frozen_loss(self, generator: torch.Generator) -> tuple[Tensor, Weights, list[Tensor]]:
        """λ_f L_f + λ_c L_c (λ_d L_d is constant), the leaves to differentiate it by, and the generated features."""
        leaves, generated = self.generate_frozen(generator)
        return self.local_loss(leaves, generated, self.rows, None), leaves, generated

    # -- weights and their optimiser ---------------------------------------------------------------------------------

    def begin(self, names: Callable[[str], bool]) -> None:
        """Start training the parameters that ``names`` picks, with fresh moments."""
        config, self._trained = self.config, [name for name in self.weights if names(name)]
        self._optimizer = Adam(
            [self.weights[name] for name in self._trained], lr=config.generator_lr,
            weight_decay=config.generator_weight_decay,
        )  # fmt: skip

    def trainable(self) -> Weights:
        """Leaves that share memory with ``weights``; those in training take gradients."""
        return {name: weight.detach().requires_grad_(name in self._trained) for name, weight in self.weights.items()}

    def epoch(self, generator: torch.Generator) -> None:
        """One step of local training of all parts, on all of B."""
        leaves = self.trainable()
        self.step(gradients_of(self.joint_loss(leaves, generator), leaves))

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step of Adam; parameters without a gradient only decay."""
        self._optimizer.step(
            [gradients[name] if name in gradients else torch.zeros_like(self.weights[name]) for name in self._trained]
        )


def gradients_of(loss: Tensor, leaves: Mapping[str, Tensor]) -> Weights:
    """Gradients by name of the leaves that the loss depends on."""
    if not loss.requires_grad:
        return {}
    names = [name for name, leaf in leaves.items() if leaf.requires_grad]
    found = torch.autograd.grad(loss, [leaves[name] for name in names], allow_unused=True)
    return {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}


def compared_features(generated: Sequence[Tensor], chosen: NDArray[np.int64]) -> list[Tensor]:
    """Per slot, the generated features of the chosen rows."""
    parts = rows_of_slots(generated, chosen)
    return [features[torch.from_numpy(part)] for features, part in zip(generated, parts, strict=True)]


def rows_of_slots(generated: Sequence[Tensor], chosen: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Per slot, which of the chosen rows it has."""
    return [chosen[chosen < len(features)] for features in generated]


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
    """
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    generated = generate(leaves, embeddings, counts, generator, dropout_rate, generator)
    owners = [np.arange(len(features)) for features in generated]
    return gradients_of(feature_loss(generated, owners, targets), leaves)


def fill(
    weights: Mapping[str, Tensor], embeddings: Tensor, rows: Demand, features: int, generator: torch.Generator
) -> Tensor:
    """Generated features [m, d] of rows, slot by slot, computed in pieces; noise from the generator, no dropout.

    Args:
        weights: fGen's.
        embeddings: [n̄, p] of all nodes.
        rows: Which nodes get how many.
        features: d.
        generator: Source of the noise.
    """
    per_slot = rows_per_slot(rows.counts)
    starts = np.concatenate([[0], np.cumsum(per_slot)]).astype(np.int64)
    filled = torch.empty((int(starts[-1]), features))
    inner = [len(bias) for name, bias in weights.items() if name.startswith("body.") and name.endswith(".bias")]
    widest = max(features * len(per_slot), *inner, 1)
    size = max(1, CHUNK_ENTRIES // widest)
    with torch.no_grad():
        for begin in range(0, len(rows), size):
            part = slice(begin, begin + size)
            inputs = embeddings[torch.from_numpy(rows.nodes[part])]
            for slot, made in enumerate(generate(weights, inputs, rows.counts[part], generator, 0.0, None)):
                start = int(starts[slot]) + begin
                filled[start : start + len(made)] = made
    return filled
