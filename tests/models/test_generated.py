"""Generated features: the same outputs as known ones, and a gradient for them; heads on vectors that are no nodes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.models import GraphTensors, build, entry
from graphsilo.models.generated import GeneratedGraph, RelinkedView
from graphsilo.models.view import normalise
from graphsilo.random import generator
from kit.backbones import DOUBLE, IDS, VARIANTS, made, shaken

ROWS = np.array([7, 2, 19, 0, 11])


@pytest.mark.parametrize("rows", [None, ROWS], ids=["full", "some"])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_outputs_and_gradients(name, options, rows, make_graph) -> None:
    """Against outputs on the same features as constants, and against finite differences."""
    graph, model = make_graph(nodes=20, seed=1), shaken(made(name, options)).double()
    features = torch.from_numpy(graph.features).double().requires_grad_()
    links = graph.adjacency()
    if entry(name).relational:
        with pytest.raises(UnsupportedError, match="has no tables of links"):
            model(GeneratedGraph(features, links).view(rows))
        return
    known = GraphTensors(graph, dtype=DOUBLE).view(rows)
    view = GeneratedGraph(features, links).view(rows)
    near = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)  # hops of constants are made in float32
    near(model(view), model(known))
    near(model.embed(view), model.embed(known))
    for mine, theirs in zip(model.outputs(view, generator(3)), model.outputs(known, generator(3)), strict=True):
        near(mine, theirs)
    weights = torch.randn(model(view).shape, generator=generator(4), dtype=DOUBLE)
    leaves = [features, *model.parameters()]
    slope, *others = torch.autograd.grad((weights * model(view)).sum(), leaves, allow_unused=True)
    expected = torch.autograd.grad((weights * model(known)).sum(), leaves[1:], allow_unused=True)
    for left, right in zip(others, expected, strict=True):
        near(left, right)
    direction = torch.randn(features.shape, generator=generator(5), dtype=DOUBLE)

    def shifted(step):
        with torch.no_grad():
            return float((weights * model(GeneratedGraph(features + step * direction, links).view(rows))).sum())

    found = (shifted(1e-6) - shifted(-1e-6)) / 2e-6
    assert float((slope * direction).sum()) == pytest.approx(found, rel=1e-4, abs=1e-6)


def test_what_is_made_once_for_a_graph_is_refused_where_that_changes(make_graph) -> None:
    """As a backbone of a person's own may ask for: the graph's own features are not those that are generated."""
    graph = make_graph(nodes=20, seed=1)
    generated = GeneratedGraph(torch.from_numpy(graph.features), graph.adjacency()).full
    drawn = RelinkedView(GraphTensors(graph).full, torch.tensor([[0], [1]]), torch.tensor([1.0]))
    for view, what in ((generated, "generated features"), (drawn, "drawn links")):
        with pytest.raises(UnsupportedError, match=f"once and for all, before training, and {what} change"):
            view.constant(("own",), lambda data: data.graph.features)


@pytest.mark.parametrize("name", ["sage", "gin", "gamlp"])
def test_other_features_on_the_same_links(name, make_graph) -> None:
    graph, model = make_graph(nodes=20, seed=1), made(name, {})
    first, second = (torch.from_numpy(factor * graph.features) for factor in (1, 2))
    one = GeneratedGraph(first, graph.adjacency())
    torch.testing.assert_close(model(one.full), model(GraphTensors(graph).full))
    other = one.with_features(second)
    assert other.matrix("gcn") is one.matrix("gcn")
    torch.testing.assert_close(model(other.full), model(GeneratedGraph(second, graph.adjacency()).full))


def test_known_graphs_have_their_fast_path_afterwards(make_graph) -> None:
    graph, model = make_graph(), made("gcn", {})
    features = torch.from_numpy(graph.features).requires_grad_()
    assert model.trace(GeneratedGraph(features, graph.adjacency()).full, None) is None
    data = GraphTensors(graph)
    assert model.trace(data.full, None) is not None
    assert model.trace(GeneratedGraph(features, graph.adjacency()).full, None) is None


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_heads_on_vectors(name, options, make_graph) -> None:
    """What the model says of embeddings it says of vectors in their place, or why it cannot."""
    model, view = shaken(made(name, options)), GraphTensors(make_graph(seed=1)).view(ROWS)
    if model.reach is not None:
        with pytest.raises(UnsupportedError, match=r"mixes nodes along their links.*Choose mlp"):
            model.classify(torch.zeros(3, model.embedding_dim))
    else:
        torch.testing.assert_close(model.classify(model.embed(view)), model(view))


@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "sage"])
def test_every_head_of_graphs_takes_vectors(name, make_collection) -> None:
    model = build(name, num_features=5, num_classes=2, task="graph", seed=0, hidden=4)
    view = GraphTensors(make_collection()).full
    torch.testing.assert_close(model.classify(model.embed(view)), model(view))


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_drawn_links(name, options, make_graph) -> None:
    """The graph's own links, and one of weight 0: outputs are the graph's. Gradients against finite differences."""
    graph, model = make_graph(nodes=20, seed=1), shaken(made(name, options)).double()
    data, upper = GraphTensors(graph, dtype=DOUBLE), sp.triu(graph.adjacency(), 1).tocoo()
    lacks = np.argwhere(np.triu(1 - graph.adjacency().toarray(), 1))[0]
    ends = torch.from_numpy(np.append(np.stack([upper.row, upper.col]), lacks[:, None], axis=1)).long()
    values = torch.ones(ends.shape[1], dtype=DOUBLE)
    values[-1] = 0.0
    if entry(name).relational or (name == "appnp" and model.message_layers):
        with pytest.raises(UnsupportedError, match="choose gcn, sage, gat, gin, gcnii"):
            model.outputs(RelinkedView(data.full, ends, values))
        return
    draw = None if name == "gat" else generator(3)  # its attention drops links in another order
    found = model.outputs(RelinkedView(data.full, ends, values), draw)
    near = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)
    draw = None if name == "gat" else generator(3)
    for mine, theirs in zip(found, model.outputs(data.full, draw), strict=True):
        near(mine, theirs)
    if model.message_layers == 0 or name == "gat":  # attention weighs links by itself
        return
    weights = torch.randn(found.logits.shape, generator=generator(4), dtype=DOUBLE)
    direction = torch.randn(values.shape, generator=generator(5), dtype=DOUBLE)

    def value(links):
        return (weights * model(RelinkedView(data.full, ends, links))).sum()

    values = values + 0.5
    slope = torch.autograd.grad(value(leaf := values.clone().requires_grad_()), leaf)[0]
    with torch.no_grad():
        change = float(value(values + 1e-6 * direction) - value(values - 1e-6 * direction)) / 2e-6
    assert float(slope @ direction) == pytest.approx(change, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("norm", ["gcn", "mean", "sum", "row", "loops"])
@pytest.mark.parametrize("nodes", [3, 40], ids=["multiplied densely", "sparsely"])
def test_the_matrices_of_drawn_links(norm, nodes, make_graph) -> None:
    """Node 2 has no link; on 40 nodes one product is sparse."""
    links = sp.csr_matrix((np.float32([2.0, 2.0]), ([0, 1], [1, 0])), shape=(nodes, nodes))
    view = GraphTensors(make_graph(nodes=nodes, seed=1)).full
    block = RelinkedView(view, torch.tensor([[0], [1]]), torch.tensor([2.0])).blocks(norm, 1)[0]
    expected = torch.from_numpy(normalise(links, norm).toarray())
    torch.testing.assert_close(block.dense(), expected)
    rows = torch.randn(nodes, 4, generator=generator(1))
    torch.testing.assert_close(block @ rows, expected @ rows)
