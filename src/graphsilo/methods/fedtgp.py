"""FedTGP — FedProto whose server learns the prototypes, so that classes are a margin apart.

Zhang, Liu, Hua, Cao. "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning for Data
and Model Heterogeneity in Federated Learning". AAAI 2024.

A class's prototype is near the clients' prototypes of that class, and farther from those of other classes by a margin.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.federation.interface import Federation
from graphsilo.federation.prototypes import PrototypeClient, PrototypeConfig, PrototypeServer, gather_rows, of_shape
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.training.optimizer import optimizer
from graphsilo.training.prototypes import PrototypeGenerator, class_sums

_TINY = 1e-6


class FedTGPConfig(PrototypeConfig):
    """Settings of FedTGP."""

    strength: float = setting(
        10.0, "weight λ of the pull towards the prototypes", source="the authors' script; HtFLlib and OpenFGL 1", ge=0
    )
    weight_by: Literal["count", "uniform"] = setting(
        "uniform", "what a client's prototype counts at the server: its items of that class, or 1", source="paper"
    )
    max_margin: float = setting(
        100.0, "largest margin between classes (τ)", source="the authors' script", ge=0,
        when={"server_epochs": ABOVE_ZERO},
    )  # fmt: skip
    server_epochs: int = setting(
        100, "passes over the clients' prototypes per round (S)",
        source="the authors' script, whose program has 1000; OpenFGL 10", ge=0,
    )  # fmt: skip
    server_batch: int = setting(
        10, "prototypes per step of the server; 0 for all", source="the authors' code; OpenFGL takes all", ge=0,
        when={"server_epochs": ABOVE_ZERO},
    )  # fmt: skip
    server_optimizer: Literal["sgd", "adam"] = setting(
        "sgd", "optimiser of the server's prototypes", source="the authors' code; OpenFGL adam",
        when={"server_epochs": ABOVE_ZERO},
    )  # fmt: skip
    server_lr: float = setting(
        0.01, "its learning rate", source="the authors' code", gt=0, when={"server_epochs": ABOVE_ZERO}
    )

    @property
    def single_answers(self) -> str:
        return "every client's prototypes, which its server trains on"


class Client(PrototypeClient[FedTGPConfig]):
    """As FedProto's: λ times the squared distance between embeddings and the prototypes of their classes."""


class Server(PrototypeServer[FedTGPConfig]):
    """Learns the prototypes; sees every client's."""

    client = Client
    stateful = ("net", "optimizer")

    def __init__(self, context: ServerContext[FedTGPConfig]):
        super().__init__(context)
        config, (classes, width) = self.config, self.prototypes.shape
        self.net = PrototypeGenerator(classes, width, self.generator("prototypes"), context.device, initial="torch")
        self.optimizer = optimizer(config.server_optimizer, self.net.parameters, lr=config.server_lr)

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        replies = federation.ask(
            Client.train, self.request(), to=chosen, check=of_shape((len(self.present), self.prototypes.shape[1]))
        )
        rows, labels, weights = gather_rows(replies.require(self.config.min_clients))
        if len(labels):
            labels = labels.to(self.present.device)
            self.learn(number, rows.to(self.prototypes), labels, weights.to(self.prototypes))
            self.prototypes = self.net()
            self.present = self.present.index_fill(0, labels, True)

    def learn(self, number: int, rows: Tensor, labels: Tensor, weights: Tensor) -> None:
        """S epochs on the clients' prototypes of this round: [m, p], their classes [m] and what each counts [m]."""
        config, loss = self.config, 0.0
        margin = margin_of(rows, labels, weights, config.max_margin)
        draw = self.generator("round", number, "batches")
        own = F.one_hot(labels, len(self.present)).to(rows.dtype)
        size = config.server_batch or len(labels)
        step_of = torch.arange(len(labels), device=labels.device) // size
        for left in reversed(range(config.server_epochs)):
            order = torch.randperm(len(labels), generator=draw).to(labels.device)
            counts = weights[order]
            totals = counts.new_zeros(len(labels)).index_add_(0, step_of, counts)
            known = (rows[order], own[order], own[order] * -margin, (counts / totals[step_of]).unsqueeze(1))
            for some, mine, pushed, share in zip(*(part.split(size) for part in known), strict=True):
                prototypes, hidden = self.net.forward()
                logs, slope = margin_slope(some, mine, pushed, share, prototypes)
                self.optimizer.step(self.net.gradients(hidden, slope))
                if not left:
                    loss -= float((logs * mine * share).sum()) * len(some) / len(order)
        self.log |= {"margin": margin, "prototype_loss": loss}


def margin_of(rows: Tensor, labels: Tensor, weights: Tensor, largest: float) -> float:
    """δ = min(max_c gap_c, τ), gap_c being how far class c's mean prototype is from that of the nearest other class.

    Args:
        rows: [m, p].
        labels: [m].
        weights: [m] what each counts in the mean of its class.
        largest: τ; the margin of a single class as well.
    """
    classes, places = labels.unique(return_inverse=True)
    if len(classes) < 2:
        return largest
    sums, _ = class_sums(rows * weights[:, None], places, len(classes))
    total, _ = class_sums(weights[:, None], places, len(classes))
    means = sums / total
    gaps = distances(means, means).fill_diagonal_(torch.inf).amin(1)
    return min(float(gaps.max()), largest)


def margin_loss(
    rows: Tensor, labels: Tensor, weights: Tensor, prototypes: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Weighted mean of −log softmax_y(−D − δ·1[c = y]) over distances D of rows to prototypes, and its gradient.

    Args:
        rows: [b, p].
        labels: [b] y.
        weights: [b].
        prototypes: [C, p].
        margin: δ.

    Returns:
        The loss, and its gradient [C, p] with respect to the prototypes.
    """
    own = F.one_hot(labels, len(prototypes)).to(rows.dtype)
    share = (weights / weights.sum()).unsqueeze(1)
    logs, slope = margin_slope(rows, own, own * -margin, share, prototypes)
    return -(logs * own * share).sum(), slope


def distances(rows: Tensor, others: Tensor) -> Tensor:
    """[n, m] Euclidean distances, exact also where they are small: through products, as torch has them from 26 rows or
    others on, a thousandth comes out as 0, and what is divided by it is a thousand times too large."""
    return torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist")


def margin_slope(rows: Tensor, own: Tensor, pushed: Tensor, share: Tensor, prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms [b, C] in ``margin_loss``, and its gradient [C, p].

    Written out, with what steps have in common made before: there are hundreds a round, of a few rows each, in which
    autograd's bookkeeping would cost several times the arithmetic.

    Args:
        rows: [b, p].
        own: [b, C] 1[c = y].
        pushed: [b, C] −δ·1[c = y].
        share: [b, 1] what each row counts, together 1.
        prototypes: [C, p].
    """
    far = distances(rows, prototypes).clamp_min_(_TINY)
    logs = (pushed - far).log_softmax(1)
    # d loss / d D = (1[c = y] − softmax) · share, and d D / d P = (P − u) / D.
    slope = (own - logs.exp()).mul_(share).div_(far)
    return logs, torch.addmm(prototypes * slope.sum(0).unsqueeze(1), slope.t(), rows, alpha=-1.0)


METHOD = Method(
    about=__doc__,
    name="fedtgp",
    family="prototypes and distillation",
    config=FedTGPConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    space={"strength": [0.1, 1.0, 10.0]},
    trials={
        "predict": Trial(reason="how a client classifies"),
        "max_margin": Trial([0.01]),
        "server_batch": Trial([3]),
    },
    reduces_to=("local", {"strength": 0.0, "initial": "common"}),
)
