"""FedTAD — FedAvg whose server distils into the mean, without data, what each client knows best of each class.

Zhu, Li, Wu, Wu, Hu, Li. "FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph Federated Learning".
IJCAI 2024.

A class is known well where its training nodes lie among nodes that are like them, in features and in their place in the
graph. Every client says so once, by a number per class. Each round the server makes graphs that the clients' models
recognise and on which the mean model disagrees with them, and moves it towards each client's answers for a class as far
as that client knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import MessageError
from graphsilo.federation.accumulator import add_up
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Empty, Message, Tensors, sends
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.models.columns import unit_rows
from graphsilo.models.encodings import return_probabilities, row_products
from graphsilo.models.view import GraphTensors, Matrix
from graphsilo.settings import WIDEST
from graphsilo.training.label_propagation import without_loops
from graphsilo.training.local import load_weights
from graphsilo.training.losses import likeness
from graphsilo.training.objective import ClassifyItems
from graphsilo.training.optimizer import Adam
from graphsilo.training.synthesis import (
    ConditionalGenerator,
    Ensemble,
    Synthetic,
    check_takes_features,
    nearest,
    spread_classes,
)
from graphsilo.training.upstream import trace
from graphsilo.types import ClientId

SILENT = 1e-5
"""Answers that differ by less than this share of the largest one are equal: the sign of rounding is no direction."""


class FedTADConfig(fedavg.FedAvgConfig):
    """Settings of FedTAD."""

    reliability: Literal["agreement", "counts"] = setting(
        "agreement", "how well a client knows a class: by how alike its training nodes are to their neighbours, or by "
        "how many there are",
        source="paper; the authors' code comes close to counts",
    )  # fmt: skip
    walks: int = setting(
        5, "steps of the random walk whose chances to return say where a node is; 0 compares features alone",
        source="paper", ge=0, le=1000, when={"reliability": ("agreement",)},
    )  # fmt: skip
    min_count: int = setting(1, "fewest training nodes of a class that a client says it knows", ge=1)
    shares_over: Literal["clients", "classes"] = setting(
        "clients", "what reliabilities are divided by: their sum over clients for each class, or over classes at each "
        "client",
        source="the authors' code; OpenFGL has classes",
    )  # fmt: skip
    iterations: int = setting(
        5, "turns of generator and model per round (I); 0 is FedAvg", source="the authors' code", ge=0
    )
    generator_steps: int = setting(1, "steps of the generator per turn", source="the authors' code", ge=1)
    student_steps: int = setting(5, "steps of the mean model per turn", source="the authors' code", ge=1)
    nodes: int = setting(100, "nodes of each graph that is made", source="the authors' code", ge=2, le=WIDEST)
    neighbours: int = setting(
        4, "most alike nodes that each is linked to, before links lead both ways",
        source="paper: 5, the node itself among them", ge=1,
    )  # fmt: skip
    noise_dim: int = setting(32, "width of the generator's noise", source="the authors' code", ge=1, le=WIDEST)
    generator_lr: float = setting(1e-3, "Adam's rate for the generator", source="the authors' code", gt=0)
    student_lr: float = setting(1e-3, "Adam's rate for the mean model", source="the authors' code", gt=0)
    server_weight_decay: float = setting(5e-4, "L2 weight decay of both", source="the authors' code", ge=0)
    semantic: float = setting(
        1.0, "weight λ₁ of how well clients recognise what is made", source="the authors' code", ge=0
    )
    diversity: float = setting(1.0, "weight λ₂ of what keeps nodes apart", source="the authors' code", ge=0)

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        return "" if self.iterations else "FedTAD is FedAvg with method.iterations=0."

    @property
    def single_answers(self) -> str:
        return "every client's model, which its server distils" if self.iterations else ""


class Reliability(Message):
    """How well a client knows each class: Σ φ_v over its training nodes of the class, φ_v at most 1; 0 of none."""

    reliability: Tensor = sends("statistic", shape=("classes",), per_class="min_count")

    def check(self) -> None:
        if bool((self.reliability < 0).any()):
            raise MessageError("Reliability.reliability is at least 0; less came.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        if float(self.reliability.sum()) > items * (1 + SILENT):
            raise MessageError(f"Reliability.reliability comes to more than the {items:g} items of its silo.")


class Client(PastClient[FedTADConfig], fedavg.Client[FedTADConfig]):
    """Trains the shared model, and once says how well it knows each class."""

    @handler
    def rate_classes(self, request: Empty) -> Reliability:
        """Φ_c = Σ φ_v over training nodes of class c; below 0, where neighbours are unlike, it is 0."""
        goal, found = self.trainer.objective, torch.zeros(self.silo.schema.num_classes, dtype=torch.float64)
        assert isinstance(goal, ClassifyItems)
        if goal.num_samples:
            alike = np.ones(goal.num_samples)
            if self.config.reliability == "agreement":
                alike = agreement(self.data, goal.items, self.config.walks)
            found.index_add_(0, goal.labels.cpu(), torch.from_numpy(alike))
            found[torch.from_numpy(self.silo.class_counts()) < self.config.min_count] = 0.0
        return Reliability(reliability=found.clamp_min(0.0).float())


class Server(fedavg.Server[FedTADConfig]):
    """Averages models, and distils the clients' into the mean.

    Attributes:
        reliability: [C] Φ of every client that said it; who did not teaches nothing.
        made_by: The generator; it and both optimisers go on from round to round.
    """

    kept = (*fedavg.Server.kept, "reliability")
    stateful = ("made_by", "generator_optimizer", "student_optimizer")

    def __init__(self, context: ServerContext[FedTADConfig]):
        super().__init__(context)
        config, schema = self.config, self.schema
        self.reliability: dict[ClientId, Tensor] = {}
        self.teachers: dict[ClientId, Tensors] = {}
        self.student = self.build_model()
        check_takes_features(self.student, schema.num_features)
        widths = config.noise_dim, schema.num_classes, schema.num_features
        self.made_by = ConditionalGenerator(*widths, self.generator("features")).to(context.device)
        self.learned = list(self.made_by.parameters())
        self.parameters = list(self.student.parameters())
        decay = config.server_weight_decay
        self.generator_optimizer = Adam(self.learned, lr=config.generator_lr, weight_decay=decay)
        self.student_optimizer = Adam(self.parameters, lr=config.student_lr, weight_decay=decay)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = super().expected_bytes()
        once = 4 * len(self.context.clients) * self.schema.num_classes if self.config.iterations else 0
        return up + once, down

    def set_up(self, federation: Federation) -> None:
        if self.config.iterations:
            replies = federation.ask(Client.rate_classes, Empty(), check=self.check).require(self.config.min_clients)
            self.reliability = {client: reply.reliability for client, reply in replies}

    def check(self, client: ClientId, reply: Reliability) -> None:
        """Refuse what rates other classes.

        Raises:
            MessageError: It does.
        """
        if len(reply.reliability) != self.schema.num_classes:
            raise MessageError(f"{self.schema.num_classes} classes must be rated; {len(reply.reliability)} were.")

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> fedavg.TrainReply:
        if not self.config.iterations:
            return super().collect(federation, clients)
        request = fedavg.TrainRequest(weights=self.weights)
        replies = federation.ask(Client.train, request, to=clients).require(self.config.min_clients)
        self.teachers.update(
            (client, reply.weights) for client, reply in replies if reply.num_samples > 0 and client in self.reliability
        )
        summed = add_up(fedavg.TrainReply, replies)
        return fedavg.TrainReply(weights={}, num_samples=0.0) if summed is None else summed

    def after(self, federation: Federation, number: int) -> None:
        if self.teachers:
            known = torch.stack([self.reliability[client] for client in self.teachers])
            shares = shares_of(known, self.config.shares_over).to(self.context.device)
            if bool(shares.any()):
                self.distil(list(self.teachers.values()), shares, self.generator("round", number, "graphs"))
        self.teachers = {}

    def distil(self, teachers: Sequence[Tensors], shares: Tensor, draw: torch.Generator) -> None:
        """The server's turns of a round.

        Args:
            teachers: Weights of the participants' models.
            shares: [m, C] ŵ; classes whose shares are all 0 are not made.
            draw: Source of noise and dropout.
        """
        config, spec = self.config, self.context.common
        models = [self.build_model() for _ in teachers]
        for model, weights in zip(models, teachers, strict=True):
            load_weights(model, weights)
        ensemble = Ensemble([(spec.name, spec.settings, model) for model in models])
        load_weights(self.student, self.weights)
        labels = spread_classes(shares.sum(0).nonzero().flatten(), config.nodes)
        weight = shares[:, labels] / torch.bincount(labels)[labels]
        for _ in range(config.iterations):
            noise = torch.randn(config.nodes, config.noise_dim, generator=draw).to(labels.device)
            for _ in range(config.generator_steps):
                loss = self.improve_generator(ensemble, noise, labels, weight)
            with torch.no_grad():
                made = self.made_by.of_classes(noise, labels)
                view = Synthetic(made, nearest(made, config.neighbours), labels).tensors().full
                answers = ensemble(view)
                for _ in range(config.student_steps):
                    (logits, _), pull = trace(self.student, view, draw, self.parameters)
                    distance = (weight * (logits - answers).abs().mean(2)).sum()
                    self.student_optimizer.step(pull(slope_of(logits, answers, weight), None))
        # Running statistics, where the model has some, stay those of the clients' nodes.
        learned = {name: part.detach().to("cpu", copy=True) for name, part in self.student.named_parameters()}
        self.weights = {**self.weights, **learned}
        self.log |= {"generator_loss": float(loss), "distance": float(distance)}

    def improve_generator(self, ensemble: Ensemble, noise: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """A step on λ₁ L_sem + L_dis + λ₂ L_div; its value.

        L_sem = Σ_k Σ_c ŵ_kc CE(f_k, c) and L_dis = −Σ_k Σ_c ŵ_kc |f_θ − f_k|, both means over the nodes of class c.
        """
        with torch.enable_grad():
            features = self.made_by.of_classes(noise, labels)
            links = nearest(features, self.config.neighbours)
            view = Synthetic(features.detach(), links, labels).live(features)
            answers, mean = ensemble(view), self.student(view)
            each = F.cross_entropy(answers.transpose(1, 2), labels.expand(len(answers), -1), reduction="none")
            apart = (mean - answers.detach()).abs().mean(2)
            loss: Tensor = (weight * (self.config.semantic * each - apart)).sum()
            if self.config.diversity:
                loss = loss + self.config.diversity * len(answers) * likeness(noise, features)
        self.generator_optimizer.step(torch.autograd.grad(loss, self.learned))
        return loss.detach()


def agreement(data: GraphTensors, nodes: NDArray[np.int64], walks: int) -> NDArray[np.float64]:
    """[t] φ_v = (1 + Σ_u a_vu cos(f_v, f_u)) / (1 + Σ_u a_vu) over neighbours u, with f_v = [x_v ‖ t_v].

    t_v are the chances of a random walk to be back after 1, 2, … steps. A link counts in both directions, with its
    weight a; a loop does not count.

    Args:
        data: The graph.
        nodes: [t] which of its nodes.
        walks: Steps.
    """
    adjacency = data.graph.adjacency()
    both = without_loops(adjacency.maximum(adjacency.T)).astype(np.float64)
    features, places = data.graph.features, return_probabilities(both, walks)
    joined: Matrix
    if isinstance(features, np.ndarray):
        joined = np.concatenate([features, places], axis=1)
    else:
        joined = sp.csr_matrix(sp.hstack([features, sp.csr_matrix(places)]))
    unit = unit_rows(joined)
    near = sp.csr_matrix(both[nodes])
    degree = np.asarray(near.sum(axis=1)).ravel()
    return (1.0 + row_products(unit[nodes], near @ unit)) / (1.0 + degree)


def shares_of(reliability: Tensor, over: Literal["clients", "classes"]) -> Tensor:
    """[m, C] ŵ = Φ over its sum over clients, or over classes; 0 where that is 0.

    Args:
        reliability: [m, C] Φ, at least 0.
        over: Which sum.
    """
    total = reliability.sum(0 if over == "clients" else 1, keepdim=True)
    return torch.where(total > 0, reliability / total, 0.0)


def slope_of(logits: Tensor, answers: Tensor, weight: Tensor) -> Tensor:
    """[n, C] the gradient of Σ_k Σ_i w_ki mean_c |f_θ − f_k| for the logits f_θ.

    Args:
        logits: [n, C].
        answers: [m, n, C] f.
        weight: [m, n] w.
    """
    gap = logits - answers
    sign = torch.where(gap.abs() > SILENT * answers.abs().max(), gap.sign(), 0.0)
    return (weight[:, :, None] * sign).sum(0) / logits.shape[1]


METHOD = Method(
    about=__doc__,
    name="fedtad",
    family="prototypes and distillation",
    quick={"iterations": 2, "student_steps": 2, "nodes": 12, "noise_dim": 8},
    config=FedTADConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    space={"student_lr": [1e-4, 3e-4, 1e-3, 3e-3], "semantic": [0.1, 1.0], "diversity": [0.1, 1.0]},
    reduces_to=("fedavg", {"iterations": 0}),
)
