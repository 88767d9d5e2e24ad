"""Rows of unit length, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors, build


def test_rows_of_unit_length_by_hand() -> None:
    """Nodes 0 and 1 linked, 2 alone; X = (3, 0), (0, 4), (-1, 0). W_n = W_s = I, no bias; the head adds both columns.

    Means of neighbours (0, 4), (3, 0), (0, 0): H = (3, 4), (3, 4), (-1, 0). ReLU and unit length: (.6, .8) twice, and
    (0, 0), which stays. The head counts each node's own row and its neighbour's: 1.4 + 1.4, the same, and 0.
    """
    features = np.array([[3, 0], [0, 4], [-1, 0]], np.float32)
    data = GraphTensors(Graph(features, np.array([[0, 1], [1, 0]]), np.zeros(3, np.int64), 1))
    model = build("sage", num_features=2, num_classes=1, seed=0, hidden=2, unit_rows=True)
    first, last = model.layers
    with torch.no_grad():
        for layer, weight in ((first, torch.eye(2)), (last, torch.ones(2, 1))):
            layer.neighbours.weight.copy_(weight)
            layer.own.weight.copy_(weight)
    assert model.embed(data.full).tolist() == [pytest.approx([0.6, 0.8])] * 2 + [[0.0, 0.0]]
    torch.testing.assert_close(model(data.full), torch.tensor([[2.8], [2.8], [0.0]]))
    # From the first node's logit: both of its rows get (1, 1), less its part along (.6, .8), over the row's length 5:
    # (1 - 1.4 * .6, 1 - 1.4 * .8) / 5 = (.032, -.024). Own weights meet x_0 = (3, 0) and x_1 = (0, 4).
    (found,) = torch.autograd.grad(model(data.full)[0].sum(), [first.own.weight])
    torch.testing.assert_close(found, torch.tensor([[0.096, -0.072], [0.128, -0.096]]))
