"""FedSig — FedAvg with made nodes of rare classes, between a silo's own and the class's distribution at all silos.

Bi, Zhang, Qiao, Yuan, Wang. "FedSig: A Federated Graph Augmentation for Class-Imbalanced Node Classification". DASFAA
2024. Reconstructed from its abstract: neither text nor code could be had.

FedAvg whose clients fill up classes with few training nodes. A made node is an embedding, between two nodes of its
class and then drawn to the class's distribution at all silos; a decoder, which every client keeps to itself, links it
to real nodes. A regulariser holds the embeddings of rare classes near the same distribution.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import sends
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.prototypes import check_encoder
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.methods import fedavg
from graphsilo.models.base import Dense, Model, draw_uniform
from graphsilo.models.view import GraphTensors
from graphsilo.training.label_propagation import without_loops
from graphsilo.training.objective import ClassifyItems, Step
from graphsilo.training.optimizer import optimizer
from graphsilo.training.prototypes import class_sums, pool_means

_MAKES = {"ratio": ABOVE_ZERO}
_TINY = 1e-12
_ROUNDING = 1e-3


class FedSigConfig(fedavg.FedAvgConfig):
    """Settings of FedSig."""

    ratio: float = setting(
        1.0, "a class is rare at a client with fewer training nodes than so many times its classes' mean; 0: none",
        source="ours", ge=0, le=100,
    )  # fmt: skip
    target: float = setting(
        1.0, "share of the largest class's training nodes that rare ones are filled up to", source="ours", gt=0, le=10,
        when=_MAKES,
    )  # fmt: skip
    common: float = setting(
        0.5, "share, in a made node, of a draw from its class's distribution at all silos (γ)", source="ours", ge=0,
        le=1, when=_MAKES,
    )  # fmt: skip
    edges: Literal["soft", "hard"] = setting(
        "soft", "weight of a made node's links: the decoder's score, or 1; none where the score is at most 0.5",
        source="GraphSMOTE's two variants", when=_MAKES,
    )  # fmt: skip
    candidates: int = setting(
        50, "nodes around its source that a made node may be linked to, at most two links away", source="ours", ge=1,
        le=1000, when=_MAKES,
    )  # fmt: skip
    made: int = setting(1000, "made nodes of a step, at most", source="ours", ge=1, le=100_000, when=_MAKES)
    pairs: int = setting(
        1000, "links, and as many random pairs, that the decoder learns from in a step", source="ours", ge=1,
        le=100_000, when=_MAKES,
    )  # fmt: skip
    link_weight: float = setting(
        1.0, "weight of the decoder's loss", source="ours; GraphSMOTE 1e-6, of sums", ge=0, when=_MAKES
    )
    proximity: float = setting(
        0.1, "weight of the distance of rare classes' embeddings to their distribution at all silos", source="ours",
        ge=0, when=_MAKES,
    )  # fmt: skip
    min_count: int = setting(1, "fewest training nodes of a class that a client describes", ge=1)

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        return "" if self.ratio else "FedSig is FedAvg with method.ratio=0, and classes are described for nothing."


class TrainRequest(fedavg.TrainRequest):
    """The shared model and, once there is one, the distribution of each class's embeddings at all silos.

    Attributes:
        means, deviations: By class and entry.
        present: Of which classes there is one.
    """

    means: Tensor | None = sends("prototype", shape=("classes", "width"), default=None)
    deviations: Tensor | None = sends("prototype", shape=("classes", "width"), default=None)
    present: Tensor | None = sends("control", dtype=torch.bool, shape=("classes",), default=None)


class TrainReply(fedavg.TrainReply):
    """The model after local training, and sums over the training nodes of each class.

    Attributes:
        sums, squares: Of embeddings and of their squares; 0 where there are none.
        counts: How many nodes these are of.
    """

    sums: Tensor = sends("prototype", shape=("classes", "width"), per_class="min_count")
    squares: Tensor = sends("prototype", shape=("classes", "width"), per_class="min_count")
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class="min_count")

    def check(self) -> None:
        super().check()
        least = self.sums.double().square() / self.counts.clamp_min(1)[:, None]
        if bool((self.squares.double() < least * (1 - _ROUNDING) - _ROUNDING).any()) or bool((self.counts < 0).any()):
            raise MessageError(
                "a sum of n squares is at least the square of the sum over n, and n is at least 0; others came."
            )


class Decoder(nn.Module):
    """σ(h_i S h_jᵀ), how likely two nodes are linked; with S = 0 all are alike.

    Args:
        width: p.
        draw: Source of S, Xavier-uniform.
    """

    def __init__(self, width: int, draw: torch.Generator):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))
        with torch.no_grad():
            draw_uniform(self.weight, 2 * width, draw)

    def forward(self, rows: Tensor, others: Tensor) -> Tensor:
        """Scores [...] of rows [..., p] and others [..., p]."""
        return torch.sigmoid(((rows @ self.weight) * others).sum(-1))


class Client(PastClient[FedSigConfig], fedavg.Client[FedSigConfig]):
    """Trains the shared model on its nodes and on made ones.

    Attributes:
        decoder: What links made nodes; it is never sent.
        goal: Labelled nodes, of which steps see all embeddings.
        lacking: [C] how many nodes are made of each class in a step.
    """

    stateful = (*fedavg.Client.stateful, "decoder", "decoder_optimizer")

    def __init__(self, context: ClientContext[FedSigConfig]):
        super().__init__(context)
        check_encoder(self)
        if self.config.ratio > 0:
            classify_mixed(self.model, torch.zeros(1, self.model.embedding_dim, device=self.data.device))
        self.decoder = Decoder(self.model.embedding_dim, self.generator("decoder")).to(self.data.device)
        self.decoder_optimizer = optimizer("adam", list(self.decoder.parameters()), lr=self.config.lr)

    def objective_on(self, data: GraphTensors) -> ClassifyItems:
        config = self.config
        goal = ClassifyItems(
            data, self.silo, self.item_loss, all_items=config.ratio > 0, fan_out=self.fan_out, unless="method.ratio=0"
        )
        counts = torch.bincount(goal.labels, minlength=self.silo.schema.num_classes)
        self.lacking = count_lacking(counts, config.ratio, config.target, config.made)
        goal.all_items = bool(self.lacking.any())
        self.goal = goal
        return goal

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Download, train, describe classes, upload."""
        sent = super().train(request)
        sums, squares, counts = self.describe()
        return TrainReply(weights=sent.weights, num_samples=sent.num_samples, sums=sums, squares=squares, counts=counts)

    @torch.no_grad()
    def describe(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sums of embeddings and of their squares by class, [C, p] each, and counts [C]."""
        goal, classes = self.goal, self.silo.schema.num_classes
        rows = self.model.embed(self.data.kept_view(goal.items))
        sums, counts = class_sums(rows, goal.labels, classes)
        squares, _ = class_sums(rows.square(), goal.labels, classes)
        there = counts >= self.config.min_count
        return sums * there[:, None], squares * there[:, None], counts * there

    def fit(self, request: TrainRequest) -> None:  # type: ignore[override]
        if not bool(self.lacking.any()):
            self.run_epochs()
            return
        known = None
        if request.means is not None and request.deviations is not None and request.present is not None:
            known = tuple(part.to(self.data.device) for part in (request.means, request.deviations, request.present))
        slopes: list[Tensor] = []

        def term(step: Step) -> Tensor:
            value = self.augment(step, known)
            slopes[:] = torch.autograd.grad(value, list(self.decoder.parameters()), retain_graph=True)
            return value

        def follow(gradients: list[Tensor], _: Any) -> None:
            """The decoder's step, once nothing of this one's loss needs it any more."""
            self.decoder_optimizer.step(slopes)

        self.run_epochs(term=term, adjust=follow)

    def augment(self, step: Step, known: tuple[Tensor, ...] | None) -> Tensor:
        """What is added to a step's mean cross-entropy of labelled nodes: that of made nodes, such that all count
        alike, the decoder's loss, and the distance of rare classes to their distribution.

        Args:
            step: Of all nodes.
            known: Means and deviations [C, p] of classes at all silos, and of which [C] there are any.
        """
        config, draw, rows = self.config, step.generator, step.embeddings
        assert draw is not None
        labels = self.goal.labels
        own = rows[torch.from_numpy(self.goal.items).to(rows.device)]
        anchors, labels_made = draw_anchors(labels, self.lacking, draw)
        made = mix_nearest(own, labels, anchors, draw)
        if known is not None:
            made = mix_common(made, labels_made, *known, share=config.common, draw=draw)
        logits = self.classify(made, anchors, rows)
        trained = step.labels >= 0
        real = self.losses(step.logits[trained], step.labels[trained]).mean()
        share = len(labels_made) / (len(labels_made) + self.goal.num_samples)
        value = share * (self.losses(logits, labels_made).mean() - real)
        value = value + config.link_weight * self.link_loss(rows, draw)
        if known is not None and config.proximity:
            value = value + config.proximity * distance(own, labels, self.lacking > 0, *known)
        return value

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """[b] of each item."""
        each = self.goal.each
        return F.cross_entropy(logits, labels, reduction="none") if each is None else each(logits, labels)

    def classify(self, made: Tensor, anchors: Tensor, rows: Tensor) -> Tensor:
        """Logits [m, C] of made nodes; where the last layer mixes neighbours, of the mean of each and what it is
        linked to.

        Args:
            made: [m, p].
            anchors: [m] places among training nodes of what they are made from.
            rows: [n, p] embeddings of real nodes.
        """
        if self.model.reach is not None:
            near, there = (part[anchors.cpu()].to(rows.device) for part in self.around)
            others = rows[near]
            score = self.decoder(made[:, None], others) * there
            weight = score * (score > 0.5) if self.config.edges == "soft" else (score > 0.5).to(rows.dtype)
            made = (made + (weight[..., None] * others).sum(1)) / (1.0 + weight.sum(1, keepdim=True))
        return classify_mixed(self.model, made)

    @cached_property
    def around(self) -> tuple[Tensor, Tensor]:
        """[t, candidates] nodes at most two links from each training node, nearer ones first, and which are any."""
        links, most = without_loops(self.data.graph.adjacency()), self.config.candidates
        second = (links[self.goal.items] @ links).tocsr()
        nodes = np.zeros((len(self.goal.items), most), dtype=np.int64)
        there = np.zeros(nodes.shape, dtype=bool)
        for place, item in enumerate(self.goal.items):
            direct = np.sort(_row(links, item))
            found = np.concatenate([direct, np.setdiff1d(_row(second, place), np.append(direct, item))])[:most]
            nodes[place, : len(found)], there[place, : len(found)] = found, True
        return torch.from_numpy(nodes), torch.from_numpy(there)

    def link_loss(self, rows: Tensor, draw: torch.Generator) -> Tensor:
        """Mean squared error of the decoder on some links, which are 1, and as many random pairs, which are 0."""
        ends = torch.from_numpy(np.ascontiguousarray(self.data.graph.edges))
        if not ends.shape[1]:
            return rows.new_zeros(()) * self.decoder.weight.sum()
        some = torch.randint(ends.shape[1], (min(self.config.pairs, ends.shape[1]),), generator=draw)
        pairs = torch.randint(len(rows), (2, len(some)), generator=draw)
        left, right = torch.cat([ends[:, some], pairs], 1).to(rows.device)
        score = self.decoder(rows[left], rows[right])
        wanted = torch.arange(2 * len(some), device=rows.device) < len(some)
        return F.mse_loss(score, wanted.to(rows.dtype))


def _row(links: Any, item: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = links.indices[links.indptr[item] : links.indptr[item + 1]]
    return found


class Server(fedavg.Server[FedSigConfig]):
    """Averages models, and the embeddings of each class; needs only sums.

    Attributes:
        means, deviations: [C, p] of the last round's embeddings.
        present: [C] of which classes there are any.
    """

    client = Client
    kept = (*fedavg.Server.kept, "means", "deviations", "present")

    def __init__(self, context: ServerContext[FedSigConfig]):
        super().__init__(context)
        shape = (self.schema.num_classes, self.build_model().embedding_dim)
        self.means, self.deviations = torch.zeros(shape), torch.zeros(shape)
        self.present = torch.zeros(shape[0], dtype=torch.bool)

    def request(self) -> TrainRequest:
        known = {"means": self.means, "deviations": self.deviations, "present": self.present}
        return TrainRequest(weights=self.weights, **(known if bool(self.present.any()) else {}))

    def combine(self, total: TrainReply) -> None:  # type: ignore[override]
        super().combine(total)
        self.means = pool_means(total.sums, total.counts, self.means)
        old = self.deviations.square() + self.means.square()
        squares = pool_means(total.squares, total.counts, old)
        self.deviations = (squares - self.means.square()).clamp_min(0).sqrt()
        self.present = self.present | (total.counts > 0)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        both, classes, calls = 2 * self.means.nbytes, len(self.present), self.rounds * self.asked
        return up + calls * (both + 8 * classes), down + (calls - self.asked) * (both + classes)


def classify_mixed(model: Model, rows: Tensor) -> Tensor:
    """Logits [m, C] of embeddings [m, p], each already mixed with those of neighbours where the last layer would.

    Raises:
        UnsupportedError: The last layer weighs a node and its neighbours apart.
    """
    if model.reach is None:
        return model.classify(rows)
    last = model.get_submodule(model.head.removesuffix("."))
    if not isinstance(last, Dense):
        raise UnsupportedError(
            f"FedSig classifies made nodes by the model's last layer, and that of {model.called} weighs a node and its "
            f"neighbours apart. Use --model gcn, or choose mlp, sgc, ssgc, sign, gamlp, gcnii or classic."
        )
    logits: Tensor = last(rows)
    return logits


def count_lacking(counts: Tensor, ratio: float, target: float, most: int) -> Tensor:
    """[C] nodes to make: of classes with fewer than ``ratio`` times the mean size of those that there are, up to
    ``target`` times the largest; together at most ``most``, each class in proportion.

    Args:
        counts: [C] training nodes.
    """
    there = counts > 0
    if not bool(there.any()):
        return torch.zeros_like(counts)
    rare = there & (counts < ratio * counts[there].double().mean())
    lacking = ((target * counts.max()).floor().long() - counts).clamp_min(0) * rare
    total = int(lacking.sum())
    return lacking if total <= most else (lacking * most).div(total, rounding_mode="floor")


def draw_anchors(labels: Tensor, lacking: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """[m] places of training nodes that nodes are made from, and the classes [m] of these.

    Args:
        labels: [t] of training nodes.
        lacking: [C] how many of each class.
        draw: Of its class every node is as likely.
    """
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels, minlength=len(lacking))
    classes = torch.arange(len(lacking), device=labels.device).repeat_interleave(lacking)
    chance = torch.rand(len(classes), generator=draw).to(labels.device)
    within = torch.minimum((chance * counts[classes]).long(), counts[classes] - 1)
    return order[counts.cumsum(0)[classes] - counts[classes] + within], classes


def mix_nearest(rows: Tensor, labels: Tensor, anchors: Tensor, draw: torch.Generator) -> Tensor:
    """(1 − δ) h_v + δ h_u [m, p], u being the node of v's class with the nearest embedding, δ uniform; h_v where there
    is no other.

    Args:
        rows: [t, p] embeddings of training nodes.
        labels: [t].
        anchors: [m] places of v.
    """
    partners = anchors.clone()
    with torch.no_grad():
        for label in labels[anchors].unique():
            mine, same = (labels[anchors] == label).nonzero().flatten(), (labels == label).nonzero().flatten()
            if len(same) > 1:
                far = torch.cdist(rows[anchors[mine]], rows[same])
                far.masked_fill_(same == anchors[mine][:, None], torch.inf)
                partners[mine] = same[far.argmin(1)]
    delta = torch.rand(len(anchors), 1, generator=draw).to(rows)
    return torch.lerp(rows[anchors], rows[partners], delta)


def mix_common(
    made: Tensor, labels: Tensor, means: Tensor, deviations: Tensor, present: Tensor, *, share: float,
    draw: torch.Generator,
) -> Tensor:  # fmt: skip
    """(1 − γ) h' + γ z [m, p], z ~ N(μ_c, σ_c²) of its class at all silos; h' of classes without such.

    Args:
        made: [m, p] h'.
        labels: [m].
        means, deviations, present: [C, p], [C, p] and [C].
        share: γ.
    """
    noise = torch.randn(made.shape, generator=draw).to(made)
    drawn = means[labels] + deviations[labels] * noise
    return torch.where(present[labels, None], torch.lerp(made, drawn, share), made)


def distance(rows: Tensor, labels: Tensor, rare: Tensor, means: Tensor, deviations: Tensor, present: Tensor) -> Tensor:
    """Σ_c |μ_kc − μ_c|² + |σ_kc − σ_c|², over rare classes of which there is a common distribution.

    Args:
        rows: [t, p] embeddings of training nodes.
        labels: [t].
        rare: [C].
        means, deviations, present: [C, p], [C, p] and [C], of all silos.
    """
    sums, counts = class_sums(rows, labels, len(rare))
    squares, _ = class_sums(rows.square(), labels, len(rare))
    size = counts.clamp_min(1)[:, None]
    mean = sums / size
    deviation = (squares / size - mean.square()).clamp_min(_TINY).sqrt()
    each = (mean - means).square().sum(1) + (deviation - deviations).square().sum(1)
    return each[rare & present].sum()


METHOD = Method(
    about=__doc__,
    name="fedsig",
    family="rare and missing classes",
    near=("GraphSMOTE",),
    config=FedSigConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    edge_weights=True,
    space={"common": [0.0, 0.5], "proximity": [0.01, 0.1, 1.0], "target": [0.5, 1.0]},
    trials={
        "fan_out": Trial([1], {"ratio": 0.0}),
        "ratio": Trial([0.0]),
        "candidates": Trial([1]),
        "made": Trial([1]),
        "pairs": Trial([1]),
    },
    reduces_to=("fedavg", {"ratio": 0.0}),
)
