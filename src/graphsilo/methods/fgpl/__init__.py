"""FGPL — clients with models of their own share clusters of class prototypes, and make nodes of rare classes.

"Mitigating Data Imbalance and Generating Better Prototypes in Heterogeneous Federated Graph Learning". Knowledge-Based
Systems 296, 2024, 111876.

Clients with models of their own share the mean embedding of each class, and the server clusters these. Classes with few
training nodes are filled up with made ones, between a node that the model is unsure of and one that it takes it for.
Embeddings are drawn to their class's clusters, most to the one that is most like the client's own mean.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, sends
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.prototypes import TrainReply, check_encoder, common_width, gather_rows, of_shape, sum_classes
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, LocalTrainingConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.methods.fgpl.synthesis import OversampledItems
from graphsilo.methods.fpl import cluster_prototypes
from graphsilo.models.base import Model
from graphsilo.models.view import GraphTensors
from graphsilo.random import Name
from graphsilo.training.losses import info_nce
from graphsilo.training.objective import ClassifyItems, Objective, Step
from graphsilo.training.optimizer import shorten
from graphsilo.training.prototypes import class_means, class_sums, unit_rows

_MADE = {"synthesis": (True,)}


class FGPLConfig(LocalTrainingConfig):
    """Settings of FGPL."""

    strength: float = setting(0.1, "weight of the prototypes' part of the loss (δ)", source="authors' code", ge=0)
    pull: float = setting(
        0.5, "weight, within it, of the distance of class means to their targets (λ)", source="authors' code", ge=0,
        when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    nearest: float = setting(
        0.5, "share of the most similar cluster in a class's target; the rest is the others' mean (μ)",
        source="authors' code", ge=0, le=1, when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    temperature: float = setting(
        0.02, "temperature of the contrast of clusters", source="authors' code", gt=0, when={"strength": ABOVE_ZERO}
    )
    synthesis: bool = setting(
        True, "make nodes of classes with fewer training nodes than the mean of all", source="paper"
    )
    mix: float = setting(
        0.98, "share of the anchor in a made node's features, its partner's being the rest (γ)",
        source="authors' code", ge=0, le=1, when=_MADE,
    )  # fmt: skip
    heat: float = setting(
        2.0, "temperature of the predictions by which both are drawn (τ)", source="authors' code", gt=0, when=_MADE
    )
    warm_up: int = setting(
        5, "first steps, in which made nodes fill all classes up to the largest and are drawn without predictions",
        source="authors' code", ge=0, when=_MADE,
    )  # fmt: skip
    restart: float = setting(
        0.05, "chance of a walk to return to its anchor, a made node's neighbours being drawn by such walks",
        source="authors' code", ge=0.01, le=1, when=_MADE,
    )  # fmt: skip
    reach: int = setting(
        128, "nodes, those that walks come to most, that neighbours are drawn from", source="authors' code", ge=1,
        le=1000, when=_MADE,
    )  # fmt: skip
    initial: Literal["own", "common"] = setting(
        "own", "initial weights: each client's own, or the same for clients with equal models", source="authors' code"
    )
    min_count: int = setting(1, "fewest training items of a class that a client describes", ge=1)
    max_norm: float | None = setting(
        5.0, "length to which a step's gradient is shortened; none: it is not", source="authors' code", gt=0
    )
    local_epochs: int = setting(5, "passes over the local training items per round", source="authors' code", ge=1)
    optimizer: Literal["adam", "sgd"] = setting("sgd", "local optimiser", source="authors' code")
    lr: float = setting(0.05, "learning rate", source="authors' code", gt=0)

    @property
    def single_answers(self) -> str:
        return "every client's prototypes, to cluster"


class TrainRequest(Message):
    """Prototypes of clusters, once there are any.

    Attributes:
        clusters: One row per cluster.
        classes: Of which class each is.
    """

    clusters: Tensor | None = sends("prototype", shape=("clusters", "width"), default=None)
    classes: Tensor | None = sends("control", dtype=torch.int64, shape=("clusters",), default=None)


class Client(PastClient[FGPLConfig], TrainingClient[FGPLConfig]):
    """Trains its own model on its nodes and made ones, drawn to clusters of prototypes.

    Attributes:
        oversampled: What makes nodes; None where none are made.
        outputs: [training nodes, C] logits of its last step, by which the next nodes are made; None before.
        steps: How many were taken.
    """

    kept = ("outputs", "steps")
    outputs: Tensor | None = None
    steps = 0

    def __init__(self, context: ClientContext[FGPLConfig]):
        super().__init__(context)
        check_encoder(self)
        goal = self.trainer.objective
        self.oversampled = goal if isinstance(goal, OversampledItems) else None

    def build_model(self, spec: ModelSpec | None = None, *, seed_names: tuple[Name, ...] = ("model",)) -> Model:
        own: tuple[Name, ...] = ("client", self.id) if self.config.initial == "own" else ()
        return super().build_model(spec, seed_names=(*seed_names, *own))

    def objective_on(self, data: GraphTensors) -> Objective:
        config = self.config
        if not config.synthesis:
            return ClassifyItems(data, self.silo, self.item_loss)
        return OversampledItems(
            data, self.silo, self.item_loss, share=config.mix, heat=config.heat, restart=config.restart,
            reach=config.reach, warm_up=config.warm_up,
        )  # fmt: skip

    @handler
    def train(self, request: TrainRequest) -> TrainReply:
        """Local epochs, then the mean embeddings of this client's classes."""
        config, here = self.config, self.data.device
        if config.reset_optimizer:
            self.trainer.optimizer.reset()
        clusters = classes = None
        if config.strength > 0 and request.clusters is not None and request.classes is not None:
            clusters, classes = request.clusters.to(here), request.classes.to(here)
        goal = self.oversampled
        if goal is not None:
            goal.outputs, goal.steps = self.outputs, self.steps

        def term(step: Step) -> Tensor:
            if goal is not None:
                goal.note(step.items, step.logits)
            if clusters is None or classes is None:
                return step.logits.new_zeros(())
            return config.strength * prototype_loss(
                step.embeddings, step.labels, clusters, classes, self.silo.schema.num_classes,
                nearest=config.nearest, pull=config.pull, temperature=config.temperature,
            )  # fmt: skip

        def clip(gradients: list[Tensor], _: Any) -> None:
            shorten(gradients, config.max_norm)

        self.run_epochs(term=term if goal is not None or clusters is not None else None, adjust=clip)
        if goal is not None:
            self.outputs, self.steps = goal.outputs, goal.steps
        return self.describe()

    def describe(self) -> TrainReply:
        """The mean embedding of each class over training nodes and made ones, without dropout."""
        goal, config, count = self.oversampled, self.config, self.silo.schema.num_classes
        if goal is None or not goal.num_samples:
            return sum_classes(self, self.model.embed, config.min_count, uniform=True)
        data, items, labels = goal.sample(self.generator("prototypes"))
        with torch.no_grad():
            means, _ = class_means(self.model.embed(data.view(items)), labels, count)
        there = torch.bincount(goal.labels, minlength=count) >= config.min_count
        return TrainReply(sums=means * there[:, None], counts=there.long())


