"""FedNH: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import MessageError
from graphsilo.methods.fednh import TrainReply, move
from graphsilo.testing.small import play
from graphsilo.training.local import weights_of
from kit.messages import check_sent
from kit.silos import graphs_of


def gram(rows):
    return rows @ rows.t()


def test_the_server_moves_prototypes_by_hand():
    """Client 1 has three items of class 0 at (0.6, 0.8), client 2 one at (1, 0) and two of class 1 at (0, 1)."""
    sums = torch.tensor([[3 * 0.6 + 1, 3 * 0.8], [0.0, 2.0]])
    torch.testing.assert_close(F.normalize(sums[:1]), torch.tensor([[0.7592566, 0.6507914]]))
    found = move(torch.eye(2), sums, torch.tensor([4, 2]), 0.9)
    torch.testing.assert_close(found, torch.tensor([[0.9977840, 0.0665368], [0.0, 1.0]]))


def test_prototypes_that_stay():
    old = F.normalize(torch.tensor([[0.3, 0.7], [1.0, 0.1], [0.2, 0.9]]))
    sums, counts = torch.tensor([[2.0, 0.0], [0.0, 0.0], [-2.0, 0.0]]), torch.tensor([2, 0, 2])
    found = move(old, sums, counts, 0.9)
    assert torch.equal(found[1], old[1])  # nobody has the class
    assert not torch.equal(found[0], old[0])
    assert torch.equal(move(old, sums, counts, 1.0), old)
    assert torch.equal(move(old, -2 * old, torch.tensor([2, 2, 2]), 0.5), old)  # opposites cancel: no direction


def test_prototypes_are_orthonormal_at_first_and_unit_always(kit):
    server, federation = kit.build("fednh", [kit.tiny_silo(client) for client in range(3)], width=5)
    first = server.weights["prototypes"].clone()
    torch.testing.assert_close(gram(first), torch.eye(2))
    for _ in range(4):
        play(server, federation, 1)
        torch.testing.assert_close(server.weights["prototypes"].norm(dim=1), torch.ones(2))
    assert not torch.equal(server.weights["prototypes"], first)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_local_training_leaves_prototypes_as_they_came(kit, optimizer):
    """Weight decay, too. So does whoever sends others back."""
    server, federation = kit.build("fednh", [kit.tiny_silo(0)], optimizer=optimizer, weight_decay=0.1, smoothing=1.0)
    first = server.weights["prototypes"].clone()
    client = federation.client(0)
    play(server, federation, 2)
    assert torch.equal(client.model.prototypes, first)
    upload = client.upload
    client.upload = lambda: {**upload(), "prototypes": torch.ones(2, 64)}
    play(server, federation, 1)
    assert torch.equal(server.weights["prototypes"], first)


def test_a_step_by_hand(kit):
    """Rate 0.5 on cross-entropy of s cos(f, W), by autograd on the printed formula; of one client alone."""
    plain = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0, "local_epochs": 1, "clip": 0.0, "scale": 4.0}
    server, federation = kit.build("fednh", [kit.tiny_silo(0)], width=3, **plain)
    client = federation.client(0)
    client.download(server.weights)
    rows, labels = torch.from_numpy(client.silo.train), torch.from_numpy(client.silo.labels[client.silo.train])
    unit = F.normalize(client.model.encoder(client.data.full)[rows], dim=1)
    loss = F.cross_entropy(client.model.scale * unit @ server.weights["prototypes"].t(), labels)
    named = dict(client.model.named_parameters())
    slopes = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    expected = {name: value.detach() - 0.5 * slopes[name] for name, value in named.items()}
    play(server, federation, 1)
    for name, value in expected.items():
        torch.testing.assert_close(server.weights[name], value)


def test_what_is_sent_of_classes(kit):
    """The mean of directions, made a unit vector, times the items; of the trained encoder."""
    server, federation = kit.build("fednh", [kit.tiny_silo(0, train=(0, 2, 1))], width=3)
    client, seen = federation.client(0), []
    combine = server.combine
    server.combine = lambda total: (seen.append(total), combine(total))
    play(server, federation, 1)
    with torch.no_grad():
        unit = F.normalize(client.model.encoder(client.data.full), dim=1)
    expected = torch.stack([2 * F.normalize((unit[0] + unit[2]) / 2, dim=0), unit[1]])
    torch.testing.assert_close(seen[0].sums.float(), expected)
    assert seen[0].counts.tolist() == [2, 1]


@pytest.mark.parametrize(("weight_by", "share"), [("uniform", 1 / 2), ("train", 3 / 4)])
def test_encoders_count_the_same_or_by_items(kit, weight_by, share):
    silos = [kit.tiny_silo(0, train=(0, 1, 2)), kit.tiny_silo(1, train=(0,))]
    server, federation = kit.build("fednh", silos, weight_by=weight_by)
    play(server, federation, 1)
    first, second = (weights_of(federation.client(client).model) for client in (0, 1))
    for name in set(first) - {"prototypes"}:
        torch.testing.assert_close(server.weights[name], share * first[name] + (1 - share) * second[name])


def test_the_scale_is_learned_or_fixed(kit):
    for trained in (True, False):
        server, federation = kit.build("fednh", [kit.tiny_silo(0)], scale=5.0, scale_trained=trained)
        play(server, federation, 2)
        assert (float(server.weights["scale"]) == 5.0) is not trained


def test_long_gradients_are_shortened(kit):
    """(3, 4) and (12, 0) have the length 13; at most 6.5 is half of them."""
    _, federation = kit.build("fednh", [kit.tiny_silo(0)], clip=6.5)
    client = federation.client(0)
    long = [torch.tensor([3.0, 4.0]), torch.tensor([12.0, 0.0])]
    client.clip(long, None)
    assert [gradient.tolist() for gradient in long] == [[1.5, 2.0], [6.0, 0.0]]
    client.clip(long, None)
    assert long[1].tolist() == [6.0, 0.0]


def test_sums_longer_than_their_items_are_refused():
    reply = {"weights": {}, "num_samples": 1.0, "counts": torch.tensor([2, 0])}
    TrainReply(sums=torch.tensor([[1.2, 1.6], [0.0, 0.0]]), **reply).check()
    for sums in ([[1.3, 1.6], [0.0, 0.0]], [[1.0, 0.0], [0.1, 0.0]]):
        with pytest.raises(MessageError, match="a sum of n unit vectors is no longer than n"):
            TrainReply(sums=torch.tensor(sums), **reply).check()


def test_nothing_to_train_on_moves_nothing(kit):
    server, federation = kit.build("fednh", [kit.tiny_silo(0, train=())])
    first = {name: value.clone() for name, value in server.weights.items()}
    play(server, federation, 1)
    assert all(torch.equal(first[name], value) for name, value in server.weights.items())


def test_graphs_are_learned(kit):
    silos = [graphs_of(client) for client in range(3)]
    server, federation = kit.build("fednh", silos, model="gin", model_options={"hidden": 8, "dropout": 0.0})
    play(server, federation, 30)
    for client in map(federation.client, federation.clients):
        found = client.predict(client.data).argmax(1).numpy()
        assert (found == client.silo.labels)[client.silo.train].mean() > 0.8


def test_bytes(kit):
    """Encoder (3·4 + 4 + 4·5 + 5 weights), scale and prototypes (2·5) each way; up 4 C d and 8 C more."""
    server, _ = kit.build("fednh", [kit.tiny_silo(0)], width=5)
    each = 4 * (3 * 4 + 4 + 4 * 5 + 5 + 1 + 2 * 5)
    assert server.expected_bytes() == (100 * (each + 40 + 16), 100 * each)


def test_what_leaves_a_silo():
    check_sent(
        "fednh",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
        """,
    )
