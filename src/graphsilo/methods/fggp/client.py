"""FGGP's client: trains the shared model on two views of its graph, and classifies by everybody's prototypes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.errors import ConfigError, MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Empty, Tensors
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.portable import Deciding
from graphsilo.federation.prototypes import TrainReply as Prototypes
from graphsilo.federation.prototypes import check_encoder
from graphsilo.methods import fedavg, fpl
from graphsilo.methods.fggp import augmentor
from graphsilo.methods.fggp.config import AUGMENTOR, PROTOTYPES, VOTES, FGGPConfig
from graphsilo.models.base import borrow
from graphsilo.models.generated import RelinkedView, check_links
from graphsilo.models.view import GraphTensors
from graphsilo.training.local import check_weights, tensors_of
from graphsilo.training.losses import info_nce
from graphsilo.training.objective import Classified, ClassifyItems
from graphsilo.training.prototypes import class_sums, unit_rows
from graphsilo.training.upstream import trace

MOST_NODES = 10_000
"""Nodes of a silo up to which links are drawn among all pairs."""
_BYTES = 100
"""What a step keeps for a pair."""


class Client(PastClient[FGGPConfig], fedavg.Client[FGGPConfig]):
    """Trains model and augmentor together.

    Attributes:
        augmentor: Draws the links of the second view.
        keys: Links of the union of the own graph and long-range ones; None before the first round.
        found_in: The round in which these were looked for.
        memory: The prototypes [m, p] that were received and their classes, one-hot [m, C]; empty where none were.
    """

    kept = ("keys", "found_in", "memory")

    def __init__(self, context: ClientContext[FGGPConfig]):
        super().__init__(context)
        if self.config.augment:
            check_links(self.model, self.data.num_features)
        check_encoder(self)
        config, graph = self.config, self.data
        nodes = int(augmentor.graph_sizes(graph).max(initial=0))
        if config.augment and config.pairs == "all" and nodes > MOST_NODES:
            raise ConfigError(
                f"client {self.id}: FGGP draws links among all pairs of a graph's nodes, for which {nodes} nodes take "
                f"about {nodes**2 / 2 * _BYTES / 1e9:,.0f} GB; up to {MOST_NODES} are allowed. Set method.pairs to "
                f"union."
            )
        self.augmentor = augmentor.Augmentor(self.silo.schema.num_features, config.augmentor_width)
        self.augmentor.reset(self.generator("augmentor"))
        self.augmentor.to(graph.device)
        self.drawn = list(self.augmentor.parameters())
        if config.augment:
            beside = {f"{AUGMENTOR}{name}": value for name, value in tensors_of(self.augmentor).items()}
            self.common_weights = {**self.weights, **beside}
            self.trainer.optimizer = self.make_optimizer([*self.trainer.parameters, *self.drawn])
        self.keys: Tensor | None = None
        self.found_in = 0
        self.memory: list[Tensor] = []
        self._received: list[Tensor] = []
        self._union: tuple[Tensor, GraphTensors] | None = None
        items = torch.from_numpy(self.silo.train)
        self.known = torch.full((self.silo.num_items,), -1, dtype=torch.int64)
        self.known[items] = torch.from_numpy(self.silo.labels)[items]
        self.known = self.known.to(graph.device)

    def objective_on(self, data: GraphTensors) -> ClassifyItems:
        # Of one graph every node says something of the prototypes; a step over graphs takes those that it is about.
        everywhere = self.config.augment > 0 and self.silo.schema.task == "node"
        return ClassifyItems(
            data, self.silo, self.item_loss, all_items=everywhere, fan_out=self.fan_out, unless="method.augment=0"
        )

    @handler
    def train(self, request: fpl.TrainRequest) -> fedavg.TrainReply:  # type: ignore[override]
        """Download, train, upload."""
        return super().train(request)

    def fit(self, request: fpl.TrainRequest) -> None:  # type: ignore[override]
        self.memory = []
        if request.clusters is not None and request.classes is not None:
            votes = F.one_hot(request.classes, self.silo.schema.num_classes)
            self.memory = [part.to(self.data.device, torch.float32) for part in (request.clusters.clone(), votes)]
        if not self.config.augment:
            self.run_epochs()
        elif self.trainer.objective.num_samples:
            if self.keys is None or self.round >= self.found_in + self.config.refresh:
                with torch.no_grad():
                    near = self._node_embeddings()
                self.keys = augmentor.union_keys(self.data, near, self.config.neighbours)
                self.found_in = self.round
            self.trainer.follow(self.steps())

    def _node_embeddings(self) -> Tensor:
        """[n, p] by which nodes are near; of a collection, whose model embeds whole graphs, the augmentor's."""
        data = self.data
        return self.model.embed(data.full) if data.collection is None else self.augmentor(data.full)

    # -- training ------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[tuple[list[Tensor], Classified]]:
        """The gradients of each local step, and its batch."""
        draw = self.generator("train")
        for _ in range(self.config.local_epochs):
            for batch in self.trainer.objective.batches(self.batch_size, draw):
                yield self.gradients(batch, draw), batch

    def gradients(self, batch: Classified, draw: torch.Generator) -> list[Tensor]:
        """Those of L₁ + λ (L₂ + L_ga + L_pa), for the model's parameters and the augmentor's."""
        goal, parameters = self.trainer.objective, self.trainer.parameters
        assert isinstance(goal, ClassifyItems)
        (logits, embeddings), pull = trace(self.model, batch.view, draw, parameters)
        with torch.enable_grad():
            logits, embeddings = logits.detach().requires_grad_(), embeddings.detach().requires_grad_()
            value = self.config.augment * self.second_view(batch, logits, embeddings, draw)
            wanted = [logits, embeddings, *parameters, *self.drawn]
            found = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        rows = batch.rows
        outer = goal.slope(logits.detach() if rows is None else logits.detach()[rows], batch)
        outer = found[0] + outer if rows is None else found[0].index_add(0, rows, outer)
        return [*map(torch.add, pull(outer, found[1]), found[2:]), *found[2 + len(parameters) :]]

    def second_view(self, batch: Classified, logits: Tensor, embeddings: Tensor, draw: torch.Generator) -> Tensor:
        """L₂ + L_ga + L_pa: what a step adds to the cross-entropy of the first view.

        Args:
            batch: What it is taken on.
            logits, embeddings: Of the first view.
            draw: Source of links and dropout.
        """
        config, view, keys = self.config, batch.view, self.keys
        assert keys is not None
        hidden = self.augmentor(self.union.view(view.items))
        find = augmentor.all_pairs if config.pairs == "all" else augmentor.union_pairs
        ends, linked = (
            self.union.cached(("pairs",), lambda: find(view, keys)) if view.items is None else find(view, keys)
        )
        scores, others = augmentor.scores_of(hidden, ends), hidden.new_zeros(0)
        if config.pairs == "union":
            apart = augmentor.random_pairs(view, keys, ends.shape[1], draw)
            others = augmentor.scores_of(hidden, apart)
        largest = hidden.square().sum(1).max()  # no product of two rows is larger than the largest square
        links = augmentor.draw_links(scores, linked, largest, draw)
        again, beside = self.model.outputs(RelinkedView(view, ends, links), draw)
        known = self.known if view.items is None else self.known[torch.from_numpy(view.items)]
        value = F.cross_entropy(again if batch.rows is None else again[batch.rows], batch.labels)
        value = value + augmentor.link_loss(scores, linked, others)
        if config.align:
            means, present = weighted_means(logits, known, [embeddings, beside])
            value = value + config.align * align(means[1][present], means[0][present], config.temperature)
        return value

    @property
    def union(self) -> GraphTensors:
        """The own graph with the links of ``keys``."""
        assert self.keys is not None
        if self._union is None or self._union[0] is not self.keys:
            self.release()
            self._union = self.keys, augmentor.link(self.data, self.keys)
        return self._union[1]

    def release(self) -> None:
        if self._union is not None:
            self._union[1].clear()
        self._union = None

    @handler
    def describe(self, request: Empty) -> Prototypes:
        """The prototype of each class that an item is of, or is taken for, after training; none without labels."""
        with torch.no_grad():
            logits, embeddings = self.model.outputs(self.data.full)
            [means], _ = weighted_means(logits, self.known, [embeddings])
        classes = torch.where(self.known >= 0, self.known, logits.argmax(1))
        counts = torch.bincount(classes, minlength=logits.shape[1])
        enough = (counts >= self.config.min_count) & (self.trainer.objective.num_samples > 0)
        return Prototypes(sums=means * enough[:, None], counts=(enough & (counts > 0)).long())

    # -- prediction ----------------------------------------------------------------------------------------------

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        prototypes = self.memory if view == "own" else self._received
        if self.config.predict == "head" or not prototypes:
            return super().predict(data, view)
        with torch.no_grad(), borrow(self.weights, {} if view == "own" else self._aggregate or {}):
            embeddings = self.model.embed(data.full)
        known, votes = prototypes
        return vote(embeddings, known, votes, self.config.voters, self.config.vote_temperature)

    def network_of(self, view: str) -> Deciding | None:
        found, memory = super().network_of(view), self.memory if view == "own" else self._received
        if self.config.predict == "head" or not memory or found is None:
            return found
        config, (known, votes) = self.config, memory
        return found._replace(head={
            "kind": "votes", "prototypes": known, "votes": votes, "voters": min(config.voters, len(known)),
            "temperature": config.vote_temperature,
        })  # fmt: skip

    def install_aggregate(self, weights: Tensors) -> None:
        own = dict(weights)
        received = [own.pop(name).to(self.data.device) for name in (PROTOTYPES, VOTES) if name in own]
        check_weights(self.weights, own)
        self._check_memory(received)
        self._aggregate = {name: value.to(self.data.device) for name, value in own.items()}
        self._received = received

    def _check_memory(self, parts: list[Tensor]) -> None:
        shapes = [tuple(part.shape) for part in parts]
        count = shapes[0][0] if parts else 0
        if parts and shapes != [(count, self.model.embedding_dim), (count, self.silo.schema.num_classes)]:
            raise MessageError(f"prototypes and their classes have the shapes {shapes}, which do not belong together.")

    def final_models(self) -> dict[str, Tensors]:
        memory = {"memory": dict(zip((PROTOTYPES, VOTES), self.memory, strict=True))} if self.memory else {}
        return {**super().final_models(), **memory}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self.memory = [part.to(self.data.device, copy=True) for part in models.get("memory", {}).values()]