class Server(ServerBase[FGPLConfig]):
    """Keeps the clusters of the last round's prototypes, of which it sees every client's.

    Attributes:
        clusters: [m, p].
        classes: [m] theirs.
    """

    client = Client
    kept = ("clusters", "classes")

    def __init__(self, context: ServerContext[FGPLConfig]):
        super().__init__(context)
        self.shape = (self.schema.num_classes, common_width(self))
        self.clusters = torch.zeros(0, self.shape[1], device=context.device)
        self.classes = torch.zeros(0, dtype=torch.int64, device=context.device)

    def round(self, federation: Federation, number: int) -> None:
        known = {"clusters": self.clusters, "classes": self.classes} if len(self.classes) else {}
        chosen = self.select(federation, number)
        replies = federation.ask(Client.train, TrainRequest(**known), to=chosen, check=of_shape(self.shape))
        rows, labels, _ = gather_rows(replies.require(self.config.min_clients))
        if len(labels):
            self.clusters, self.classes = cluster_prototypes(rows.to(self.clusters), labels.to(self.classes))
            self.log["clusters_per_class"] = len(self.classes) / len(labels.unique())


def prototype_loss(
    rows: Tensor,
    labels: Tensor,
    clusters: Tensor,
    classes: Tensor,
    num_classes: int,
    *,
    nearest: float,
    pull: float,
    temperature: float,
) -> Tensor:
    """The mean over classes c, here and among clusters, of mean_{i of c} InfoNCE(z_i) + λ · mean (r_c − t_c)².

    A row's positive is t_c, its negatives the clusters of other classes, by cosines over τ; r_c is the mean row.

    Args:
        rows: [b, p] embeddings z.
        labels: [b].
        clusters: [m, p].
        classes: [m] of which class each cluster is.
        num_classes: C.
        nearest: μ.
        pull: λ.
        temperature: τ.
    """  # fmt: skip
    means, counts = class_means(rows, labels, num_classes)
    targets, known = targets_of(means.detach(), clusters, classes, nearest)
    both = known & (counts > 0)
    unit = unit_rows(rows)
    own = (unit * unit_rows(targets)[labels]).sum(1, keepdim=True)
    scores = torch.cat([own, unit @ unit_rows(clusters).t()], 1) / temperature
    others = classes != labels[:, None]
    first = torch.zeros_like(scores, dtype=torch.bool)
    first[:, 0] = True
    each = info_nce(scores, first, torch.cat([first[:, :1], others], 1))
    contrast = (each * both[labels] / counts[labels]).sum()
    gaps = (means - targets).square().mean(1)
    return (contrast + pull * (gaps * both).sum()) / both.sum().clamp_min(1)


