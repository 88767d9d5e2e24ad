"""FGSSL: contrast and structure by hand, what the views leave out, and that the downloaded model stays as it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError
from graphsilo.methods import fgssl
from graphsilo.methods.fgssl import Links, ScaledOperator, contrast, diverge_differences, diverge_neighbours, thin_graph
from graphsilo.models.operators import operator
from graphsilo.random import generator
from graphsilo.training.objective import Step

PATH = Links(torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1]), torch.zeros(4))
"""Nodes 0, 1 and 2 in a row."""


def term(kit, step=None, **settings):
    """The term of a client's step with the model that it was sent, and that client."""
    _, federation = kit.build("fgssl", [kit.tiny_silo(0)], **settings)
    client = federation.client(0)
    draw = generator(7)
    items, labels = np.array([0, 1, 2]), torch.tensor([0, 1, 0])
    empty = torch.zeros(3, 4)
    step = Step(items, labels, empty[:, :2], empty, client.data.kept_view(items), None)
    return client.term(client.teacher(client.weights), draw, step), client


def contrast_as_defined(mine, theirs, labels, temperature):
    """−mean_i 1/|P_i| Σ_p (s_ip − log Σ_j e^{s_ij}), pair by pair."""
    scores = F.cosine_similarity(mine[:, None], theirs[None], dim=2) / temperature
    logs = scores - scores.exp().sum(1, keepdim=True).log()
    return -torch.stack([row[labels == label].mean() for row, label in zip(logs, labels, strict=True)]).mean()


def test_the_contrast_is_its_formula(kit):
    mine, theirs = (torch.randn(7, 4, generator=generator(place)) for place in range(2))
    labels = torch.tensor([0, 2, 2, 0, 0, 2, 3])
    for temperature in (0.2, 2.0):
        found = contrast(mine, theirs, labels, temperature, generator(0))
        torch.testing.assert_close(found, contrast_as_defined(mine, theirs, labels, temperature))


def test_the_contrast_by_hand():
    """Two nodes of two classes at right angles, τ = ½: log(e² + 1) − 2 each, or − 0 with the other's embeddings."""
    rows, labels = torch.eye(2), torch.tensor([0, 1])
    right = math.log(math.exp(2) + 1) - 2
    assert float(contrast(3 * rows, rows, labels, 0.5, generator(0))) == pytest.approx(right)
    assert float(contrast(rows.flip(0), rows, labels, 0.5, generator(0))) == pytest.approx(right + 2)


def test_many_nodes_are_contrasted_some_at_a_time(monkeypatch):
    monkeypatch.setattr(fgssl, "MOST_ANCHORS", 2)
    mine, theirs = (torch.randn(5, 3, generator=generator(place)) for place in range(2))
    labels = torch.tensor([0, 1, 1, 0, 1])
    chosen = torch.randperm(5, generator=generator(3))[:2]
    scores = F.cosine_similarity(mine[chosen][:, None], theirs[None], dim=2)
    logs = scores - scores.exp().sum(1, keepdim=True).log()
    same = labels[chosen][:, None] == labels
    wanted = -((logs * same).sum(1) / same.sum(1)).mean()
    torch.testing.assert_close(contrast(mine, theirs, labels, 1.0, generator(3)), wanted)


def test_likeness_of_neighbours_by_hand():
    """Node 1 has cosines 1 and 0 with its neighbours in f, 0 and 0 in g: KL((½, ½) ‖ (e, 1) / (e + 1)), ω = 1.

    Nodes 0 and 2 have one neighbour each, which has all of both; a fourth node has none and does not count.
    """
    mine = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    theirs = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    share = math.e / (math.e + 1)
    wanted = 0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share))
    assert float(diverge_neighbours(mine, theirs, PATH, 1.0)) == pytest.approx(wanted / 3)
    share = math.exp(4) / (math.exp(4) + 1)
    wanted = 0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share))
    assert float(diverge_neighbours(mine, theirs, PATH, 0.25)) == pytest.approx(wanted / 3)
    # A link of weight e in f's favour of the second neighbour makes both even.
    heavy = PATH._replace(log_weights=torch.tensor([0.0, 0.0, 1.0, 0.0]))
    even = math.e / (math.e + 1)  # of g now
    wanted = even * math.log(even / 0.5) + (1 - even) * math.log((1 - even) / 0.5)
    assert float(diverge_neighbours(mine, theirs, heavy, 1.0)) == pytest.approx(wanted / 3)


def test_differences_of_ends_by_hand():
    """One link: f's ends differ by (1, 0), g's by (0, 0); ω = ½: KL((½, ½) ‖ (e², 1) / (e² + 1))."""
    link = Links(torch.tensor([0]), torch.tensor([1]), torch.zeros(1))
    mine, theirs = torch.tensor([[1.0, 2.0], [2.0, 2.0]]), torch.ones(2, 2)
    share = math.exp(2) / (math.exp(2) + 1)
    wanted = 0.5 * math.log(0.5 / share) + 0.5 * math.log(0.5 / (1 - share))
    assert float(diverge_differences(mine, theirs, link, 0.5)) == pytest.approx(wanted)


@pytest.mark.parametrize("structure", ["neighbours", "differences"])
def test_the_received_model_on_whole_graphs_has_nothing_to_learn_of_itself(kit, structure):
    """The first step of a round: the divergence is 0 and so is its gradient; with links left out it is not."""
    whole = {"strong": (0.0, 0.0), "weak": (0.0, 0.0)}
    for settings, is_same in ((whole, True), ({**whole, "strong": (0.4, 0.0)}, False)):
        value, client = term(kit, contrast=0.0, structure=structure, **settings)
        slopes = torch.autograd.grad(value, client.trainer.parameters, allow_unused=True)
        steep = max(float(slope.abs().max()) for slope in slopes if slope is not None)
        assert (abs(float(value.detach())) < 1e-6) == is_same
        assert (steep < 1e-5) == is_same


