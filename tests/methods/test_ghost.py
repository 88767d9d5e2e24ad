"""GHOST: what generators imitate, what holds the model fast, and the one round."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo import models
from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.errors import MessageError
from graphsilo.federation import registry
from graphsilo.federation.message import Empty
from graphsilo.methods.ghost import ProxyReply, build_generator, consistency_slope, imitation
from graphsilo.random import generator
from graphsilo.training.local import weights_of
from graphsilo.training.synthesis import Synthetic, nearest
from kit.messages import check_sent
from kit.one_shot import gone_on

CONFIG = registry.load("ghost").config
SHORT = {"local_epochs": 3, "noise_dim": 4, "graphs": 2, "student_steps": 2}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed))


def made(count=6, width=3):
    features = drawn(count, width)
    return Synthetic(features, nearest(features, 2), torch.arange(count) % 2)


NONE = sp.csr_matrix((3, 3), dtype=np.float32)


def test_features_that_are_imitated_by_hand():
    """Directions at a right angle: 1. Softmaxes p = (σ(1), σ(−1)) of the node and q = (σ(−2), σ(2)) of its image:
    log p/q is −log(1 + e⁻¹) + log(1 + e²) and 3 less."""
    rows, real = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    first, share = math.log(1 + math.exp(2)) - math.log(1 + math.exp(-1)), 1 / (1 + math.exp(-1))
    found = imitation(rows, real, NONE[:1, :1], CONFIG(structure=0.0, spread=2.0))
    assert float(found) == pytest.approx(1 + 2 * (share * first + (1 - share) * (first - 3)))
    assert float(imitation(real, real, NONE[:1, :1], CONFIG(structure=0.0))) == pytest.approx(0.0, abs=1e-6)


def test_structure_pulls_each_node_to_the_one_that_it_goes_with():
    """Three nodes, each image by the next one: what is added is (1 − α) λ_f mean |x_i − x̂_j|² over the couples, 1, 4
    and 0, and its gradient 2/n of their differences; who goes with whom has none."""
    real = 5 * torch.eye(3)
    rows = torch.tensor([[0.0, 4.0, 0.0], [0.0, 0.0, 7.0], [5.0, 0.0, 0.0]]).requires_grad_()
    plain, whole = (imitation(rows, real, NONE, CONFIG(structure=weight, alpha=0.25)) for weight in (0.0, 3.0))
    assert float((whole - plain).detach()) == pytest.approx(3 * 0.75 * 5 / 3, rel=1e-5)
    (slope,) = torch.autograd.grad(whole - plain, [rows])
    away = torch.tensor([[0.0, -1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(slope, 3 * 0.75 * 2 / 3 * away, atol=1e-5, rtol=1e-5)


def test_a_link_is_a_link():
    ends, weights = np.array([[0, 1, 2], [0, 0, 1]]), np.array([7.0, 2.0, 0.5], dtype=np.float32)
    graph = Graph(np.eye(3, dtype=np.float32), ends, np.array([0, 1, 0]), 2, "path", edge_weights=weights)
    assert undirected_adjacency(graph).toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("name", ["gcn", "gat", "sgc"])
def test_consistency_is_differentiated_as_it_is_defined(name, monkeypatch):
    """Σ ⟨h_i Wᵀ, tanh(h_j Wᵀ)⟩² link by link; a model without such a W has its embeddings alone."""
    monkeypatch.setattr("graphsilo.methods.ghost._EDGES", 12)
    graph, settings = made(), {"gcn": {"hidden": 5}, "gat": {"hidden": 4, "heads": 2}, "sgc": {"layers": 1}}[name]
    model = models.build(name, num_features=3, num_classes=2, seed=1, **settings)
    view = graph.tensors().full
    rows = model.embed(view)
    first = [part for part in model.parameters() if part.shape == (3, rows.shape[1])]
    if first:
        rows = rows @ first[0].t()
    value = sum((rows[i] * rows[j].tanh()).sum().square() for i, j in graph.ends.t())
    found = consistency_slope(model, view, graph.ends)
    wanted = torch.autograd.grad(value, list(model.parameters()), allow_unused=True) if rows.requires_grad else ()
    for slope, each in zip(found, wanted, strict=bool(wanted)):
        torch.testing.assert_close(slope, torch.zeros_like(slope) if each is None else each, atol=1e-5, rtol=1e-4)
    assert any(slope.any() for slope in found) is (name != "sgc")
    assert not any(slope.any() for slope in consistency_slope(model, view, graph.ends[:, :0]))


def test_what_holds_the_model_is_the_sum_over_earlier_graphs(kit):
    """λ Σ_s Σ_p |I_sp| (θ_p − θ*_sp)² and its gradient, anchor by anchor; at a single anchor nothing."""
    server, _ = kit.build("ghost", [kit.tiny_silo(0)], **SHORT, retention=0.7)
    server.parameters = parts = list(server.student.parameters())
    graph, caught = made(), []
    server.optimizer = type("Steps", (), {"step": lambda self, gradients: caught.append(gradients)})()
    view = graph.tensors().full
    weights = [[drawn(*part.shape, seed=number).abs() for part in parts] for number in range(3)]
    places = [[drawn(*part.shape, seed=9 + number) for part in parts] for number in range(3)]
    here = [[part.detach().clone() for part in parts]]
    for several, anchors in ((weights, places), (weights[:1], here)):
        server.importance = [sum(each).double() for each in zip(*several, strict=True)]
        products = [[w * a for w, a in zip(*each, strict=True)] for each in zip(several, anchors, strict=True)]
        server.anchors = [sum(each).double() for each in zip(*products, strict=True)]
        value = server.step(view, graph.labels, None)
        entropy = F.cross_entropy(server.student(view), graph.labels)
        assert value == pytest.approx(float(entropy.detach()))
        flat = [torch.cat([part.flatten() for part in each]) for each in (*several, parts, *anchors)]
        many = len(several)
        held = sum((w * (flat[many] - a).square()).sum() for w, a in zip(flat[:many], flat[many + 1 :], strict=True))
        assert float(held.detach()) == 0 if anchors is here else float(held.detach()) > 1
        wanted = torch.autograd.grad(entropy + 0.7 * held, parts)
        for found, each in zip(caught.pop(), wanted, strict=True):
            torch.testing.assert_close(found, each, atol=1e-5, rtol=1e-4)


def test_what_matters_is_asked_before_the_steps_and_kept_as_after_them(kit, monkeypatch):
    """Gradients of −1 at the first graph and −2 at the second: sums of 3, and of θ*_1 + 2 θ*_2."""
    before, after = [], []

    def slope(model, view, ends):
        before.append([part.detach().clone() for part in model.parameters()])
        return [torch.full_like(part, -len(before)) for part in model.parameters()]

    monkeypatch.setattr("graphsilo.methods.ghost.consistency_slope", slope)
    server, federation = kit.build("ghost", [kit.tiny_silo(0)], **SHORT)
    parts = list(server.student.parameters())
    start = [part.detach().clone() for part in parts]
    server.after_step = lambda work: after.append([part.detach().clone() for part in parts])
    kit.rounds(server, federation)
    for place, (importance, anchor) in enumerate(zip(server.importance, server.anchors, strict=True)):
        assert torch.equal(before[0][place], start[place])
        assert torch.equal(before[1][place], after[0][place])
        assert bool((importance == 3).all())
        torch.testing.assert_close(anchor, after[0][place].double() + 2 * after[1][place].double())


def test_one_round(kit, monkeypatch):
    """Who has nothing to imitate sends nothing that is used, and receives the model like the others."""
    monkeypatch.setattr("graphsilo.methods.ghost.LARGEST", 8)
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=()), kit.tiny_silo(2, nodes=9)]
    server, federation = kit.build("ghost", silos, **SHORT)
    graphs, steps, start = [], [], {name: value.clone() for name, value in server.weights.items()}
    make, step = server.make, server.step
    server.make = lambda client, draw: graphs.append((client, make(client, draw))) or graphs[-1][1]
    server.step = lambda *parts: steps.append(step(*parts)) or steps[-1]
    kit.rounds(server, federation)
    assert [(client, len(graph.labels)) for client, graph in graphs] == [(0, 6), (0, 6), (2, 8), (2, 8)]
    assert all(graph.labels.bincount().tolist() == [len(graph.labels) // 2] * 2 for _, graph in graphs)
    assert not torch.equal(graphs[0][1].features, graphs[1][1].features)
    assert len(steps) == 4 * 2
    assert server.uploads == {}
    assert not same(server.weights, start)
    for client in federation.clients:
        assert same(weights_of(federation.client(client).model), server.weights)
    expected = sum(tensor.nbytes for tensor in weights_of(server.made_by).values())
    assert server.expected_bytes() == (3 * expected, 3 * 4 * server.student.num_parameters)


def test_a_generator_learns_what_its_classes_look_like(kit):
    """Rows of class 0 point one way, of class 1 the other; without its last pass it would be as it was drawn."""
    silo = kit.tiny_silo(0, nodes=8, train=range(8))
    silo.graph.features[:] = np.where(silo.graph.labels[:, None] == 0, [[3.0, 0.0, 0.1]], [[0.0, 3.0, -0.1]])
    _, federation = kit.build("ghost", [silo], local_epochs=60, noise_dim=4, batch_size=5, lr=0.01)
    client = federation.client(0)
    reply = client.imitate(Empty())
    assert reply.num_nodes == 8
    maker = build_generator(client.config, silo.schema, generator(0))
    maker.load_state_dict(dict(reply.generator))
    labels = torch.arange(20) % 2
    rows = maker.of_classes(drawn(20, 4), labels).detach()
    real = torch.tensor([[3.0, 0.0, 0.1], [0.0, 3.0, -0.1]])[labels]
    assert float(F.cosine_similarity(rows, real, dim=1).min()) > 0.9


def test_classes_with_too_few_nodes_are_not_imitated(kit):
    """Nodes 0 and 2 are of class 0, 1 of class 1: where two are the fewest, the generator knows nothing of node 1."""

    def imitated(fewest, changed=None):
        silo = kit.tiny_silo(0)
        if changed is not None:
            silo.graph.features[changed] += 5.0
        return kit.build("ghost", [silo], **SHORT, min_count=fewest)[1].client(0).imitate(Empty())

    plain = imitated(2).generator
    assert same(imitated(2, changed=1).generator, plain)
    assert not same(imitated(2, changed=2).generator, plain)
    assert imitated(3).num_nodes == 0


def test_a_stopped_run_goes_on_to_the_same_model(kit):
    def build():
        return kit.build("ghost", [kit.tiny_silo(client) for client in range(2)], **SHORT, retention=0.1, dropout=0.5)

    server, federation = build()
    kit.rounds(server, federation)
    assert same(gone_on(kit, build).weights, server.weights)


def test_another_generator_is_refused(kit):
    server, _ = kit.build("ghost", [kit.tiny_silo(0)], **SHORT)
    other = build_generator(CONFIG(noise_dim=5), server.schema, generator(0))
    with pytest.raises(MessageError, match="must have shape"):
        server.check(0, ProxyReply(generator=weights_of(other), num_nodes=6))


def test_what_leaves_a_silo():
    check_sent(
        "ghost",
        """
        adopt clients: counts
        imitate generator: generator float32 recoverable per_class=True where a class has few nodes
        imitate num_nodes: counts
        """,
    )
