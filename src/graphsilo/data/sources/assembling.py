"""Tables of nodes by type and of links by relation, put together as one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.links import LinkTable, NodeTypes
from graphsilo.data.sources.columns import FeatureTable
from graphsilo.data.sources.transforms import compact_features
from graphsilo.data.sources.vocabulary import Learned
from graphsilo.errors import DataError, nearest


@dataclass(frozen=True)
class NodeRows:
    """Nodes of one type: their features, and days that they are looked at."""

    features: FeatureTable
    time: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.features.values)


@dataclass(frozen=True)
class LinkRows:
    """Rows of one relation: [2, r] ends as numbers within the two types that they are of, columns, weights and days."""

    ends: NDArray[np.int64]
    types: tuple[str, str]
    features: FeatureTable
    weights: NDArray[np.float32] | None = None
    time: NDArray[np.float64] | None = None

    def where(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> LinkRows:
        """Some of them."""
        return replace(
            self,
            ends=np.ascontiguousarray(self.ends[:, chosen]),
            features=replace(self.features, values=self.features.values[chosen]),
            weights=None if self.weights is None else self.weights[chosen],
            time=None if self.time is None else self.time[chosen],
        )

    def sorted(self) -> LinkRows:
        """In an order of what they say: a database gives them in any, and sums must not depend on it."""
        keys = [*self.features.values.T, *(key for key in (self.time, self.weights) if key is not None)]
        return self.where(np.lexsort((*keys, self.ends[1], self.ends[0])))


@dataclass(frozen=True)
class Assembly:
    """What tables say of a graph.

    Attributes:
        parts: Arguments of the graph.
        fills: What an empty cell of each feature becomes.
        starts: Number of the first node of each type.
    """

    parts: dict[str, Any]
    fills: Mapping[str, float]
    starts: Mapping[str, int]


def assemble(
    nodes: Mapping[str, NodeRows],
    links: Mapping[str, LinkRows],
    target: str,
    *,
    types: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
    learned: Learned | None = None,
) -> Assembly:
    """One graph of several tables; of one type and one relation without columns it is as plain as these are.

    Args:
        nodes: By type, in the order of ``types``.
        links: By relation.
        target: Type of the nodes that are classified.
        types, relations: All that there are, where some are lacking here.
        learned: Columns of those.
    """
    kinds, types = [*nodes], tuple(types or nodes)
    sizes = [len(nodes[kind]) for kind in kinds]
    starts = dict(zip(kinds, accumulate(sizes, initial=0), strict=False))
    ends = [one.ends + np.array([[starts[kind]] for kind in one.types]) for one in links.values()]
    learned = learned or Learned()
    features, of_feature = _stack(nodes, types, learned)
    of_node = np.repeat(np.array([types.index(kind) for kind in kinds], dtype=np.int16), sizes)
    parts = {
        "features": compact_features(features.values),
        "edges": np.concatenate(ends, axis=1) if ends else np.zeros((2, 0), dtype=np.int64),
        "edge_weights": _join_weights([*links.values()]),
        "feature_names": features.names,
        "fills": features.fills or None,
        "estimated": features.estimated,
        "types": None if len(types) == 1 else NodeTypes(types, of_node, of_feature, types.index(target)),
        "links": _link_table(tuple(relations or links), links, ends, types, learned),
        "time": _join_times([one.time for one in nodes.values()], sizes),
    }
    return Assembly(parts, features.fills, starts)


def _stack(
    nodes: Mapping[str, NodeRows], types: Sequence[str], learned: Learned
) -> tuple[FeatureTable, NDArray[np.int16]]:
    """Features of all types side by side, zeros for nodes of others, and the type that each is of."""
    first = next(iter(nodes.values())).features
    if len(types) == 1:
        return first, np.zeros(len(first.names), dtype=np.int16)
    columns = {
        kind: tuple(f"{kind}.{name}" for name in nodes[kind].features.names)
        if kind in nodes
        else tuple(name for name in learned.names if name.startswith(f"{kind}."))
        for kind in types
    }
    names = tuple(name for kind in types for name in columns[kind])
    of_feature = np.repeat(np.arange(len(types)), [len(columns[kind]) for kind in types])
    one_each = tuple(f"type={kind}" for kind in types)
    total, wide = sum(len(one.features.values) for one in nodes.values()), len(names)
    kind_of = np.result_type(*(one.features.values.dtype for one in nodes.values()))
    values = np.zeros((total, wide + len(types)), dtype=kind_of)
    row = 0
    for number, kind in enumerate(types):
        if kind not in nodes:
            continue
        part = nodes[kind].features.values
        column = int((of_feature < number).sum())
        values[row : row + len(part), column : column + part.shape[1]] = part
        values[row : row + len(part), wide + number] = 1.0
        row += len(part)
    started = [(f"{kind}.", one.features) for kind, one in nodes.items()]
    return FeatureTable(
        values,
        names + one_each,
        {f"{start}{name}": value for start, part in started for name, value in part.fills.items()},
        {},
        tuple(f"{start}{name}" for start, part in started for name in part.estimated),
    ), np.concatenate([of_feature, np.full(len(types), -1)]).astype(np.int16)


def _join_weights(rows: Sequence[LinkRows]) -> NDArray[np.float32] | None:
    """Weights of all rows, 1 for those of relations without; None where none has any."""
    if all(one.weights is None for one in rows):
        return None
    ones = [np.ones(one.ends.shape[1], dtype=np.float32) if one.weights is None else one.weights for one in rows]
    return np.concatenate(ones)


def _join_times(times: Sequence[NDArray[np.float64] | None], sizes: Sequence[int]) -> NDArray[np.float64] | None:
    if all(time is None for time in times):
        return None
    return np.concatenate(
        [np.full(size, np.nan) if time is None else time for time, size in zip(times, sizes, strict=True)]
    )


def _link_table(
    relations: Sequence[str], rows: Mapping[str, LinkRows], ends: Sequence[NDArray[np.int64]], types: Sequence[str],
    learned: Learned,
) -> LinkTable | None:  # fmt: skip
    """The rows of all relations, where they say more than which nodes are linked."""
    told = any(one.features.names or one.time is not None for one in rows.values())
    if len(relations) == 1 and not told and not learned.relations:
        return None
    names = learned.links or tuple(f"{name}.{column}" for name in relations if name in rows
                                   for column in rows[name].features.names)  # fmt: skip
    sizes = [one.shape[1] for one in ends]
    features = np.full((sum(sizes), len(names)), np.nan)
    start = 0
    for (name, one), size in zip(rows.items(), sizes, strict=True):
        strange = next((column for column in one.features.names if f"{name}.{column}" not in names), None)
        if strange is not None:
            raise DataError(
                f"links '{name}' have the column '{strange}', which the model or the federation does not know; "
                f"{nearest(f'{name}.{strange}', names)} It was trained on tables without."
            )
        columns = [names.index(f"{name}.{column}") for column in one.features.names]
        features[start : start + size, columns] = one.features.values
        start += size
    of_link = np.repeat(np.array([relations.index(name) for name in rows], dtype=np.int16), sizes)
    time = _join_times([one.time for one in rows.values()], sizes)
    known = {
        **dict(zip(learned.relations, learned.ends, strict=False)),
        **{name: one.types for name, one in rows.items()},
    }
    between = None
    if len(types) > 1:
        between = np.array([[types.index(kind) for kind in known[name]] for name in relations], dtype=np.int16)
    return LinkTable(tuple(relations), of_link, np.concatenate(ends, axis=1), features, names, time, between)
