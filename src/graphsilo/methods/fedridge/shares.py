"""What columns and neighbours add to a ridge's score.

φ is linear in the features once the lengths of rows are what they are: each node's row is divided by its own length,
propagated, and divided by the length of what comes out. A share is a product of these numbers, so that shares add up
to the score; how a length would change with a feature is in none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import UnsupportedError
from graphsilo.methods.fedridge import features
from graphsilo.methods.fedridge.features import CONSTANT, Recipe
from graphsilo.models.columns import SCALE, inverse_lengths, projection, unit_rows
from graphsilo.models.hops import add_weighted
from graphsilo.models.shares import PLACES, Floats, Linear, name_columns
from graphsilo.models.view import GraphTensors, Norm


def linear_parts(data: GraphTensors, recipe: Recipe, weights: Tensor) -> tuple[list[Linear], float]:
    """A node's score φ w as sums over features of nodes, and what all nodes have.

    Args:
        data: The graph.
        recipe: Of φ.
        weights: [p] w, float64.

    Raises:
        UnsupportedError: φ is not linear in the features, or of whole graphs.
    """
    require_linear(data, recipe)
    rows, width = data.graph.features, recipe.base_width(data.num_features)
    projected = recipe.projects(data.num_features)
    place = recipe.constant(data.num_features)
    bias, kept = float(CONSTANT * weights[place]), weights[:place].numpy()
    inner = inverse_lengths(rows).astype(np.float64)
    names = data.graph.feature_names

    def part(norm: Norm, hops: tuple[int, ...], turned: Floats, outer: Floats, own: Floats, place: str) -> Linear:
        operator = data.matrix(norm).astype(np.float64)
        return Linear(rows, turned, operator, hops, own, outer, name_columns(names, data.num_features, place))

    if recipe.kind != "separate":
        start = features.start_rows(data, recipe)
        turned, own = kept, inner
        if projected:
            turned = projection(data.num_features, width, recipe.seed) @ kept
        if recipe.centred:
            even = projection(data.num_features, width, recipe.seed).sum(axis=0) if projected else np.ones((1, width))
            lost = (1 - CONSTANT) / data.num_features
            own = inner * features.centring_lengths(data, recipe)
            turned = turned - lost * float(np.asarray(even, dtype=np.float64).ravel() @ kept)
        again = recipe.kind == "mean"
        outer = inverse_lengths(features.propagate(data, start, "gcn", recipe.hops, again=again)).astype(np.float64)
        hops = tuple(range(recipe.hops + 1)) if again else (recipe.hops,)
        return [part("gcn", hops, turned, outer, own, f"within {recipe.hops} links" if recipe.hops else "")], bias
    own_rows = features.start_rows(data, recipe)
    parts, sizes, whole, block = list[Linear](), np.zeros(data.num_nodes), None, own_rows
    for level in range(recipe.hops + 1):
        if projected:
            block = features.propagate(data, features.project(own_rows, width, recipe.seed, level), "mean", level)
            turned = projection(data.num_features, width, recipe.seed, level) @ kept
        else:
            block = features.propagate(data, block, "mean", 1) if level else block
            turned = kept[level * data.num_features : (level + 1) * data.num_features]
        outer = inverse_lengths(block).astype(np.float64)
        sizes += outer > 0
        if projected:
            unit = unit_rows(block)
            whole = unit if whole is None else add_weighted(whole, unit, 1.0)
        where = PLACES[level] if level < len(PLACES) else f"{level} links away"
        parts.append(part("mean", (level,), np.asarray(turned), outer, inner, where))
    last = np.divide(1.0, np.sqrt(sizes), out=np.zeros_like(sizes), where=sizes > 0)
    if whole is not None:
        last = inverse_lengths(whole).astype(np.float64)
    return [replace(each, outer=each.outer * last) for each in parts], bias


def require_linear(data: GraphTensors, recipe: Recipe) -> None:
    """Refuse φ that has no exact shares.

    Raises:
        UnsupportedError: It is of whole graphs, or not linear in the features.
    """
    if data.collection is not None or recipe.random or recipe.kind == "wl":
        raise UnsupportedError(
            "shares of a ridge's score are exact for nodes whose columns are linear in their features: neither whole "
            "graphs nor random features (method.random_features) are. Ask for them of a run of nodes without these."
        )


def label_parts(
    data: GraphTensors, nodes: NDArray[np.int64], labels: NDArray[np.int64], weights: Tensor, names: list[str]
) -> list[Linear]:
    """The same of label features.

    Args:
        data: The graph.
        nodes, labels: Training nodes, and their classes.
        weights: [2C] float64.
        names: Of the classes.
    """
    classes, count = len(names), data.num_nodes
    known = sp.csr_matrix((np.ones(len(nodes)), (nodes, labels)), shape=(count, classes))
    operator, ones = data.matrix("mean").astype(np.float64), np.ones(count)
    said = [f"nodes labelled {name}, {place}" for place in PLACES[1:] for name in names]
    return [
        Linear(known, SCALE * weights[at * classes : (at + 1) * classes].numpy(), operator, (at + 1,), ones, ones,
               said[at * classes : (at + 1) * classes], features=False, without_self=at == 1)
        for at in range(2)
    ]  # fmt: skip


def portable_part(
    recipe: Recipe, weights: Tensor, num_features: int, size: float | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """A ridge as plain values and arrays.

    Args:
        recipe: Of φ.
        weights: [p, C].
        num_features: d.
        size: Whole graphs: what the sums over their nodes are divided by; None for nodes.
        more: Further values.

    Raises:
        UnsupportedError: It has random features.
    """
    features.require_plain(recipe)
    levels = range({"separate": recipe.hops + 1, "wl": 0}.get(recipe.kind, 1))
    width = recipe.base_width(num_features, graphs=size is not None)
    narrow = recipe.projects(num_features, graphs=size is not None)
    return {
        "kind": "linear", "columns": recipe.kind, "hops": recipe.hops, "constant": CONSTANT,
        "size": None if recipe.kind == "wl" else size, "base": width, "seed": recipe.seed,
        "centred": 1 - CONSTANT if recipe.centred else None, "weights": weights.double().numpy(),
        "projections": [projection(num_features, width, recipe.seed, at).toarray() for at in levels if narrow], **more,
    }  # fmt: skip
