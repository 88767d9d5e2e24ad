"""FedDEP — FedSage of a model that sees embeddings of missing neighbours, from prototypes exchanged once.

Zhang, Sun, Ding, Yiu, Yang. "Deep Efficient Private Neighbor Generation for Subgraph Federated Learning". SDM 2024.

As FedSage+, but what a client's generator makes for a node's missing neighbours are embeddings, which stand for several
links at once, and clients compare nothing of each other's: each sends the centres of a few clusters of its embeddings
before round 1, and every generator learns from all of these. The classifier sees the mean of a node's generated
embeddings beside its backbone.
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

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.errors import MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Empty, Message, sends
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import setting
from graphsilo.federation.structured import StructuredClient, StructuredServer
from graphsilo.methods import fedavg, fedsage, fedsage_plus
from graphsilo.models.base import draw_uniform
from graphsilo.models.dropout import relu_dropout
from graphsilo.random import generator
from graphsilo.settings import WIDEST, Width
from graphsilo.training import neighgen
from graphsilo.training.impaired import MAX_SLOTS, Impaired, Targets, feature_loss, hide, impair
from graphsilo.training.neighgen import Demand, Draw, NeighGen, Sight, Weights
from graphsilo.training.optimizer import Adam


class FedDepConfig(fedsage_plus.GeneratorConfig):
    """Settings of FedDEP."""

    embedding: int = setting(64, "width of the embeddings that are clustered and generated (h)", source="OpenFGL", ge=1,
                             le=WIDEST)  # fmt: skip
    encoder_epochs: int = setting(50, "epochs that each client's encoder is trained", source="OpenFGL", ge=0)
    encoder_fan_out: int = setting(
        5, "neighbours that the encoder sees of a node, drawn in every epoch and layer; 0: all", source="OpenFGL", ge=0
    )
    prototypes: int = setting(5, "clusters of a client's embeddings", source="OpenFGL", ge=1, le=1000)
    min_size: int = setting(5, "fewest nodes of a cluster whose centre is sent", source="ours; Zhang et al. 1", ge=1)
    hidden_share: float = setting(
        0.5, "share of its nodes that a client hides from its generator", source="OpenFGL", ge=0, lt=1
    )
    local_generator_epochs: int = setting(2, "epochs on own embeddings alone", source="OpenFGL", ge=0)
    generator_epochs: int = setting(3, "epochs with the other clients' prototypes", source="OpenFGL", ge=0)
    generator_lr: float = setting(1e-2, "learning rate of encoder and generator", source="OpenFGL", gt=0)
    generator_weight_decay: float = setting(5e-4, "L2 weight decay of both", source="OpenFGL", ge=0)
    generator_hidden: tuple[Width, ...] = setting(
        (256, 2048), "hidden widths of the generator of embeddings", source="OpenFGL", min_length=1
    )
    encoder_widths: tuple[Width, Width] = setting(
        (64, 128), "hidden width of encoder and auxiliary classifier, and of what is generated from", source="OpenFGL"
    )
    lambda_f: float = setting(1.0, "weight of the loss of the generated embeddings", source="OpenFGL", ge=0)
    feature_error: Literal["sum", "mean"] = setting(
        "mean", "squared differences to the nearest embedding are added up, or divided by 5 · h", source="OpenFGL"
    )
    mended_hidden: int = setting(64, "width of the MLP on a node's mean generated embedding", source="ours", ge=1,
                                 le=WIDEST)  # fmt: skip
    mended_dropout: float = setting(0.5, "share of its hidden layer set to 0 in training", source="ours", ge=0, lt=1)

    @property
    def single_answers(self) -> str:
        return "every client's prototypes of embeddings"


class Prototypes(Message):
    """Centres of clusters of a client's embeddings.

    Attributes:
        rows: [q, h] of clusters of at least ``min_size`` nodes, in [−1, 1].
        counts: [q] how often nodes lack a neighbour of each, in five slots a node; an empty slot counts for the
            node's own cluster.
    """

    rows: Tensor = sends("embedding", shape=("prototypes", "width"), relayed=True)
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("prototypes",), relayed=True)

    def check(self) -> None:
        if self.rows.numel() and float(self.rows.abs().max()) > 1 + 1e-5:
            raise MessageError(f"entries of an embedding are at most 1; {float(self.rows.abs().max()):.4g} came.")


class Others(Message):
    """All clients' prototypes.

    Attributes:
        rows, counts: As in ``Prototypes``, client by client.
        owners: [q] whose each is, counted from 0, ascending.
        own: Which of these is who is asked; −1: none.
    """

    rows: Tensor = sends("embedding", shape=("prototypes", "width"))
    counts: Tensor = sends("counts", dtype=torch.int64, shape=("prototypes",))
    owners: Tensor = sends("control", dtype=torch.int64, shape=("prototypes",))
    own: int = sends("control")


class Mended(Message):
    """How many embeddings were generated.

    Attributes:
        nodes: Nodes that could get some.
        generated: Embeddings they got.
    """

    nodes: float = sends("counts")
    generated: float = sends("counts")


class DGen(NeighGen):
    """NeighGen that makes embeddings; its auxiliary classifier adds their mean to a node's first layer.

    Attributes:
        others: Prototypes [q, h] and the chances [q] of each, for every other client; in training on these.
    """

    def __init__(self, impaired: Impaired, rows: NDArray[np.float32], classes: int, config: FedDepConfig, draw: Draw):
        super().__init__(impaired, rows, classes, config, draw)
        weight = torch.empty(rows.shape[1], config.encoder_widths[0])
        draw_uniform(weight, sum(weight.shape), draw("mended"))
        self.weights["classifier.mended"] = weight
        self.others: list[tuple[NDArray[np.float32], Tensor]] = []

    def classify(
        self, generated: Sequence[Tensor], rows: Demand, generator: torch.Generator | None,
        weights: Weights | None = None,  # type: ignore[override]
    ) -> Tensor:  # fmt: skip
        weights = weights or self.weights
        means = mean_embeddings(generated, rows, self.impaired.num_nodes, self.num_features)
        hidden = (self._sight.features @ weights["classifier.0.weight"]) + weights["classifier.0.bias"]
        hidden = relu_dropout(hidden + means @ weights["classifier.mended"], self.config.generator_dropout, generator)
        hidden = torch.mm(hidden, weights["classifier.1.weight"])
        logits: Tensor = (self._sight.average @ hidden) + weights["classifier.1.bias"]
        return logits[torch.from_numpy(self.impaired.train)]

    def local_loss(
        self, weights: Weights, generated: Sequence[Tensor], rows: Demand, generator: torch.Generator | None  # type: ignore[override]
    ) -> Tensor:  # fmt: skip
        """The loss on own embeddings plus λ_f times that on each other client's prototypes."""
        loss = super().local_loss(weights, generated, rows, generator)
        chosen = self.choose_compared(rows)
        if not len(chosen):
            return loss
        parts = neighgen.rows_of_slots(generated, chosen)
        owners = [np.searchsorted(chosen, part) for part in parts]
        for prototypes, chances in self.others:
            assert generator is not None
            drawn = torch.multinomial(chances, len(chosen) * MAX_SLOTS, replacement=True, generator=generator).numpy()
            targets = Targets.of(prototypes, drawn, np.arange(len(chosen) + 1) * MAX_SLOTS)
            loss = loss + self.config.lambda_f * self.feature_scale * feature_loss(generated, owners, targets, parts)
        return loss


