"""FairFGL's server: aggregates by clusters of clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fairfgl.client import Client
from graphsilo.methods.fairfgl.clusters import cluster
from graphsilo.methods.fairfgl.config import FairFGLConfig
from graphsilo.methods.fairfgl.messages import TrainReply, TrainRequest
from graphsilo.methods.fairfgl.updates import (
    SparseUpdate,
    expand,
    gram,
    most_dissimilar,
)
from graphsilo.random import derive_seed
from graphsilo.types import ClientId


class Server(ServerBase[FairFGLConfig]):
    """Clusters the updates, gives each cluster the same say, and passes each client its opposite's update."""

    kept = ("weights", "deviated", "updates")

    def __init__(self, context: ServerContext[FairFGLConfig]):
        super().__init__(context)
        self.weights = self.first_weights()
        self.deviated: dict[ClientId, ClientId] = {}
        self.updates: dict[ClientId, dict[str, Tensor | None]] = {}

    def round(self, federation: Federation, number: int) -> None:
        chosen = self.select(federation, number)
        total = sum(tensor.numel() for tensor in self.weights.values())
        rows: dict[ClientId, Tensor] = {}

        def expand_reply(client: ClientId, reply: TrainReply) -> None:
            rows[client] = expand(SparseUpdate(reply.values, reply.positions, reply.bitmap), total)

        replies = federation.ask(Client.train, self._requests(chosen), check=expand_reply)
        replies.require(self.config.min_clients)
        self.deviated, self.updates = {}, {}
        answers = {client: reply for client, reply in replies if reply.num_samples > 0}
        if not answers:  # nobody had anything to train on, and the model stays
            return
        sent = {client: SparseUpdate(reply.values, reply.positions, reply.bitmap) for client, reply in answers.items()}
        updates = torch.stack([rows[client] for client in sent])
        needed = self.config.clustering or self.config.correction
        products = gram(updates) if needed else np.zeros((len(updates), len(updates)))
        self._aggregate(updates, products, [reply.num_samples for reply in answers.values()], number)
        if self.config.correction:
            clients = list(sent)
            opposite = most_dissimilar(products)
            self.deviated = {
                client: clients[place] for client, place in zip(clients, opposite.tolist(), strict=True) if place >= 0
            }
            self.updates = {client: sent[client]._asdict() for client in sorted(set(self.deviated.values()))}
        self.log["kept"] = sum(len(update.values) for update in sent.values()) / (len(sent) * total)

    def _requests(self, chosen: Sequence[ClientId]) -> dict[ClientId, TrainRequest]:
        """One message per client; those with the same opposite share one."""
        made: dict[ClientId | None, TrainRequest] = {}
        for client in chosen:
            other = self.deviated.get(client)
            if other not in made:
                update = {} if other is None else self.updates[other]
                deviated = {f"deviated_{name}": part for name, part in update.items()}
                made[other] = TrainRequest(weights=self.weights, **deviated)
        return {client: made[self.deviated.get(client)] for client in chosen}

    def _aggregate(self, updates: Tensor, products: NDArray[np.float64], samples: Sequence[float], number: int) -> None:
        """W += η Σ_clusters (the weighted mean of the cluster's updates), summed in float64."""
        labels = np.zeros(len(updates), dtype=np.int64)
        count = 1
        if self.config.clustering:
            seed = derive_seed(self.context.seed, "server", "round", number, "cluster") % 2**32
            labels, count, silhouette = cluster(products, seed=seed)
            if silhouette is not None:
                self.log["silhouette"] = silhouette
        self.log["clusters"] = float(count)
        weights = np.asarray(samples, dtype=np.float64)
        factor = 1.0 / count if self.config.eta is None else self.config.eta
        share = factor * weights / np.bincount(labels, weights, minlength=count)[labels]
        change = torch.zeros(updates.shape[1], dtype=torch.float64)
        for row, part in zip(updates, share.tolist(), strict=True):
            change.add_(row, alpha=part)
        parts = change.split([tensor.numel() for tensor in self.weights.values()])
        self.weights = {
            name: (old.double() + part.view(old.shape).to(old.device)).to(old.dtype)
            for (name, old), part in zip(self.weights.items(), parts, strict=True)
        }

    def aggregate(self) -> Tensors | None:
        return self.weights
