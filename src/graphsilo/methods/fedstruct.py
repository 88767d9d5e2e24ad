"""FedStruct — FedAvg of a model on each silo's graph plus an MLP on where in the whole graph each node stands.

Aliakbari, Östman, Graell i Amat. "Decoupled Subgraph Federated Learning". ICLR 2025.

A node's logits are the sum of two: of a backbone on the silo's own graph, and of an MLP on a vector that says where in
the whole graph the node stands. Here these vectors are random signs of all nodes, averaged along the links of all
silos before round 1; models are averaged as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.borders import check_border, check_cut, values_beyond
from graphsilo.federation.client import ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Done, Empty, Message, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.settings import ABOVE_ZERO, setting
from graphsilo.federation.structured import StructuredClient, StructuredServer
from graphsilo.methods import fedavg
from graphsilo.settings import WIDEST
from graphsilo.training.label_propagation import without_loops
from graphsilo.training.prototypes import unit_rows
from graphsilo.types import ClientId


class FedStructConfig(fedavg.FedAvgConfig):
    """Settings of FedStruct."""

    steps: int = setting(
        10, "how often vectors are averaged over neighbours (L_s); 0 does without them, and is FedAvg",
        source="authors' code on Cora and PubMed; 20 on CiteSeer, 1 on Chameleon", ge=0, le=100,
    )  # fmt: skip
    width: int = setting(
        256, "numbers in a node's vector (q)", source="paper", ge=1, le=WIDEST, when={"steps": ABOVE_ZERO}
    )
    structure_hidden: int = setting(
        64, "width of the hidden layer of the MLP on vectors", source="authors' code, of features", ge=1, le=WIDEST,
        when={"steps": ABOVE_ZERO},
    )  # fmt: skip
    structure_dropout: float = setting(
        0.5, "share of that layer set to 0 in training", source="authors' code", ge=0, lt=1, when={"steps": ABOVE_ZERO}
    )

    @property
    def beside(self) -> tuple[int, int, float] | None:
        """Width of vectors, of the MLP's hidden layer, and its dropout."""
        return (self.width, self.structure_hidden, self.structure_dropout) if self.steps else None

    @property
    def single_answers(self) -> str:
        return "which nodes every client has links to, and what it adds to their vectors" if self.steps else ""


class Border(Message):
    """Which nodes the links between silos join, by the ids that silos know them by.

    Attributes:
        own: Own nodes with links to other silos.
        beyond: The nodes at the other ends.
    """

    own: Tensor = sends("topology", dtype=torch.int64, shape=("own",))
    beyond: Tensor = sends("topology", dtype=torch.int64, shape=("beyond",))

    def check(self) -> None:
        check_border(self)


class Present(Message):
    """Which nodes beyond the border a silo that takes part has: 1, or 0."""

    present: Tensor = sends("topology", dtype=torch.int64, shape=("beyond",))


class Sums(Message):
    """Σ_u z_u over own nodes u that are linked to v, for nodes v beyond the border."""

    ids: Tensor = sends("topology", dtype=torch.int64, shape=("nodes",))
    rows: Tensor = sends("statistic", shape=("nodes", "width"), per_class=False, compared=False)

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        largest = float(self.rows.abs().max()) if self.rows.numel() else 0.0
        if largest > items * (1 + 1e-5):  # means of signs are at most 1
            raise MessageError(f"sums over {items:g} nodes are at most that; {largest:.4g} came.")


class Totals(Message):
    """The same over all silos' nodes, for the nodes of the border."""

    sums: Tensor = sends("statistic", shape=("border", "width"))


class Held(NamedTuple):
    """What a client knows of links.

    Attributes:
        inside: [n, n] between own nodes, a loop at each included.
        across: [n, m] to the nodes beyond the border.
        border: Own nodes with links to other silos, by ascending id.
        own: Their ids.
        beyond: Ids of the nodes beyond, ascending.
    """

    inside: sp.csr_matrix
    across: sp.csr_matrix
    border: NDArray[np.int64]
    own: Tensor
    beyond: Tensor


