"""GHOST — generators up once, which imitate nodes and links; the server trains one model on graphs that they make.

Qian, Wan, Huang, Zhang, Wu, Du, Ye. "GHOST: Generalizable One-Shot Federated Graph Learning with Proxy-Based Topology
Knowledge Retention". ICML 2025.

No model leaves a client: it trains a small generator whose nodes look like its own, class by class, and are linked like
them. The server has every generator make graphs and trains one model on them, client after client. What it learned from
earlier ones is held fast where the links of their graphs depended on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.data.silos.silo import Schema
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Empty, Message, Tensors, sends
from graphsilo.federation.one_shot import OneUploadConfig, StudentClient, StudentServer
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.federation.settings import ABOVE_ZERO, OwnLoss, setting
from graphsilo.models.base import Model
from graphsilo.models.operators import SparseOperator
from graphsilo.models.view import View
from graphsilo.settings import WIDEST
from graphsilo.training.local import check_weights, load_weights, weights_of
from graphsilo.training.losses import kd
from graphsilo.training.objective import ClassifyItems
from graphsilo.training.optimizer import Adam, optimizer
from graphsilo.training.synthesis import ConditionalGenerator, Synthetic, link_matrix, nearest, spread_classes
from graphsilo.training.transport import couple
from graphsilo.training.upstream import gradients_through, trace
from graphsilo.types import ClientId

LARGEST = 10_000
"""Most nodes of a graph that the server makes."""
_STEPS = 20
"""Most steps to a coupling of nodes."""
_EDGES = 1 << 22
"""Numbers of two nodes' rows that are multiplied at once."""


class GhostConfig(OwnLoss, OneUploadConfig):
    """Settings of GHOST; the optimiser's are the generator's."""

    local_epochs: int = setting(100, "passes of the generator over the training nodes", source="paper", ge=1)
    lr: float = setting(5e-3, "its learning rate", source="the authors' code", gt=0)
    weight_decay: float = setting(4e-4, "its L2 weight decay", source="the authors' code", ge=0)
    batch_size: int = setting(
        500, "training nodes per step, which are coupled with as many", source="ours; paper: all", ge=1, le=4000
    )
    min_count: int = setting(
        1, "fewest training nodes of a class that the generator imitates; a class of one node would be this node",
        source="paper: all", ge=1,
    )  # fmt: skip
    noise_dim: int = setting(64, "width of the generator's noise", source="the authors' code", ge=1, le=WIDEST)
    generator_dropout: float = setting(
        0.2, "its dropout, in training and when it makes graphs", source="the authors' code", ge=0, lt=1
    )
    neighbours: int = setting(
        4, "most alike nodes that each generated node is linked to, before links lead both ways",
        source="paper: 5, the node itself among them", ge=1,
    )  # fmt: skip
    spread: float = setting(
        0.05, "weight λ_d of the divergence between softmaxes of features", source="the authors' code", ge=0
    )
    structure: float = setting(
        0.1, "weight λ_f of the fused Gromov-Wasserstein distance", source="the authors' code", ge=0
    )
    alpha: float = setting(
        0.5, "share α of links in that distance, of features 1 − α", source="paper", ge=0, lt=1,
        when={"structure": ABOVE_ZERO},
    )  # fmt: skip
    graphs: int = setting(3, "graphs that the server makes of each generator (M)", source="the authors' code", ge=1)
    student_steps: int = setting(5, "steps of the model on each", source="the authors' code", ge=1)
    student_lr: float = setting(1e-2, "Adam's rate for the model", source="the authors' code", gt=0)
    student_weight_decay: float = setting(4e-4, "its L2 weight decay", source="the authors' code", ge=0)
    retention: float = setting(
        1e-11, "weight λ_r of what holds the model to what it was after earlier graphs", source="the authors' code",
        ge=0,
    )  # fmt: skip

    @property
    def single_answers(self) -> str:
        return "every client's generator, of which its server makes graphs"


class ProxyReply(Message):
    """A client's generator, and how many nodes it has; 0 where it has nothing to imitate."""

    generator: Tensors = sends("generator", per_class=True, recoverable="where a class has few nodes")
    num_nodes: int = sends("counts")


