"""FedGL's client: pseudo labels and links, of its own model and of what all silos say of shared nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphsilo.errors import ConfigError, MessageError
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Empty, Tensors
from graphsilo.federation.portable import Deciding
from graphsilo.methods import fedavg
from graphsilo.methods.fedgl.config import FedGLConfig
from graphsilo.methods.fedgl.links import add_links, link_alike
from graphsilo.methods.fedgl.messages import Embeddings, Nodes, Predictions, Shared, TrainRequest
from graphsilo.models.view import GraphTensors
from graphsilo.training.objective import ClassifyItems, Objective, Step


class Client(fedavg.Client[FedGLConfig]):
    """Trains on its labels and on pseudo labels, over its links and those between nodes with like embeddings.

    Attributes:
        guesses: [n, C] its predictions after it last renewed them, 0 below the threshold; [0, C] before.
        embedded: [n, p] its embeddings, likewise.
        links: What is added to its graph: ``ends`` [2, e] and ``weights`` [e]; empty: nothing.
        fresh: Whether these are to be made of newer embeddings.
    """

    kept = ("guesses", "embedded", "links", "fresh")

    def __init__(self, context: ClientContext[FedGLConfig]):
        self._linked: tuple[Mapping[str, Tensor], GraphTensors] | None = None
        super().__init__(context)
        config, classes = self.config, self.silo.schema.num_classes
        if config.graph_weight > 0 and not self.model.encoder_names():
            raise ConfigError(
                f"client {self.id}: FedGL compares the embeddings of a hidden layer, and {context.model.name} as it "
                f"is set has no hidden layer: features themselves would leave the client. {self.model.deeper}, or "
                f"leave links out with --set method.graph_weight=0."
            )
        self.guesses = torch.zeros(0, classes, device=context.device)
        self.embedded = torch.zeros(0, self.model.embedding_dim, device=context.device)
        self.links: Mapping[str, Tensor] = MappingProxyType({})
        self.fresh = False

    def objective_on(self, data: GraphTensors) -> Objective:
        everywhere = self.config.strength > 0
        return ClassifyItems(
            data, self.silo, self.item_loss, all_items=everywhere, fan_out=self.fan_out, unless="method.strength=0"
        )

    @handler
    def name_nodes(self, request: Empty) -> Nodes:
        """Say which nodes it holds."""
        ids = self.silo.graph.union.global_ids if self.silo.shares_ids else np.zeros(0)
        return Nodes(ids=torch.from_numpy(np.sort(ids).astype(np.int64)))

    @handler
    def train(self, request: TrainRequest) -> fedavg.TrainReply:  # type: ignore[override]
        """Download, train, upload."""
        return super().train(request)

    def fit(self, request: TrainRequest) -> None:  # type: ignore[override]
        config, strength = self.config, self.config.strength
        if config.graph_weight > 0 and self.fresh:
            self._link(request)
        if self.trainer.objective.data is not self.linked:  # type: ignore[attr-defined]
            self.trainer.objective = self.objective_on(self.linked)
        labels = self.pseudo_labels(request)
        rows = (labels >= 0).nonzero().flatten()
        goal = labels[rows]

        def term(step: Step) -> Tensor:
            return strength * F.cross_entropy(step.logits[rows], goal)

        self.run_epochs(term=term if strength > 0 and len(rows) else None)
        if request.renew and config.supervises:
            self._look()

    def pseudo_labels(self, request: TrainRequest) -> Tensor:
        """[n] pseudo label of each node that has no label to train on; -1 where there is none."""
        labels = labels_of(self.guesses)
        if not len(labels):
            labels = labels.new_full((self.silo.num_items,), -1)
        if request.ids is not None and request.labels is not None:
            labels[self._places(request.ids)] = request.labels.to(labels.device)
        goal = self.trainer.objective
        assert isinstance(goal, ClassifyItems)
        labels[torch.from_numpy(goal.items).to(labels.device)] = -1
        return labels

    def _link(self, request: TrainRequest) -> None:
        """Link nodes with like embeddings: shared ones by their mean over silos."""
        rows = self.embedded.clone()
        if request.ids is not None and request.embeddings is not None:
            rows[self._places(request.ids)] = request.embeddings.to(rows)
        self.links, self.fresh = link_alike(rows, self.config.neighbours, self.config.graph_weight), False

    def _places(self, ids: Tensor) -> Tensor:
        """[m] rows of nodes that it shares."""
        if not self.silo.shares_ids:
            raise MessageError(f"client {self.id} calls its nodes by ids of its own, and shares none.")
        return torch.from_numpy(self.silo.graph.union.rows_of(ids.numpy())).to(self.context.device)

    @torch.no_grad()
    def _look(self) -> None:
        """Predict and embed all nodes with the trained model."""
        found = self.model.outputs(self.linked.full)
        guesses = torch.softmax(found.logits, 1)
        self.guesses = guesses * (guesses >= self.config.threshold)
        self.embedded, self.fresh = found.embeddings, True

    @handler
    def tell_predictions(self, request: Shared) -> Predictions:
        """What the trained model predicts of shared nodes."""
        return Predictions(ids=request.ids, rows=self._count(self.guesses[self._places(request.ids)]))

    @handler
    def tell_embeddings(self, request: Shared) -> Embeddings:
        """How the trained model embeds shared nodes."""
        return Embeddings(ids=request.ids, rows=self._count(self.embedded[self._places(request.ids)]))

    def _count(self, rows: Tensor) -> Tensor:
        return self.weight * F.pad(rows, (0, 1), value=1.0)

    @property
    def linked(self) -> GraphTensors:
        """Tensors of its graph with the links that were added."""
        if not len(self.links):
            return self.data
        if self._linked is None or self._linked[0] is not self.links:
            self.release()
            graph = self.silo.graph.union
            self._linked = self.links, GraphTensors(add_links(graph, self.links), device=self.context.device)
        return self._linked[1]

    def _choose_tensors(self, data: GraphTensors) -> GraphTensors:
        return self.linked if data.graph is self.silo.graph else data

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        return super().predict(self._choose_tensors(data), view)

    def network_of(self, view: str) -> Deciding | None:
        return super().network_of(view)  # only of the own graph more is known

    def embed(self, data: GraphTensors) -> Tensor | None:
        return super().embed(self._choose_tensors(data))

    def final_models(self) -> dict[str, Tensors]:
        return {**super().final_models(), **({"links": self.links} if len(self.links) else {})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self.links = models.get("links", {})

    def release(self) -> None:
        if self._linked is not None:
            self._linked[1].clear()


def labels_of(probabilities: Tensor) -> Tensor:
    """[n] class of the largest probability [n, C]; -1 where all are 0."""
    best, label = probabilities.max(1)
    return torch.where(best > 0, label, -1)