class Client(PastClient[FedDepConfig], StructuredClient[FedDepConfig], fedsage.Client[FedDepConfig]):
    """Clusters its embeddings, generates missing ones, trains the classifier.

    Attributes:
        embedded: [n, h] each node's prototype, until ``structure``, the mean generated embeddings, is there.
    """

    kept = ("embedded", "structure")

    def __init__(self, context: ClientContext[FedDepConfig]):
        super().__init__(context)
        self.embedded: Tensor | None = None

    @property
    def beside(self) -> tuple[int, int, float] | None:
        return self.config.embedding, self.config.mended_hidden, self.config.mended_dropout

    @property
    def graph(self) -> Graph:
        """The training graph."""
        graph = self.silo.graph
        assert isinstance(graph, Graph)
        return graph

    @property
    def taught(self) -> NDArray[np.int64]:
        """Training nodes with a label."""
        found: NDArray[np.int64] = self.silo.train[self.silo.labels[self.silo.train] >= 0]
        return found

    def draw(self, purpose: str) -> torch.Generator:
        """The same whenever it is asked for."""
        return generator(self.context.seed, "client", self.id, "feddep", purpose)

    def impaired(self) -> Impaired:
        """The graph without hidden nodes: always the same ones."""
        nodes = np.arange(self.graph.num_nodes)
        hidden = hide(nodes, self.config.hidden_share, self.draw("hidden"), keep=1)
        return impair(self.graph, hidden, self.taught, self.silo.labels)

    @handler
    def describe(self, request: Empty) -> Prototypes:
        """Train an encoder, and cluster what it says of all nodes."""
        config, nodes = self.config, self.taught
        if not len(nodes):
            return Prototypes(rows=torch.zeros(0, config.embedding), counts=torch.zeros(0, dtype=torch.int64))
        labels = torch.from_numpy(self.silo.labels[nodes])
        rows = embed(self.graph, nodes, labels, self.silo.schema.num_classes, config, self.draw)
        means, places = cluster(rows.numpy(), config.prototypes, self.draw("clusters"))
        self.embedded = torch.from_numpy(means[places])
        impaired = self.impaired()
        counts = count_targets(places, impaired, len(means))
        large = np.bincount(places, minlength=len(means)) >= config.min_size
        return Prototypes(rows=torch.from_numpy(means[large]), counts=torch.from_numpy(counts[large]))

    @handler
    def learn(self, request: Others) -> Mended:
        """Train the generator, generate once, and forget it."""
        rows, self.embedded = self.embedded, None
        impaired = self.impaired()
        means = torch.zeros(self.graph.num_nodes, self.config.embedding)
        if rows is None or not len(impaired.train):
            self.structure = means
            return Mended(nodes=0.0, generated=0.0)
        own = DGen(impaired, rows.cpu().numpy(), self.silo.schema.num_classes, self.config, self.draw)
        own.begin(lambda name: True)
        for epoch in range(self.config.local_generator_epochs + self.config.generator_epochs):
            if epoch == self.config.local_generator_epochs:
                own.others = others_of(request)
            own.epoch(self.draw(f"epoch {epoch}"))
        nodes, sight = impaired.kept, None
        if self.config.mend_graph == "whole":
            nodes = np.arange(self.graph.num_nodes)
            sight = Sight.of(undirected_adjacency(self.graph), self.graph.features)
        with torch.no_grad():
            seen = own.encode(sight=sight)
            counts = neighgen.whole(own.predict_counts(seen), self.config.mend_counts, self.draw("counts"))
            demand = Demand.of(counts, np.arange(len(nodes)))
            made = neighgen.fill(own.weights, seen, demand, own.num_features, self.draw("noise"))
            sizes = neighgen.rows_per_slot(demand.counts)
            means[torch.from_numpy(nodes)] = mean_embeddings(made.split(sizes), demand, len(nodes), own.num_features)
        self.structure = means
        return Mended(nodes=float(len(nodes)), generated=float(len(made)))


