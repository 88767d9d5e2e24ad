"""Federations of one upload and one download: clients work alone, and the server trains a model on what they send.

``StudentServer`` is any of these. With ``OneShotServer`` it is models that they send, which the server distils into
one. It has none of their data: it makes graphs for the models to answer on (``training.synthesis``). A method derives
from it and says what a graph is made for, and how the student learns from it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Done, Empty, Message, Tensors, sends
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.federation.settings import LocalTrainingConfig, OneRoundConfig, setting
from graphsilo.federation.training_client import TrainingClient
from graphsilo.models.view import View
from graphsilo.training.local import check_weights, load_weights, tensors_of, weights_of
from graphsilo.training.losses import kd
from graphsilo.training.optimizer import Optimizer, optimizer, shorten
from graphsilo.training.synthesis import (
    Ensemble,
    Generator,
    Synthetic,
    check_takes_features,
    pack,
    synthesise,
    unpack,
)
from graphsilo.training.upstream import trace
from graphsilo.types import ClientId


class OneUploadConfig(OneRoundConfig, LocalTrainingConfig):
    """Settings of methods whose clients work alone, send once, and receive the server's model."""


class OneShotConfig(OneUploadConfig):
    """Settings of methods that distil the clients' models once."""

    local_epochs: int = setting(
        100, "passes over the local training items, all at once", source="ours; paper 200", ge=1
    )
    epochs: int = setting(
        10, "graphs that the server makes, with a pass over all of them after each (T)", source="ours; paper 200", ge=1
    )
    nodes: int = setting(100, "nodes of each graph (M)", source="ours; paper 256 images", ge=2)
    neighbours: int = setting(
        5, "most alike nodes that each node is linked to, before links lead both ways", source="ours", ge=1
    )
    row_length: float | None = setting(
        1.0, "length of a generated node's features; none: no bound, and then their disagreement has none",
        source="ours; the paper's images end in a sigmoid", gt=0,
    )  # fmt: skip
    noise_dim: int = setting(256, "width of the generator's noise", source="paper", ge=1)
    generator_steps: int = setting(30, "steps of the generator for each graph", source="paper", ge=1)
    generator_lr: float = setting(1e-3, "Adam's rate for generator and noise", source="paper", gt=0)
    reset_generator: bool = setting(
        True, "whether each graph has a new generator; else the last one goes on", source="the authors' code"
    )
    student_optimizer: Literal["adam", "sgd"] = setting(
        "adam", "the student's optimiser; sgd has momentum 0.9", source="ours; paper sgd"
    )
    student_lr: float = setting(1e-2, "the student's rate", source="paper", gt=0)
    temperature: float = setting(1.0, "temperature at which the student learns", source="paper", gt=0)

    @property
    def single_answers(self) -> str:
        return "every client's model, which its server distils"


class ModelReply(Message):
    """A client's model after its training, and how many training items of each class it saw."""

    weights: Tensors = sends("model")
    label_counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class=True)

    def check(self) -> None:
        super().check()
        if bool((self.label_counts < 0).any()):
            raise MessageError("ModelReply.label_counts holds a number below 0.")


class StudentRequest(Message):
    """The student."""

    weights: Tensors = sends("model")


StudentConfigT = TypeVar("StudentConfigT", bound=OneUploadConfig)
ConfigT = TypeVar("ConfigT", bound=OneShotConfig)


class StudentClient(TrainingClient[StudentConfigT], Generic[StudentConfigT]):
    """Receives the server's model at the end."""

    @handler
    def adopt(self, request: StudentRequest) -> Done:
        """The one download."""
        load_weights(self.common_weights, request.weights)
        return Done(clients=1)


