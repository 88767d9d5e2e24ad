"""Files of a client's models: what goes in comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load

from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.evaluate.rare import Decision
from graphsilo.federation.model_files import (
    Kept,
    embedding_path,
    fill_tensors,
    kept_tensors,
    model_path,
    scale_tensors,
    tensor_file,
)

SCALE = FeatureScale(np.array([1.0, 1e9 + 0.5]), np.array([2.0, 1 / 3]))


def test_where_they_stand():
    assert model_path(Path("run"), 3, 12, "best") == Path("run/models/seed3-client12-best.safetensors")
    assert embedding_path(Path("run"), 3, 12) == Path("run/embeddings/seed3-client12.safetensors")


def test_one_tensor_may_stand_under_two_names():
    weights = torch.arange(6.0).view(2, 3)
    found = load(tensor_file({"own/mean": weights, "common/mean": weights, "turned": weights.t()}))
    assert found["own/mean"].tolist() == found["common/mean"].tolist() == weights.tolist()
    assert found["turned"].tolist() == weights.t().tolist()


def test_models_scale_and_fills_come_back():
    weights = {"own": {"0.weight": torch.eye(2), "bias": torch.ones(3)}, "aggregate": {"bias": torch.zeros(1)}}
    found = {
        "best": weights, "last": {"own": {"bias": torch.zeros(3)}}, "scale": scale_tensors(SCALE),
        "fills": fill_tensors({"age": 41.7, "a/b": -1.0}),
    }  # fmt: skip
    tensors = kept_tensors(found, "best")
    assert sorted(tensors) == [
        "aggregate/bias", "fills/a/b", "fills/age", "own/0.weight", "own/bias", "scale/factor", "scale/shift",
    ]  # fmt: skip
    kept = Kept.of(tensors)
    assert {view: list(each) for view, each in kept.models.items()} == {
        "own": ["0.weight", "bias"], "aggregate": ["bias"],
    }  # fmt: skip
    assert torch.equal(kept.models["own"]["0.weight"], torch.eye(2))
    assert kept.scale.shift.tolist() == [1.0, 1e9 + 0.5]
    assert kept.scale.factor.tolist() == [2.0, 1 / 3]
    assert kept.fills == {"age": 41.7, "a/b": -1.0}
    tensors["scale/shift"].zero_()
    assert kept.scale.shift.tolist() == [1.0, 1e9 + 0.5]


def test_models_that_need_nothing_of_features():
    kept = Kept.of(kept_tensors({"last": {"own": {"w": torch.ones(1)}}, "best": None}, "last"))
    assert (list(kept.models), kept.scale, kept.fills) == (["own"], None, {})


def test_without_models_there_is_no_file():
    assert kept_tensors({"best": None, "last": {}, "scale": scale_tensors(SCALE)}, "best") == {}


def test_the_best_models_keep_how_their_scores_are_read():
    models = {"own": {"w": torch.ones(1)}}
    found = {
        "best": models,
        "last": models,
        "decision": {"own": torch.tensor([1, -2.5, 0.5, -1, 1], dtype=torch.float64)},
    }
    kept = {when: Kept.of(kept_tensors(found, when)).decisions for when in ("best", "last")}
    assert kept == {"best": {"own": [1.0, -2.5, 0.5, -1.0, 1.0]}, "last": {}}
    assert Decision.of(kept["best"]["own"]) == Decision(1, -2.5, 0.5, -1.0, True)
