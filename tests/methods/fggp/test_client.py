"""FGGP's client and server: the losses by hand, whose prototypes there are, and how they classify."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError, MessageError, UnsupportedError
from graphsilo.methods.fggp import client as fggp
from graphsilo.methods.fggp.client import align, vote, weighted_means
from graphsilo.methods.fggp.config import PROTOTYPES, VOTES
from graphsilo.random import generator
from graphsilo.testing.small import play
from kit.messages import check_sent
from kit.silos import graphs_of


def ready(kit, silo, **settings):
    """A client after one round, about to train on."""
    server, federation = kit.build("fggp", [silo], **settings)
    play(server, federation, 1)
    return federation.client(0)


def test_prototypes_by_hand():
    """Node 0 is of class 1, whatever is predicted; 1 and 2 are taken for class 0, with 0.75 and 0.5."""
    logits = torch.tensor([[9.0, 0.0, 0.0], [3.0, 1.0, -99.0], [1.0, 1.0, -99.0]]).log().nan_to_num(-99.0)
    rows = torch.tensor([[2.0, 2.0], [4.0, 0.0], [1.0, 5.0]])
    [means], present = weighted_means(logits, torch.tensor([1, -1, -1]), [rows])
    torch.testing.assert_close(means, torch.tensor([[3.5 / 1.25, 2.5 / 1.25], [2.0, 2.0], [0.0, 0.0]]))
    assert present.tolist() == [True, True, False]


def test_the_contrast_by_hand():
    """cos 1 to the class's own, 0 to both of the other: log(1 + 2 e^(−1 / 0.5)); lengths do not matter."""
    rows = torch.tensor([[2.0, 0.0], [0.0, 0.1]])
    assert float(align(rows, 7 * rows, 0.5)) == pytest.approx(0.2395447, abs=1e-6)
    assert float(align(rows, rows.flip(0), 0.5)) == pytest.approx(2.2395447, abs=1e-6)
    assert float(align(rows[:1], rows[1:], 0.5)) == 0.0  # one class has nothing to be told from