class Client(StructuredClient[FedStructConfig], fedavg.Client[FedStructConfig]):
    """Averages vectors with its neighbours, then trains.

    Attributes:
        present: Which nodes beyond the border have a silo; None before anybody said.
        vectors: z [n, q] on their way; None before and behind.
        structure: z [n, q] after all steps, of unit rows; None before.
    """

    kept = ("present", "vectors", "structure")

    def __init__(self, context: ClientContext[FedStructConfig]):
        super().__init__(context)
        self.present: Tensor | None = None
        self.vectors: Tensor | None = None
        if self.config.steps:
            check_cut(self.silo, "fedstruct", "FedStruct passes vectors of nodes on", "steps")

    @property
    def beside(self) -> tuple[int, int, float] | None:
        return self.config.beside

    @cached_property
    def held(self) -> Held:
        """What is known before anything was exchanged."""
        cut, graph = self.silo.cut, self.silo.graph.union
        assert cut is not None
        border, beyond = np.unique(cut.node), np.unique(cut.other)
        border = border[np.argsort(cut.ids[border])]
        ends = cut.node, np.searchsorted(beyond, cut.other)
        inside = sp.csr_matrix(without_loops(graph.adjacency()) + sp.eye(graph.num_nodes), dtype=np.float32)
        across = sp.csr_matrix((np.ones(len(cut.node), np.float32), ends), (graph.num_nodes, len(beyond)))
        return Held(inside, across, border, torch.from_numpy(cut.ids[border]), torch.from_numpy(beyond))

    @handler
    def border(self, request: Empty) -> Border:
        """Name the nodes that links to other silos join."""
        return Border(own=self.held.own, beyond=self.held.beyond)

    @handler
    def begin(self, request: Present) -> Sums:
        """Draw a vector of signs for each own node."""
        self.present = request.present.clone()
        signs = torch.randint(2, (self.silo.num_items, self.config.width), generator=self.generator("vectors"))
        self.vectors = signs.float().mul_(2).sub_(1)
        return self._sums()

    @handler
    def walk(self, request: Totals) -> Sums:
        """Average every vector with those of the neighbours."""
        self.vectors = self._average(request.sums)
        return self._sums()

    @handler
    def arrive(self, request: Totals) -> Done:
        """The same for the last time. Averages of signs shrink by how far they come: only directions are kept."""
        self.structure, self.vectors = unit_rows(self._average(request.sums)), None
        return Done(clients=1)

    def _there(self) -> NDArray[np.bool_]:
        """Which nodes beyond the border take part."""
        if self.present is None or self.vectors is None:
            raise MessageError("vectors are passed on before they were drawn.")
        there: NDArray[np.bool_] = self.present.cpu().numpy() > 0
        return there

    def _sums(self) -> Sums:
        there = self._there()
        rows = self.held.across[:, there].T @ self.vectors.cpu().numpy()  # type: ignore[union-attr]
        return Sums(ids=self.held.beyond[torch.from_numpy(there)], rows=torch.from_numpy(np.ascontiguousarray(rows)))

    def _average(self, totals: Tensor) -> Tensor:
        """The mean of z over each node, its neighbours here, and those elsewhere, whose sum is given."""
        held, there = self.held, self._there()
        rows = held.inside @ self.vectors.cpu().numpy()  # type: ignore[union-attr]
        if totals.shape != (len(held.border), rows.shape[1]):
            raise MessageError(f"sums for {len(held.border)} nodes of the border were wanted; {len(totals)} came.")
        rows[held.border] += totals.cpu().numpy()
        count = np.asarray(held.inside.sum(1) + held.across[:, there].sum(1), dtype=np.float32)
        return torch.from_numpy(rows / count)


class Server(StructuredServer[FedStructConfig], fedavg.Server[FedStructConfig]):
    """Passes on sums of vectors, then averages models."""

    @property
    def beside(self) -> tuple[int, int, float] | None:
        return self.config.beside

    def set_up(self, federation: Federation) -> None:
        if not self.config.steps:
            return
        borders = dict(federation.ask(Client.border, Empty()).require(self.config.min_clients))
        lost: AbstractSet[ClientId] = borders.keys()
        while lost:
            # What others' vectors have of who was lost they have in part: once more without.
            lost = self._pass_on(federation, borders)
            borders = {client: border for client, border in borders.items() if client not in lost}

    def _pass_on(self, federation: Federation, borders: Mapping[ClientId, Border]) -> AbstractSet[ClientId]:
        """All steps among these clients, up to one in which some were lost: these."""
        minimum = self.config.min_clients
        present = values_beyond(borders, {client: torch.ones_like(border.own) for client, border in borders.items()})
        requests: Any = {client: Present(present=found) for client, found in present.items()}
        for step in range(self.config.steps):
            asked: Any = Client.walk if step else Client.begin
            totals = federation.sum_rows(asked, requests, width=self.config.width).require(minimum)
            if len(totals.clients) < len(borders):
                return borders.keys() - set(totals.clients)
            requests = {client: Totals(sums=totals.of(border.own)) for client, border in borders.items()}
        federation.sum(Client.arrive, requests).require(minimum)
        return frozenset()


METHOD = Method(
    about=__doc__,
    name="fedstruct",
    family="missing neighbours",
    config=FedStructConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    evaluates=("aggregate", "own"),
    model={"name": "appnp", "hops": 2, "alpha": 0.0},
    cut_links=True,
    trials={
        "steps": Trial([1, 2]),
    },
    reduces_to=("fedavg", {"steps": 0}),
)
