"""FGSSL — FedAvg whose nodes learn from the shared model which classes, and which neighbours, they are like.

Huang, Wan, Ye, Du. "Federated Graph Semantic and Structural Learning". IJCAI 2023.

FedAvg whose clients learn from the downloaded model on graphs of which links and features are left out: their nodes are
drawn to its nodes of the same class, away from others, and are to be like their neighbours as much as its nodes are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.data.silos.perturb import thin_edges
from graphsilo.errors import ConfigError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.models.backbones.gat import softmax
from graphsilo.models.base import borrow
from graphsilo.models.operators import Operator
from graphsilo.models.view import GraphTensors, View
from graphsilo.training.local import Teacher
from graphsilo.training.objective import Step
from graphsilo.training.prototypes import class_means, unit_rows
from graphsilo.types import Mask

MOST_ANCHORS = 2048
"""Nodes that are contrasted with all training nodes in a step."""

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class Links(NamedTuple):
    """Every link of a graph but loops.

    Attributes:
        target: [e] i of node i and its neighbour j.
        source: [e] j.
        log_weights: [e] log a_ij.
    """

    target: Tensor
    source: Tensor
    log_weights: Tensor


class FGSSLConfig(fedavg.FedAvgConfig):
    """Settings of FGSSL."""

    contrast: float = setting(
        1.0, "weight of the contrast of nodes (λ_S)", source="ours; the authors' code 3, OpenFGL 0", ge=0
    )
    temperature: float = setting(
        0.1, "temperature of its cosines (τ)", source="authors' code", gt=0, when={"contrast": ABOVE_ZERO}
    )
    distillation: float = setting(
        1.0, "weight of the distillation of structure (λ_D)", source="ours; OpenFGL 0.1", ge=0
    )
    structure: Literal["neighbours", "differences"] = setting(
        "neighbours", "what is distilled: how like each of its neighbours a node is, or in which entries the two ends "
        "of a link differ", source="paper; differences: OpenFGL", when={"distillation": ABOVE_ZERO},
    )  # fmt: skip
    sharpness: float | None = setting(
        None, "temperature of what is distilled (ω); none: 1 for neighbours, 0.1 for differences",
        source="ours; differences: OpenFGL", gt=0, when={"distillation": ABOVE_ZERO},
    )  # fmt: skip
    strong: tuple[Share, Share] = setting(
        (0.8, 0.5), "shares of the links and of the features that the client's own model does without",
        source="authors' code",
    )  # fmt: skip
    weak: tuple[Share, Share] = setting((0.3, 0.3), "the same of the downloaded model", source="authors' code")


class Client(PastClient[FGSSLConfig], fedavg.Client[FGSSLConfig]):
    """Adds the contrast with the downloaded model's nodes and the distillation of its structure.

    Attributes:
        links: Of the training graph.
    """

    def __init__(self, context: ClientContext[FGSSLConfig]):
        super().__init__(context)
        if self.learns_more and not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: FGSSL compares the embeddings of a hidden layer, and {context.model.name} as it is "
                f"set has no hidden layer. {self.model.deeper}."
            )
        found = self.data.graph.adjacency().tocoo()
        proper = found.row != found.col
        ends = found.row[proper].astype(np.int64), found.col[proper].astype(np.int64), np.log(found.data[proper])
        self.links = Links(*(torch.from_numpy(each).to(self.data.device) for each in ends))

    @property
    def learns_more(self) -> bool:
        """Whether there is anything beside FedAvg's loss."""
        return self.config.contrast > 0 or self.config.distillation > 0

    def fit(self, request: fedavg.TrainRequest) -> None:
        if not self.learns_more:
            super().fit(request)
            return
        self.run_epochs(term=partial(self.term, self.teacher(request.weights), self.generator("views")))

    def term(self, teacher: Teacher, draw: torch.Generator, step: Step) -> Tensor:
        """λ_S times the contrast of a step's training nodes plus λ_D times the divergence of structure."""
        config = self.config
        theirs = teacher.outputs(self.view(*config.weak, draw)).embeddings
        buffers = dict(self.model.named_buffers())
        with borrow(
            buffers, {name: buffer.clone() for name, buffer in buffers.items()}
        ):  # as the loss's pass left them
            mine = self.model.embed(self.view(*config.strong, draw), step.generator)
        found = mine.new_zeros(())
        if config.contrast:
            items = torch.from_numpy(step.items).to(mine.device)
            value = contrast(mine[items], theirs[items], step.labels, config.temperature, draw)
            found = found + config.contrast * value
        if config.distillation:
            diverge, usual = STRUCTURES[config.structure]
            found = found + config.distillation * diverge(mine, theirs, self.links, config.sharpness or usual)
        return found

    def view(self, links: float, columns: float, draw: torch.Generator) -> View:
        """The client's graph without shares of its links and columns."""
        graph = self.data.graph
        numbers = np.random.default_rng(int(torch.randint(2**62, (), generator=draw)))
        kept = thin_edges(graph.edges, links, numbers)
        shown = (numbers.random(graph.num_features) >= columns).astype(np.float32)
        thin = GraphTensors(thin_graph(graph, kept, shown), device=self.data.device)
        whole, mask = self.data.full.features(), torch.from_numpy(shown).to(self.data.device)
        thin.cached(
            ("features",), lambda: ScaledOperator(whole, mask)
        )  # without making the whole one's transpose again
        return thin.full


