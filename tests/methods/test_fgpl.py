"""FGPL: targets, the prototypes' loss and what is sent, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from graphsilo.methods.fgpl import prototype_loss, targets_of
from graphsilo.random import generator
from graphsilo.training.prototypes import class_means
from kit.messages import check_sent


def test_targets_by_hand():
    """Class 0's mean points to the second of its three clusters: ¾ of that and ¼ of the mean of the others. Class 1 has
    one cluster, class 2 none."""
    means = torch.tensor([[0.0, 2.0], [1.0, 0.0], [1.0, 1.0]])
    clusters = torch.tensor([[1.0, 0.0], [0.0, 4.0], [8.0, 8.0], [3.0, 0.0]])
    targets, known = targets_of(means, clusters, torch.tensor([1, 0, 0, 0]), 0.75)
    assert targets.tolist() == [[0.25 * 11 / 2, 3.0 + 0.25 * 4.0], [1.0, 0.0], [0.0, 0.0]]
    assert known.tolist() == [True, True, False]


def test_the_loss_by_hand():
    """Rows (1, 0) and (0, 1) of class 0, (3, 0) of class 1, (1, 1) of class 2, which has no cluster; clusters (1, 0) of
    class 0 and (0, 1) of class 1; τ = ½.

    Class 0: −log e²/(e² + 1) and −log 1/(1 + e²), in the mean; r = (½, ½), (¼ + ¼)/2 from its target. Class 1: −log
    1/(1 + e²); r = (3, 0), (9 + 1)/2.
    """
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0], [1.0, 1.0]], requires_grad=True)
    clusters, classes = torch.eye(2), torch.tensor([0, 1])
    settings = {"nearest": 0.5, "pull": 0.5, "temperature": 0.5}
    loss = prototype_loss(rows, torch.tensor([0, 0, 1, 2]), clusters, classes, 3, **settings)
    sure, wrong = (-math.log(part / (1 + math.exp(2))) for part in (math.exp(2), 1.0))
    assert float(loss.detach()) == pytest.approx(((sure + wrong) / 2 + wrong + 0.5 * (0.25 + 5.0)) / 2)
    (slope,) = torch.autograd.grad(loss, rows)
    assert slope[2, 0] > 0  # the class mean reaches the model
    assert not slope[3].any()


def test_a_class_alone_has_no_contrast():
    """And where no class is both here and among clusters, there is nothing."""
    rows, settings = torch.tensor([[1.0, 0.0]]), {"nearest": 0.5, "pull": 0.0, "temperature": 0.02}
    for labels in ([0], [1]):
        loss = prototype_loss(rows, torch.tensor(labels), torch.eye(2)[1:], torch.tensor([0]), 2, **settings)
        assert float(loss) == 0.0


def test_prototypes_are_of_training_nodes_and_made_ones(kit):
    """Three labelled nodes, two of class 0 and one of class 1, to which one is added; class 2 is not described."""
    silo = kit.tiny_silo(0, classes=3, train=[0, 3, 1])
    server, federation = kit.build("fgpl", [silo, kit.tiny_silo(1, classes=3, train=[])], warm_up=10)
    kit.rounds(server, federation)
    client, draw = federation.client(0), generator(0, "client", 0, "round", 1, "prototypes")
    data, items, labels = client.oversampled.sample(draw)
    assert torch.bincount(labels, minlength=3).tolist() == [2, 2, 0]
    with torch.no_grad():
        means, _ = class_means(client.model.embed(data.view(items)), labels, 3)
    torch.testing.assert_close(server.clusters, means[:2])
    assert server.classes.tolist() == [0, 1]
    few = kit.build("fgpl", [silo], warm_up=10, min_count=2)
    kit.rounds(*few)
    assert few[0].classes.tolist() == [0]


def test_a_gradient_is_shortened(kit):
    """To a length of 1e-3, so that a step of rate 1 moves the model by that."""
    settings = {"max_norm": 1e-3, "lr": 1.0, "weight_decay": 0.0, "local_epochs": 1}
    _, federation = kit.build("fgpl", [kit.tiny_silo(0)], **settings)
    client = federation.client(0)
    before = torch.cat([value.detach().flatten().clone() for value in client.model.parameters()])
    client.train(type(client).train.types()[0]())
    after = torch.cat([value.detach().flatten() for value in client.model.parameters()])
    assert float((after - before).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_what_leaves_a_silo():
    check_sent(
        "fgpl",
        """
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
        """,
    )
