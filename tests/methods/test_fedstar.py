"""FedStar: what is shared and what is not, through the real machinery."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from kit.silos import graphs_of

STAR = {"model": "gin_fedstar", "model_options": {"hidden": 4, "layers": 2, "walks": 3, "degrees": 2}}


def copies(federation):
    return [
        {key: value.clone() for key, value in weights_of(federation.client(client).model).items()}
        for client in federation.clients
    ]


@pytest.mark.parametrize("silo_of", [graphs_of, None], ids=["graphs", "nodes"])
def test_the_channel_of_structure_alone_is_shared(kit, silo_of):
    server, federation = pair = kit.build(
        "fedstar", [(silo_of or kit.tiny_silo)(client) for client in range(3)], **STAR
    )
    play(*pair, rounds=2)
    mine = {key for key in copies(federation)[0] if key.startswith("structure.")}
    assert set(server.weights) == mine
    assert sum(value.numel() for value in server.weights.values()) == (3 + 2) * 4 + 4 + 2 * (16 + 4)
    before = copies(federation)
    for client in federation.clients:
        federation.client(client).download(server.weights)
    for was, now in zip(before, copies(federation), strict=True):
        assert {key for key in was if torch.equal(was[key], now[key])} == set(was) - mine
    assert not torch.equal(before[0]["pre.weight"], before[1]["pre.weight"])


def test_the_mean_by_hand(kit):
    """Weighted by training items, 1 and 3."""
    silos = [kit.tiny_silo(0, train=(0,)), kit.tiny_silo(1, train=(0, 1, 2))]
    server, federation = pair = kit.build("fedstar", silos, **STAR)
    play(*pair, rounds=1)
    one, other = copies(federation)
    for key, value in server.weights.items():
        torch.testing.assert_close(value, 0.25 * one[key] + 0.75 * other[key])


def test_one_client_alone_trains_as_if_nothing_were_shared(kit):
    """With the same initial weights, of which the server draws those of structure."""
    silos = [graphs_of(0)]
    server, federation = kit.build("fedstar", silos, **STAR)
    start = {**copies(federation)[0], **server.weights}
    _, other = alone = kit.build("local", silos, **STAR)
    other.client(0).model.load_state_dict(start)
    play(server, federation, rounds=3)
    play(*alone, rounds=3)
    mine, theirs = copies(federation)[0], copies(other)[0]
    assert all(torch.equal(mine[key], value) for key, value in theirs.items())


def test_structure_is_learned(kit):
    server, federation = kit.build("fedstar", [graphs_of(0)], **STAR)
    before = {key: value.clone() for key, value in server.weights.items()}
    play(server, federation, rounds=1)
    assert not torch.equal(server.weights["structure.0.weight"], before["structure.0.weight"])


def test_other_models_have_no_such_channel(kit):
    with pytest.raises(UnsupportedError, match=r"gin_fedstar has; gcn was asked for\. Use --model gin_fedstar"):
        kit.build("fedstar", [kit.tiny_silo(0)])
