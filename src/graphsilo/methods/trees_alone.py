"""Trees alone — every silo boosts scikit-learn's histogram trees on its own columns, by itself.

What has to be beaten where nodes come from tables: the columns of the nodes, with what is added up over their links
where the data has such sums, and nothing of what neighbours look like. How large trees are and how many, a silo's own
validation items say. Nothing leaves a silo.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.evaluate.metrics import find_selecting
from graphsilo.federation.client import ClientBase, ClientContext
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.federation.registry import Method, Trial
from graphsilo.federation.server import ServerBase
from graphsilo.federation.settings import OneRoundConfig, setting
from graphsilo.models.view import GraphTensors

_STEP = 10
"""Boosting steps after which validation items are asked."""
_TINY = 1e-12


class TreesAloneConfig(OneRoundConfig):
    """Settings of trees alone."""

    leaves: tuple[int, ...] = setting(
        (7, 31), "most leaves of a tree: those to choose among", source="ours; scikit-learn: 31", ge=2, le=1024
    )
    min_child: tuple[int, ...] = setting(
        (5, 20), "fewest training nodes in a leaf: those to choose among", source="ours; scikit-learn: 20", ge=1
    )
    iterations: int = setting(200, "steps of boosting, of which validation chooses", source="ours", ge=1, le=10_000)
    lr: float = setting(0.05, "what a tree's leaves are multiplied by", source="ours; scikit-learn: 0.1", gt=0, le=1)


class GrowRequest(Message):
    """Grow your trees."""


class GrowReply(Message):
    """Done; the trees stay."""

    clients: int = sends("counts", known=True)


class Client(ClientBase[TreesAloneConfig]):
    """Grows trees and keeps which it chose; grown again from the silo's own rows they are the same."""

    kept = ("chosen",)

    def __init__(self, context: ClientContext[TreesAloneConfig]):
        super().__init__(context)
        self.metric = find_selecting(context.select_by, self.silo.schema.task)
        self.chosen = torch.zeros(3, dtype=torch.int64)
        self._grown: tuple[tuple[int, ...], Any] = ((), None)

    @handler
    def grow(self, request: GrowRequest) -> GrowReply:
        """Choose leaves, fewest rows and steps by validation items; of equals the first."""
        items = self.silo.labelled_validation()
        labels, rows = self.silo.seen.graph.union.labels[items], _rows(self.tensors(self.silo.seen.graph), items)
        best = -np.inf
        for leaves, fewest in product(self.config.leaves, self.config.min_child):
            trees = self._grow(leaves, fewest, self.config.iterations)
            if trees is None or not len(items):
                self.chosen = torch.tensor([leaves, fewest, self.config.iterations])
                break
            steps = enumerate(trees.staged_predict_proba(rows), start=1)
            for step, shares in steps:
                if step % _STEP and step != self.config.iterations:
                    continue
                value = self.metric.of_outputs(labels, self._logarithms(shares, trees.classes_))
                worth = -np.inf if value is None else self.metric.goodness(value)
                if worth > best or not self.chosen.any():
                    best, self.chosen = worth, torch.tensor([leaves, fewest, step])
        return GrowReply(clients=1)

    def _grow(self, leaves: int, fewest: int, steps: int) -> Any:
        """The trees of the silo's training rows; None where these are of one class or none."""
        nodes = self.silo.train_of_classes(1)
        labels = self.silo.labels[nodes]
        if len(np.unique(labels)) < 2:
            return None
        from sklearn.ensemble import HistGradientBoostingClassifier

        trees = HistGradientBoostingClassifier(
            learning_rate=self.config.lr, max_iter=steps, max_leaf_nodes=leaves, min_samples_leaf=fewest,
            early_stopping=False, random_state=self.context.seed,
        )  # fmt: skip
        return trees.fit(_rows(self.data, nodes), labels)

    @property
    def _trees(self) -> Any:
        """Those that were chosen."""
        leaves, fewest, step = self.chosen.tolist()
        if self._grown[0] != (leaves, fewest, step):
            self._grown = (leaves, fewest, step), self._grow(leaves, fewest, step)
        return self._grown[1]

    def _logarithms(self, shares: NDArray[np.float64], classes: NDArray[np.int64]) -> NDArray[np.float64]:
        """[n, C] log-probabilities of all classes, also of those that the silo has never seen."""
        found = np.full((len(shares), self.silo.schema.num_classes), _TINY)
        found[:, classes] = np.maximum(shares, _TINY)
        return np.asarray(np.log(found))

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        if not self.chosen.any():
            return self.predict_undecided(data.full.num_items)
        trees = self._trees
        if trees is None:  # one class, or no training item at all
            counts = torch.from_numpy(self.silo.class_counts().astype(np.float32))
            shares = counts / counts.sum() if counts.any() else torch.full_like(counts, 1 / len(counts))
            return shares.clamp_min(_TINY).log().expand(data.full.num_items, -1).to(data.device)
        shares = trees.predict_proba(_rows(data, np.arange(data.num_nodes)))
        return torch.from_numpy(self._logarithms(shares, trees.classes_).astype(np.float32)).to(data.device)

    def final_models(self) -> dict[str, Tensors]:
        return {"own": {"chosen": self.chosen}}

    def load_final(self, models: Mapping[str, Tensors]) -> None:
        self.chosen = models["own"]["chosen"]


def _rows(data: GraphTensors, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
    """[nodes, d] features of some nodes."""
    rows = data.graph.features[nodes]
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows)


class Server(ServerBase[TreesAloneConfig]):
    """Only says when to grow."""

    def round(self, federation: Federation, number: int) -> None:
        # There is no other round: with ``participation``, too, every silo has trees.
        federation.sum(Client.grow, GrowRequest()).require(self.config.min_clients)


METHOD = Method(
    name="trees_alone",
    family="references",
    title="Trees alone",
    citation="Friedman, Greedy function approximation, Annals of Statistics 2001; scikit-learn's histogram trees.",
    summary="Every silo boosts trees on its own columns, without neighbours and without the others.",
    config=TreesAloneConfig,
    client=Client,
    server=Server,
    tasks=("node",),
    heterogeneous=True,
    evaluates=("own",),
    alone=True,
    backbone=False,
    edge_weights=True,
    quick={"iterations": 20, "leaves": (7,), "min_child": (5,)},
    trials={
        "participation": Trial(reason="every silo is by itself"),
        "leaves": Trial([(2,)]),
        "min_child": Trial([(1,)]),
    },
)
