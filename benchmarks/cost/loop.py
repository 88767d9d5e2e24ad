"""FedAvg as anybody would write it in torch: the gate's fixed point. It is not to be made faster.

Two graph convolutions, full-batch Adam, the clients one after the other, means of weights by training nodes, and the
accuracy of every client's own model after each round. No messages, no codec, no ledger.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Silo


def sparse(matrix: Any) -> Tensor:
    """A scipy matrix as a sparse tensor of torch's."""
    rows = matrix.tocsr().astype(np.float32)
    parts = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
    starts, columns, values = (torch.from_numpy(part) for part in parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the format may change
        return torch.sparse_csr_tensor(starts, columns, values, size=rows.shape)


class Convolutions(nn.Module):
    """Two layers of Â H W + b, with ReLU and dropout between them.

    Args:
        features, hidden, classes: Widths.
    """

    def __init__(self, features: int, hidden: int, classes: int):
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, classes)

    def forward(self, graph: Tensor, features: Tensor) -> Tensor:
        """[n, classes] logits from Â [n, n] and X [n, features], both sparse."""
        hidden: Tensor = torch.sparse.mm(graph, torch.sparse.mm(features, self.first.weight.t())) + self.first.bias
        hidden = functional.dropout(functional.relu(hidden), 0.5, self.training)
        logits: Tensor = torch.sparse.mm(graph, hidden @ self.second.weight.t()) + self.second.bias
        return logits


class PlainClient:
    """One client's tensors, model and optimiser.

    Args:
        silo: Its data.
        hidden: Width of the hidden layer.
    """

    def __init__(self, silo: Silo, hidden: int = 64):
        graph = silo.graph
        assert isinstance(graph, Graph)
        count = graph.num_nodes
        links = sp.csr_matrix((np.ones(graph.edges.shape[1], np.float32), tuple(graph.edges)), shape=(count, count))
        links = links + sp.eye(count, dtype=np.float32)
        scale = sp.diags(1.0 / np.sqrt(np.asarray(links.sum(1)).ravel()))
        self.graph = sparse(scale @ links @ scale)
        self.features = sparse(sp.csr_matrix(graph.features))
        self.labels = torch.from_numpy(graph.labels)
        self.train = torch.from_numpy(silo.train)
        self.scored = {name: torch.from_numpy(items) for name, items in silo.seen.items.items()}
        self.model = Convolutions(silo.schema.num_features, hidden, silo.schema.num_classes)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)

    def fit(self, epochs: int) -> None:
        """Local epochs over all training nodes."""
        self.model.train()
        for _ in range(epochs):
            self.optimizer.zero_grad()
            logits = self.model(self.graph, self.features)
            loss: Any = functional.cross_entropy(logits[self.train], self.labels[self.train])
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> dict[str, float]:
        """Of its own model, on validation and test nodes."""
        self.model.eval()
        right = self.model(self.graph, self.features).argmax(1) == self.labels
        return {name: float(right[items].float().mean()) for name, items in self.scored.items()}


class PlainFedAvg:
    """The loop.

    Args:
        silos: The clients' data.
        epochs: Local epochs per round.
    """

    def __init__(self, silos: Sequence[Silo], epochs: int = 3):
        torch.manual_seed(0)
        self.clients = [PlainClient(silo) for silo in silos]
        counts = torch.tensor([len(client.train) for client in self.clients], dtype=torch.float32)
        self.share = counts / counts.sum()
        self.epochs = epochs
        self._download(self.clients[0].model.state_dict())

    def _download(self, weights: dict[str, Tensor]) -> None:
        for client in self.clients:
            client.model.load_state_dict(weights)

    def round(self) -> float:
        """Train, score, average; returns the mean test accuracy."""
        for client in self.clients:
            client.fit(self.epochs)
        scores = [client.accuracy()["test"] for client in self.clients]
        states = [client.model.state_dict() for client in self.clients]
        mean = {
            name: sum((share * state[name] for share, state in zip(self.share, states, strict=True)), torch.zeros(()))
            for name in states[0]
        }
        self._download(mean)
        return sum(scores) / len(scores)
