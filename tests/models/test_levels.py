"""Levels from one another: the same as each for itself, and chosen by how much work they are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors
from graphsilo.models import levels as module
from graphsilo.models.levels import Levels, times_levels


def texts(nodes: int = 100, words: int = 1000, links: int = 600, density: float = 0.05) -> Graph:
    """Nodes with few of many words."""
    features = sp.random(nodes, words, density=density, random_state=0, format="csr", dtype=np.float32)
    ends = np.random.default_rng(0).integers(0, nodes, (2, links))
    ends = ends[:, ends[0] != ends[1]]
    edges = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    return Graph(features, edges, np.zeros(nodes, np.int64), 1)


@pytest.mark.parametrize("rows", [None, np.random.default_rng(1).permutation(100)[:60]])
def test_every_level_is_a_power_times_the_features(rows) -> None:
    """And the gradient is Σ_l (Â^l X)ᵀ times that of level l."""
    graph = texts()
    data = GraphTensors(graph)
    view = data.full if rows is None else data.kept_view(rows)
    step, power = data.matrix("gcn").toarray().astype(np.float64), graph.features.toarray().astype(np.float64)
    right = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    left = torch.randn(4, view.num_rows, 5, generator=torch.Generator().manual_seed(1))
    levels = times_levels(view, 3, right)
    chain = view.cached(("levels", 3, "gcn"), lambda: None)
    assert isinstance(chain, Levels)
    torch.testing.assert_close(chain.dense() @ right, levels.flatten(0, 1))
    total = np.zeros((1000, 5))
    for level, found in enumerate(levels):
        wanted = power[slice(None) if rows is None else rows]
        np.testing.assert_allclose(found.detach().numpy(), wanted @ right.detach().numpy(), atol=1e-4)
        total += wanted.T @ left[level].numpy()
        power = step @ power
    (slope,) = torch.autograd.grad((levels * left).sum(), right)
    np.testing.assert_allclose(slope.numpy(), total, atol=1e-4)


def test_rows_of_a_path_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # 0-1-2-3, node 3 is asked for: level 1 needs 2 and 3, level 2 also 1. Its row of Â² is that of Â twice.
    ends = np.array([[0, 1, 2], [1, 2, 3]])
    graph = Graph(
        sp.csr_matrix(np.eye(4, 50, dtype=np.float32)), np.concatenate([ends, ends[::-1]], 1), np.zeros(4, np.int64), 1
    )
    monkeypatch.setattr(module, "_pays", lambda *_: True)
    found = times_levels(GraphTensors(graph).kept_view(np.array([3])), 2, torch.eye(50))[:, 0, :4]
    # Degrees with loops are 2, 3, 3, 2.
    one = [0, 0, 6**-0.5, 1 / 2]
    two = [0, 6**-0.5 / 3, 6**-0.5 * (1 / 3 + 1 / 2), 1 / 6 + 1 / 4]
    torch.testing.assert_close(found, torch.tensor([[0, 0, 0, 1.0], one, two]))


@pytest.mark.parametrize("case", ["batch", "dense features", "few rows", "features only"])
def test_levels_are_apart_where_that_is_less_work(case: str) -> None:
    data = GraphTensors(texts())
    view = {
        "batch": lambda: data.view(np.arange(60)),
        "dense features": lambda: GraphTensors(texts().with_features(np.ones((100, 3), np.float32))).full,
        "few rows": lambda: data.kept_view(np.arange(2)),  # need all, and are two rows
        "features only": lambda: data.full,
    }[case]()
    count = 0 if case == "features only" else 3
    assert not module._pays(view, count, "gcn")
    for found, hop in zip(
        times_levels(view, count, right := torch.eye(view.data.num_features)), view.hops(count), strict=True
    ):
        torch.testing.assert_close(found, hop.mm(right))