def test_a_silo_without_links_is_contrasted_alone(kit):
    silo = kit.tiny_silo(0)
    silo = replace(silo, graph=silo.graph.with_edges(np.zeros((2, 0), dtype=np.int64)))
    for structure in ("neighbours", "differences"):
        found = [kit.rounds(*kit.build("fgssl", [silo], distillation=weight, structure=structure))
                 for weight in (0.0, 5.0)]  # fmt: skip
        assert all(torch.equal(found[0][name], value) for name, value in found[1].items())


def test_the_downloaded_model_is_the_teacher_of_all_steps_and_does_not_move(kit):
    server, federation = kit.build("fgssl", [kit.tiny_silo(0)], local_epochs=4)
    client, seen = federation.client(0), []
    sent = {name: value.clone() for name, value in server.weights.items()}
    known = client.term

    def spy(teacher, draw, step):
        seen.append({name: value.clone() for name, value in teacher.weights.items()})
        return known(teacher, draw, step)

    client.term = spy
    kit.rounds(server, federation)
    assert len(seen) == 4
    assert all(torch.equal(each[name], value) for each in seen for name, value in sent.items())
    assert not all(torch.equal(client.weights[name], value) for name, value in sent.items())


def test_what_a_view_leaves_out(kit):
    """Links in both directions, and whole columns; all and nothing at the ends; another one each time."""
    _, federation = kit.build("fgssl", [kit.tiny_silo(0, nodes=11)])
    client, draw, features = federation.client(0), generator(0), federation.client(0).data.graph.features
    patterns = set()
    for _ in range(20):
        view = client.view(0.5, 0.5, draw)
        graph = view.data.graph
        assert graph.num_edges == 10  # five of ten links
        assert sp.linalg.norm(graph.adjacency() - graph.adjacency().T) == 0
        hidden = (graph.features == 0).all(0)
        assert np.array_equal(graph.features[:, ~hidden], features[:, ~hidden])
        patterns.add((tuple(map(tuple, graph.edges)), *hidden))
        product = view.features() @ torch.eye(3)
        assert np.array_equal(product.numpy(), graph.features)
    assert len(patterns) > 15
    assert client.view(0.0, 0.0, draw).data.graph.num_edges == 20
    nothing = client.view(1.0, 1.0, draw).data.graph
    assert nothing.num_edges == 0
    assert not nothing.features.any()


def test_thin_graphs_keep_the_weights_of_their_links(kit):
    graph = kit.tiny_silo(0).graph
    weights = np.arange(1, 11, dtype=np.float32)
    graph = replace(graph, features=sp.csr_matrix(graph.features), edge_weights=weights)
    kept, shown = np.arange(10) % 5 > 1, np.array([1, 0, 1], dtype=np.float32)
    thin = thin_graph(graph, kept, shown)
    assert np.array_equal(thin.edge_weights, weights[kept])
    assert np.array_equal(thin.features.toarray(), graph.features.toarray() * shown)


@pytest.mark.parametrize("dense", [True, False])
def test_columns_of_an_operator_are_scaled_both_ways(dense):
    matrix = np.array([[1.0, 0, 2, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0, 0]], dtype=np.float32)
    scale = torch.tensor([2.0, 5.0, 0.0, 1.0, 1.0, 1.0, 3.0])
    inner = operator(matrix if dense else sp.csr_matrix(matrix), "cpu", torch.float32)
    found = ScaledOperator(inner, scale)
    assert torch.equal(found.dense(), torch.from_numpy(matrix) * scale)
    right = torch.randn(7, 2, generator=generator(0)).requires_grad_()
    product = found @ right
    torch.testing.assert_close(product, found.dense() @ right)
    (slope,) = torch.autograd.grad(product.sum(), right)
    torch.testing.assert_close(slope, found.dense().t() @ torch.ones(2, 2))


def test_running_statistics_move_in_the_losses_pass_alone(kit):
    def buffers(name, **settings):
        server, federation = kit.build(
            name,
            [kit.tiny_silo(0)],
            model="gin",
            model_options={"norm": "batch"},
            local_epochs=1,
            lr=1e-30,
            optimizer="sgd",
            **settings,
        )
        kit.rounds(server, federation)
        return {key: value.clone() for key, value in federation.client(0).model.named_buffers()}

    plain, found = buffers("fedavg"), buffers("fgssl")
    assert plain
    assert all(torch.equal(found[name], value) for name, value in plain.items())


def test_a_model_without_hidden_layer_is_refused(kit):
    with pytest.raises(ConfigError, match=r"FGSSL compares the embeddings of a hidden layer.*has no hidden layer"):
        kit.rounds(*kit.build("fgssl", [kit.tiny_silo(0)], model="sgc"))
    kit.rounds(*kit.build("fgssl", [kit.tiny_silo(0)], model="sgc", contrast=0.0, distillation=0.0))


def test_sizes_of_silos_are_no_matter(kit):
    """One node, one training node, one class, and in batches."""
    silos = [kit.tiny_silo(0, nodes=1, train=[0]), kit.tiny_silo(1, train=[3]), kit.tiny_silo(2, train=[0, 2, 4]),
             kit.tiny_silo(3, train=[])]  # fmt: skip
    for structure in ("neighbours", "differences"):
        for batch in (0, 2):
            weights = kit.rounds(*kit.build("fgssl", silos, structure=structure, batch_size=batch), 2)
            assert all(bool(value.isfinite().all()) for value in weights.values())
