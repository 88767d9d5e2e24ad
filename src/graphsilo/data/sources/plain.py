"""Graphs of other libraries as plain arrays: each is checked by itself before several are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, GraphCollection, check_edges
from graphsilo.data.sources.classes import SIGNED, SPARE, TIMES, ClassNames
from graphsilo.data.sources.targets import with_targets
from graphsilo.data.sources.transforms import compact_features, stack_features
from graphsilo.errors import DataError, quote

_NODES_PER_EDGE = 100
"""Nodes for each edge, where edges alone say how many there are, from which a node's number must be a slip."""


def plain_graph(
    name: str, *, x: Any, edge_index: Any, y: Any, edge_weight: Any = None, masks: Mapping[str, Any],
    num_nodes: int | None = None, num_classes: int | None = None,
) -> Graph:  # fmt: skip
    """A graph of tensors, arrays or lists, any of which may be None but the edges; nothing is symmetrised or left out.

    Args:
        name: Of the graph, for errors, too.
        x: [n, d] or [n] features, dense or sparse.
        edge_index: [2, e].
        y: [n] or [n, 1] classes; or targets, which may be [n, m].
        edge_weight: [e] or [e, 1].
        masks: [n] or [n, s] truth values, or 0 and 1, by split.
        num_nodes, num_classes: Where they are said; else there is one class more than the largest number.

    Raises:
        DataError: A part is no such array, or does not fit the others.
    """
    edges = _edges(array_of(edge_index, f"{name}: edge_index"), name)
    labels, words, targets = None, None, None
    if y is not None:
        values = array_of(y, f"{name}: y")
        if are_targets(values):
            targets, labels = values, np.full(len(values), -1, dtype=np.int64)
        else:
            labels, words = class_numbers(_column(values, name), name, num_classes=num_classes)
    features = None if x is None else features_of(x, name)
    told = {
        "num_nodes": num_nodes,
        "rows of x": None if features is None else features.shape[0],
        "labels in y": None if labels is None else len(labels),
    }
    given = {what: count for what, count in told.items() if count is not None}
    if len(set(given.values())) > 1:
        counts = ", ".join(f"{count} {what}" if " " in what else f"{what}={count}" for what, count in given.items())
        raise DataError(f"{name}: x has a row and y a label for each node, and there are {counts}.")
    n = next(iter(given.values())) if given else _count_nodes(edges, name)
    check_edges(edges, n, name)
    labels = np.full(n, -1, dtype=np.int64) if labels is None else labels
    graph = Graph(
        features=compact_features(np.zeros((n, 0), dtype=np.float32) if features is None else features),
        edges=edges,
        labels=labels,
        num_classes=class_count(labels, words, num_classes),
        name=name,
        splits={
            key: _mask(array_of(mask, f"{name}: {key}_mask"), n, f"{name}: {key}_mask")
            for key, mask in masks.items()
            if mask is not None
        },
        class_names=words,
        edge_weights=None if edge_weight is None else _weights(edge_weight, edges.shape[1], name),
    )
    if targets is None:
        return graph
    found = with_targets(graph, targets)
    what = "labels, of which a node may have several" if found.task == "multilabel" else "numbers to be estimated"
    return replace(found, notes=(*found.notes, f"y is read as {what} (task {found.task})"))


