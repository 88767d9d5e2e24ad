"""Finished columns come to the same scores in ONNX, by a runtime that knows nothing of graphsilo."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.export import export
from graphsilo.experiments.export.onnx_file import name_inputs, onnx_model
from graphsilo.experiments.export.scorer import Model, check
from graphsilo.experiments.runner import run

runtime = pytest.importorskip("onnxruntime")
TREES = {
    "kind": "trees",
    "width": 2,
    "two": True,
    "forest": {name: name for name in ("base", "columns", "thresholds", "values")},
}


def _scores(about, arrays, columns):
    session = runtime.InferenceSession(onnx_model(about, arrays), providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"columns0": np.array(columns, dtype=np.float32)})[0]


def test_a_tree_worked_out_by_hand():
    """Column 1 from 5 on goes right, where column 0 from 1 on goes right again; the left half is not split: inf."""
    parts = [[dict(TREES)]]
    assert name_inputs(parts) == ["columns0"]
    arrays = {
        "base": np.array([0.5], dtype=np.float32), "columns": np.array([[[1, 0, 0]]], dtype=np.float32),
        "thresholds": np.array([[[5, np.inf, 1]]], dtype=np.float32),
        "values": np.array([[[1, 9, -1, -2]]], dtype=np.float32),
    }  # fmt: skip
    about = {"parts": {"other": parts}, "task": "node", "classes": ["ok", "mule"]}
    found = _scores(about, arrays, [[0, 4], [7, 4], [0, 5], [1, 6]])
    assert found[:, 1] == pytest.approx(1 / (1 + np.exp([-1.5, -1.5, 0.5, 1.5])), abs=1e-6)


def test_targets_in_their_own_units():
    """3 · (2 · 1 - 1) = 3 in scaled units, of which one is 10 of the target's about 100."""
    term = {"kind": "linear", "weights": "weights", "factor": 3.0, "middle": 1.0}
    arrays = {"weights": np.array([[2.0]]), "target_factor": np.array([0.1]), "target_shift": np.array([100.0])}
    parts = [[term]]
    name_inputs(parts)
    about = {"parts": {"other": parts}, "task": "regression", "classes": ["price"]}
    assert _scores(about, arrays, [[1.0]])[0] == pytest.approx([130.0])


def test_terms_with_the_same_columns_share_an_input():
    other = {**TREES, "forest": {}}
    parts = [[dict(TREES)], [other, {**TREES, "width": 3}]]
    assert name_inputs(parts) == ["columns0", "columns1"]
    assert [term["input"] for part in parts for term in part] == ["columns0", "columns0", "columns1"]


@pytest.mark.parametrize(
    "more",
    [
        {"method": {"name": "auto", "rounds": 6}},
        {"method": {"name": "fedavg", "rounds": 2}, "model.name": "sign"},
    ],
)
def test_onnx_says_the_same_as_the_run(tmp_path, more):
    base = {
        "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
        "partition.rule": "random", "partition.clients": 3,
    }  # fmt: skip
    run(load_config(overrides={**base, **more}), out=tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", client=1, onnx=True)
    worst, _ = check(Model(tmp_path / "out"))
    assert worst["scores of model.onnx"] < 1e-6
