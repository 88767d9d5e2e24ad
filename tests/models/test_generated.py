"""Generated features: the same outputs as known ones, and a gradient for them; heads on vectors that are no nodes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from graphsilo.errors import UnsupportedError
from graphsilo.models import GraphTensors, build, entry
from graphsilo.models.generated import GeneratedGraph
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
    if entry(name).keeps == "sum":  # made before training
        with pytest.raises(UnsupportedError, match="once and for all, before training"):
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