def test_a_vote_by_hand():
    prototypes, votes = torch.tensor([[5.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.eye(4)[[0, 2, 0]]
    found = vote(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), prototypes, votes, 2, 0.5).exp()
    share = 1 / (1 + torch.tensor(-2.0).exp())
    torch.testing.assert_close(found[0], torch.stack([share, share * 0, 1 - share, share * 0]))
    assert found[:, [1, 3]].tolist() == [[0, 0], [0, 0]]  # of these there are no prototypes
    assert bool((vote(torch.rand(3, 2), prototypes, votes, 30, 0.5).exp().sum(1) - 1).abs().max() < 1e-6)


@pytest.mark.parametrize("pairs", ["all", "union"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_steps_gradients(kit, task, pairs):
    """Those of L₁ + λ (L₂ + L_ga + L_pa) by autograd, with the same draws."""
    silo, model = (kit.tiny_silo(0, nodes=8), "gcn") if task == "node" else (graphs_of(0, 6), "gin")
    client = ready(kit, silo, model=model, pairs=pairs, augment=0.5, neighbours=1)
    batch = next(client.trainer.objective.batches(0, generator(0)))
    found = client.gradients(batch, generator(1))
    draw = generator(1)
    logits, embeddings = client.model.outputs(batch.view, draw)
    first = F.cross_entropy(logits if batch.rows is None else logits[batch.rows], batch.labels)
    value = first + 0.5 * client.second_view(batch, logits, embeddings, draw)
    wanted = [*client.model.parameters(), *client.augmentor.parameters()]
    for mine, theirs in zip(found, torch.autograd.grad(value, wanted), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(bool(slope.any()) for slope in found)


def test_the_union_lasts_for_as_many_rounds_as_it_says(kit):
    server, federation = kit.build("fggp", [kit.tiny_silo(0)], refresh=2)
    client, seen = federation.client(0), []
    for number in range(1, 6):
        federation.at("round", number)
        server.round(federation, number)
        seen.append(client.found_in)
    assert seen == [1, 1, 3, 3, 5]


def test_what_is_described_and_remembered(kit):
    """Labelled nodes are of their class, others of the likeliest; the server keeps directions of the last rounds."""
    silos = [kit.tiny_silo(0, train=(0, 2)), kit.tiny_silo(1, train=(0, 2))]
    server, federation = kit.build("fggp", silos, memory=2, lr=0.1)
    play(server, federation, 6)
    client = federation.client(0)
    logits, rows = client.model.outputs(client.data.full)
    assert int(logits.argmax(1).sum()) == 0  # nobody has seen class 1
    weights = torch.softmax(logits, 1)[:, 0].index_fill(0, torch.tensor([0, 2]), 1.0)
    reply = client.describe(None)
    torch.testing.assert_close(reply.sums[0], (weights @ rows / weights.sum()).detach())
    assert reply.counts.tolist() == [1, 0]
    assert server.classes.tolist() == [0] * 4
    torch.testing.assert_close(server.clusters.norm(dim=1), torch.ones(4))
    assert client.predict(client.data).argmax(1).tolist() == [0] * 6
    client.install_aggregate(server.aggregate())
    assert client.predict(client.data, "aggregate").isfinite().tolist() == [[True, False]] * 6


def test_a_silo_without_labels_describes_nothing(kit):
    """Its guesses of round 1 would be those of a model that nobody has trained."""
    server, federation = kit.build("fggp", [kit.tiny_silo(0), kit.tiny_silo(1, train=())])
    play(server, federation, 1)
    reply = federation.client(1).describe(None)
    assert (reply.sums.any(), reply.counts.tolist()) == (False, [0, 0])
    alone, others = kit.build("fggp", [kit.tiny_silo(0)])
    play(alone, others, 1)
    assert torch.equal(server.clusters, alone.clusters)


def test_prototypes_of_another_shape_are_refused(kit):
    server, federation = kit.build("fggp", [kit.tiny_silo(0)])
    play(server, federation, 2)
    aggregate = dict(server.aggregate())
    for name, value in ((PROTOTYPES, torch.ones(2, 3)), (VOTES, torch.ones(1, 2))):
        with pytest.raises(MessageError, match="do not belong together"):
            federation.client(0).install_aggregate({**aggregate, name: value})


def test_heads_need_no_prototypes(kit):
    server, federation = kit.build("fggp", [kit.tiny_silo(0)], predict="head")
    play(server, federation, 2)
    assert not len(server.classes)
    assert PROTOTYPES not in server.aggregate()
    client = federation.client(0)
    assert torch.equal(client.predict(client.data), client.model(client.data.full))


def test_what_is_refused_before_anybody_trains(kit, monkeypatch):
    with pytest.raises(UnsupportedError, match="choose gcn"):
        kit.build("fggp", [kit.tiny_silo(0)], model="appnp")[1].client(0)
    with pytest.raises(ConfigError, match="no hidden layer"):
        kit.build("fggp", [kit.tiny_silo(0)], model_options={"layers": 1})[1].client(0)
    monkeypatch.setattr(fggp, "MOST_NODES", 5)
    with pytest.raises(ConfigError, match=r"6 nodes take about 0 GB.*Set method\.pairs to union"):
        kit.build("fggp", [kit.tiny_silo(0)])[1].client(0)
    kit.build("fggp", [kit.tiny_silo(0)], pairs="union")[1].client(0)


def test_bytes(kit):
    """Beside FedAvg's the augmentor's d a + a² each way, up 4 C p + 8 C, down at most M C (4 p + 8)."""
    silos = [kit.tiny_silo(client) for client in range(2)]
    plain, each = kit.build("fedavg", silos)[0].expected_bytes()[0], 4 * (3 * 5 + 25)
    up, down = kit.build("fggp", silos, augmentor_width=5, memory=3)[0].expected_bytes()
    assert up - plain == 200 * (each + 2 * (16 + 8))
    assert down - plain == 200 * (each + 3 * 2 * (16 + 8))
    server, federation = kit.build("fggp", silos, augment=0.0)  # nobody draws links
    assert server.expected_bytes()[0] - plain == 200 * 2 * (16 + 8)
    play(server, federation, 2)
    assert federation.client(0).upload().keys() == server.weights.keys() == federation.client(0).weights.keys()


def test_what_leaves_a_silo():
    check_sent(
        "fggp",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        describe sums: prototype float32 [classes, width] per_class=min_count
        describe counts: counts int64 [classes] per_class=min_count
        """,
    )
