"""What the server of FairFGL makes of the answers."""

from __future__ import annotations

import pytest
import torch

from graphsilo.methods import fairfgl
from graphsilo.methods.fairfgl.messages import TrainReply
from graphsilo.methods.fairfgl.updates import keep_largest
from kit.fairfgl import patch, rounds


def test_one_message_per_opposite(kit):
    server, federation = kit.build("fairfgl", [patch(client) for client in range(5)])
    rounds(server, federation)
    requests = server._requests(tuple(range(5)))
    assert len({id(request) for request in requests.values()}) == len(set(server.deviated.values()))


def fake_round(kit, updates, samples, **settings):
    """The server's step on given updates, [K, P] with P = 26."""
    server, federation = kit.build("fairfgl", [patch(client) for client in range(len(updates))], **settings)
    server.weights = {name: torch.zeros_like(value) for name, value in server.weights.items()}
    total = sum(value.numel() for value in server.weights.values())
    rows = torch.zeros(len(updates), total)
    rows[:, : updates.shape[1]] = updates

    def train(self, request):
        update = keep_largest(rows[self.id], settings.get("top_k", 1.0))
        return TrainReply(**update._asdict(), num_samples=samples[self.id])

    kept = fairfgl.Client.train.function
    fairfgl.Client.train.function = train
    try:
        rounds(server, federation)
    finally:
        fairfgl.Client.train.function = kept
    return server, torch.cat([value.reshape(-1) for value in server.weights.values()])[: updates.shape[1]]


def test_clusters_have_the_same_say(kit):
    # {0, 1, 2} with weights 1, 1, 2: (1·1 + 1·1.1 + 2·1.2) / 4 = 1.125 along x; {3, 4}: (3·2 + 1·2.4) / 4 = 2.1 along
    # y. Half of each: (0.5625, 1.05). The plain weighted mean would be (0.5625, 1.05) only by chance of equal weights.
    updates = torch.tensor([[1.0, 0.0], [1.1, 0.0], [1.2, 0.0], [0.0, 2.0], [0.0, 2.4]])
    server, moved = fake_round(kit, updates, [1, 1, 2, 3, 1], top_k=1.0)
    assert server.log["clusters"] == 2
    assert moved.tolist() == pytest.approx([0.5625, 1.05])
    _, moved = fake_round(kit, updates, [1, 1, 2, 9, 3], top_k=1.0)
    assert moved.tolist() == pytest.approx([0.5625, 1.05])  # a cluster's size does not matter
    _, moved = fake_round(kit, updates, [1, 1, 2, 9, 3], top_k=1.0, eta=0.8)
    assert moved.tolist() == pytest.approx([0.8 * 1.125, 0.8 * 2.1])
    server, moved = fake_round(kit, updates, [1, 1, 2, 9, 3], top_k=1.0, clustering=False)
    assert (server.log["clusters"], moved.tolist()) == (1.0, pytest.approx([4.5 / 16, 25.2 / 16]))


def test_equal_updates_give_the_mean_of_sparse_updates(kit):
    updates = torch.tensor([[3.0, -1.0, 2.0, 0.5]]).repeat(4, 1)
    server, moved = fake_round(kit, updates, [1, 5, 2, 2], top_k=1.0)
    assert server.log["clusters"] == 1
    assert moved.tolist() == pytest.approx([3.0, -1.0, 2.0, 0.5])
    assert all(other != client and other in range(4) for client, other in server.deviated.items())
    assert len(server.deviated) == 4


def test_who_has_nothing_to_learn_from_is_left_out(kit):
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    server, moved = fake_round(kit, updates, [1, 1, 0], top_k=1.0)
    assert moved.tolist() == pytest.approx([0.5, 0.5])
    assert set(server.deviated) == {0, 1}


def test_batchnorms_statistics_travel_with_the_update(kit):
    silos = [patch(client) for client in range(3)]
    server, federation = kit.build("fairfgl", silos, model="gin", model_options={"norm": "batch"})
    before = {name: value.clone() for name, value in server.weights.items()}
    rounds(server, federation, 2)
    moved = [name for name, value in server.weights.items() if not torch.equal(value, before[name])]
    assert any("running" in name for name in moved)
    assert all(torch.isfinite(value).all() for value in server.weights.values())
