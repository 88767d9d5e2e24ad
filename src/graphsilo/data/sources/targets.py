"""Targets of nodes that are no class: numbers to be estimated, and labels of which a node may have several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.links import Targets
from graphsilo.errors import DataError


def with_targets(
    graph: Graph,
    values: Any,
    names: Sequence[str] | None = None,
    *,
    task: Literal["regression", "multilabel"] | None = None,
) -> Graph:
    """The graph with targets in place of classes.

    Args:
        graph: Whose labels are replaced.
        values: [n] or [n, m] numbers, NaN where one is not known.
        names: Of the m targets, with their unit: ``income, EUR``.
        task: ``regression`` estimates numbers. ``multilabel`` says of each target whether a node has it: 1, or 0. None
            takes the latter where there are several and nothing but 0 and 1.

    Raises:
        DataError: They do not fit the graph or the task, or one is not finite.

    Example:
        >>> ring = Graph(np.eye(3, dtype=np.float32), np.array([[0, 1, 2], [1, 2, 0]]), np.zeros(3, dtype=np.int64), 1)
        >>> with_targets(ring, [2.5, float("nan"), 7.0], ["income, EUR"]).labels.tolist()
        [0, -1, 0]
    """
    table = np.asarray(values)
    if table.dtype.kind not in "biuf" or table.ndim not in (1, 2) or len(table) != graph.num_nodes:
        raise DataError(
            f"{graph.name}: targets are numbers, one or several for each of {graph.num_nodes} nodes; got "
            f"{table.dtype} {table.shape}."
        )
    with np.errstate(over="ignore"):
        table = table.reshape(graph.num_nodes, -1).astype(np.float32)
    known = table[~np.isnan(table)]
    if not np.isfinite(known).all():
        raise DataError(f"{graph.name}: a target is not finite in float32. NaN stands for one that is not known.")
    count = table.shape[1]
    if names is not None and len(set(names)) != count:
        raise DataError(f"{graph.name}: {count} targets need as many different names; got {', '.join(names)}.")
    plain = bool(((known == 0) | (known == 1)).all())
    chosen = task or ("multilabel" if plain and count > 1 else "regression")
    if chosen == "multilabel" and not plain:
        raise DataError(
            f"{graph.name}: with the task multilabel a target is 1 or 0, or NaN where it is not known; "
            f"{float(known[(known != 0) & (known != 1)][0]):g} came. Numbers are estimated by the task regression."
        )
    targets = Targets(table, chosen)
    return replace(
        graph,
        labels=np.where(targets.known, 0, -1),
        num_classes=count,
        class_names=None if names is None else tuple(names),
        targets=targets,
    )
