"""The generator of FedSage+: losses and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig
from graphsilo.models.dropout import relu_dropout
from graphsilo.random import generator
from graphsilo.training import impaired as impaired_graph
from graphsilo.training import neighgen
from graphsilo.training.impaired import AllNodes
from graphsilo.training.neighgen import Demand, NeighGen
from kit.fedsage_plus import draw, graph_of


def make(graph, hidden, train, *, seed=0, **options):
    impaired = impaired_graph.impair(graph, np.asarray(hidden), np.asarray(train), graph.labels)
    config = FedSagePlusConfig(encoder_widths=(4, 8), generator_hidden=(8, 16), **options)
    return NeighGen(impaired, graph.features, 2, config, lambda name: generator(seed, name))


def test_the_local_feature_loss_counts_only_what_is_there():
    # B = {0, 1, 3}; 0 lacks nobody, hence has no loss; 1 and 3 lack node 2 with the feature e_2.
    graph = graph_of([(0, 1), (1, 2), (2, 3)], 4)
    own = make(graph, [2], [0, 1, 3])
    rows = Demand.of(np.array([1, 1, 2]), own.influential)
    assert rows.nodes.tolist() == [2, 0, 1]
    assert rows.counts.tolist() == [2, 1, 1]
    zeros = [torch.zeros(3, 4), torch.zeros(1, 4)]
    # three slots at distance 1, over |B| = 3 or 5 |B| d = 60
    assert float(own.local_feature_loss(zeros, rows)) == pytest.approx(1.0)
    own = make(graph, [2], [0, 1, 3], feature_error="mean")
    assert float(own.local_feature_loss(zeros, rows)) == pytest.approx(3 / 60)


def test_counts_become_numbers_of_neighbours():
    predicted = torch.tensor([0.4, 0.6, 1.9, 7.0])
    assert neighgen.whole(predicted, "truncate").tolist() == [0, 0, 1, 7]
    assert neighgen.whole(predicted, "round").tolist() == [0, 1, 2, 7]
    rows = Demand.of(neighgen.whole(predicted, "round"), np.arange(4))
    assert rows.nodes.tolist() == [3, 2, 1]
    assert rows.counts.tolist() == [5, 2, 1]
    assert neighgen.rows_per_slot(rows.counts) == [3, 2, 1, 1, 1]
    assert rows.anchors().tolist() == [3, 2, 1, 3, 2, 3, 3, 3]


def test_the_count_loss_by_hand():
    graph = graph_of([(0, 1), (1, 2), (2, 3)], 4)
    own = make(graph, [2], [0, 1, 3])
    # against 0, 1, 1: ½·0.25, |3 − 1| − ½, 0
    assert float(own.count_loss(torch.tensor([0.5, 3.0, 1.0]))) == pytest.approx((0.125 + 1.5) / 3)


def test_only_fgen_moves_once_frozen():
    graph = graph_of([(0, 1), (1, 2), (2, 3)], 4, labels=[0, 1, 0, 1])
    own = make(graph, [2], [0, 1, 3], count_bias=1.2, lambda_f=1.0, loss_counts="truncate")
    own.freeze()
    before = {name: weight.clone() for name, weight in own.weights.items()}
    loss, leaves, _ = own.frozen_loss(draw())
    own.step(neighgen.gradients_of(loss, leaves))
    moved = {name for name, weight in own.weights.items() if not torch.equal(weight, before[name])}
    assert moved
    assert all(neighgen.is_fgen(name) for name in moved)


def fgen_and_features():
    """A fresh fGen of one slot, and rows of features that somebody keeps to himself."""
    config = FedSagePlusConfig(encoder_widths=(4, 8), generator_hidden=(16, 64))
    drawn = neighgen.initial_weights(config, 50, 2, lambda _: draw())
    weights = {name: drawn[name] for name in neighgen.fgen_shapes(config, 50, slots=1)}
    return weights, (np.random.default_rng(0).random((200, 50)) < 0.1).astype(np.float32)


def error_of(outer, hidden, weights, secret):
    """How far what a gradient tells is from the nearest true row at most, by the activations behind it [rows, 64]."""
    made = torch.tanh(hidden @ weights["slot.0.weight"].double().t() + weights["slot.0.bias"])
    read = (made - outer / (2 * (1 - made.square()))).numpy()
    return np.abs(read[:, None] - secret).max(axis=2).min(axis=1).max()


def test_one_compared_row_gives_the_features_away():
    """What the documentation warns of: a gradient by the weights made from one row holds its hidden activations."""
    weights, secret = fgen_and_features()
    found = neighgen.cross_gradient(weights, torch.ones(1, 8), np.array([1]), AllNodes(secret), 0.5, draw(7))
    outer = found["slot.0.bias"].double()
    hidden = found["slot.0.weight"].double().t() @ outer / outer.square().sum()
    assert error_of(outer[None], hidden[None], weights, secret) < 1e-5


@pytest.mark.parametrize("silent", [0, 100])
def test_many_compared_rows_give_the_features_away_as_well(silent):
    """Why no least number of rows is asked for: who knows the draws solves for each row, and who makes the rows up
    silences those beyond."""
    weights, secret = fgen_and_features()
    rows, again = 20, draw(7)
    embeddings = torch.rand(rows + silent, 8, generator=draw(1))
    embeddings[rows:] *= 1e12  # whatever is generated is 1 or -1, and has no slope
    counts = np.ones(len(embeddings), dtype=np.int64)
    found = neighgen.cross_gradient(weights, embeddings, counts, AllNodes(secret), 0.5, draw(7))
    hidden = embeddings + torch.randn(embeddings.shape, generator=again)
    hidden = (hidden @ weights["body.0.weight"] + weights["body.0.bias"]).relu()
    hidden = relu_dropout(hidden @ weights["body.1.weight"] + weights["body.1.bias"], 0.5, again)[:rows].double()
    outer = (found["slot.0.weight"].double() @ torch.linalg.pinv(hidden)).t()
    assert error_of(outer, hidden, weights, secret) < 1e-5
