"""ReNode: conflicts and weights worked out by hand, and what they do to training."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import ConfigError
from graphsilo.methods.renode import ReNodeConfig, conflicts, weights_of
from graphsilo.random import numpy_generator
from graphsilo.testing.small import play

ITEMS, LABELS = np.array([0, 1, 3]), np.array([0, 0, 1])


def path(nodes):
    links = np.diag(np.ones(nodes - 1), 1)
    return sp.csr_matrix(links + links.T)


def exact(adjacency, items, labels, alpha):
    """The definition, with a dense inverse."""
    whole = adjacency.toarray() + np.eye(adjacency.shape[0])
    root = np.diag(whole.sum(0) ** -0.5)
    rank = alpha * np.linalg.inv(np.eye(len(whole)) - (1 - alpha) * root @ whole @ root)
    mean = {c: rank[items[labels == c]].mean(0) for c in set(labels)}
    return [sum(rank[v] @ g for c, g in mean.items() if c != y) for v, y in zip(items, labels, strict=True)]


def drawn(nodes=40, links=90, seed=0):
    draw = numpy_generator(seed, "test")
    ends = draw.integers(0, nodes, (2, links))
    matrix = sp.csr_matrix((np.ones(links), ends), shape=(nodes, nodes))
    matrix = ((matrix + matrix.T) > 0).astype(float)
    return sp.csr_matrix(matrix - sp.diags(matrix.diagonal())), draw.permutation(nodes)[:12], draw.integers(0, 3, 12)


def test_by_hand():
    """A path of five nodes, as in the specification: 0 is typical of its class, 1 is next to the other one."""
    found = conflicts(path(5), ITEMS, LABELS, 0.15)
    assert found.tolist() == pytest.approx([0.124347, 0.175533, 0.149940], abs=1e-6)
    assert weights_of(found, 0.5, 1.5, "last").tolist() == pytest.approx([1.5, 0.5, 1.0])
    assert weights_of(found, 0.5, 1.5, "count").tolist() == pytest.approx([1.5, 0.75, 1.25])


@pytest.mark.parametrize("alpha", [0.05, 0.15, 0.5, 1.0])
def test_conflicts_are_those_of_the_dense_inverse(alpha):
    adjacency, items, labels = drawn()
    found = conflicts(adjacency, items, labels, alpha)
    np.testing.assert_allclose(found, exact(adjacency, items, labels, alpha), atol=1e-6)


def test_the_mean_weight_and_the_order():
    conflict = np.random.default_rng(0).random(17)
    found = weights_of(conflict, 0.25, 1.75, "last")
    assert found.mean() == pytest.approx(1.0)
    assert np.all(np.diff(found[conflict.argsort()]) < 0)
    assert (found.max(), found.min()) == (1.75, 0.25)


def test_names_of_classes_and_order_of_nodes_mean_nothing():
    adjacency, items, labels = drawn()
    plain = weights_of(conflicts(adjacency, items, labels, 0.15), 0.5, 1.5)
    renamed = weights_of(conflicts(adjacency, items, (labels + 1) % 3, 0.15), 0.5, 1.5)
    np.testing.assert_allclose(renamed, plain)
    order = np.random.default_rng(1).permutation(adjacency.shape[0])
    where = order.argsort()
    moved = weights_of(conflicts(adjacency[order][:, order], where[items], labels, 0.15), 0.5, 1.5)
    np.testing.assert_allclose(moved, plain)


def test_alike_nodes_weigh_the_same():
    """Ranks 0 and 1 become 1/2 twice, 2 and 3 become 5/2, of 3; sums that differ in the last bits alone are equal."""
    found = weights_of(np.array([0.1, 0.3, 0.1 + 1e-16, 0.3]), 0.5, 1.5, "last")
    high, low = 1 + 0.5 * np.cos(np.pi / 6), 1 - 0.5 * np.cos(np.pi / 6)
    assert found.tolist() == pytest.approx([high, low, high, low])
    mirrored = conflicts(path(5), np.array([0, 4, 1, 3, 2]), np.array([0, 0, 1, 1, 1]), 0.15)
    weights = weights_of(mirrored, 0.5, 1.5)
    assert weights[0] == weights[1] != weights[2] == weights[3]


def test_without_conflict_everybody_weighs_half_way():
    apart = sp.block_diag([path(3), path(3)], format="csr")
    labels = np.array([0, 0, 1])
    assert conflicts(apart, np.array([0, 1, 4]), labels, 0.15).tolist() == [0.0] * 3
    assert weights_of(np.zeros(3), 0.5, 1.5).tolist() == [1.0] * 3
    assert conflicts(path(4), np.array([0, 2]), np.array([1, 1]), 0.15).tolist() == [0.0, 0.0]
    assert weights_of(np.zeros(2), 1.5, 2.5).tolist() == [2.0] * 2
    for count in (0, 1):
        assert weights_of(np.full(count, 0.3), 0.5, 1.5, "last").tolist() == [1.0] * count


def test_links_count_in_both_directions():
    adjacency, items, labels = drawn()
    one_way = sp.csr_matrix(sp.triu(adjacency))
    np.testing.assert_allclose(conflicts(one_way, items, labels, 0.15), conflicts(adjacency, items, labels, 0.15))


def after(kit, name, silos, **settings):
    server, federation = kit.build(name, silos, **settings)
    play(server, federation, 3)
    return server.weights, federation


@pytest.mark.parametrize(
    "settings", [{}, {"loss": "focal"}, {"alpha": 1.0}, {"w_max": 4.0, "rank_over": "last"}], ids=str
)
def test_a_steps_gradient_is_that_of_the_weighted_mean(kit, settings):
    """(1/|L|) Σ w_v ℓ_v, not over Σ w_v; with ℓ the focal loss where that is set.

    Nodes 0, 1 and 3 of a path of six, of classes 0, 1 and 1, have conflicts 0.170, 0.235, 0.105, hence ranks 1, 2 and
    0: cos(π r / 3) is 1/2, −1/2 and 1, cos(π r / 2) is 0, −1 and 1. With α = 1 nobody reaches anybody, and all weigh 1.
    """
    silo = kit.tiny_silo(0, train=ITEMS)
    options = {"optimizer": "sgd", "lr": 1.0, "weight_decay": 0.0, "local_epochs": 1}
    server, federation = kit.build("renode", [silo], **options, **settings)
    client = federation.client(0)
    labels, parameters = torch.from_numpy(silo.labels[silo.train]), list(client.model.parameters())
    found = conflicts(path(6), ITEMS, labels.numpy(), 0.15)
    assert found.tolist() == pytest.approx(exact(path(6), ITEMS, labels.numpy(), 0.15), abs=1e-6)
    assert found.tolist() == pytest.approx([0.170189, 0.235452, 0.104926], abs=1e-6)
    weights = torch.tensor([1.25, 0.75, 1.5])
    if "alpha" in settings:
        weights = torch.ones(3)
    if "rank_over" in settings:
        weights = torch.tensor([2.25, 0.5, 4.0])
    right = client.model(client.data.full)[torch.from_numpy(silo.train)].softmax(1)[torch.arange(3), labels]
    value = -(weights * (1 - right) ** (2.0 if "loss" in settings else 0.0) * right.log()).sum() / 3
    expected = [p.detach() - g for p, g in zip(parameters, torch.autograd.grad(value, parameters), strict=True)]
    play(server, federation, 1)
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, atol=1e-6, rtol=1e-5)


def test_weights_are_made_once_and_kept_in_the_state(kit, monkeypatch):
    silos = [kit.tiny_silo(0, train=ITEMS)]
    _, federation = after(kit, "renode", silos)
    state = federation.client(0).state()
    monkeypatch.setattr("graphsilo.methods.renode.conflicts", None)
    server, other = kit.build("renode", silos)
    other.client(0).load_state(state)
    play(server, other, 1)
    assert torch.equal(other.client(0).node_weights, state["node_weights"])


def test_bounds_must_leave_room(kit):
    with pytest.raises(ConfigError, match=r"w_min is 2, more than method\.w_max, 1\.5; lower the one"):
        kit.build("renode", [kit.tiny_silo(0)], w_min=2.0)


def test_a_run_says_that_equal_weights_are_fedavg():
    told = [ReNodeConfig(w_min=low).explain_no_effect(Schema("node", 3, 2), 100, 10, "gcn") for low in (0.5, 1.5)]
    assert told[0] == ""
    assert "all nodes weigh 1.5, as method.w_min is method.w_max" in told[1]