def weighted_means(logits: Tensor, known: Tensor, rows: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The mean of each class's rows, [C, p] of each of ``rows``, and which classes there are, [C].

    Args:
        logits: [n, C].
        known: [n] classes; -1 for an item of which it is not known. It is taken to be of its likeliest class, and
            counts as much as that is likely, others 1.
        rows: Each [n, p].
    """
    likely, classes = torch.softmax(logits, 1).max(1)
    given, count = known >= 0, logits.shape[1]
    classes, weights = torch.where(given, known, classes), torch.where(given, 1.0, likely)[:, None]
    total, items = class_sums(weights, classes, count)
    return [class_sums(weights * each, classes, count)[0] / total.clamp_min(1e-6) for each in rows], items > 0


def align(mine: Tensor, others: Tensor, temperature: float) -> Tensor:
    """Mean over classes of −log(e^{cos(m_c, o_c)/τ} / Σ e^{·/τ}) over o_c, the o and the m of all other classes.

    Args:
        mine: [C, p] m, of the second view.
        others: [C, p] o, of the first.
        temperature: τ.
    """
    first, second = unit_rows(mine), unit_rows(others)
    own = torch.eye(len(mine), dtype=torch.bool, device=mine.device)
    cosines = torch.cat([first @ second.t(), first @ first.t()], 1)
    positive = torch.cat([own, torch.zeros_like(own)], 1)
    return info_nce(cosines / temperature, positive, torch.cat([torch.ones_like(own), ~own], 1)).mean()


def vote(rows: Tensor, prototypes: Tensor, votes: Tensor, voters: int, temperature: float) -> Tensor:
    """[n, C] logarithms of how the prototypes most like each row vote, by a softmax of their cosines over τ.

    Args:
        rows: [n, p].
        prototypes: [m, p].
        votes: [m, C] one-hot classes.
        voters: How many vote; all where there are fewer.
        temperature: τ.
    """
    cosines = unit_rows(rows) @ unit_rows(prototypes).t()
    nearest, places = cosines.topk(min(voters, len(prototypes)), dim=1)
    weights = torch.zeros_like(cosines).scatter_(1, places, torch.softmax(nearest / temperature, 1))
    return (weights @ votes).log()
