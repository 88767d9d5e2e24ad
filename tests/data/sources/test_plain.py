"""Tensors, arrays and lists as one graph: what is taken, and what is refused with the part and the graph named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.sources.classes import SIGNED
from graphsilo.data.sources.plain import class_numbers, collection, plain_graph
from graphsilo.errors import DataError

GIVEN: dict[str, Any] = {
    "x": [[1.0, 0.5], [0.0, 2.0], [3.0, 0.0]], "edge_index": [[0, 1], [1, 2]], "y": [0, 1, -1], "edge_weight": [0.5, 2],
    "masks": {"train": [True, False, True]},
}  # fmt: skip


def made(**changes: Any) -> Graph:
    return plain_graph("g", **{**GIVEN, **changes})


KINDS = {
    "lists": lambda value: value,
    "arrays": np.array,
    "tensors": torch.tensor,
    "one by one": lambda value: [torch.tensor(item) for item in value],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_graph_of_whatever_kind(kind: str) -> None:
    turn = KINDS[kind]
    parts = {key: turn(GIVEN[key]) for key in ("x", "edge_index", "y", "edge_weight")}
    graph = plain_graph("g", **parts, masks={"train": turn(GIVEN["masks"]["train"]), "val": None})
    assert (graph.features.tolist(), graph.features.dtype) == (
        GIVEN["x"],
        np.float64 if kind in ("arrays", "lists") else np.float32,
    )
    assert (graph.edges.tolist(), graph.edges.dtype) == (GIVEN["edge_index"], np.int64)
    assert (graph.labels.tolist(), graph.num_classes, graph.edge_weights.tolist()) == ([0, 1, -1], 2, [0.5, 2.0])
    assert {key: mask.tolist() for key, mask in graph.splits.items()} == GIVEN["masks"]


def test_narrow_numbers_and_gradients() -> None:
    x = torch.tensor(GIVEN["x"])
    for other in (x.bfloat16(), x.half(), x.double(), x.clone().requires_grad_(), x.to_sparse(), x.to_sparse_csr(),
                  sp.coo_matrix(x.numpy())):  # fmt: skip
        assert made(x=other).features.tolist() == GIVEN["x"]
    assert made(y=torch.tensor([1.0, 0.0, float("nan")]).bfloat16()).labels.tolist() == [1, 0, -1]
    assert made(edge_weight=torch.ones(2).bfloat16()).edge_weights.tolist() == [1, 1]
    assert made(x=[1, 2, 3]).features.tolist() == [[1], [2], [3]]
    assert made(masks={"val": [1, 0, 1.0]}).splits["val"].tolist() == [True, False, True]
    assert made(edge_index=[[], []], edge_weight=None).num_edges == 0


def test_what_is_left_out() -> None:
    graph = made(x=None, y=None, edge_weight=None, masks={}, num_nodes=5)
    assert (graph.num_nodes, graph.num_features, graph.labels.tolist(), graph.num_classes) == (5, 0, [-1] * 5, 0)
    assert made(x=None, y=None, edge_weight=None, masks={}).num_nodes == 3  # as edges have it


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x": [[1.0], [1.0, 2.0], [3.0]]}, r"g: x should be numbers, as many in every row; got \[\[1\.0\], \["),
        ({"x": [["a"], ["b"], ["c"]]}, r"g: x should be numbers.*got <U1 values"),
        ({"x": torch.ones(3, 2) + 1j}, r"got complex64 values.*real and imaginary part are two features"),
        ({"x": sp.csr_matrix(np.ones((3, 2), dtype=complex))}, "got complex128 values"),
        ({"x": 3.0}, "x should have a row per node"),
        ({"x": GIVEN["x"][:2]}, r"there are 2 rows of x, 3 labels in y"),
        ({"num_nodes": 4}, r"there are num_nodes=4, 3 rows of x, 3 labels in y"),
        ({"y": np.eye(3)}, r"y should hold one class number per node, \[3\]; got shape \(3, 3\).*argmax"),
        ({"y": ["a", "b", "c"]}, "y should be numbers"),
        ({"y": [0.0, float("inf"), 1.0]}, "not whole numbers, such as inf"),
        ({"edge_index": [[0], [3]]}, "g: an edge names node 3, but nodes are numbered 0 to 2"),
        ({"edge_index": [[0, 1, 2]]}, r"edge_index must have shape \[2, edges\]; got \[1, 3\] of int64"),
        ({"edge_index": []}, r"edge_index must have shape \[2, edges\]; got \[0\]"),
        ({"edge_index": [[0.0], [1.5]]}, "edge_index must hold whole node numbers; got float64"),
        ({"edge_weight": [1.0]}, r"edge_weight must be one number per edge; got shape \[1\]"),
        ({"masks": {"val": [0, 2]}}, r"g: val_mask must be truth values for 3 nodes.*shape \[2\].*mask\[numbers\]"),
        ({"masks": {"val": [0, 2, 1]}}, "val_mask must be truth values for 3 nodes"),
        (
            {"x": None, "y": None, "masks": {}, "edge_index": [[0], [10**12]]},
            "names node 1000000000000, and there are 1",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_what_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        made(**changes)


@pytest.mark.parametrize(
    ("values", "labels", "names"),
    [
        ([0, 2, 5], [0, 2, 5], None),
        ([1, 2, 3], [1, 2, 3], None),
        ([True, False, True], [1, 0, 1], None),
        ([-1, 0, 1], [-1, 0, 1], None),
        ([-1, 1, -1], [0, 1, 0], SIGNED),
        ([-1.0, 1.0, np.nan], [0, 1, -1], SIGNED),
        ([1.0, np.nan, 1.0], [1, -1, 1], None),
        ([-1, 0, -1], [-1, 0, -1], None),
        ([-1, 2, 2], [-1, 2, 2], None),
    ],
)
def test_class_numbers(values: list[float], labels: list[int], names: tuple[str, ...] | None) -> None:
    found, words = class_numbers(np.array(values), "g")
    assert (found.tolist(), words) == (labels, names)


def test_three_classes_are_said_so_that_one_of_them_is_not_minus_one() -> None:
    assert class_numbers(np.array([-1, 1]), "g", num_classes=3)[0].tolist() == [-1, 1]


@pytest.mark.parametrize(
    "values",
    [np.array([0, 1, 10**12]), np.array([0.0, 1.0, 1e20]), np.array([0, 1, 255], dtype=np.uint8),
     np.array([2**64 - 1, 0]), np.array([3000, *range(4)])],
)  # fmt: skip
def test_a_class_number_far_beyond_the_classes_is_refused_at_once(values: np.ndarray) -> None:
    with pytest.raises(
        DataError, match=r"different classes, one of them numbered \d+;.* write -1 instead; else number"
    ):
        class_numbers(values, "g")


def several(*changes: dict[str, Any]) -> GraphCollection:
    common = {"x": [[1.0], [2.0]], "edge_index": [[0], [1]], "y": None, "masks": {}}
    parts = [plain_graph(f"many, graph {place}", **{**common, **change}) for place, change in enumerate(changes)]
    return collection(parts, np.arange(len(parts)) % 2, "many")


def test_graphs_are_put_together() -> None:
    found = several({}, {"x": [[3.0]], "edge_index": [[], []]}, {})
    assert (found.pointer.tolist(), found.union.edges.tolist()) == ([0, 2, 3, 5], [[0, 3], [1, 4]])
    assert found.union.features.ravel().tolist() == [1, 2, 3, 1, 2]
    nobody = {"x": np.zeros((0, 0)), "edge_index": [[], []]}
    assert several(nobody, {"edge_weight": [2.0]}, nobody).union.edge_weights.tolist() == [2]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ({"edge_index": [[0], [2]]}, "many, graph 1: an edge names node 2, but nodes are numbered 0 to 1"),
        ({"edge_index": [[0], [-1]]}, "many, graph 1: an edge names node -1"),
        ({"x": None, "num_nodes": 2}, "graph 0 has 1 features of each node, and graph 1 has no features"),
        ({"x": [[1.0, 2.0], [1.0, 2.0]]}, "graph 0 has 1 features of each node, and graph 1 has 2 features"),
        ({"edge_weight": [1.0]}, "graph 0 has none, and graph 1 has weights of its edges; give them to all or to none"),
    ],
)
def test_a_graph_that_differs_is_named(second: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        several({}, second)