class Server(StructuredServer[FedDepConfig], fedavg.Server[FedDepConfig]):
    """Passes prototypes on once, then averages classifiers."""

    @property
    def beside(self) -> tuple[int, int, float] | None:
        return self.config.embedding, self.config.mended_hidden, self.config.mended_dropout

    def set_up(self, federation: Federation) -> None:
        answers = dict(federation.ask(Client.describe, Empty()).require(self.config.min_clients))
        places = {client: place for place, client in enumerate(sorted(answers))}
        found = [answers[client] for client in sorted(answers)]
        rows = torch.cat([each.rows for each in found])
        counts = torch.cat([each.counts for each in found])
        owners = torch.arange(len(found)).repeat_interleave(torch.tensor([len(each.rows) for each in found]))
        requests = {
            client: Others(rows=rows, counts=counts, owners=owners, own=place) for client, place in places.items()
        }
        total = federation.sum(Client.learn, requests).require(self.config.min_clients)
        if total.nodes:
            self.log["generated_neighbours"] = total.generated / total.nodes


def embed(
    graph: Graph, nodes: NDArray[np.int64], labels: Tensor, classes: int, config: FedDepConfig, draw: Draw
) -> Tensor:
    """[n, h] in (−1, 1): the last layer of a graph network before a linear one to the classes, after training.

    Args:
        graph: With n nodes.
        nodes: [b] those that it learns from.
        labels: [b].
        classes: C.
        config: Widths, epochs, fan-out and Adam's settings.
        draw: As of ``neighgen.initial_weights``.
    """
    adjacency, source, hidden = undirected_adjacency(graph), draw("encoder"), config.embedding
    weights: Weights = {}
    for name, shape in (("0", (graph.num_features, hidden)), ("1", (hidden, hidden)), ("2", (hidden, classes))):
        weights[name], weights[f"b{name}"] = torch.empty(shape), torch.zeros(shape[1])
        draw_uniform(weights[name], sum(shape), source)

    def see() -> Sight:
        return Sight.of(sample_neighbours(adjacency, config.encoder_fan_out, source), graph.features)

    def run(leaves: Weights) -> Tensor:
        sight = see()
        inner = ((sight.features @ leaves["0"]) + leaves["b0"]).relu()
        found: Tensor = ((sight.average @ torch.mm(inner, leaves["1"])) + leaves["b1"]).tanh()
        return found

    optimizer = Adam(list(weights.values()), lr=config.generator_lr, weight_decay=config.generator_weight_decay)
    places = torch.from_numpy(nodes)
    for _ in range(config.encoder_epochs):
        leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        logits = torch.addmm(leaves["b2"], run(leaves)[places], leaves["2"])
        found = neighgen.gradients_of(F.cross_entropy(logits, labels), leaves)
        optimizer.step([found[name] for name in weights])
    with torch.no_grad():
        return run(weights)


