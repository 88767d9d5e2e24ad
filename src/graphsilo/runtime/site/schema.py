"""A schema as plain values, to be told to sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from graphsilo.data.silo import Schema


def schema_tree(schema: Schema) -> dict[str, Any]:
    """A schema as plain values."""
    tree = asdict(schema)
    for key in ("feature_names", "class_names"):
        tree[key] = None if tree[key] is None else list(tree[key])
    return tree


def schema_of(tree: Mapping[str, Any]) -> Schema:
    """The schema of such values."""
    names = {key: None if tree[key] is None else tuple(tree[key]) for key in ("feature_names", "class_names")}
    return Schema(tree["task"], int(tree["num_features"]), int(tree["num_classes"]), **names)
