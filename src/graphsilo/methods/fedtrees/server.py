"""FedTrees' server: adds up, finds edges and splits, and hands the forest out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from graphsilo.errors import FederationError
from graphsilo.evaluate.choice import describe_choice, rate_candidates
from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.interface import Federation
from graphsilo.federation.message import Tensors
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.methods.fedtrees import bins, forest
from graphsilo.methods.fedtrees.client import Client
from graphsilo.methods.fedtrees.config import FedTreesConfig
from graphsilo.methods.fedtrees.directions import PASSES, directions_of, first_basis, next_basis
from graphsilo.methods.fedtrees.messages import (
    AdoptRequest,
    CellsRequest,
    CountRequest,
    DirectionsRequest,
    HistogramRequest,
    MomentsRequest,
    StartRequest,
)
from graphsilo.types import CLASS_TASKS, ClientId


class Server(ServerBase[FedTreesConfig]):
    """Adds up, finds edges and splits, and hands the forest out.

    Attributes:
        forest: The common one.
        edges: [p, bins - 1] between the bins of the columns.
        scale: Steps of a gradient of 1.
        largest: Steps of the largest gradient that a node can have.
        class_weights: [C].
        directions: [d, k] what wide features are projected onto; k = 0 where they are not.
        begun: Who has these, the edges, and where the forest begins, as far as is known.
        current: Who has the first trees.
        given: How many these are: all, but while one grows.
        preferred: Number of the kind of forest that all silos' validation nodes together liked best.
    """

    kept = ("forest", "edges", "scale", "largest", "class_weights", "directions", "given", "preferred")

    def __init__(self, context: ServerContext[FedTreesConfig]):
        super().__init__(context)
        self.edges = torch.zeros(0, self.config.bins - 1)
        self.scale = self.largest = 1
        self.class_weights = torch.ones(self.schema.num_classes, dtype=torch.float64)
        self.directions = torch.zeros(self.schema.num_features, 0)
        self.begun: set[ClientId] = set()
        self.current, self.given = set(context.clients), 0
        self.preferred = 0
        outputs = forest.outputs_of(self.schema)
        self.forest = forest.empty(np.zeros(outputs), self.config.depth)

    def expected_bytes(self) -> tuple[int, int]:
        config, columns = self.config, self.config.width(self.schema)
        outputs = forest.outputs_of(self.schema)
        drawn = config.num_drawn(columns)
        # A level's smaller children: 1, 1, 2, 4, ...
        each = 3 * 4 * (1 + drawn * config.bins) * outputs * 2 ** (config.depth - 1)
        cells = 4 * columns * ((1 << bins.COARSE) + ((config.bins - 1) << bins.FINE))
        squares = PASSES * 8 * self.schema.num_features * config.principal(self.schema)
        tree = 4 * outputs * (3 * 2**config.depth)
        return (config.rounds * each + cells + squares) * self.asked, (tree * config.rounds + squares) * len(
            self.context.clients
        )

    def set_up(self, federation: Federation) -> None:
        """Counts of classes, the edges of all columns, and where the forest begins."""
        config, asked = self.config, self.select(federation, 1)
        counts = federation.sum(Client.count, CountRequest(), to=asked).require(config.min_clients)
        total = counts.classes.numpy().astype(np.float64)
        present = total > 0
        if not present.any() and config.min_count > 1:
            raise FederationError(
                f"no silo has a training node that counts: every class has fewer than method.min_count="
                f"{config.min_count} of them at every silo. Lower it."
            )
        self.log["training_items"] = float(total.sum())
        weights, base = np.zeros(len(total)), np.zeros(len(total))
        if self.schema.task in CLASS_TASKS:
            weights[present] = (total.sum() / (present.sum() * total[present])) ** config.balance
            base = forest.base_of(weights * total)
        else:
            weights[:] = 1.0
        self._find_directions(federation, asked)
        self.edges = self._find_edges(federation, asked)
        heaviest = forest.heaviest_of(self.schema, weights)
        self.scale = forest.scale_of(int(total.sum()), heaviest)
        self.largest = forest.largest_of(self.scale, heaviest)
        self.forest = forest.empty(base, config.depth)
        self.class_weights = torch.from_numpy(weights)
        self._start(federation, federation.clients)

    def _find_directions(self, federation: Federation, asked: tuple[ClientId, ...]) -> None:
        """The first principal directions of all training rows, where features are wide: by subspace iteration."""
        width = self.config.principal(self.schema)
        if not width:
            return
        found = first_basis(self.schema.num_features, width, self.context.seed)
        for further in reversed(range(PASSES)):
            request = MomentsRequest(basis=torch.from_numpy(found))
            sums = federation.sum(Client.moments, request, to=asked).require(self.config.min_clients).sums.numpy()
            found = next_basis(sums) if further else directions_of(found, sums)
        self.directions = torch.from_numpy(found)
        self._project(federation, federation.clients)

    def _project(self, federation: Federation, to: tuple[ClientId, ...]) -> None:
        if self.directions.shape[1]:
            request = DirectionsRequest(directions=self.directions)
            federation.sum(Client.project, request, to=to).require(self.config.min_clients)

    def _start(self, federation: Federation, to: tuple[ClientId, ...]) -> None:
        request = StartRequest(
            base=self.forest["base"], edges=self.edges, class_weights=self.class_weights, scale=self.scale,
            own=self.config.own and len(federation.clients) > 1,
        )  # fmt: skip
        found = federation.sum(Client.start, request, to=to)
        found.require(self.config.min_clients)
        self.begun.update(found.clients)

    def _find_edges(self, federation: Federation, asked: tuple[ClientId, ...]) -> torch.Tensor:
        config = self.config

        def count_rows(cells: np.ndarray) -> np.ndarray:
            request = CellsRequest(cells=torch.from_numpy(cells))
            return federation.sum(Client.cells, request, to=asked).require(config.min_clients).counts.numpy()

        columns = config.width(self.schema)
        coarse = count_rows(np.zeros((columns, 0), dtype=np.int64))
        cells = bins.cells_to_refine(coarse, config.bins)
        fine = count_rows(cells).reshape(*cells.shape, -1)
        return torch.from_numpy(bins.edges_of(coarse, cells, fine, config.bins))

    def round(self, federation: Federation, number: int) -> None:
        """One step: a tree of each output, a level at a time."""
        config, asked, step = self.config, self.select(federation, number), len(self.forest["columns"])
        if not self.begun.issuperset(asked):  # some have missed set-up; the others keep what they have
            self._project(federation, asked)
            self._start(federation, asked)
        if not self.current.issuperset(asked):  # some have missed trees; a sum of few might show theirs
            self._hand_out(federation, asked)
        layout = forest.Layout.draw(self.edges.numpy(), config.num_drawn(len(self.edges)), self.context.seed, step)
        growing = forest.Growing(config.rule, layout, len(self.forest["base"]), self.scale)
        while len(growing.wanted):
            request = HistogramRequest(
                step=step, columns=torch.from_numpy(growing.columns), thresholds=torch.from_numpy(growing.thresholds),
                wanted=torch.from_numpy(growing.wanted), ends=torch.from_numpy(layout.ends), largest=self.largest,
            )  # fmt: skip
            found = federation.sum(Client.histograms, request, to=asked).require(config.min_clients)
            growing.grow(np.stack([each.numpy() for each in (found.gradients, found.hessians, found.counts)]))
        self.forest = forest.extend(self.forest, growing.tree())
        self._hand_out(federation, asked)

    def _hand_out(self, federation: Federation, asked: tuple[ClientId, ...]) -> None:
        whole, new = (
            AdoptRequest(forest=forest.trees(self.forest, first), first=first, preferred=self.preferred)
            for first in (0, self.given)
        )
        requests = {client: new if client in self.current else whole for client in federation.clients}
        found = federation.sum(Client.adopt, requests, to=asked)
        scores = found.require(self.config.min_clients)
        self.current, self.given = set(found.clients), len(self.forest["columns"])
        self.begun.difference_update(found.failures)  # a site that was started again may have lost the beginning
        metric = find_selecting(self.context.select_by, self.schema.task)
        if values := rate_candidates(metric, scores.counts.numpy(), scores.ranked):
            self.preferred = int(np.argmax(values))  # the first of equals
            self.log.update(describe_choice(self.preferred, metric, values))

    def aggregate(self) -> Tensors | None:
        return self.forest if len(self.forest["columns"]) else None

    def state(self) -> dict[str, Any]:
        return {**super().state(), "begun": sorted(self.begun), "current": sorted(self.current)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.begun, self.current = set(state["begun"]), set(state["current"])
