"""Equal models as one: their logits, and gradients for the features."""

from __future__ import annotations

import pytest
import torch

from graphsilo import models
from graphsilo.models.generated import GeneratedGraph
from graphsilo.models.side_by_side import join_models
from kit.training import graph

CASES = [
    ("gcn", {"hidden": 5}), ("gcn", {"hidden": [5, 4, 6]}), ("gcn", {"layers": 1}), ("mlp", {"hidden": 5, "layers": 3}),
    ("sage", {"hidden": 5}), ("sgc", {}), ("sgc", {"hidden": 5, "layers": 2}), ("appnp", {"hidden": 5}),
    ("sgc_stacked", {"hidden": 5}), ("sign", {"hidden": 5}), ("sign", {"layers": 1}),
]  # fmt: skip
WIDTH, CLASSES = 12, 3


def drawn(name, settings, count=3):
    options = {"num_features": WIDTH, "num_classes": CLASSES, **settings}
    found = [models.build(name, seed=number, **options) for number in range(count)]
    for model in found:
        for parameter in model.parameters():  # biases are drawn as 0
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return found


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_each_column_is_what_the_model_itself_gives(name, settings):
    whole, several = graph(), drawn(name, settings)
    features = torch.randn(whole.num_nodes, WIDTH, generator=torch.Generator().manual_seed(0)).requires_grad_()
    view = GeneratedGraph(features, whole.adjacency()).full
    joined = join_models(several, name, settings)
    found, wanted = joined(view), torch.cat([model(view) for model in several], 1)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    weight = torch.rand(wanted.shape, generator=torch.Generator().manual_seed(2))
    one, other = (torch.autograd.grad((weight * logits).sum(), features)[0] for logits in (found, wanted))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert not any(parameter.requires_grad for parameter in joined.parameters())


@pytest.mark.parametrize(("name", "settings"), [("gat", {"hidden": 4}), ("sage", {"hidden": 4, "unit_rows": True})])
def test_others_are_left_apart(name, settings):
    assert join_models(drawn(name, settings), name, settings) is None
