"""FedGCN's client: its share of everybody's sums, and a model on the totals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.errors import ConfigError
from graphsilo.federation.borders import check_cut
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import handler
from graphsilo.federation.message import Done, Tensors
from graphsilo.federation.portable import Deciding
from graphsilo.methods import fedavg
from graphsilo.methods.fedgcn.config import FedGCNConfig
from graphsilo.methods.fedgcn.messages import Border, Degrees, Empty, Sums, Totals
from graphsilo.models.given import GivenTensors
from graphsilo.models.hops import dense_if_filled
from graphsilo.models.view import GraphTensors, Matrix
from graphsilo.training.label_propagation import without_loops
from graphsilo.training.objective import ClassifyItems


class Held(NamedTuple):
    """The nodes that a client knows of, own ones first and then those beyond the border."""

    adjacency: sp.coo_matrix  # [m, m] links with an own end, and a loop at each node
    degrees: NDArray[np.int64]  # [n] of own nodes in the whole graph, with the loop
    border: NDArray[np.int64]  # own nodes with links to other silos, by ascending id
    ids: Tensor  # of the border, then of the nodes beyond it


class Client(fedavg.Client[FedGCNConfig]):
    """Trains a GCN whose first propagation is that of the whole graph."""

    def __init__(self, context: ClientContext[FedGCNConfig]):
        super().__init__(context)
        self._sums: dict[str, Tensor] = {}  # degrees beyond the border, then totals
        self._given: GivenTensors | None = None
        if self.config.hops and self.fan_out:
            raise ConfigError(
                "method.fan_out samples neighbours, and FedGCN has exact sums over all of them. "
                "Use fan_out=0, or hops=0."
            )
        if self.config.hops:
            check_cut(self.silo, "fedgcn", "FedGCN adds up neighbours", "hops")

    @property
    def graph(self) -> Graph:
        """The graph that is trained on and scored."""
        assert isinstance(self.silo.graph, Graph)
        return self.silo.graph

    @cached_property
    def held(self) -> Held:
        """What is known before anything was exchanged."""
        cut, count = self.silo.cut, self.graph.num_nodes
        assert cut is not None
        inside = without_loops(self.graph.adjacency()).tocoo()
        border, beyond = np.unique(cut.node), np.unique(cut.other)
        border = border[np.argsort(cut.ids[border])]
        far, size = count + np.searchsorted(beyond, cut.other), count + len(beyond)
        loops = np.arange(size)
        row = np.concatenate([inside.row, loops, cut.node, far])
        column = np.concatenate([inside.col, loops, far, cut.node])
        adjacency = sp.coo_matrix((np.ones(len(row)), (row, column)), (size, size))
        degrees = np.bincount(row, minlength=size)[:count]
        return Held(adjacency, degrees, border, torch.from_numpy(np.concatenate([cut.ids[border], beyond])))

    @handler
    def border(self, request: Empty) -> Border:
        """Name the nodes that links to other silos join."""
        inside = len(self.held.border)
        degrees = torch.from_numpy(self.held.degrees[self.held.border])
        return Border(own=self.held.ids[:inside], degrees=degrees, beyond=self.held.ids[inside:])

    @handler
    def sums(self, request: Degrees) -> Sums:
        """Add up what own nodes contribute to the nodes of the border and beyond it."""
        self._sums = {"degrees": request.degrees.clone()}
        count = self.silo.num_items
        order = self.held.ids.argsort()
        nodes = np.concatenate([self.held.border, np.arange(count, self.held.adjacency.shape[0])])[order.numpy()]
        rows: Any = self._normalise()[nodes][:, :count] @ self.graph.features
        dense = rows.toarray() if hasattr(rows, "toarray") else rows
        return Sums(ids=self.held.ids[order], rows=torch.from_numpy(dense))

    @handler
    def install(self, request: Totals) -> Done:
        """Take everybody's sums: from now on the first layer is made of them."""
        self._take({**self._sums, "totals": request.rows.clone()})
        return Done(clients=1)

    def _normalise(self) -> sp.csr_matrix:
        """[m, m] Â with degrees of the whole graph; a node whose degree nobody says counts for nothing."""
        degrees = np.concatenate([self.held.degrees, self._sums["degrees"].numpy()]).astype(np.float64)
        root = np.divide(1.0, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)
        links = self.held.adjacency
        values = (root[links.row] * root[links.col]).astype(np.float32)
        return sp.csr_matrix((values, (links.row, links.col)), links.shape)

    def _take(self, sums: Mapping[str, Tensor]) -> None:
        """Own sums where all neighbours are own, totals elsewhere."""
        self._sums = dict(sums)
        if "totals" not in sums:
            return
        count, totals = self.silo.num_items, sums["totals"].numpy()
        known = np.concatenate([self.held.border, count + np.arange(len(totals) - len(self.held.border))])
        size = count + len(known) - len(self.held.border)
        matrix = self._normalise()[:size, :size]
        others = sp.diags(np.isin(np.arange(size), known, invert=True).astype(np.float32))
        places = sp.csr_matrix((np.ones(len(known), np.float32), (known, np.arange(len(known)))), (size, len(known)))
        own: Matrix = (others @ matrix[:, :count]) @ self.graph.features
        added = places @ (sp.csr_matrix(totals) if sp.issparse(own) else totals)
        rows = dense_if_filled(sp.csr_matrix(own + added)) if sp.issparse(own) else own + added
        self._given = GivenTensors(matrix, rows, count, self.silo.schema.num_classes, self.context.device)
        self.trainer.objective = ClassifyItems(self._given, self.silo, self.item_loss)

    def _choose_tensors(self, data: GraphTensors) -> GraphTensors:
        return data if self._given is None or data.graph is not self.silo.graph else self._given

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        return super().predict(self._choose_tensors(data), view)

    def network_of(self, view: str) -> Deciding | None:
        return super().network_of(view)  # only of the own graph more is known

    def embed(self, data: GraphTensors) -> Tensor | None:
        return super().embed(self._choose_tensors(data))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "sums": dict(self._sums)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._take(state["sums"])

    def final_models(self) -> dict[str, Tensors]:
        return {**super().final_models(), **({"sums": self._sums} if self._given else {})}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        super().load_final(models)
        self._take(models.get("sums", {}))

    def release(self) -> None:
        if self._given is not None:
            self._given.clear()