def thin_graph(graph: Graph, kept: Mask, shown: NDArray[np.float32]) -> Graph:
    """A graph with some of its edges [e] and of its columns [d], of which the others are 0."""
    weights, features = None if graph.edge_weights is None else graph.edge_weights[kept], graph.features
    if sp.issparse(features):
        data = features.data * shown[features.indices]
        features = sp.csr_matrix((data, features.indices, features.indptr), features.shape)
    else:
        features = features * shown
    return replace(graph, edges=graph.edges[:, kept], edge_weights=weights, features=features)


class ScaledOperator(Operator):
    """An operator whose columns are multiplied by [columns] numbers."""

    def __init__(self, inner: Operator, scale: Tensor):
        self.inner, self.scale = inner, scale.unsqueeze(1)
        self.shape, self.cost = inner.shape, inner.cost

    def mm(self, right: Tensor) -> Tensor:
        return self.inner.mm(self.scale * right)

    def tmm(self, left: Tensor) -> Tensor:
        return self.inner.tmm(left).mul_(self.scale)

    def dense(self) -> Tensor:
        return self.inner.dense() * self.scale.t()


def contrast(mine: Tensor, theirs: Tensor, labels: Tensor, temperature: float, draw: torch.Generator) -> Tensor:
    """Mean over nodes i of −mean_p (s_ip − log Σ_j e^{s_ij}) with p over the nodes of i's class and s = cos / τ.

    Args:
        mine: [t, p] embeddings of i.
        theirs: [t, p] those of p and j, of the same nodes.
        labels: [t].
        temperature: τ.
        draw: Takes ``MOST_ANCHORS`` of them for i where there are more.

    Source: Huang et al., eq. of the semantic contrast; supervised as by Khosla et al., "Supervised Contrastive
    Learning", NeurIPS 2020. The mean of s over a class is that with the class's mean, without a matrix of pairs.
    """
    theirs = unit_rows(theirs)
    means, _ = class_means(theirs, labels, int(labels.max()) + 1)
    if len(mine) > MOST_ANCHORS:
        chosen = torch.randperm(len(mine), generator=draw)[:MOST_ANCHORS].to(mine.device)
        mine, labels = mine[chosen], labels[chosen]
    mine = unit_rows(mine) / temperature
    return ((mine @ theirs.t()).logsumexp(1) - (mine * means[labels]).sum(1)).mean()


def diverge_neighbours(mine: Tensor, theirs: Tensor, links: Links, temperature: float) -> Tensor:
    """Mean over nodes i with neighbours j of KL(q_g(·|i) ‖ q_f(·|i)), with q(j|i) in proportion to a_ij e^{cos_ij / ω}.

    Args:
        mine, theirs: [n, p] embeddings of f and g.
        links: Of the graph.
        temperature: ω.
    """
    target, source, log_weights = links
    if not len(target):
        return mine.new_zeros(())

    def spread(rows: Tensor) -> Tensor:
        rows = unit_rows(rows)
        scores = (rows[target] * rows[source]).sum(1) / temperature + log_weights
        shares = softmax(scores[:, None], target, len(rows)).squeeze(1)
        return shares.clamp_min(torch.finfo(shares.dtype).tiny)

    q_f, q_g = spread(mine), spread(theirs)
    return (q_g * (q_g.log() - q_f.log())).sum() / len(target.unique())


def diverge_differences(mine: Tensor, theirs: Tensor, links: Links, temperature: float) -> Tensor:
    """Mean over links (i, j), whatever their weights, of KL(softmax(|h_i − h_j| / ω) of g ‖ of f)."""
    target, source, _ = links
    if not len(target):
        return mine.new_zeros(())
    log_f, log_g = (((rows[target] - rows[source]).abs() / temperature).log_softmax(1) for rows in (mine, theirs))
    return (log_g.exp() * (log_g - log_f)).sum(1).mean()


STRUCTURES = {"neighbours": (diverge_neighbours, 1.0), "differences": (diverge_differences, 0.1)}
"""What may be distilled, and the usual temperature."""


METHOD = Method(
    about=__doc__,
    name="fgssl",
    family="averages of models",
    config=FGSSLConfig,
    client=Client,
    server=fedavg.Server,
    tasks=("node",),
    edge_weights=True,
    space={"contrast": [0.1, 1.0, 3.0], "distillation": [0.1, 1.0]},
    trials={
        "sharpness": Trial([0.5]),
        "strong": Trial([(0.2, 0.5), (0.8, 0.1)]),
        "weak": Trial([(0.8, 0.3), (0.3, 0.8)]),
    },
    reduces_to=("fedavg", {"contrast": 0.0, "distillation": 0.0}),
)