def targets_of(means: Tensor, clusters: Tensor, classes: Tensor, nearest: float) -> tuple[Tensor, Tensor]:
    """t_c = μ · the cluster of class c with the largest cosine to r_c + (1 − μ) · the mean of its others [C, p], and
    which classes [C] have clusters; the only cluster of a class is its t_c.

    Args:
        means: [C, p] r.
        clusters: [m, p].
        classes: [m].
        nearest: μ.
    """
    alike = F.cosine_similarity(means[classes], clusters, dim=1)
    highest = alike.new_full((len(means),), -torch.inf).scatter_reduce(0, classes, alike, "amax")
    best = alike == highest[classes]
    near, total = (torch.bincount(some, minlength=len(means)) for some in (classes[best], classes))
    rest = (total - near)[classes]
    share = torch.where(best, torch.where(rest > 0, nearest, 1.0) / near[classes], (1.0 - nearest) / rest.clamp_min(1))
    return class_sums(share[:, None] * clusters, classes, len(means))[0], total > 0


METHOD = Method(
    about=__doc__,
    name="fgpl",
    family="prototypes and distillation",
    makes_graphs=True,
    config=FGPLConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    space=(
        {"optimizer": ["sgd"], "lr": [0.05, 0.2, 0.5], "strength": [0.01, 0.1, 1.0], "mix": [0.5, 0.9, 0.98]},
        {"optimizer": ["adam"], "lr": [0.003, 0.01], "strength": [0.01, 0.1, 1.0], "mix": [0.5, 0.9, 0.98]},
    ),
    trials={
        "nearest": Trial(reason="which cluster of a class counts more; the prototypes of three clients are one"),
        "heat": Trial([0.05]),
        "reach": Trial([2]),
        "max_norm": Trial([0.1]),
    },
    reduces_to=(
        "local",
        {"strength": 0.0, "synthesis": False, "initial": "common", "max_norm": None, "local_epochs": 3,
         "optimizer": "adam", "lr": 0.01},
    ),
)  # fmt: skip
