"""APPNP against PyG, and its formula written out."""

from __future__ import annotations

import numpy as np
import torch

from graphsilo.random import generator
from kit.backbones import DOUBLE, Dense, close, copied, double
from kit.models import check, made, pyg


def test_appnp_against_pyg(weighted) -> None:
    data, x, edges, weights = weighted
    model = made("appnp", hops=7, alpha=0.2)
    first, last = model.layers
    predictions = (x @ first.weight + first.bias).relu() @ last.weight + last.bias
    check(model, data, pyg.APPNP(K=7, alpha=0.2)(predictions, edges, weights))


def test_appnp_that_only_teleports_is_an_mlp(dense: Dense) -> None:
    plain = double("appnp", alpha=1.0)
    close(plain(dense.data.full), copied(plain, double("mlp"))(dense.data.full))


def test_pagerank_step_by_step_and_multiplied_out(dense: Dense) -> None:
    from graphsilo.models.backbones.appnp import PageRank, pagerank
    from graphsilo.models.operators import DenseOperator

    wanted = 0.7**2 * dense.step @ dense.step + 0.3 * (torch.eye(20) + 0.7 * dense.step)
    for rows in (None, np.array([3, 11])):
        view = dense.data.view(rows)
        outer = np.arange(20) if rows is None else view._frontier("gcn", 2)[0]
        part = wanted if rows is None else wanted[rows][:, outer]
        steps = PageRank(view, 2, 0.3)
        close(steps.dense(), part)
        left = torch.rand(part.shape[0], 3, dtype=DOUBLE, generator=generator(0))
        close(steps.tmm(left), part.T @ left)
        close(pagerank(view, 2, 0.3).dense(), part)
    assert isinstance(pagerank(dense.data.view(np.array([3])), 10, 0.1), DenseOperator)
    assert isinstance(pagerank(dense.data.full, 1, 0.1), PageRank)