def are_targets(y: NDArray[Any]) -> bool:
    """Whether what a node is told to have is no class: numbers that are not whole, or several of anything, but for
    the one-hot rows of a class."""
    if y.ndim == 2 and y.shape[1] > 1:
        return not (((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())
    known = y[np.isfinite(y)] if y.dtype.kind == "f" else y[:0]
    return y.ndim <= 2 and bool((known != np.floor(known)).any())


def with_link_columns(graph: Graph, values: Any) -> Graph:
    """The graph with columns of its edges, [e] or [e, k], as rows of one table of links."""
    what = f"{graph.name}: edge_attr"
    found = array_of(values, what)
    if not found.ndim or len(found) != graph.num_edges:
        raise DataError(f"{what} should have a row per edge, [{graph.num_edges}, k]; got shape {list(found.shape)}.")
    columns = found.reshape(len(found), -1).astype(np.float64)
    names = tuple(f"link.{column}" for column in range(columns.shape[1]))
    kinds = np.zeros(len(columns), dtype=np.int16)
    from graphsilo.data.links import LinkTable

    return replace(graph, links=LinkTable(("link",), kinds, graph.edges.astype(np.int64), columns, names))


def collection(
    parts: Sequence[Graph],
    labels: NDArray[np.int64],
    name: str,
    *,
    num_classes: int | None = None,
    class_names: ClassNames = None,
) -> GraphCollection:
    """Several graphs with a label each.

    Raises:
        DataError: They do not describe nodes or edges alike; names the first that differs.
    """
    # A graph without nodes has no features that could differ, one without edges no weights.
    described = {place: part for place, part in enumerate(parts) if part.num_nodes}
    linked = {place: part for place, part in enumerate(parts) if part.edges.shape[1]}
    widths = {place: part.features.shape[1] for place, part in described.items()}
    _check_alike(
        {place: f"{width} features of each node" if width else "no features" for place, width in widths.items()},
        "give the nodes of all graphs as many",
        name,
    )
    weighted = {place: part.edge_weights is not None for place, part in linked.items()}
    _check_alike(
        {place: "weights of its edges" if has else "none" for place, has in weighted.items()},
        "give them to all or to none",
        name,
    )
    columns = {place: 0 if part.links is None else part.links.features.shape[1] for place, part in linked.items()}
    _check_alike(
        {place: f"{count} columns of its edges" if count else "none" for place, count in columns.items()},
        "give the edges of all graphs as many (edge_attr)",
        name,
    )
    pointer = np.concatenate([[0], np.cumsum([part.num_nodes for part in parts])]).astype(np.int64)
    told = [(part.links, start) for part, start in zip(parts, pointer[:-1].tolist(), strict=True) if part.links]
    classes = class_count(labels, class_names, num_classes)
    union = Graph(
        features=compact_features(stack_features([part.features for part in described.values() or parts])),
        edges=np.concatenate([part.edges + start for part, start in zip(parts, pointer[:-1], strict=True)], axis=1),
        labels=np.full(int(pointer[-1]), -1, dtype=np.int64),
        num_classes=classes,
        name=name,
        feature_names=next(iter(described.values())).feature_names if described else None,
        class_names=class_names,
        edge_weights=(
            np.concatenate([part.edge_weights for part in linked.values() if part.edge_weights is not None])
            if any(weighted.values())
            else None
        ),
        links=type(told[0][0]).join([links for links, _ in told], [start for _, start in told]) if told else None,
    )
    return GraphCollection(union=union, pointer=pointer, labels=labels, num_classes=classes, name=name)


def _check_alike(found: Mapping[int, str], todo: str, name: str) -> None:
    first = next(iter(found), 0)
    other = next((place for place, has in found.items() if has != found[first]), None)
    if other is not None:
        raise DataError(f"{name}: graph {first} has {found[first]}, and graph {other} has {found[other]}; {todo}.")


# -- Arrays --------------------------------------------------------------------------------------------------------


def array_of(value: Any, what: str) -> NDArray[Any]:
    """Real numbers or truth values as an array: of a tensor, wherever it is, of an array, a list or a number.

    Raises:
        DataError: It is something else, or rows differ in length.
    """
    try:
        found = np.asarray(_on_cpu(value))
    except (TypeError, ValueError, RuntimeError):
        found = np.asarray(None)
    if found.dtype.kind not in "biuf":
        got = f"{found.dtype} values" if found.dtype.kind in "cUSM" else quote(value)
        advice = " A complex number's real and imaginary part are two features." if found.dtype.kind == "c" else ""
        raise DataError(f"{what} should be numbers, as many in every row; got {got}.{advice}")
    return found


def _on_cpu(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_on_cpu(item) for item in value] if any(hasattr(item, "detach") for item in value) else value
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    # numpy has no bfloat16, nor what is narrower.
    return value.float().numpy() if value.is_floating_point() and value.element_size() < 4 else value.numpy()


def features_of(x: Any, name: str) -> Features:
    """[n, d] features, dense or CSR as they came.

    Raises:
        DataError: They are no such numbers.
    """
    if hasattr(x, "detach") and str(x.layout) != "torch.strided":
        coo = x.detach().cpu().to_sparse_coo().coalesce()
        row, column = coo.indices().numpy()
        x = sp.coo_matrix((array_of(coo.values(), f"{name}: x"), (row, column)), shape=tuple(x.shape))
    if sp.issparse(x):
        some: Any = x
        matrix: sp.csr_matrix = sp.csr_matrix(some)
        array_of(matrix.data, f"{name}: x")
        return matrix
    found = array_of(x, f"{name}: x")
    if not found.ndim:
        raise DataError(f"{name}: x should have a row per node, [nodes, features]; got {quote(x)}.")
    return found.reshape(len(found), -1) if found.size else found.reshape(len(found), *found.shape[1:2] or (1,))


def _column(y: NDArray[Any], name: str) -> NDArray[Any]:
    if y.ndim > 1 and y.size != len(y):
        raise DataError(
            f"{name}: y should hold one class number per node, [{len(y)}]; got shape {y.shape}. Where its rows are "
            f"one-hot, y.argmax(dim=1) makes classes of them."
        )
    return y.reshape(-1)


def class_numbers(
    values: NDArray[Any], name: str, what: str = "y", num_classes: int | None = None
) -> tuple[NDArray[np.int64], ClassNames]:
    """[n] class numbers, -1 where a label is unknown, and the classes' names where they are not 0, 1 and so on.

    Unknown are NaN and -1, but where -1 and 1 are all that there is: then they are two classes.

    Raises:
        DataError: Some are no whole numbers, or far beyond the number of classes that there are.
    """
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=np.bool_)
    there = values[~missing]
    odd = there[~((np.floor(there) == there) & np.isfinite(there))] if there.dtype.kind == "f" else there[:0]
    if len(odd):
        raise DataError(
            f"{name}: {what} must hold class numbers; got {values.dtype} values that are not whole numbers, such as "
            f"{float(odd[0]):g}. What is measured rather than classified must be cut into classes first."
        )
    distinct = np.unique(there)
    count = int((distinct >= 0).sum())
    if count and int(distinct[-1]) >= TIMES * count + SPARE:
        raise DataError(
            f"{name}: {what} has {count} different classes, one of them numbered {int(distinct[-1])}; classes are "
            f"numbered from 0, and all numbers below it would be classes, too. Where {int(distinct[-1])} stands for "
            f"unknown, write -1 instead; else number them again, as numpy.unique(y, return_inverse=True)[1] does."
        )
    signed = distinct.tolist() == [-1, 1] and num_classes in (None, 2)
    labels = np.full(len(values), -1, dtype=np.int64)
    labels[~missing] = (there.astype(np.int64) + 1) // 2 if signed else there
    return labels, SIGNED if signed else None


def class_count(labels: NDArray[np.int64], names: ClassNames, said: int | None = None) -> int:
    """How many classes there are: as is said, else as they are named, else one more than the largest number."""
    return said or (int(labels.max(initial=-1)) + 1 if names is None else len(names))


def _edges(edges: NDArray[Any], name: str) -> NDArray[np.int64]:
    if edges.shape == (2, 0):
        return edges.astype(np.int64)  # of whatever kind an empty list has become
    if edges.ndim != 2 or len(edges) != 2:
        raise DataError(f"{name}: edge_index must have shape [2, edges]; got {list(edges.shape)} of {edges.dtype}.")
    if edges.dtype.kind not in "iu":
        raise DataError(f"{name}: edge_index must hold whole node numbers; got {edges.dtype}.")
    return np.ascontiguousarray(edges, dtype=np.int64)


def _count_nodes(edges: NDArray[np.int64], name: str) -> int:
    """How many nodes there are, where only edges say so."""
    n = int(edges.max(initial=-1)) + 1
    if n > _NODES_PER_EDGE * (edges.shape[1] + 1):
        raise DataError(
            f"{name}: an edge names node {n - 1}, and there are {edges.shape[1]} edges. Number the nodes from 0, or "
            f"give x, y or num_nodes, which say how many there are."
        )
    return n


def _weights(given: Any, count: int, name: str) -> NDArray[np.float32]:
    weights = array_of(given, f"{name}: edge_weight")
    if weights.size != count:
        raise DataError(f"{name}: edge_weight must be one number per edge; got shape {list(weights.shape)}.")
    return np.ascontiguousarray(weights.reshape(-1), dtype=np.float32)


def _mask(mask: NDArray[Any], num_nodes: int, what: str) -> NDArray[np.bool_]:
    if mask.ndim not in (1, 2) or len(mask) != num_nodes or not ((mask == 0) | (mask == 1)).all():
        raise DataError(
            f"{what} must be truth values for {num_nodes} nodes, [n] or [n, splits]; got shape {list(mask.shape)} of "
            f"{mask.dtype}. Of node numbers: mask = torch.zeros(n, dtype=torch.bool); mask[numbers] = True."
        )
    return mask.astype(np.bool_)