class StudentServer(ServerBase[StudentConfigT], Generic[StudentConfigT]):
    """Takes something of the clients once, and trains a model on it.

    Attributes:
        uploads: What the clients sent, until the model has learned from it.
        student: The model that learns.
        weights: Its weights at the end; as they were drawn before.
    """

    client: type[StudentClient[Any]]
    kept: ClassVar[tuple[str, ...]] = ("uploads", "weights")

    def __init__(self, context: ServerContext[StudentConfigT]):
        super().__init__(context)
        self.uploads: dict[ClientId, Tensors] = {}
        self.student = self.build_model(seed_names=("server", "student"))
        self.weights: Tensors = weights_of(self.student)

    def set_up(self, federation: Federation) -> None:
        """The one upload, and all of the server's work."""
        if not self.uploads:  # else this goes on within that work
            self.gather(federation, self.select(federation, 1))
        if self.uploads:
            self.learn()
            self.weights = weights_of(self.student)
        self.uploads = {}

    @abstractmethod
    def gather(self, federation: Federation, asked: Sequence[ClientId]) -> None:
        """The one upload of these clients."""

    @abstractmethod
    def learn(self) -> None:
        """The student's training on what was uploaded."""

    def round(self, federation: Federation, number: int) -> None:
        """The one download; whom ``participation`` left out has the student, too."""
        request = StudentRequest(weights=self.weights)
        federation.sum(self.client.adopt, request).require(self.config.min_clients)

    def aggregate(self) -> Tensors | None:
        return self.weights


class OneShotClient(StudentClient[ConfigT], Generic[ConfigT]):
    """Trains its own model alone, and receives the student beside it."""

    stateful: ClassVar[tuple[str, ...]] = (*TrainingClient.stateful, "common")

    def __init__(self, context: ClientContext[ConfigT]):
        super().__init__(context)
        self.common = self.build_model(context.common)
        self.common_weights = tensors_of(self.common)

    @handler
    def train_alone(self, request: Empty) -> ModelReply:
        """All local epochs, and the one upload."""
        self.run_epochs()
        return ModelReply(weights=self.weights, label_counts=torch.from_numpy(self.silo.class_counts()))


