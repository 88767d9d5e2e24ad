"""AdaFGL — FedAvg, then modules of each client's own for links among like and among unlike nodes.

Li, Wu, Zhang, Sun, Li, Wang. "AdaFGL: A New Paradigm for Federated Node Classification with Topology Heterogeneity".
ICDE 2024.

First FedAvg, whose model is the knowledge extractor. Then nothing is sent any more: every client trains modules of its
own on its graph, mended by what the extractor predicts, one for links among like nodes and one for links among unlike
ones, and weighs their answers by how well its labels spread along its links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import UnsupportedError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Done, Message, Tensors, sends
from graphsilo.federation.portable import Deciding
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.methods.adafgl.propagation import Mended, Propagation, homophily_confidence, mend
from graphsilo.models.precision import reduce_precision
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator, numpy_generator
from graphsilo.settings import WIDEST
from graphsilo.training.local import load_weights, tensors_of, weights_of
from graphsilo.training.objective import ClassifyItems
from graphsilo.training.optimizer import Optimizer, optimizer
from graphsilo.types import ClientId


class AdaFGLConfig(fedavg.FedAvgConfig):
    """Settings of AdaFGL."""

    extractor_share: float = setting(
        0.5, "share of the rounds, at least one, that train the extractor; in the others clients train for themselves",
        source="OpenFGL; the paper has 100 such rounds, then 200 epochs", gt=0, le=1,
    )  # fmt: skip
    personal_epochs: int = setting(1, "epochs of a client's own modules in each of those", source="OpenFGL", ge=1)
    personal_lr: float = setting(1e-2, "their learning rate, of Adam", source="authors' code", gt=0)
    hidden: int = setting(64, "width of their hidden layers", source="authors' code", ge=1, le=WIDEST)
    steps: int = setting(3, "steps of propagation whose features they see (L)", source="authors' code", ge=0, le=100)
    alpha: float = setting(
        0.5, "share of the links in the mended graph (α); the rest is likeness of predictions",
        source="OpenFGL; authors' code 0.05", ge=0, le=1,
    )  # fmt: skip
    beta: float = setting(
        0.0, "share of the extractor's likeness in that which signs messages (β)", source="OpenFGL; authors' code 0.2",
        ge=0, le=1,
    )  # fmt: skip
    mending: Literal["soft", "threshold"] = setting(
        "soft", "likeness of predictions in the mended graph: their cosine, or 1 where it is above a threshold",
        source="paper; threshold: authors' code",
    )  # fmt: skip
    threshold: float = setting(
        0.999, "that threshold", source="authors' code", ge=-1, le=1, when={"mending": ("threshold",)}
    )
    dissimilar: Literal["ordered", "released"] = setting(
        "ordered", "signs of messages between nodes less alike than usual: the less alike, the more negative; or as "
        "the authors' code has it, the other way round", source="ours; released: authors' code",
    )  # fmt: skip

    @property
    def extractor_rounds(self) -> int:
        """Rounds that train the extractor."""
        return max(1, int(self.rounds * self.extractor_share + 1e-9))

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.extractor_rounds < self.rounds:
            return ""
        return (
            f"AdaFGL is FedAvg where all of its rounds ({self.rounds}) train the extractor: take more rounds, or a "
            f"smaller method.extractor_share."
        )


class PersonaliseRequest(Message):
    """Train on for yourself.

    Attributes:
        weights: The extractor, for a client that does not have it.
    """

    weights: Tensors | None = sends("model", default=None)


class Client(fedavg.Client[AdaFGLConfig]):
    """Trains the extractor with the others, then modules of its own.

    Attributes:
        confidence: How well its labels spread along its links, from 0 to 1; None while it trains the extractor, and of
            a client without training nodes, which has the extractor for its own model.
        personal: Its own modules, once there are any.
    """

    kept = ("confidence",)
    stateful = (*fedavg.Client.stateful, "personal", "personal_optimizer")

    def __init__(self, context: ClientContext[AdaFGLConfig]):
        super().__init__(context)
        if self.silo.graph.union.time is not None:
            raise UnsupportedError(
                f"AdaFGL passes what it learns between all pairs of nodes, and those of {self.silo.graph.name} have "
                f"times: each would be told of later ones. Use another method, or leave out the times."
            )
        self.confidence: float | None = None
        self.personal: Propagation | None = None
        self.personal_optimizer: Optimizer | None = None
        self._mended: dict[int, tuple[GraphTensors, Mended]] = {}

    @handler
    def personalise(self, request: PersonaliseRequest) -> Done:
        """Take the extractor where it comes, and train own modules."""
        if request.weights is not None:
            self.download(request.weights)
            self._mended.clear()
            if self.trainer.objective.num_samples:
                self.confidence = self.find_confidence()
                if self.personal is None:
                    self.personal, self.personal_optimizer = self.make_personal()
        if self.confidence is not None:
            self.train_personal()
        return Done(clients=1)

    def find_confidence(self) -> float:
        """The homophily confidence score of the training graph, from training labels alone."""
        objective = self.trainer.objective
        assert isinstance(objective, ClassifyItems)
        return homophily_confidence(
            self.data.graph.adjacency(), self.silo.labels, objective.items, self.silo.schema.num_classes,
            numpy_generator(self.context.seed, "client", self.id, "confidence"),
        )  # fmt: skip

    def make_personal(self) -> tuple[Propagation, Optimizer]:
        """New modules, drawn for this client alone, and their optimiser."""
        schema, config = self.silo.schema, self.config
        modules = Propagation(schema.num_features, schema.num_classes, config.hidden, config.steps)
        modules.reset(generator(self.context.seed, "client", self.id, "personal"))
        modules.to(self.data.device)
        return modules, optimizer(
            "adam", list(modules.parameters()), lr=config.personal_lr, weight_decay=config.weight_decay
        )

    def train_personal(self) -> None:
        """The local epochs of the modules, each a step on the whole graph."""
        objective, draw = self.trainer.objective, self.generator("personal")
        assert isinstance(objective, ClassifyItems)
        assert self.personal_optimizer is not None
        items = torch.from_numpy(objective.items).to(self.data.device)
        predicted = self.mended(self.data).predicted
        for _ in range(self.config.personal_epochs):
            with torch.enable_grad():
                alike, *unlike = self.propagate(self.data, draw)
                loss = F.mse_loss(alike, predicted)
                for logits in (alike, *unlike):
                    loss = loss + F.cross_entropy(logits[items], objective.labels)
            gradients = torch.autograd.grad(loss, self.personal_optimizer.parameters)
            with torch.no_grad():
                self.personal_optimizer.step(gradients)

    def mended(self, data: GraphTensors) -> Mended:
        """A graph mended by what the extractor predicts on it."""
        if id(data) not in self._mended:
            with torch.no_grad():
                predicted = self.model(data.full).softmax(1)
                threshold = None if self.config.mending == "soft" else self.config.threshold
                self._mended[id(data)] = data, mend(data, predicted, alpha=self.config.alpha, threshold=threshold)
        return self._mended[id(data)][1]

    def propagate(self, data: GraphTensors, draw: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """What the own modules say of a graph's nodes."""
        assert self.personal is not None
        graph, config = self.mended(data), self.config
        with reduce_precision(data.device.type, on=self.model.precision != "float32"):
            found: tuple[Tensor, ...] = self.personal(graph, config.beta, config.dissimilar, draw)
        return tuple(logits.float() for logits in found)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        """log(H Ŷ_homo + (1 − H) Ŷ_hete) of the own modules, H being the confidence; the extractor before."""
        if view != "own" or self.confidence is None:
            return super().predict(data, view)
        with torch.no_grad():
            alike, *unlike = (logits.softmax(1) for logits in self.propagate(data))
            homophilous = (alike + self.mended(data).predicted) / 2
            heterophilous = sum(unlike[1:], unlike[0]) / len(unlike)
            mixed = self.confidence * homophilous + (1.0 - self.confidence) * heterophilous
        return mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()

    no_export = "its modules pass what they learn between all pairs of a graph's nodes, by links mended for that graph"

    def network_of(self, view: str) -> Deciding | None:
        return super().network_of(view) if view != "own" or self.confidence is None else None

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._have_personal("personal" in state)
        super().load_state(state)

    def final_models(self) -> dict[str, Tensors]:
        if self.confidence is None or self.personal is None:
            return super().final_models()
        confidence = torch.tensor([self.confidence], dtype=torch.float64)
        return {**super().final_models(), "personal": {**weights_of(self.personal), "confidence": confidence}}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        own = dict(models.get("personal", {}))
        self._have_personal(bool(own))
        self.confidence = float(own.pop("confidence")) if own else None
        if self.personal is not None:
            load_weights(tensors_of(self.personal), own)

    def _have_personal(self, wanted: bool) -> None:
        """Make room for own modules that are about to be loaded, or have none."""
        self._mended.clear()
        if not wanted:
            self.personal = self.personal_optimizer = None
        elif self.personal is None:
            self.personal, self.personal_optimizer = self.make_personal()

    def release(self) -> None:
        self._mended.clear()

    def study(self) -> Mapping[str, Any]:
        """The homophily confidence score."""
        return {} if self.confidence is None else {"confidence": self.confidence}


