"""A schema as plain values: what sites are sent, and what is kept beside a model of what it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import msgspec

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.faults import name_fault, unseen_fault
from graphsilo.data.sources.vocabulary import Learned
from graphsilo.data.truth import words_of
from graphsilo.errors import MessageError, one_line, quote

TABLES = ("types", "relations", "link_features", "target", "ends")
"""What a schema says of tables."""
NAMES = ("feature_names", "class_names", "types", "relations", "link_features")
"""Of it, what is lists of names."""


_KINDS: dict[str, Any] = {
    "num_features": Annotated[int, msgspec.Meta(ge=0, le=2**31)],
    "num_classes": Annotated[int, msgspec.Meta(ge=0, le=10_000)],
    "feature_names": list[Any] | None, "class_names": list[Any] | None,
    "booleans": dict[str, tuple[list[Any], list[Any]]],
    "directed": bool, "weighted": bool, "types": list[Any], "relations": list[Any], "link_features": list[Any],
    "target": str, "ends": list[tuple[Any, Any]],
}  # fmt: skip


def schema_tree(schema: Schema) -> dict[str, Any]:
    """A schema as plain values."""
    tree = asdict(schema)
    for key in NAMES:
        tree[key] = None if tree[key] is None else list(tree[key])
    return tree


def schema_of(tree: Mapping[str, Any]) -> Schema:
    """The schema of such values.

    Raises:
        MessageError: They are of the wrong kinds, or no cards come to them; or one is a name that could not have stood
            on a card: one that holds a control character, or that a spreadsheet takes for a formula.
    """
    tree = {"types": [], "relations": [], "link_features": [], "target": "", "ends": [], **tree}  # of older files
    try:
        for key, kind in _KINDS.items():
            msgspec.convert(tree[key], kind)
    except (msgspec.ValidationError, KeyError) as error:
        raise MessageError(f"the schema of the federation has no '{key}' that can be: {one_line(error)}.") from None
    if trouble := _find_fault(tree):
        raise MessageError(f"the schema of the federation is one of no silos: {trouble}.")
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


def _find_fault(tree: Mapping[str, Any]) -> str:
    """Why no silos agree on it, whatever they hold; empty where some may."""
    for count, key in (("num_features", "feature_names"), ("num_classes", "class_names")):
        if tree[key] is not None and len(tree[key]) != tree[count]:
            return f"{tree[count]} {count} have {len(tree[key])} {key}"
    for key in ("types", "relations", "link_features"):
        if len(set(map(str, tree[key]))) < len(tree[key]):
            return f"a name stands twice in {key}"
    if tree["ends"] and len(tree["ends"]) != len(tree["relations"]):
        return f"{len(tree['relations'])} relations have {len(tree['ends'])} ends"
    if bool(tree["types"]) != bool(tree["target"]) or (tree["types"] and tree["relations"] and not tree["ends"]):
        return "there are types of nodes, and it does not say which nodes are classified or linked"
    strange = {str(kind) for kind in (tree["target"], *(kind for pair in tree["ends"] for kind in pair)) if kind}
    return "it has links or a target of types that there are not" if not strange <= {*map(str, tree["types"])} else ""


def learned_of(schema: Schema, fills: Mapping[str, float] | None = None) -> Learned:
    """What tables must be read with to fit a schema.

    Args:
        schema: Of a federation, or of a model that is to be asked.
        fills: What stands for an empty cell of each feature, where that is known.
    """
    return Learned(schema.feature_names or (), fills, schema.types, schema.relations, schema.link_features, schema.ends)
