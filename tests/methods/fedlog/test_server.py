"""What the server of FedLoG makes of the answers."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import ConfigError
from graphsilo.testing.small import play
from kit.fedlog import build, silo_of


@pytest.mark.parametrize(("weight_by", "share"), [("nodes", 12 / 32), ("train", 4 / 6), ("uniform", 1 / 2)])
def test_models_are_averaged_by_what_a_client_counts(kit, weight_by, share):
    """12 nodes of which 4 train, and 20 of which 2 do."""
    silos = [silo_of(0, [0, 0, 0, 1]), silo_of(1, [0, 1], nodes=20)]
    server, federation = build(kit, silos, weight_by=weight_by)
    play(server, federation, 1)
    first, second = (federation.client(client).weights for client in (0, 1))
    for name, value in server.weights.items():
        torch.testing.assert_close(value, share * first[name] + (1 - share) * second[name], rtol=1e-5, atol=1e-7)


def test_the_receiver_only_receives(kit):
    silos = [silo_of(0, [0, 0, 1]), silo_of(1, [1, 2, 2]), silo_of(2, [0, 2])]
    server, federation = build(kit, silos, receiver=1)
    play(server, federation, 3)
    assert federation.client(1).reply().class_weights.tolist() == [0.0] * 3
    assert federation.client(1).global_nodes is not None
    assert all(federation.client(client).global_nodes is None for client in (0, 2))
    with pytest.raises(ConfigError, match="client 7"):
        build(kit, silos, receiver=7)