class Client(StudentClient[GhostConfig]):
    """Trains a generator, sends it, and receives the model."""

    @handler
    def imitate(self, request: Empty) -> ProxyReply:
        """All of the generator's training, and the one upload."""
        config, silo = self.config, self.silo
        draw, counts = self.generator("proxy"), silo.class_counts()
        made = build_generator(config, silo.schema, draw).to(self.data.device)
        enough = silo.train[counts[silo.labels[silo.train]] >= config.min_count]
        goal = ClassifyItems(self.data, replace(silo, train=enough))
        parameters, links = list(made.parameters()), undirected_adjacency(self.data.graph)
        steps = optimizer(
            config.optimizer, parameters, lr=config.lr, weight_decay=config.weight_decay, momentum=config.momentum
        )
        for _ in range(config.local_epochs if goal.num_samples else 0):
            for batch in goal.batches(config.batch_size, draw):
                nodes, labels = batch.view.nodes, batch.labels
                with torch.enable_grad():
                    noise = torch.randn(len(nodes), config.noise_dim, generator=draw).to(labels.device)
                    rows = made.of_classes(noise, labels, draw)
                    loss = imitation(rows, batch.view.features().dense(), links[nodes][:, nodes], config)
                steps.step(torch.autograd.grad(loss, parameters))
        return ProxyReply(generator=weights_of(made), num_nodes=silo.num_items if goal.num_samples else 0)


class Server(StudentServer[GhostConfig]):
    """Trains a model on graphs of the clients' generators, in the order of the clients' numbers.

    Attributes:
        uploads: The generators.
        sizes: Nodes of their clients.
        importance: Σ_s |I_s| over the graphs so far, in float64, for each parameter; ``anchors`` is Σ_s |I_s| θ*_s.
    """

    client = Client
    kept = (*StudentServer.kept, "sizes")

    def __init__(self, context: ServerContext[GhostConfig]):
        super().__init__(context)
        self.sizes: dict[ClientId, int] = {}
        self.made_by = build_generator(self.config, self.schema, self.generator("proxy")).to(context.device)

    def expected_bytes(self) -> tuple[int, int]:
        up, down = (
            sum(tensor.nbytes for tensor in tensors.values()) for tensors in (weights_of(self.made_by), self.weights)
        )
        return self.asked * up, len(self.context.clients) * down

    def gather(self, federation: Federation, asked: Sequence[ClientId]) -> None:
        replies = federation.ask(Client.imitate, Empty(), to=asked, check=self.check).require(self.config.min_clients)
        self.uploads = {client: reply.generator for client, reply in replies if reply.num_nodes}
        self.sizes = {client: min(reply.num_nodes, LARGEST) for client, reply in replies}

    def check(self, client: ClientId, reply: ProxyReply) -> None:
        """Refuse what is no such generator.

        Raises:
            MessageError: It is none.
        """
        check_weights(weights_of(self.made_by), reply.generator)

    def learn(self) -> None:
        config = self.config
        self.parameters = list(self.student.parameters())
        self.optimizer = Adam(self.parameters, lr=config.student_lr, weight_decay=config.student_weight_decay)
        self.importance = [torch.zeros_like(part, dtype=torch.float64) for part in self.parameters]
        self.anchors = [torch.zeros_like(part, dtype=torch.float64) for part in self.parameters]
        clients = [client for client in self.uploads for _ in range(config.graphs)]
        work = self.work("model", len(clients), self._work_state, self._load_work_state)
        for number in work:
            draw = self.generator("graph", number)
            graph = self.make(clients[number], draw)
            view = graph.tensors().full
            slopes = consistency_slope(self.student, view, graph.ends)
            for _ in range(config.student_steps):
                loss = self.step(view, graph.labels, draw)
            work.note(loss=loss)
            held = zip(slopes, self.parameters, self.importance, self.anchors, strict=True)
            for slope, part, importance, anchor in held:
                importance += slope.abs()
                anchor += slope.abs() * part.detach().double()

    def make(self, client: ClientId, draw: torch.Generator) -> Synthetic:
        """A graph of a client's generator, with as many nodes of each class as of the others but for one."""
        load_weights(self.made_by, self.uploads[client])
        labels = spread_classes(torch.arange(self.schema.num_classes), self.sizes[client]).to(self.context.device)
        noise = torch.randn(len(labels), self.config.noise_dim, generator=draw).to(labels.device)
        with torch.no_grad():
            features = self.made_by.of_classes(noise, labels, draw)
        return Synthetic(features, nearest(features, self.config.neighbours), labels)

    @torch.no_grad()
    def step(self, view: View, labels: Tensor, draw: torch.Generator) -> float:
        """One step on CE + λ_r Σ_s Σ_p |I_sp| (θ_p − θ*_sp)²; the cross-entropy before it."""
        (logits, _), pull = trace(self.student, view, draw, self.parameters)
        error = (torch.softmax(logits, 1) - F.one_hot(labels, logits.shape[1])) / len(labels)
        gradients = pull(error, None)
        if self.config.retention:
            held = zip(gradients, self.parameters, self.importance, self.anchors, strict=True)
            for gradient, part, importance, anchor in held:
                gradient += (2 * self.config.retention * (part.double() * importance - anchor)).to(gradient.dtype)
        self.optimizer.step(gradients)
        return float(F.cross_entropy(logits, labels))

    def _work_state(self) -> dict[str, Any]:
        return {
            "student": weights_of(self.student), "optimizer": self.optimizer.state(), "importance": self.importance,
            "anchors": self.anchors,
        }  # fmt: skip

    def _load_work_state(self, state: Mapping[str, Any]) -> None:
        load_weights(self.student, state["student"])
        self.optimizer.load_state(state["optimizer"])
        for mine, saved in ((self.importance, "importance"), (self.anchors, "anchors")):
            for tensor, value in zip(mine, state[saved], strict=True):
                tensor.copy_(value)