class Server(fedavg.Server[AdaFGLConfig]):
    """FedAvg's, until clients train for themselves.

    Attributes:
        holders: Clients that have the extractor.
    """

    kept = ("weights", "holders")

    def __init__(self, context: ServerContext[AdaFGLConfig]):
        super().__init__(context)
        self.holders: list[ClientId] = []
        self.turns_after = self.config.extractor_rounds

    def round(self, federation: Federation, number: int) -> None:
        if number <= self.config.extractor_rounds:
            super().round(federation, number)
            return
        again, first = PersonaliseRequest(), PersonaliseRequest(weights=self.weights)
        asked = self.select(federation, number)
        requests = {client: again if client in self.holders else first for client in asked}
        total = federation.sum(Client.personalise, requests, to=asked)
        total.require(self.config.min_clients)
        self.holders = sorted({*self.holders, *total.clients})

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        shared = self.config.extractor_rounds / self.rounds
        sent = min(len(self.context.clients), self.asked * (self.rounds - self.config.extractor_rounds))
        each = up // (self.rounds * self.asked)
        return round(up * shared), round(down * shared) + sent * each


METHOD = Method(
    about=__doc__,
    name="adafgl",
    family="silos that are unlike",
    config=AdaFGLConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    edge_weights=True,
    quick={"extractor_share": 0.01},
    space={"alpha": [0.1, 0.5, 0.9], "beta": [0.0, 0.2]},
    reduces_to=("fedavg", {"extractor_share": 1.0}),
)