def sample_neighbours(adjacency: sp.csr_matrix, fan_out: int, draw: torch.Generator) -> sp.csr_matrix:
    """At most ``fan_out`` entries of each row, all as likely; all of them where it is 0."""
    if not fan_out:
        return adjacency
    sizes = np.diff(adjacency.indptr)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((torch.rand(len(owner), generator=draw).numpy(), owner))
    within = np.arange(len(owner)) - np.repeat(adjacency.indptr[:-1], sizes)
    chosen = order[within < fan_out]
    places = owner[chosen], adjacency.indices[chosen]
    return sp.csr_matrix((adjacency.data[chosen], places), shape=adjacency.shape)


def cluster(
    rows: NDArray[np.float32], most: int, draw: torch.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Means [q, h] of at most ``most`` clusters by k-means, none of which is empty, and where [n] each row belongs."""
    from scipy.cluster.vq import vq

    start = rows[torch.randperm(len(rows), generator=draw)[:most].numpy()]
    places = np.zeros(len(rows), dtype=np.int64)
    for _ in range(50):
        nearest, _ = vq(rows, start)
        used, places = np.unique(nearest, return_inverse=True)
        sums = np.zeros((len(used), rows.shape[1]))
        np.add.at(sums, places, rows)
        means = np.asarray(sums / np.bincount(places)[:, None], dtype=np.float32)
        if np.array_equal(means, start):
            break
        start = means
    return start, places.astype(np.int64)


def count_targets(places: NDArray[np.int64], impaired: Impaired, clusters: int) -> NDArray[np.int64]:
    """[q] clusters of the hidden neighbours of all nodes that were not hidden, in five slots a node; an empty slot is
    of the node's own cluster."""
    lost = np.bincount(places[impaired.missing], minlength=clusters)
    empty = MAX_SLOTS - np.diff(impaired.pointer)
    own = np.bincount(places[impaired.kept], weights=empty, minlength=clusters)
    return (lost + own).astype(np.int64)


def others_of(request: Others) -> list[tuple[NDArray[np.float32], Tensor]]:
    """Prototypes and how likely each is, for every other client that has any."""
    found = []
    for owner in request.owners.unique().tolist():
        mine = (request.owners == owner) & (request.counts > 0)
        if owner != request.own and bool(mine.any()):
            found.append((request.rows[mine].cpu().numpy(), request.counts[mine].double().cpu()))
    return found


def mean_embeddings(generated: Sequence[Tensor], rows: Demand, nodes: int, width: int) -> Tensor:
    """[n, h] mean over five slots of what was generated for each node, an empty slot being 0.

    Args:
        generated: Per slot, [m, h].
        rows: Whose these are.
        nodes: n.
        width: h.
    """
    total = torch.zeros(nodes, width)
    for made in generated:
        total = total.index_add(0, torch.from_numpy(rows.nodes[: len(made)]), made)
    return total / MAX_SLOTS


METHOD = Method(
    about=__doc__,
    name="feddep",
    family="missing neighbours",
    config=FedDepConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    model={"name": "sage", "hidden": 64},
    makes_graphs=True,
    quick={
        "encoder_epochs": 2,
        "generator_hidden": (16, 32),
        "encoder_widths": (8, 16),
    },
    space={"prototypes": [5, 20], "hidden_share": [0.25, 0.5], "lambda_f": [0.1, 1.0]},
    trials={
        "generator_hidden": Trial([(8,)]),
        "encoder_widths": Trial([(4, 8)]),
    },
)
