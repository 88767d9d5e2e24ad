"""An exported model from finished columns to scores in ONNX, for any runtime of that format.

What nodes tell each other is in the columns, which ``scorer.py`` makes beforehand: ONNX has no words for a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import UnsupportedError, library
from graphsilo.experiments.export.scorer import CLASSES

Term = dict[str, Any]
Arrays = Mapping[str, NDArray[Any]]

_MODEL = ("forest", "weights", "factor", "middle", "layers")
"""What a term does with its columns; all else of it says how these are made."""


def name_inputs(parts: Sequence[Sequence[Term]]) -> list[str]:
    """Give every term the name of its columns (``input``): terms with the same columns share it.

    Args:
        parts: As the scorer has them; changed in place.

    Raises:
        UnsupportedError: The model looks at links after its first layer.
    """
    known: list[Term] = []
    for part in parts:
        for term in part:
            if term["kind"] == "network" and not term["layers"]:
                raise UnsupportedError(
                    f"ONNX takes what is computed from finished columns, and in the network '{term['model']}' nodes "
                    f"go on exchanging messages behind them. Leave out --onnx: scorer.py runs any network with torch. "
                    f"fedridge, fedtrees, auto, and the models mlp, sgc, ssgc and sign have an ONNX form."
                )
            made = {name: value for name, value in term.items() if name not in _MODEL}
            if made not in known:
                known.append(made)
            term["input"] = f"columns{known.index(made)}"
    return [f"columns{place}" for place in range(len(known))]


def onnx_model(about: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Columns in float32, by the names that ``name_inputs`` gave; ``scores`` [n, C] out, as ``Model.score`` has them.

    Args:
        about: What model.json says.
        arrays: What model.npz holds.

    Raises:
        UnsupportedError: The package onnx is not installed.
    """
    onnx = library("onnx", "onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    parts, task = about["parts"]["other"], about["task"]
    nodes: list[Any] = []
    constants: list[Any] = []
    widths: dict[str, int] = {}

    def constant(value: Any) -> str:
        constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=np.float32), f"constant{len(constants)}"))
        return str(constants[-1].name)

    def add(kind: str, inputs: Sequence[str], **settings: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"value{len(nodes)}"], **settings))
        return str(nodes[-1].output[0])

    def dense(rows: str, layers: Sequence[Sequence[NDArray[Any]]]) -> str:
        for place, (weight, bias) in enumerate(layers):
            rows = add("Relu", [rows]) if place else rows
            rows = add("Gemm", [rows, constant(weight), constant(bias)])
        return rows

    def say(term: Term) -> str:
        rows = term["input"]
        if term["kind"] == "trees":
            widths[rows] = term["width"]
            return add("TreeEnsembleRegressor", [rows], domain="ai.onnx.ml", **_forest(term, arrays))
        layers = [[arrays[name] for name in layer] for layer in term.get("layers") or ()]
        if term["kind"] == "linear":
            weight = arrays[term["weights"]]
            layers = [[term["factor"] * weight, np.full(weight.shape[1], -term["factor"] * term["middle"])]]
        widths[rows] = len(layers[0][0])
        return dense(rows, layers)

    said = []
    for part in parts:
        terms = [say(term) for term in part]
        total = terms[0] if len(terms) == 1 else add("Sum", terms)
        said.append(add("LogSoftmax", [total], axis=1) if task in CLASSES else total)
    mean = said[0] if len(said) == 1 else add("Mean", said)
    if task in CLASSES:
        nodes.append(helper.make_node("Softmax", [mean], ["scores"], axis=1))
    elif task == "multilabel":
        nodes.append(helper.make_node("Sigmoid", [mean], ["scores"]))
    else:
        scaled = add("Div", [mean, constant(arrays["target_factor"])])
        nodes.append(helper.make_node("Add", [scaled, constant(arrays["target_shift"])], ["scores"]))
    inputs = [helper.make_tensor_value_info(name, floats, ["n", width]) for name, width in widths.items()]
    outputs = [helper.make_tensor_value_info("scores", floats, ["n", len(about["classes"])])]
    graph = helper.make_graph(nodes, "graphsilo", inputs, outputs, constants)
    # Versions of 2022 and 2021, which runtimes of today all have.
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return bytes(helper.make_model(graph, ir_version=8, opset_imports=versions).SerializeToString())


def _forest(term: Term, arrays: Arrays) -> dict[str, Any]:
    """The attributes of a TreeEnsembleRegressor: all trees are complete, their nodes numbered level by level."""
    columns, thresholds, values, base = (
        arrays[term["forest"][name]] for name in ("columns", "thresholds", "values", "base")
    )
    rounds, outputs, leaves = values.shape
    inner, first = leaves - 1, int(term["two"])  # of two classes the first has no trees
    trees, size = rounds * outputs, 2 * leaves - 1
    node, number = np.tile(np.arange(size), trees), np.repeat(np.arange(trees), size)
    branches = np.arange(size) < inner
    below = np.where(branches, 2 * np.arange(size) + 1, 0)

    def padded(part: NDArray[Any]) -> list[Any]:
        found = np.zeros((trees, size), dtype=part.dtype)
        found[:, :inner] = part.reshape(trees, inner)
        return list(found.ravel().tolist())

    return {
        "n_targets": outputs + first, "aggregate_function": "SUM", "post_transform": "NONE",
        "base_values": [0.0] * first + [float(each) for each in base],
        "nodes_treeids": number.tolist(), "nodes_nodeids": node.tolist(),
        "nodes_modes": np.tile(np.where(branches, "BRANCH_GTE", "LEAF"), trees).tolist(),
        "nodes_featureids": padded(columns.astype(np.int64)), "nodes_values": padded(thresholds),
        "nodes_truenodeids": np.tile(np.where(branches, below + 1, 0), trees).tolist(),
        "nodes_falsenodeids": np.tile(below, trees).tolist(),
        "target_treeids": np.repeat(np.arange(trees), leaves).tolist(),
        "target_nodeids": np.tile(np.arange(inner, size), trees).tolist(),
        "target_ids": np.repeat(np.tile(np.arange(outputs) + first, rounds), leaves).tolist(),
        "target_weights": values.astype(np.float32).ravel().tolist(),
    }  # fmt: skip
