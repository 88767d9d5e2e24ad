"""FedSage+'s client: trains a generator of missing neighbours, mends its graph, trains the classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Tensors
from graphsilo.federation.past_client import PastClient
from graphsilo.methods import fedsage
from graphsilo.methods.fedsage_plus import mended as mended_graph
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig
from graphsilo.methods.fedsage_plus.mended import Mended, MendedTensors
from graphsilo.methods.fedsage_plus.messages import (
    Comparison,
    Done,
    Generated,
    Generator,
    ImproveRequest,
    MendReply,
    MendRequest,
    OfferRequest,
    OutputComparison,
    PretrainReply,
    PretrainRequest,
    SharedReply,
    SharedRequest,
)
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator
from graphsilo.training import impaired as impaired_graph
from graphsilo.training import neighgen
from graphsilo.training.impaired import AllNodes, Targets
from graphsilo.training.neighgen import Demand, NeighGen, Sight
from graphsilo.training.sharing import are_equal


class Client(PastClient[FedSagePlusConfig], fedsage.Client[FedSagePlusConfig]):
    """Generates missing neighbours, helps others to, and trains the classifier on its mended graph.

    Attributes:
        neighgen: The generator, until the graph is mended; None where there is nothing to learn from.
        mended: What was generated.
    """

    def __init__(self, context: ClientContext[FedSagePlusConfig]):
        super().__init__(context)
        self.neighgen: NeighGen | None = None
        self.mended: Mended | None = None
        self._tensors: dict[int, MendedTensors] = {}
        self._adjacency: sp.csr_matrix | None = None
        self._nodes: AllNodes | None = None

    # -- the generator -----------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The training graph."""
        graph = self.silo.graph
        assert isinstance(graph, Graph)
        return graph

    def hidden_nodes(self) -> NDArray[np.int64]:
        """Which nodes are hidden: always the same ones, drawn from the run's seed."""
        seen, train = self.silo.seen, self.silo.train
        draw = generator(self.context.seed, "client", self.id, "hidden")
        share = self.config.hidden_share
        others = np.zeros(0, dtype=np.int64)
        if self._same_nodes(seen.graph):
            others = np.setdiff1d(np.arange(self.graph.num_nodes), np.concatenate([train, seen.items["test"]]))
        if len(others):
            return impaired_graph.hide(others, share, draw)
        return impaired_graph.hide(train, min(share, 0.5), draw, keep=1)

    def make_neighgen(self) -> NeighGen | None:
        """A fresh generator; None for a client that has no labelled training node."""
        train = self.silo.train[self.silo.labels[self.silo.train] >= 0]
        if not len(train):
            return None
        impaired = impaired_graph.impair(self.graph, self.hidden_nodes(), train, self.silo.labels)
        return NeighGen(
            impaired,
            self.graph.features,
            self.silo.schema.num_classes,
            self.config,
            lambda purpose: generator(self.context.seed, "client", self.id, "neighgen", purpose),
        )

    @handler
    def pretrain(self, request: PretrainRequest) -> PretrainReply:
        """Phase A: all parts, on the own graph; then everything but fGen is frozen."""
        own = self.neighgen = self.make_neighgen()
        if own is None:
            return PretrainReply(nodes=0.0, missing=0.0, predicted=0.0)
        own.begin(lambda name: True)
        for epoch in range(self.config.local_generator_epochs):
            own.epoch(self.generator("epoch", epoch))
        own.freeze(self.generator("counts"))
        return PretrainReply(
            nodes=float(own.impaired.num_nodes),
            missing=float(own.impaired.counts.sum()),
            predicted=float(own.predicted.sum()),
        )

    @handler
    def offer(self, request: OfferRequest) -> Generator:
        """Phase B, step 1: fGen's weights, and embeddings and counts of the nodes that are compared."""
        own = self.neighgen
        if own is None:
            return Generator(weights={}, embeddings=torch.zeros(0, 0), counts=torch.zeros(0, dtype=torch.int64))
        rows, weights = own.make_offer()
        return Generator(
            weights=weights if len(rows) else {},
            embeddings=own.embeddings[torch.from_numpy(rows.nodes)],
            counts=torch.from_numpy(rows.counts),
        )

    @handler
    def compare(self, request: Generator) -> Comparison:
        """Phase B, step 2: the gradient of another client's generator on own features."""
        targets = self._targets(len(request.counts))
        if targets is None:
            return Comparison(gradient={name: torch.zeros_like(weight) for name, weight in request.weights.items()})
        gradient = neighgen.cross_gradient(
            request.weights,
            request.embeddings,
            request.counts.numpy(),
            targets,
            self.config.generator_dropout,
            self.generator("compare"),
        )
        return Comparison(gradient=gradient)

    @handler
    def improve(self, request: ImproveRequest) -> Done:
        """Phase B, step 4: one step of fGen on (1/K) [L + λ_f α Σ_{j≠i} L_f^{i←j}]."""
        own, config = self.neighgen, self.config
        if own is None:
            return Done()
        # The k-th improvement draws as the k-th offer of outputs did: both mean the same generated features.
        loss, leaves, generated = own.frozen_loss(self.generator("generate"))
        scale = config.lambda_f * config.alpha * own.feature_scale
        if request.outputs is not None:
            made = torch.cat(neighgen.compared_features(generated, own.choose_compared(own.rows)))
            loss = loss + scale * (made * request.outputs).sum()
        gradients = neighgen.gradients_of(loss, leaves)
        for name, gradient in (request.weights or {}).items():
            gradients[name] = gradients[name].add_(gradient, alpha=scale) if name in gradients else scale * gradient
        for gradient in gradients.values():
            gradient.mul_(1.0 / request.clients)
        own.step(gradients)
        return Done()

    @handler
    def offer_outputs(self, request: OfferRequest) -> Generated:
        """Phase B, step 1 of the exchange of outputs: features generated for the nodes that are compared."""
        own = self.neighgen
        if own is None:
            return Generated(features=torch.zeros(0, 0), counts=torch.zeros(0, dtype=torch.int64))
        with torch.no_grad():
            _, generated = own.generate_frozen(self.generator("generate"))
        parts = neighgen.compared_features(generated, own.choose_compared(own.rows))
        return Generated(
            features=torch.cat([torch.zeros(0, own.num_features), *parts]),
            counts=torch.from_numpy(own.make_offer()[0].counts),
        )

    @handler
    def compare_outputs(self, request: Generated) -> OutputComparison:
        """Phase B, step 2 of the exchange of outputs: the gradient by another client's generated features."""
        counts = request.counts.numpy()
        targets = self._targets(len(counts))
        if targets is None:
            return OutputComparison(gradient=torch.zeros_like(request.features))
        rows = Demand(np.arange(len(counts)), counts)
        nearest = targets.nearest(request.features, rows.anchors())
        return OutputComparison(gradient=2.0 * (request.features - impaired_graph.dense(nearest)))

    @handler
    def shared_gradient(self, request: SharedRequest) -> SharedReply:
        """The gradient of the local losses by the shared generator."""
        if self.neighgen is None:
            self.neighgen = self.make_neighgen()
        own = self.neighgen
        gradients: dict[str, Tensor] = {}
        if own is not None:
            leaves = {name: weight.detach().requires_grad_() for name, weight in request.weights.items()}
            gradients = neighgen.gradients_of(own.joint_loss(leaves, self.generator("epoch")), leaves)
        return SharedReply(
            gradient={
                name: gradients[name] if name in gradients else torch.zeros_like(weight)
                for name, weight in request.weights.items()
            },
            clients=0.0 if own is None else 1.0,
        )

    def _targets(self, rows: int) -> Targets | AllNodes | None:
        if self.config.cross_targets == "all":
            if self._nodes is None:
                self._nodes = AllNodes(self.graph.features)
            return self._nodes
        if self._adjacency is None:
            self._adjacency = undirected_adjacency(self.graph)
        return neighgen.cross_targets(self._adjacency, self.graph.features, rows, self.generator("targets"))

    # -- mending -----------------------------------------------------------------------------------------------------

    @handler
    def mend(self, request: MendRequest) -> MendReply:
        """Phase C: add the generated neighbours, once, and forget the generator."""
        own, self.neighgen = self.neighgen, None
        if own is None and request.weights is not None:
            own = self.make_neighgen()  # it was trained for no epoch, or without this client
        if own is None:
            return MendReply(nodes=0.0, generated=0.0)
        if request.weights is not None:
            own.weights = dict(request.weights)
        nodes, sight = own.impaired.kept, None
        if self.config.mend_graph == "whole":
            nodes = np.arange(self.graph.num_nodes)
            sight = Sight.of(undirected_adjacency(self.graph), self.graph.features)
        with torch.no_grad():
            embeddings = own.encode(sight=sight)
            counts = own.predict_counts(embeddings)
        made = neighgen.whole(counts, self.config.mend_counts, self.generator("counts"))
        rows = Demand.of(made, np.arange(len(nodes)))
        features = neighgen.fill(own.weights, embeddings, rows, own.num_features, self.generator("noise"))
        predicted = torch.zeros(self.graph.num_nodes)
        predicted[torch.from_numpy(nodes)] = counts
        self.install_mended(Mended(torch.from_numpy(nodes[rows.anchors()]), features, predicted))
        return MendReply(nodes=float(len(nodes)), generated=float(len(features)))

    def install_mended(self, mended: Mended | None) -> None:
        """Train and predict on the graph with these generated nodes from now on."""
        self.mended = mended
        self._tensors = {}
        self.trainer.objective = self.objective_on(self.mended_tensors(self.data))

    @property
    def can_be_offloaded(self) -> bool:
        return self.neighgen is None  # the generator is in no state: it lives between two steps of set-up

    def release(self) -> None:
        for tensors in self._tensors.values():
            tensors.clear()

    def _same_nodes(self, graph: object) -> bool:
        own = self.silo.graph
        if graph is own:
            return True
        return (
            graph is self.silo.seen.graph
            and isinstance(graph, Graph)
            and isinstance(own, Graph)
            and np.array_equal(graph.global_ids, own.global_ids)
        )

    def mended_tensors(self, data: GraphTensors) -> GraphTensors:
        """The client's own graph with its generated neighbours; any other graph as it is."""
        if self.mended is None or not len(self.mended) or not self._same_nodes(data.graph):
            return data
        key = id(data.graph)
        if key not in self._tensors:
            graph = self.mended.graph(data.graph)
            made = self.mended.features.numpy()
            self._tensors[key] = MendedTensors(graph, made, device=self.context.device)
        return self._tensors[key]

    # -- the classifier ----------------------------------------------------------------------------------------------

    no_export = "it generates the missing neighbours of a graph before it scores its nodes"

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        return super().predict(self.mended_tensors(data), view)[: data.num_nodes]

    def embed(self, data: GraphTensors) -> Tensor | None:
        embedded = super().embed(self.mended_tensors(data))
        return None if embedded is None else embedded[: data.num_nodes]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "mended": self._mended_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._load_mended(state["mended"])

    def final_models(self) -> dict[str, Tensors]:
        mended = self._mended_state()
        return {**super().final_models(), **({} if mended is None else {"mended": mended})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self._load_mended(models.get("mended"))

    def _mended_state(self) -> dict[str, Tensor] | None:
        return None if self.mended is None else self.mended.state()

    def _load_mended(self, state: Mapping[str, Tensor] | None) -> None:
        if state is None:
            if self.mended is not None:
                self.install_mended(None)
            return
        if self.mended is None or not are_equal(self.mended.state(), state):
            self.install_mended(Mended(**state))

    def count_trained(self) -> int:
        """With the generator, which is put away once the graph is mended."""
        made = self.make_neighgen()
        beside = 0 if made is None else sum(weight.numel() for weight in made.weights.values())
        return super().count_trained() + beside

    def study(self) -> Mapping[str, Any]:
        """What was generated against what is missing: see ``mended_graph.study``."""
        if self.mended is None:
            return {}
        whole = next((each.graph for each in self.silo.evaluations if each.name == "global"), None)
        return mended_graph.study(self.graph, self.mended, whole if isinstance(whole, Graph) else None)
