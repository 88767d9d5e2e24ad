"""Graphs of other libraries that have several types of nodes, or of links, as one graph with types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph
from graphsilo.data.sources import plain
from graphsilo.data.sources.assembling import LinkRows, NodeRows, assemble
from graphsilo.data.sources.columns import FeatureTable
from graphsilo.errors import ConfigError, DataError, nearest, several

Triple = tuple[str, str, str]
"""Type of the nodes that links begin at, what the links are called, and type of those that they end at."""


@dataclass(frozen=True)
class Keys:
    """What a library calls what its nodes and links have."""

    features: str
    labels: str
    weights: str
    link_features: str
    time: str = "time"


def typed_graph(
    name: str,
    nodes: Mapping[str, tuple[int | None, Mapping[str, Any]]],
    links: Mapping[Triple, tuple[Any, Mapping[str, Any]]],
    keys: Keys,
    target: str | None,
) -> Graph:
    """One graph of several types of nodes.

    Args:
        name: Of the graph, for errors, too.
        nodes: By type: how many there are, where that is said, and what they have.
        links: By triple: [2, e] ends, as numbers within their types, and what they have.
        keys: What that is called.
        target: Type of the nodes that are classified; None where only one type has labels.

    Raises:
        ConfigError: It is not clear what is classified.
        DataError: A part is missing or does not fit.
    """
    if not nodes:
        raise DataError(f"{name} has no nodes.")
    labelled = [kind for kind, (_, has) in nodes.items() if has.get(keys.labels) is not None]
    chosen = _target(name, target, list(nodes), labelled, keys.labels)
    called = {kind: _plain(kind) for kind in sorted(nodes)}
    rows = {called[kind]: _nodes(f"{name}: '{kind}'", *nodes[kind], keys) for kind in called}
    twice = Counter(relation for _, relation, _ in links)
    found: dict[str, LinkRows] = {}
    for (start, relation, end), (ends, has) in links.items():
        what = f"{name}: '{start} {relation} {end}'"
        word = relation if twice[relation] == 1 and relation not in nodes else f"{start}_{relation}_{end}"
        sizes = [len(rows[called[kind]]) for kind in (start, end)]
        found[_plain(word)] = _links(what, (called[start], called[end]), sizes, ends, has, keys)
    made = assemble(rows, dict(sorted(found.items())), called[chosen])
    first, count = made.starts[called[chosen]], len(rows[called[chosen]])
    total = sum(map(len, rows.values()))
    labels, words = np.full(total, -1, dtype=np.int64), None
    has = nodes[chosen][1]
    if has.get(keys.labels) is not None:
        what = f"{name}: {keys.labels} of '{chosen}'"
        labels[first : first + count], words = _classes(has[keys.labels], what, count)
    names = [
        f"{'' if kind == called[chosen] else f'{kind}:'}{row}" for kind, one in rows.items() for row in range(len(one))
    ]
    masks = {key: has.get(f"{key}_mask") for key in SPLITS}
    return Graph(
        **made.parts,
        labels=labels,
        num_classes=plain.class_count(labels, words),
        name=name,
        class_names=words,
        node_names=np.array(names, dtype=np.str_),
        splits={
            key: _spread(plain.array_of(mask, f"{name}: {key}_mask"), first, count, total, f"{name}: {key}_mask")
            for key, mask in masks.items()
            if mask is not None
        },
    )


def _target(name: str, target: str | None, kinds: list[str], labelled: list[str], key: str) -> str:
    if target is not None:
        if target not in kinds:
            raise ConfigError(f"{name}: target is '{target}', which is no type of nodes; {nearest(target, kinds)}")
        return target
    if len(labelled) == 1 or len(kinds) == 1:
        return (labelled or kinds)[0]
    what = f"nodes of the types {several(labelled, 4)} all have labels" if labelled else f"no type has labels '{key}'"
    raise ConfigError(
        f"{name}: {what}, and nodes of one type are classified (there are {several(kinds, 8)}). Say which: "
        f"graphsilo.graph_of(data, target='{(labelled or kinds)[0]}')."
    )


def _plain(word: str) -> str:
    return re.sub(r"[^\w-]+", "_", str(word))


def _nodes(what: str, count: int | None, has: Mapping[str, Any], keys: Keys) -> NodeRows:
    x = has.get(keys.features)
    time = _vector(has.get(keys.time), f"{what}: {keys.time}")
    if x is None:
        if count is None:
            raise DataError(f"{what} has neither {keys.features} nor a number of nodes (num_nodes).")
        return NodeRows(FeatureTable(np.zeros((count, 0), dtype=np.float32)), time)
    found = plain.features_of(x, what)
    values = found if isinstance(found, np.ndarray) else found.toarray()
    values = values if values.dtype.kind == "f" else values.astype(np.float64)
    for counted, told in ((count, "num_nodes"), (None if time is None else len(time), keys.time)):
        if counted is not None and counted != len(values):
            raise DataError(f"{what}: {keys.features} has {len(values)} rows, and {told} says {counted}.")
    return NodeRows(FeatureTable(values, tuple(map(str, range(values.shape[1])))), time)


def _links(
    what: str, types: tuple[str, str], sizes: list[int], ends: Any, has: Mapping[str, Any], keys: Keys
) -> LinkRows:
    pairs = plain.array_of(ends, f"{what}: edge_index").reshape(2, -1).astype(np.int64)
    for row, size, kind in zip(pairs, sizes, types, strict=True):
        if len(row) and not 0 <= row.min() <= row.max() < size:
            bad = int(row.max()) if row.max() >= size else int(row.min())
            raise DataError(f"{what}: a link names node {bad} of type '{kind}', and there are {size} of them.")
    attributes = has.get(keys.link_features)
    values = np.zeros((pairs.shape[1], 0), dtype=np.float64)
    if attributes is not None:
        given = plain.array_of(attributes, f"{what}: {keys.link_features}")
        values = given.reshape(len(given), -1).astype(np.float64)
    weights = _vector(has.get(keys.weights), f"{what}: {keys.weights}")
    time = _vector(has.get(keys.time), f"{what}: {keys.time}")
    for key, part in ((keys.link_features, values), (keys.weights, weights), (keys.time, time)):
        if part is not None and len(part) != pairs.shape[1]:
            raise DataError(f"{what}: {key} has {len(part)} rows, and there are {pairs.shape[1]} links.")
    features = FeatureTable(values, tuple(map(str, range(values.shape[1]))))
    return LinkRows(pairs, types, features, None if weights is None else weights.astype(np.float32), time)


def _vector(value: Any, what: str) -> NDArray[np.float64] | None:
    return None if value is None else plain.array_of(value, what).reshape(-1).astype(np.float64)


def _classes(value: Any, what: str, count: int) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    given = plain.array_of(value, what)
    if given.size != count:
        raise DataError(f"{what} should hold one class number per node, [{count}]; got shape {list(given.shape)}.")
    return plain.class_numbers(given.reshape(-1), what, "they")


def _spread(mask: NDArray[Any], first: int, count: int, total: int, what: str) -> NDArray[np.bool_]:
    if mask.shape != (count,) or not ((mask == 0) | (mask == 1)).all():
        raise DataError(f"{what} must be truth values for {count} nodes; got shape {list(mask.shape)} of {mask.dtype}.")
    whole = np.zeros(total, dtype=np.bool_)
    whole[first : first + count] = mask
    return whole
