"""Backbones. Importing this package is light: torch comes in with the first model built or class looked up."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.models.registry import built_in, entry, listing, names, resolve
from graphsilo.models.settings import ModelEntry, ModelListing, ModelSettings
from graphsilo.types import Precision, Task

if TYPE_CHECKING:
    import torch

    from graphsilo.data.silos.silo import Schema
    from graphsilo.models.base import Model
    from graphsilo.models.model_pools import pool, pools
    from graphsilo.models.view import GraphTensors, View

__all__ = [
    "GraphTensors",
    "Model",
    "ModelEntry",
    "ModelListing",
    "ModelSettings",
    "View",
    "build",
    "built_in",
    "check_relations",
    "entry",
    "listing",
    "names",
    "pool",
    "pools",
    "resolve",
]

_LAZY = {
    "GraphTensors": "graphsilo.models.view",
    "Model": "graphsilo.models.base",
    "View": "graphsilo.models.view",
    "pool": "graphsilo.models.model_pools",
    "pools": "graphsilo.models.model_pools",
}
"""Modules of what few need, or what needs torch, of the names above."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


def build(
    model: str | ModelSettings,
    *,
    num_features: int,
    num_classes: int,
    task: Task = "node",
    embedding_dim: int = 64,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    precision: Precision = "float32",
    schema: Schema | None = None,
    **overrides: Any,
) -> Model:
    """A model with drawn parameters. The same generator state (or seed) gives the same weights.

    Args:
        model: Name in the list of models, or its settings.
        num_features: d.
        num_classes: C; not used by the ``link`` task.
        task: ``node``, ``graph`` (one row per graph), or ``link``: the output is an embedding of each node, from
            which pairs are scored.
        embedding_dim: Width of that embedding; only for ``link``.
        seed: Parameters are drawn from ``random.generator(seed, "model")``.
        generator: Where parameters are drawn from instead; exactly one of the two is needed.
        precision: Of its dense matrix products; a run's stands in the client's ``context.model.precision``.
        schema: Says which relations, types of nodes and columns of links there are; for models that read these.
        overrides: Settings to change.

    Raises:
        ConfigError: Unknown model or setting, a value out of range, or not exactly one source of randomness.
        UnsupportedError: The model cannot be used for this task, or reads relations and there are none.
    """
    if (seed is None) == (generator is None):
        raise ConfigError("a model needs exactly one of seed and generator to draw its parameters from.")
    outputs = {"embedding_dim": embedding_dim} if task == "link" else {"num_classes": num_classes}
    sizes = {"num_features": num_features, **outputs}
    for word, number in sizes.items():
        if number < 1:
            raise ConfigError(f"{word} must be at least 1 to build a model; got {number}.")
    name = model if isinstance(model, str) else model.model
    values = {} if isinstance(model, str) else model.as_dict()
    settings, found = resolve(name, {**values, **overrides}), entry(name)
    if task not in found.tasks:
        able = ", ".join(other for other in names() if task in listing(other).tasks)
        raise UnsupportedError(f"model '{found.name}' has no {task} task; models that do: {able}.")
    check_relations(found, () if schema is None else schema.relations)
    outputs_of = embedding_dim if task == "link" else num_classes
    given = {"schema": schema} if found.relational else {}
    built = found.network.from_settings(settings, num_features, outputs_of, task, **given)
    if generator is None:
        from graphsilo.random import generator as named

        assert seed is not None
        generator = named(seed, "model")
    built.reset(generator)
    built.precision = precision
    return built


def check_relations(model: ModelListing, relations: Sequence[str]) -> None:
    """Refuse a model that reads tables of links where there are none.

    Raises:
        UnsupportedError: It does, and there are none; names models that read none.
    """
    if model.relational and not relations:
        raise UnsupportedError(
            f"model '{model.name}' reads the tables of links, of several relations or with columns, and the links here "
            f"say no more than which nodes are linked. Use --model gcn or --model sage, or give such tables (`edges` "
            f"with a table per relation, or with features)."
        )
