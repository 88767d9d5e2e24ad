"""A schema as plain values: what sites are sent, and what is kept beside a model of what it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.faults import name_fault, unseen_fault
from graphsilo.data.sources.vocabulary import Learned
from graphsilo.data.truth import words_of
from graphsilo.errors import MessageError, quote

TABLES = ("types", "relations", "link_features", "target", "ends")
"""What a schema says of tables."""
NAMES = ("feature_names", "class_names", "types", "relations", "link_features")
"""Of it, what is lists of names."""


def schema_tree(schema: Schema) -> dict[str, Any]:
    """A schema as plain values."""
    tree = asdict(schema)
    for key in NAMES:
        tree[key] = None if tree[key] is None else list(tree[key])
    return tree


def schema_of(tree: Mapping[str, Any]) -> Schema:
    """The schema of such values.

    Raises:
        MessageError: It has a name that could not have stood on a card: one that holds a control character, or that a
            spreadsheet takes for a formula.
    """
    names: dict[str, Any] = {key: None if tree[key] is None else tuple(tree[key]) for key in NAMES}
    booleans = words_of(tree["booleans"])
    target, ends = str(tree["target"]), tuple((str(start), str(end)) for start, end in tree["ends"])
    listed = [(name_fault, name) for known in (*names.values(), booleans, [target], *ends) for name in known or ()]
    listed += [(unseen_fault, word) for pair in booleans.values() for words in pair for word in words]
    for fault, name in listed:
        wrong = fault(name) if isinstance(name, str) else "is no text"
        if wrong is not None:
            raise MessageError(f"the schema of the federation has the name {quote(name)}, which {wrong}.")
    return Schema(
        tree["task"], int(tree["num_features"]), int(tree["num_classes"]), **names, booleans=booleans,
        directed=bool(tree["directed"]), weighted=bool(tree["weighted"]), target=target, ends=ends,
    )  # fmt: skip


def learned_of(schema: Schema, fills: Mapping[str, float] | None = None) -> Learned:
    """What tables must be read with to fit a schema.

    Args:
        schema: Of a federation, or of a model that is to be asked.
        fills: What stands for an empty cell of each feature, where that is known.
    """
    return Learned(schema.feature_names or (), fills, schema.types, schema.relations, schema.link_features, schema.ends)
