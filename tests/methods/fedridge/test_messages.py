"""What the messages of FedRidge carry and weigh."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.errors import MessageError
from graphsilo.methods.fedridge.messages import Statistics, StatisticsRequest
from graphsilo.methods.fedridge.solve import pack
from kit.fedridge import PLAIN, played, pooled


def test_in_float32_on_the_wire_it_is_exact_to_its_precision(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    settings = {"features": "mean", "ridge": (0.1,), "wire": "float32", **PLAIN}
    server, _ = played(kit, silos, **settings)
    square, cross = pooled(silos, "mean", settings)
    exact = np.linalg.solve(square + 0.1 * np.eye(len(square)), cross)
    assert np.abs(server.weights["mean"].numpy() - exact).max() < 1e-5 * np.abs(exact).max()


def test_bytes_are_those_expected_but_for_headers(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    for settings in ({}, PLAIN, {"wire": "float64", "balance": (0.0, 0.5), "random_features": 40}):
        server, federation = played(kit, silos, **settings)
        up, down = server.expected_bytes()
        sent = {way: sum(federation.ledger.total(phase)[way] for phase in ("setup", "round")) for way in ("up", "down")}
        assert up <= sent["up"] < 1.2 * up + 6000
        assert down <= sent["down"] < 1.2 * down + 9000


def test_a_total_that_is_negative_in_some_direction_is_refused():
    """Of three unit rows with the constant 0.1; what a liar adds leaves each pair of columns as it may be."""
    rows = torch.cat([torch.eye(3), torch.full((3, 1), 0.1)], dim=1).double()
    square, cross = rows.t() @ rows, rows.sum(0, keepdim=True)
    request = StatisticsRequest(
        kinds=["mean"], dim=8, class_weights=torch.ones(1, 1).double(), size=1.0,
        blocks={"mean": [[3, 1.0], [1, 0.01]]}, constants={"mean": 3},
    )  # fmt: skip

    def total(moments: torch.Tensor) -> Statistics:
        return Statistics(
            moments={"mean/0": pack(moments)}, products={"mean/0": cross}, moments_rest={}, products_rest={},
            num_samples=3,
        )  # fmt: skip

    total(square).check_total(request, 3)
    square[0, 1], square[0, 2], square[1, 2] = 0.9, -0.9, 0.9
    total(square).check_answer(request)
    with pytest.raises(MessageError, match="negative somewhere"):
        total(square).check_total(request, 3)
