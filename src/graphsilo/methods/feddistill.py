"""FedDistill — clients with models of their own share the mean output of each class, and learn from the others'.

Jeong et al. "Communication-Efficient On-Device Machine Learning: Federated Distillation and Augmentation under Non-IID
Private Data". NeurIPS 2018 workshop. The name is that of Zhu et al., ICML 2021.

No weights travel, and models may differ: clients fit every item to the mean of its class at the others as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import prototypes
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, sends
from graphsilo.federation.prototypes import ClassRowsClient, ClassRowsConfig, ClassRowsServer
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.models.view import View
from graphsilo.training.objective import Step
from graphsilo.training.prototypes import pool_means
from graphsilo.types import ClientId

_TINY = 1e-12


class FedDistillConfig(ClassRowsConfig):
    """Settings of FedDistill."""

    weight_by: Literal["count", "uniform"] = setting(
        "uniform", "what a client's mean output counts in the mean of its class: its items of that class, or 1",
        source="paper", when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    strength: float = setting(
        1.0, "weight γ of the distillation", source="Zhu et al.'s code; the paper says none", ge=0
    )
    exchange: Literal["probabilities", "logits"] = setting(
        "probabilities", "which outputs are averaged", source="paper; Zhu et al.'s code takes logits",
        when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    leave_one_out: bool = setting(
        True, "take a client's own part out of the means that it learns from",
        source="paper; Zhu et al.'s code has one table for all", when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    distance: Literal["cross_entropy", "mse"] = setting(
        "cross_entropy", "how far a client's outputs are from these: of softmaxes, or the mean square of what is sent",
        source="paper", when={"strength": ABOVE_ZERO},
    )  # fmt: skip
    temperature: float = setting(
        1.0, "temperature of the softmaxes (T)", source="paper", gt=0,
        when={"strength": ABOVE_ZERO, "distance": ("cross_entropy",)},
    )  # fmt: skip


class TrainRequest(prototypes.TrainRequest):
    """The mean outputs of the last round, with what a client needs to take its own part out.

    Attributes:
        counts: What is behind each row; for those alone that are part of it.
        probabilities: Whether outputs are these, so that a row of the answer adds up to how many it is of.
    """

    probabilities: bool = sends("control")

    counts: Tensor | None = sends(
        "counts", dtype=torch.int64, shape=("classes",), only_with={"leave_one_out": True}, default=None
    )


class TrainReply(prototypes.TrainReply):
    """The sums of a client's outputs by class."""

    def check_answer(self, request: Message) -> None:
        """Of probabilities none is below 0, and those of an item add up to 1."""
        assert isinstance(request, TrainRequest)
        if not request.probabilities:
            return
        away = (self.sums.double().sum(1) - self.counts).abs() > 1e-3 * self.counts
        if bool(away.any()) or bool((self.sums < 0).any()):
            raise MessageError(
                f"probabilities of an item add up to 1, so a row of their sums to how many items it is of; for "
                f"{int(away.sum())} classes it does not, and the smallest number is {float(self.sums.min()):.3g}."
            )


class Client(ClassRowsClient[FedDistillConfig]):
    """Adds γ times the cross-entropy between its outputs and the mean outputs of the items' classes.

    Attributes:
        own: Its part of the table to come: the sums and counts that it sent last. Empty where nothing is left out.
    """

    kept = (*ClassRowsClient.kept, "own")
    own: Mapping[str, Tensor] = MappingProxyType({})

    @handler
    def train(self, request: TrainRequest) -> TrainReply:  # type: ignore[override]
        """Local epochs, then the sums of this client's outputs."""
        found = super().train(request)
        self.own = {"sums": found.sums, "counts": found.counts} if self.config.leave_one_out else {}
        return TrainReply(sums=found.sums, counts=found.counts)

    def receive(self, request: TrainRequest) -> None:  # type: ignore[override]
        super().receive(request)
        if request.counts is None or not self.own or self.prototypes is None:
            return
        counts = request.counts.to(self.data.device)
        rest = counts - self.own["counts"]
        others = self.prototypes * counts[:, None] - self.own["sums"]
        self.prototypes, self.present = others / rest.clamp_min(1)[:, None], rest > 0

    @property
    def pulls(self) -> bool:
        return self.config.strength > 0

    def term(self, step: Step) -> Tensor:
        assert self.prototypes is not None
        assert self.present is not None
        config, heat = self.config, self.config.temperature
        if config.distance == "mse":
            each = (self._convert_logits(step.logits) - self.prototypes[step.labels]).square().mean(1)
        else:
            logits = self.prototypes if config.exchange == "logits" else self.prototypes.clamp_min(_TINY).log()
            goal = F.softmax(logits / heat, dim=1)[step.labels]
            each = heat**2 * F.cross_entropy(step.logits / heat, goal, reduction="none")
        return config.strength * (each * self.present[step.labels]).mean()

    def rows(self, view: View) -> Tensor:
        return self._convert_logits(self.model(view))

    def _convert_logits(self, logits: Tensor) -> Tensor:
        return logits if self.config.exchange == "logits" else F.softmax(logits, dim=1)


class Server(ClassRowsServer[FedDistillConfig]):
    """The mean outputs of one round; needs only sums.

    Attributes:
        counts: [C] what is behind each row.
        authors: Whose outputs these are.
    """

    client = Client
    kept = ("prototypes", "present", "counts", "authors")

    def __init__(self, context: ServerContext[FedDistillConfig]):
        super().__init__(context)
        self.counts = torch.zeros(self.schema.num_classes, dtype=torch.int64)
        self.authors: list[ClientId] = []

    def width(self) -> int:
        return self.schema.num_classes

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        table = {**vars(self.request()), "probabilities": self.config.exchange == "probabilities"}
        common, mine = TrainRequest(**table), TrainRequest(**table, counts=self.counts)
        mine = mine if self.config.leave_one_out else common
        requests = {client: mine if client in self.authors else common for client in chosen}
        total = federation.sum(Client.train, requests, to=chosen)
        self.combine(total.require(self.config.min_clients))
        self.authors = list(total.clients)

    def combine(self, total: prototypes.TrainReply) -> None:
        """Start again: a class that nobody described in this round has no row."""
        self.counts = total.counts
        self.prototypes = pool_means(total.sums, total.counts, torch.zeros_like(self.prototypes))
        self.present = (total.counts > 0).to(self.present.device)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        return up, down + self.rounds * self.asked * self.counts.nbytes * self.config.leave_one_out


METHOD = Method(
    about=__doc__,
    name="feddistill",
    family="prototypes and distillation",
    near=("FedMD", "FedGKT"),
    config=FedDistillConfig,
    client=Client,
    server=Server,
    tasks=("node", "graph"),
    heterogeneous=True,
    evaluates=("own",),
    edge_weights=True,
    space={"strength": [0.1, 0.3, 1.0, 3.0]},
    reduces_to=("local", {"strength": 0.0, "initial": "common"}),
)