def build_generator(config: GhostConfig, schema: Schema, draw: torch.Generator) -> ConditionalGenerator:
    """A fresh one."""
    return ConditionalGenerator(
        config.noise_dim, schema.num_classes, schema.num_features, draw, rate=config.generator_dropout
    )


def imitation(rows: Tensor, real: Tensor, links: sp.csr_matrix, config: GhostConfig) -> Tensor:
    """λ_d mean_v KL(softmax(x_v) ‖ softmax(x̂_v)) + mean_v (1 − cos(x̂_v, x_v)) + λ_f FGW((A, X), (Â, X̂)).

    Of the last one only what has a gradient is added: with the coupling Π and the links Â of the nearest as constants,
    (1 − α) Σ_ij Π_ij |x_i − x̂_j|².

    Args:
        rows: [n, d] X̂, of the classes of the real nodes.
        real: [n, d] X.
        links: [n, n] A.
        config: Has the weights.
    """
    value: Tensor = config.spread * kd(rows, real).mean() + (1 - F.cosine_similarity(rows, real, dim=1)).mean()
    if not config.structure:
        return value
    near, far = rows.square().sum(1), real.square().sum(1)
    cost = (far[:, None] + near[None] - 2 * real @ rows.t()).detach().double().cpu().numpy()
    made = link_matrix(nearest(rows, config.neighbours), len(rows))
    found = couple(cost, links, made, alpha=config.alpha, steps=_STEPS)
    plan = torch.from_numpy(found).to(rows)
    apart = near.mean() + far.mean() - 2 * (plan.t() @ real * rows).sum()
    return value + config.structure * (1 - config.alpha) * apart


def consistency_slope(model: Model, view: View, ends: Tensor) -> list[Tensor]:
    """The gradient of Q = Σ_(i,j) ⟨p_i, tanh p_j⟩² over links for every parameter of a model.

    p = h Wᵀ, with h the model's embeddings and W [d, width of h] its first weight of that form; without one p = h.

    Args:
        model: The model; without dropout.
        view: All nodes of a graph.
        ends: [2, m] its links, both directions of each.
    """
    parameters = list(model.parameters())
    with torch.enable_grad():
        hidden = model.embed(view)
        shape = (view.data.num_features, hidden.shape[1])
        first = next((part for part in parameters if part.shape == shape), None)
        rows = hidden if first is None else hidden @ first.t()
    if not rows.requires_grad:
        return [torch.zeros_like(part) for part in parameters]
    p, bent = rows.detach(), torch.tanh(rows.detach())
    block = max(_EDGES // max(rows.shape[1], 1), 1)
    parts = zip(*(end.split(block) for end in ends), strict=True)
    products = torch.cat([(p[i] * bent[j]).sum(1) for i, j in parts]) if ends.shape[1] else p.new_zeros(0)
    matrix = sp.csr_matrix((products.cpu().numpy(), ends.cpu().numpy()), shape=(len(p), len(p)))
    links = SparseOperator(matrix, device=p.device, dtype=p.dtype)
    slope = 2 * (links.mm(bent) + links.tmm(p) * (1 - bent.square()))
    return gradients_through([rows], [slope], parameters)


METHOD = Method(
    about=__doc__,
    name="ghost",
    family="one round",
    quick={"local_epochs": 5, "noise_dim": 8, "graphs": 2, "student_steps": 2},
    config=GhostConfig,
    client=Client,
    server=Server,
    makes_graphs=True,
    tasks=("node",),
    evaluates=("aggregate",),
    model={"name": "gcn", "hidden": 128, "dropout": 0.3},
    space={"student_lr": [0.001, 0.003, 0.01], "structure": [0.0, 0.1, 1.0], "student_steps": [5, 20]},
    trials={
        "reset_optimizer": Trial(reason="whoever sends once downloads nothing before"),
        "retention": Trial([1.0]),
        "neighbours": Trial([2]),
    },
)
