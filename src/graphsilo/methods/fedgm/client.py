"""FedGM's client: condenses its graph, and says class gradients on networks that it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.evaluate.choice import Judge
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.candidates import Candidates
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Empty, Tensors
from graphsilo.federation.portable import Deciding
from graphsilo.methods.fedgm.config import FedGMConfig
from graphsilo.methods.fedgm.messages import CondensedGraph, GradientReply, GradientRequest, ModelRequest, ScoreRequest
from graphsilo.models.base import borrow
from graphsilo.models.view import GraphTensors
from graphsilo.training.condensation import check_pairs
from graphsilo.training.local import check_weights, load_weights, tensors_of
from graphsilo.training.matching import ClassItems, Layers, match_gradients


class Client(ClientBase[FedGMConfig]):
    """Sends its condensed graph once, and class gradients in each round after the first.

    Attributes:
        model: The server's, as it was last received.
        weights: Its parameters and float buffers by name.
    """

    stateful = ("model",)

    def __init__(self, context: ClientContext[FedGMConfig]):
        super().__init__(context)
        self.model = self.build_model()
        self.weights = tensors_of(self.model)
        self._aggregate: Tensors = {}

    # -- condensed nodes -----------------------------------------------------------------------------------------

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """[n'] classes of the condensed nodes, ascending."""
        return condensed_labels(self.silo.class_counts(), self.config.ratio, self.config.max_nodes)

    @cached_property
    def sizes(self) -> Tensor:
        """[C] condensed nodes of each class."""
        return torch.from_numpy(np.bincount(self.labels, minlength=self.silo.schema.num_classes))

    @handler
    def condense(self, request: Empty) -> CondensedGraph:
        """The condensed graph. Its features begin as noise of the usual size, not as copies of nodes."""
        config, draw, schema = self.config, self.generator("condense"), self.silo.schema
        count = len(self.labels)
        if not count:
            nothing = torch.zeros(0, schema.num_features)
            return CondensedGraph(features=nothing, sizes=self.sizes, links=torch.zeros(0))
        check_pairs(count, config, "method.ratio")
        rows = self.data.graph.features[self.silo.train]
        squares = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=np.float64)
        noise = torch.randn(count, schema.num_features, generator=draw).mul_(float(np.sqrt(squares.mean())))
        graph = match_gradients(
            self._items, self.labels, noise.to(self.context.device), schema.num_classes, config, draw,
            steps=config.steps, hidden=config.match_hidden,
        )  # fmt: skip
        upper = torch.triu_indices(count, count, 1)
        links = graph.adjacency[upper[0], upper[1]]
        return CondensedGraph(features=graph.features, sizes=self.sizes, links=links if links.any() else links[:0])

    @handler
    def gradients(self, request: GradientRequest) -> GradientReply:
        """The gradients of the classes that have condensed nodes here."""
        network = Layers(**request.network).to(self.context.device)
        totals = {name: torch.zeros(len(self.sizes), *layer.shape) for name, layer in request.network.items()}
        for items in self._items(self.generator("items")):
            for name, slope in items.gradients(network)._asdict().items():
                totals[name][items.number] = self.sizes[items.number] * slope.cpu()
        return GradientReply(gradients=totals, sizes=self.sizes)

    def _items(self, draw: torch.Generator) -> list[ClassItems]:
        """Training nodes of each class that has condensed nodes."""
        return [self._of_class(number, draw) for number in self.sizes.nonzero().flatten().tolist()]

    def _of_class(self, number: int, draw: torch.Generator) -> ClassItems:
        train, most = self.silo.train, self.config.class_items
        items = train[self.silo.labels[train] == number]
        if len(items) <= most:
            return self.data.cached(("class items", number), lambda: ClassItems(number, self.data.kept_view(items)))
        some = torch.randperm(len(items), generator=draw)[:most].numpy()
        return ClassItems(number, self.data.view(items[some]))

    # -- the model -----------------------------------------------------------------------------------------------

    @handler
    def score(self, request: ScoreRequest) -> Candidates:
        """What the own validation nodes say of each model."""
        items, classes = self.silo.labelled_validation(), self.silo.schema.num_classes
        data, outputs = self.tensors(self.silo.seen.graph), []
        for place in range(*request.count_models()):
            weights = {name: models[place].to(data.device) for name, models in request.candidates.items()}
            check_weights(self.weights, weights)
            with torch.no_grad(), borrow(self.weights, weights):
                found = self.model(data.kept_view(items)) if len(items) else torch.zeros(0, classes)
            outputs.append(found.cpu().numpy())
        judge = Judge(METRICS[self.context.select_by], self.silo.seen.graph.labels[items])
        return Candidates.from_outputs(judge, outputs, classes)

    @handler
    def adopt(self, request: ModelRequest) -> Done:
        """Take the server's model."""
        load_weights(self.weights, request.weights)
        return Done(clients=1)

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        with torch.no_grad(), borrow(self.weights, self._aggregate if view == "aggregate" else {}):
            logits: Tensor = self.model(data.full)
        return logits

    def network_of(self, view: str) -> Deciding | None:
        return Deciding(self.model, {**self.weights, **((self._aggregate or {}) if view == "aggregate" else {})})

    def embed(self, data: GraphTensors) -> Tensor | None:
        return self.model.embed(data.full)

    def install_aggregate(self, weights: Tensors) -> None:
        check_weights(self.weights, weights)
        self._aggregate = {name: tensor.to(self.context.device) for name, tensor in weights.items()}

    def final_models(self) -> dict[str, Tensors]:
        return {"own": self.weights}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        load_weights(self.weights, models["own"])


def condensed_labels(counts: NDArray[np.int64], ratio: float, most: int) -> NDArray[np.int64]:
    """[n'] classes of the condensed nodes: ⌊ρ n_c⌋ of each class, and of the largest what is missing to ⌊ρ n⌋.

    One at least, where there is a training node.

    Args:
        counts: [C] training nodes.
        ratio: ρ, of which so much is taken that there are not more than ``most``.
        most: Bound of n'.

    Example:
        >>> condensed_labels(np.array([20, 3, 9]), 0.25, 100).tolist()
        [0, 0, 0, 0, 0, 0, 2, 2]
    """
    ratio = min(ratio, most / max(counts.sum(), 1))
    # Rounded first: 0.29 · 100 is a little less than 29 in binary.
    *sizes, total = np.floor(np.round(ratio * np.append(counts, counts.sum()), 9)).astype(np.int64)
    sizes[counts.argmax()] += max(total, int(counts.any())) - sum(sizes)
    return np.repeat(np.arange(len(counts)), sizes)
