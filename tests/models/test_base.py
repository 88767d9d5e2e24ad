"""What every model is: an encoder, a head, a readout."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from graphsilo.models import GraphTensors, build, names
from kit.backbones import SCHEMA

SMALL = {"hidden": 8, "schema": SCHEMA}


@pytest.mark.parametrize("name", names())
def test_head_and_encoder_share_the_parameters(name: str) -> None:
    model = build(name, num_features=5, num_classes=3, seed=0, **SMALL)
    every = [key for key, _ in model.named_parameters()]
    assert sorted(model.head_names() + model.encoder_names()) == sorted(every)
    assert model.head_names()
    assert not list(model.buffers())


def test_graph_readout_by_hand(make_collection) -> None:
    collection = make_collection()
    data = GraphTensors(collection)
    model = build("gcn", num_features=5, num_classes=2, task="graph", seed=0, layers=1, hidden=3)
    step, features = data.matrix("gcn").toarray(), collection.union.features
    layer = model.layers[0]
    nodes = np.maximum(step @ features @ layer.weight.detach().numpy(), 0)
    pooled = np.stack([part.sum(0) for part in np.split(nodes, collection.pointer[1:-1])])
    wanted = pooled @ model.output.weight.detach().numpy()
    np.testing.assert_allclose(model(data.full).detach().numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", names())
def test_replaced_parameters_are_heard(name: str, make_graph) -> None:
    view = GraphTensors(make_graph()).full
    model = build(name, num_features=12, num_classes=3, seed=0, **SMALL)
    other = build(name, num_features=12, num_classes=3, seed=1, **SMALL)
    wanted = other(view)
    called = torch.func.functional_call(model, dict(other.named_parameters()), (view,))
    assert torch.equal(called, wanted)
    twin = copy.deepcopy(model)
    twin.load_state_dict(other.state_dict())
    assert torch.equal(twin(view), wanted)
    assert not torch.equal(model(view), wanted)
