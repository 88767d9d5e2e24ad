"""FedRidge's columns of tables: those of ``models.node_columns``, each on one scale for all silos.

A number x counts as sign(x) log(1 + |x|), less the mean over all silos' training nodes, in deviations over them, at
most ``CLIP``; and over the root of how many columns differ at all, so that a row has a length of 1 or so. Columns of
relations come last: sums with them hold those without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import Schema
from graphsilo.methods.fedridge.features import CONSTANT, Recipe, require_plain
from graphsilo.models.node_columns import (
    ROUNDING,
    node_columns,
    num_views,
    portable_columns,
    views_of,
    width_of,
    width_of_relations,
)
from graphsilo.models.view import GraphTensors

RELATED = "+relations"
"""What the name of these columns ends with where those of relations are among them."""
CLIP = 5.0
"""Deviations from the mean that a number has at most."""
ROWS = 128
"""Worked on at once: in float64 they fit into a core's cache."""
LARGEST = float(np.log1p(np.finfo(np.float32).max))
"""Of the logarithm of a number."""


def widths(schema: Schema, dim: int) -> tuple[int, int]:
    """How many columns of nodes there are, without relations and of these: ``dim`` at most, or with 0 any number."""
    taken = features_taken(schema, dim)
    return width_of(schema.num_features, taken, 0, num_views(schema)), width_of_relations(schema, taken)


def features_taken(schema: Schema, dim: int) -> int:
    """Columns of X that are taken as they are, or onto which a wide X is projected; below 1 where ``dim`` is too small.

    Args:
        schema: Of the federation.
        dim: Most columns in all; 0 for no bound.
    """
    features, views, relations = schema.num_features, num_views(schema), 2 * len(schema.relations)
    whole = width_of(features, features, 0, views) + width_of_relations(schema, features)
    if not dim or whole <= dim:
        return features
    return min(features - 1, (dim - 2 * views - relations) // (1 + 2 * views + relations))


def raw_columns(
    data: GraphTensors, schema: Schema, dim: int, seed: int, nodes: NDArray[np.int64] | slice = slice(None)
) -> NDArray[np.float32]:
    """[m, p] the columns of some nodes, as numbers are.

    Args:
        data: The graph.
        schema: Of the federation.
        dim: Most columns.
        seed: Of the projection of a wide X.
        nodes: Of which; unless they are named, all.
    """
    none = np.zeros((data.num_features, 0), dtype=np.float32)
    relations = (data, schema) if schema.relations else None
    return node_columns(views_of(data, schema), features_taken(schema, dim), none, seed, relations, nodes)


def take_logarithms(columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """[n, p] sign(x) log(1 + |x|), in their place."""
    for start in range(0, len(columns), ROWS):
        part = columns[start : start + ROWS]
        np.copysign(np.log1p(np.abs(part)), part, out=part)
    return columns


def add_moments(logarithms: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """[p] Σ x and Σ x² over rows, float64."""
    rows = logarithms.astype(np.float64)
    return torch.from_numpy(rows.sum(axis=0)), torch.from_numpy(np.square(rows).sum(axis=0))


def find_scale(sums: Tensor, squares: Tensor, count: int) -> Tensor:
    """[2, p] float64 the mean of each column, and what is left of it is multiplied by: 0 where it does not differ.

    Args:
        sums, squares: [p] Σ x and Σ x² over all silos' training nodes.
        count: How many these are.
    """
    mean, square = sums / max(count, 1), squares / max(count, 1)
    variance = square - mean * mean
    differs = variance > ROUNDING * square
    root = (variance.where(differs, torch.ones(())) * int(differs.sum())).sqrt()
    return torch.stack([mean, torch.where(differs, 1 / root, 0.0)])


def standardise(logarithms: NDArray[np.float32], scale: Tensor) -> NDArray[np.float32]:
    """[n, p] the columns on this scale, in their place."""
    mean, factor = scale.numpy()
    most = _most(scale)
    for start in range(0, len(logarithms), ROWS):
        part = logarithms[start : start + ROWS]
        found = part - mean
        found *= factor
        part[:] = np.clip(found, -most, most, out=found)
    return logarithms


def _most(scale: Tensor) -> float:
    return CLIP / float(np.sqrt(max(int((scale[1] > 0).sum()), 1)))


def portable(recipe: Recipe, schema: Schema, scale: Tensor, weights: Tensor, *, related: bool) -> dict[str, Any]:
    """A ridge on these columns as plain values and arrays.

    Args:
        recipe: Of the features.
        schema: Of the federation.
        scale: [2, p].
        weights: Of the columns, with the constant before those of relations.
        related: Whether these are among them.

    Raises:
        UnsupportedError: It has random features.
    """
    require_plain(recipe)
    found = weights.double().numpy()
    taken, place = features_taken(schema, recipe.dim), recipe.columns
    made = portable_columns(np.zeros((schema.num_features, 0), dtype=np.float32), schema, taken, recipe.seed)
    return {
        **made, **({} if related else {"relations": []}),
        "kind": "linear", "columns": "columns", "constant": CONSTANT, "labelled": False, "most": _most(scale),
        "width": len(found) - 1,
        "scale": scale.numpy()[:, : len(found) - 1],
        "weights": np.concatenate([np.delete(found, place, axis=0), found[place : place + 1]]),
    }  # fmt: skip
