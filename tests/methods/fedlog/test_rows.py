"""The batches of FedLoG and the surroundings that they need."""

from __future__ import annotations

import pytest
import torch

from graphsilo.methods.fedlog.rows import BatchRows
from kit.fedlog import build, silo_of


def test_surroundings_give_the_gradients_of_the_whole_graph(kit):
    silo = silo_of(0, [0, 1, 2, 0, 1, 2], nodes=60)
    _, federation = build(kit, [silo], batch_size=2)
    client, batch = federation.client(0), torch.tensor([1, 4])
    assert not client.rows.whole
    found = client.gradients(batch, None, None)
    client.rows.whole = True
    wanted = client.gradients(batch, None, None)
    assert found[0] == pytest.approx(wanted[0], rel=1e-6)
    for mine, other in zip([*found[1], found[2]], [*wanted[1], wanted[2]], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    assert BatchRows(client.data, 0).whole
