"""ReNode — FedAvg whose labelled nodes count less the more other classes' labelled nodes reach them.

Chen, Lin, Zhao, Ren, Li, Zhou, Sun. "Topology-Imbalance Learning for Semi-Supervised Node Classification". NeurIPS
2021.

A labelled node that is reached by other classes' labelled nodes lies near a boundary and counts less; one deep among
its own class counts more. Every silo weighs its own nodes on its own graph, and the rest is FedAvg.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError
from graphsilo.federation.past_client import PastClient
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import setting
from graphsilo.methods import fedavg
from graphsilo.training.label_propagation import propagate_labels
from graphsilo.training.objective import ClassifyItems


class ReNodeConfig(fedavg.FedAvgConfig):
    """Settings of ReNode; ``loss`` and ``class_weights`` multiply its weights."""

    alpha: float = setting(
        0.15, "chance to return to the start in personalised PageRank (α)", source="paper", ge=0.01, le=1
    )
    w_min: float = setting(0.5, "weight of the node with the largest conflict", source="paper", ge=0)
    w_max: float = setting(1.5, "weight of the node with the smallest conflict", source="paper", gt=0)
    rank_over: Literal["count", "last"] = setting(
        "count", "what a rank from 0 is divided by: how many labelled nodes there are, or the largest rank, with which "
        "the last node has exactly w_min and the mean is (w_min + w_max) / 2",
        source="paper; the authors' code has last",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.w_min > self.w_max:
            raise ConfigError(
                f"method.w_min is {self.w_min:g}, more than method.w_max, {self.w_max:g}; lower the one, or raise the "
                f"other."
            )
        return self

    def explain_no_effect(self, schema: Schema, items: int, asked: int, model: str) -> str:
        if self.w_min != self.w_max:
            return ""
        return (
            f"all nodes weigh {self.w_min:g}, as method.w_min is method.w_max: where they are among the classes counts "
            f"for nothing, nor do alpha and rank_over, and what trains is FedAvg."
        )


class Client(PastClient[ReNodeConfig], fedavg.Client[ReNodeConfig]):
    """Weighs its labelled nodes once, and trains with these weights."""

    kept = ("node_weights",)
    node_weights: Tensor | None = None

    def fit(self, request: fedavg.TrainRequest) -> None:
        if self.config.w_min == self.config.w_max == 1:
            self.run_epochs()
            return
        if self.node_weights is None:
            goal, graph = self.trainer.objective, self.silo.graph
            assert isinstance(goal, ClassifyItems)
            assert isinstance(graph, Graph)
            labels, config = goal.labels.cpu().numpy(), self.config
            found = conflicts(graph.adjacency(), goal.items, labels, config.alpha)
            weights = weights_of(found, config.w_min, config.w_max, config.rank_over)
            self.node_weights = torch.from_numpy(weights).to(self.data.device, self.data.dtype)
        self.run_epochs(node_weights=self.node_weights)


def conflicts(
    adjacency: sp.csr_matrix, items: NDArray[np.int64], labels: NDArray[np.int64], alpha: float
) -> NDArray[np.float64]:
    """[t] T_v = Σ_{c ≠ y_v} ⟨Π_v, g_c⟩ with Π = α (I − (1−α) S)⁻¹, S = D̃^-1/2 (A + I) D̃^-1/2 and g_c the mean of Π_i
    over labelled nodes i of class c.

    Π is symmetric, so that Π g_c for every class, two propagations of a column each, says it of all nodes.

    Args:
        adjacency: [n, n] CSR; a link counts in both directions.
        items: [t] labelled nodes.
        labels: [t] their classes.
        alpha: α.
    """
    classes, columns = np.unique(labels, return_inverse=True)
    column = np.zeros((adjacency.shape[0], len(classes)))
    column[items, columns] = 1.0 / np.bincount(columns, minlength=len(classes))[columns]
    both = adjacency.maximum(adjacency.T)
    steps = math.ceil(math.log(1e-7) / math.log1p(-alpha)) if alpha < 1 else 0  # of all mass, a ten-millionth is left
    for _ in range(2):
        column = propagate_labels(
            both, column, seed_rows=items, steps=steps, alpha=1.0 - alpha, self_loops=True, rest="keep", clamp=False
        )
    found = column[items]
    found[np.arange(len(items)), columns] = 0.0
    return np.asarray(found.sum(axis=1), dtype=np.float64)


def weights_of(
    conflict: NDArray[np.float64], w_min: float, w_max: float, rank_over: Literal["count", "last"] = "count"
) -> NDArray[np.float64]:
    """[t] w_min + ½ (w_max − w_min) (1 + cos(π r / t)), r the rank of a node's conflict from 0; halfway where all are
    equal.

    Nodes with equal conflicts have the mean of their ranks.

    Args:
        conflict: [t] T.
        w_min, w_max: The weights at the largest and the smallest conflict.
        rank_over: t, or t − 1 for ``last``.
    """
    # Where a graph looks the same from two nodes, their sums differ in the last bits.
    rounded = np.round(conflict / max(conflict.max(initial=0.0), 1e-300), 9)
    _, place, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return np.full(len(conflict), 0.5 * (w_min + w_max))
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[place]
    cosine = np.cos(np.pi * ranks / (len(ranks) - (rank_over == "last")))
    return np.asarray(w_min + 0.5 * (w_max - w_min) * (1.0 + cosine), dtype=np.float64)


METHOD = Method(
    about=__doc__,
    name="renode",
    family="rare and missing classes",
    config=ReNodeConfig,
    client=Client,
    server=fedavg.Server,
    tasks=("node",),
    edge_weights=True,
    balances="class_weights=inverse",
    reduces_to=("fedavg", {"w_min": 1.0, "w_max": 1.0}),
)
