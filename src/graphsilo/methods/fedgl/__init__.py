"""FedGL — FedAvg that also learns from what silos predict of nodes that several of them hold, and links like nodes.

Chen, Xu, Hu, Zheng, Zhang. "FedGL: Federated Graph Learning Framework with Global Self-Supervision". Information
Sciences 657, 2024 (arXiv 2105.03170).

FedAvg whose clients also learn from what is predicted of nodes without a label. Of a node in several silos the server
averages what these predict of it and how they embed it: the average is its pseudo label, and nodes with like embeddings
are linked. A node in one silo has that silo's own prediction and embedding, which need not leave it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphsilo.federation.interface import Federation, RowTotal
from graphsilo.federation.message import Empty
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedavg
from graphsilo.methods.fedgl.client import Client, labels_of
from graphsilo.methods.fedgl.config import FedGLConfig
from graphsilo.methods.fedgl.messages import Shared, TrainRequest
from graphsilo.types import ClientId


class Server(fedavg.Server[FedGLConfig]):
    """Averages models, and what silos say of the nodes that they share.

    Attributes:
        shared: The ids of the nodes that each client shares, ascending; of those that share any.
        ids: [M] all of these.
        labels: [M] pseudo labels; -1 where there is none.
        embeddings: [M, p] mean embeddings.
        described: [M] whether anybody has said something of the node.
        renewed: Who has trained: whoever has not has nothing to go on learning from, and renews whatever the round.
    """

    client = Client
    kept = (*fedavg.Server.kept, "shared", "ids", "labels", "embeddings", "described", "renewed")

    def __init__(self, context: ServerContext[FedGLConfig]):
        super().__init__(context)
        self.shared: dict[ClientId, Tensor] = {}
        self.ids = self.labels = torch.zeros(0, dtype=torch.int64)
        self.embeddings = torch.zeros(0, self.build_model().embedding_dim)
        self.described = torch.zeros(0, dtype=torch.bool)
        self.renewed: list[ClientId] = []
        self.renews = True

    def set_up(self, federation: Federation) -> None:
        if not self.config.single_answers:
            return
        replies = federation.ask(Client.name_nodes, Empty()).require(self.config.min_clients)
        ids, holders = torch.cat([reply.ids for _, reply in replies]).unique(return_counts=True)
        self.ids = ids[holders > 1]
        mine = {client: reply.ids[torch.isin(reply.ids, self.ids)] for client, reply in replies}
        self.shared = {client: held for client, held in mine.items() if len(held)}
        self.labels = self.ids.new_full((len(self.ids),), -1)
        self.embeddings = torch.zeros(len(self.ids), self.embeddings.shape[1])
        self.described = torch.zeros(len(self.ids), dtype=torch.bool)

    def round(self, federation: Federation, number: int) -> None:
        every = self.config.renew_every
        self.renews = number == 1 or (every > 0 and (number - 1) % every == 0)
        super().round(federation, number)

    def collect(self, federation: Federation, clients: Sequence[ClientId]) -> fedavg.TrainReply:
        renewing = [client for client in clients if self.renews or client not in self.renewed]
        common = {renew: TrainRequest(weights=self.weights, renew=renew) for renew in (True, False)}
        requests = {
            client: self._request(client, client in renewing) if client in self.shared else common[client in renewing]
            for client in clients
        }
        total = federation.sum(Client.train, requests, to=clients)
        model = total.require(self.config.min_clients)
        done = [client for client in renewing if client in total.clients]
        self.renewed += [client for client in done if client not in self.renewed]
        if holders := [client for client in done if client in self.shared]:
            self.average(federation, holders)
        return model

    def _request(self, client: ClientId, renew: bool) -> TrainRequest:
        """With what is known of the client's shared nodes."""
        places, config = torch.searchsorted(self.ids, self.shared[client]), self.config
        return TrainRequest(
            weights=self.weights,
            renew=renew,
            ids=self.shared[client],
            labels=self.labels[places] if config.strength > 0 else None,
            embeddings=self.embeddings[places] if config.graph_weight > 0 else None,
        )

    def average(self, federation: Federation, holders: Sequence[ClientId]) -> None:
        """Take the means over these clients; of what none of them holds they stay as they are.

        Between two renewals nothing is replaced: clients that train for the first time speak of what nobody has.
        """
        asked = {client: Shared(ids=self.shared[client]) for client in holders}
        free = torch.ones_like(self.described) if self.renews else ~self.described
        if self.config.strength > 0:
            found = federation.sum_rows(Client.tell_predictions, asked, width=self.schema.num_classes + 1)
            rows, known = self._means(found)
            self.labels[known & free] = labels_of(rows)[free[known]]
            self.described |= known
            self.log["pseudo_labels"] = float((self.labels >= 0).double().mean())
        if self.config.graph_weight > 0:
            found = federation.sum_rows(Client.tell_embeddings, asked, width=self.embeddings.shape[1] + 1)
            rows, known = self._means(found)
            self.embeddings[known & free] = rows[free[known]]
            self.described |= known

    def _means(self, found: RowTotal) -> tuple[Tensor, Tensor]:
        """[k, d] of the nodes that somebody counts for, and which [M] these are."""
        asked, least = len(found.clients) + len(found.failures), self.config.min_clients
        rows = found.require(None if least is None else min(least, asked)).of(self.ids)
        known = rows[:, -1] > 0
        return rows[known, :-1] / rows[known, -1:], known


METHOD = Method(
    about=__doc__,
    name="fedgl",
    family="missing neighbours",
    config=FedGLConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    edge_weights=True,
    space={"strength": [0.1, 0.3, 1.0], "graph_weight": [0.0, 0.1, 1.0]},
    trials={
        "fan_out": Trial([1], {"strength": 0.0, "graph_weight": 0.0}),
        "threshold": Trial([0.45], start=0.3),
        "neighbours": Trial([5]),
        "shared": Trial(
            reason="whether silos average what they say of nodes that they share; a cut has such nodes or not"
        ),
    },
    reduces_to=("fedavg", {"strength": 0.0, "graph_weight": 0.0, "weight_by": "train"}),
)