class OneShotServer(StudentServer[ConfigT], Generic[ConfigT]):
    """Takes the clients' models, makes graphs that they answer on, and has a student learn the answers.

    Attributes:
        counts: [K, C] training items of each class, in the order of ``uploads``, the weights of those that trained.
        pool: The graphs.
        ensemble: The clients' models.
    """

    client: type[OneShotClient[Any]]
    kept: ClassVar[tuple[str, ...]] = ("uploads", "counts", "weights")

    max_norm: ClassVar[float | None] = None
    """Length to which gradients of generator and student are shortened."""

    ensemble: Ensemble
    made_by: Generator

    def __init__(self, context: ServerContext[ConfigT]):
        super().__init__(context)
        self.counts = torch.zeros(0, self.schema.num_classes, dtype=torch.int64)
        self.pool: list[Synthetic] = []
        self._views: list[View] = []
        for spec in {repr(spec): spec for spec in context.models.values()}.values():
            check_takes_features(self.build_model(spec), self.schema.num_features)  # before anybody trains

    def gather(self, federation: Federation, asked: Sequence[ClientId]) -> None:
        replies = federation.ask(self.client.train_alone, Empty(), to=asked, check=self.check)
        replies.require(self.config.min_clients)
        # A model that had nothing to train on is as it was drawn, and would answer at random.
        trained = [(client, reply) for client, reply in replies if bool(reply.label_counts.any())]
        self.uploads = {client: reply.weights for client, reply in trained}
        if trained:
            self.counts = torch.stack([reply.label_counts for _, reply in trained])

    def check(self, client: ClientId, reply: ModelReply) -> None:
        """Refuse what is no model of the client's architecture.

        Raises:
            MessageError: It is none.
        """
        check_weights(tensors_of(self.build_model(self.context.models[client])), reply.weights)
        if len(reply.label_counts) != self.schema.num_classes:
            raise MessageError(f"{self.schema.num_classes} classes must be counted; {len(reply.label_counts)} were.")

    # -- what a method writes --------------------------------------------------------------------------------------

    @abstractmethod
    def answer(self, logits: Tensor) -> Tensor:
        """The ensemble's logits [n, C] of those of its models [m, n, C]."""

    @abstractmethod
    def generator_loss(self, answer: Tensor, student: Tensor, labels: Tensor) -> Tensor:
        """What a graph is made for: of the ensemble's and the student's logits [n, C] on it, and its labels [n]."""

    def begin(self) -> None:
        """What a method needs before the first graph, once the clients' models are there."""

    def before_distilling(self, epoch: int) -> None:
        """What happens before a new graph joins the pool."""

    @abstractmethod
    def lesson(self, place: int, draw: torch.Generator) -> tuple[View, Tensor]:
        """What the student learns from the graph at this place of the pool: a view of it and logits [n, C]."""

    # -- the server's work -----------------------------------------------------------------------------------------

    def learn(self) -> None:
        config, device = self.config, self.context.device
        known = []
        for client, weights in self.uploads.items():
            spec = self.context.models[client]
            model = self.build_model(spec)
            load_weights(model, weights)
            known.append((spec.name, spec.settings, model))
        self.ensemble = Ensemble(known)
        self.optimizer: Optimizer = optimizer(
            config.student_optimizer, list(self.student.parameters()), lr=config.student_lr,
            momentum=0.9 if config.student_optimizer == "sgd" else 0.0,
        )  # fmt: skip
        self.made_by = self._new_generator(0)
        self.begin()
        seen = self.counts.sum(0).gt(0).nonzero().flatten()
        work = self.work("student", config.epochs, self._work_state, self._load_work_state)
        for epoch in work:
            if epoch and config.reset_generator:
                self.made_by = self._new_generator(epoch)
            draw = self.generator("graph", epoch)
            labels = seen[torch.randint(len(seen), (config.nodes,), generator=draw)].to(device)
            noise = torch.randn(config.nodes, config.noise_dim, generator=draw).to(device)
            made, loss = synthesise(
                self.made_by, noise, labels, self._loss, steps=config.generator_steps, lr=config.generator_lr,
                neighbours=config.neighbours, max_norm=self.max_norm,
            )  # fmt: skip
            self.before_distilling(epoch)
            self.pool.append(made)
            distance = self._learn(self.generator("student", epoch))
            work.note(generator_loss=loss, student_loss=distance)
        self.pool, self._views = [], []

    def _new_generator(self, epoch: int) -> Generator:
        config, draw = self.config, self.generator("features", epoch)
        return Generator(config.noise_dim, self.schema.num_features, draw, config.row_length).to(self.context.device)

    def _loss(self, view: View, labels: Tensor) -> Tensor:
        return self.generator_loss(self.answer(self.ensemble(view)), self.student(view), labels)

    def view(self, place: int) -> View:
        """The graph at a place of the pool, as it was made."""
        while len(self._views) <= place:
            self._views.append(self.pool[len(self._views)].tensors().full)
        return self._views[place]

    def _learn(self, draw: torch.Generator) -> float:
        """A pass over the pool, a step for each graph; the mean distance T² KL to what was to be learned."""
        warm, parameters, total = self.config.temperature, list(self.student.parameters()), 0.0
        with torch.no_grad():
            for place in range(len(self.pool)):
                view, target = self.lesson(place, draw)
                (logits, _), pull = trace(self.student, view, draw, parameters)
                # d/dz of T² KL(p ‖ softmax(z / T)), the mean over n nodes: T (softmax(z / T) − p) / n.
                slope = torch.softmax(logits / warm, 1) - torch.softmax(target / warm, 1)
                total += float(kd(logits, target, temperature=warm).mean())
                gradients = pull(slope.mul_(warm / len(logits)), None)
                shorten(gradients, self.max_norm)
                self.optimizer.step(gradients)
        return total / len(self.pool)

    def _work_state(self) -> dict[str, Any]:
        return {
            "pool": pack(self.pool), "student": weights_of(self.student), "optimizer": self.optimizer.state(),
            "generator": weights_of(self.made_by), **self.extra_state(),
        }  # fmt: skip

    def _load_work_state(self, state: Mapping[str, Any]) -> None:
        self.pool = unpack(state["pool"])
        load_weights(self.student, state["student"])
        self.optimizer.load_state(state["optimizer"])
        load_weights(self.made_by, state["generator"])
        self.load_extra_state(state)

    def extra_state(self) -> dict[str, Any]:
        """What a method itself needs for the next graph."""
        return {}

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""

    def expected_bytes(self) -> tuple[int, int]:
        student = sum(tensor.nbytes for tensor in self.weights.values())
        sizes = {repr(spec): spec for spec in self.context.models.values()}
        each = {
            name: sum(tensor.nbytes for tensor in tensors_of(self.build_model(spec)).values())
            for name, spec in sizes.items()
        }
        sent = sum(each[repr(spec)] for spec in self.context.models.values())
        clients = len(self.context.clients)
        return sent + 8 * clients * self.schema.num_classes, clients * student
