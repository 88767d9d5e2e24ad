"""GAMLP: the attention by its formula, and what the legacy layout breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphsilo.data.graph import Graph
from graphsilo.models import GraphTensors, build
from graphsilo.models.backbones.gamlp import GAMLP

DOUBLE = torch.float64
ROWS = 10


def graph_of(features: np.ndarray) -> Graph:
    """Two separate paths, 0-1-2-3-4 and 5-6-7-8-9."""
    ends = np.array([[0, 1, 2, 3, 5, 6, 7, 8], [1, 2, 3, 4, 6, 7, 8, 9]])
    return Graph(features, np.concatenate([ends, ends[::-1]], 1), np.zeros(ROWS, np.int64), 2)


def features() -> np.ndarray:
    return np.random.default_rng(0).random((ROWS, 4)).astype(np.float32)


def model(**options: object) -> GAMLP:
    built = build("gamlp", num_features=4, num_classes=2, hidden=5, hops=2, seed=0, **options).double()
    assert isinstance(built, GAMLP)
    with torch.no_grad():
        built.scorer.weight.mul_(3.0)
        built.scorer.bias.fill_(0.2)
    return built


def reference(built: GAMLP, hops: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Hop weights [n, L+1] and logits, with the concatenation and the stack of copies that the code avoids."""
    weight, bias = built.scorer.weight, built.scorer.bias
    if built.attention == "jk":
        joined = torch.cat(hops, 1)
        vector = weight.reshape(-1)
        scores = torch.stack([(torch.cat([joined, hop], 1) @ vector + bias).sigmoid() for hop in hops], 1)
    else:
        vector = weight.reshape(-1)
        found = [(torch.cat([hops[0], hops[0]], 1) @ vector + bias).sigmoid()]
        for level in range(1, len(hops)):
            share = torch.softmax(torch.stack(found, 1), 1)
            history = sum(share[:, [j]] * hops[j] for j in range(level))
            found.append((torch.cat([history, hops[level]], 1) @ vector + bias).sigmoid())
        scores = torch.stack(found, 1)
    weights = torch.softmax(scores, 1)
    hidden = sum(weights[:, [level]] * hop for level, hop in enumerate(hops))
    for layer in built.layers[:-1]:
        hidden = torch.nn.functional.prelu(hidden @ layer.weight + layer.bias, built.activation.slope)
    return weights, hidden @ built.layers[-1].weight + built.layers[-1].bias


@pytest.mark.parametrize("attention", ["jk", "recursive"])
def test_formula(attention: str) -> None:
    built = model(attention=attention)
    data = GraphTensors(graph_of(features()), dtype=DOUBLE)
    hops = [hop.dense() for hop in data.full.hops(2)]
    weights, logits = reference(built, hops)
    torch.testing.assert_close(built.hop_weights(data.full), weights)
    torch.testing.assert_close(built(data.full), logits)


@pytest.mark.parametrize("attention", ["jk", "recursive"])
def test_weights_belong_to_their_node(attention: str) -> None:
    built = model(attention=attention)
    before = built.hop_weights(GraphTensors(graph_of(features()), dtype=DOUBLE).full)
    torch.testing.assert_close(before.sum(1), torch.ones(ROWS, dtype=DOUBLE))
    assert before.std(0).min().item() > 1e-4  # nodes do differ
    changed = features()
    changed[5:] = np.random.default_rng(1).random((5, 4)) * 4  # the other path
    after = built.hop_weights(GraphTensors(graph_of(changed), dtype=DOUBLE).full)
    torch.testing.assert_close(after[:5], before[:5])
    assert not torch.allclose(after[5:], before[5:], atol=1e-3)


def test_legacy_layout_mixes_nodes() -> None:
    built = model(legacy_layout=True)
    before = built.hop_weights(GraphTensors(graph_of(features()), dtype=DOUBLE).full)
    torch.testing.assert_close(before.sum(1), torch.ones(ROWS, dtype=DOUBLE))
    changed = features()
    changed[5:] = np.random.default_rng(1).random((5, 4)) * 4
    after = built.hop_weights(GraphTensors(graph_of(changed), dtype=DOUBLE).full)
    assert not torch.allclose(after[:5], before[:5], atol=1e-4)


def test_legacy_layout_is_the_release_s() -> None:
    """Scores of the vertically stacked hops, read row by row as [n, L + 1]."""
    built, right = model(legacy_layout=True), model()
    data = GraphTensors(graph_of(features()), dtype=DOUBLE)
    hops = [hop.dense() for hop in data.full.hops(2)]
    joined = torch.cat(hops, 1).repeat(3, 1)
    stacked = torch.cat([joined, torch.cat(hops, 0)], 1)
    scores = (stacked @ built.scorer.weight.reshape(-1) + built.scorer.bias).sigmoid()
    torch.testing.assert_close(built.hop_weights(data.full), torch.softmax(scores.view(-1, 3), 1))
    torch.testing.assert_close(right.hop_weights(data.full), torch.softmax(scores.view(3, -1).t(), 1))
