"""The list of models. Imports no torch: the command line reads it.

A package may add models through the entry point group ``graphsilo.models``, each entry point naming a ModelEntry.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.models.settings import BUILT_IN, ModelEntry, ModelSettings

GROUP = "graphsilo.models"


_ADDED: dict[str, ModelEntry] = {}


def register(item: ModelEntry) -> ModelEntry:
    """Make a model known to this process; returns it.

    Raises:
        ConfigError: A model of graphsilo has its name.
    """
    if any(item.name == known.name for known in BUILT_IN):
        raise ConfigError(f"there is a model '{item.name}' already; give yours another name.")
    _ADDED[item.name] = item
    _registry.cache_clear()
    return item


def adopt(name: str, thing: Any) -> str:
    """Make a model known that a person brought along; returns the name that it has now.

    Args:
        name: For a class of modules, or a function that makes one.
        thing: Such a class or function, or a ModelEntry, which has a name of its own.

    Raises:
        ConfigError: It is something else, or its parameters do not say which are the widths.
    """
    if isinstance(thing, ModelEntry):
        return register(thing).name
    from graphsilo.models.own import entry_of  # imports torch

    return register(entry_of(name, thing)).name


def list_added() -> tuple[str, ...]:
    """Names of the models that only this process knows."""
    return tuple(_ADDED)


@functools.cache
def _registry() -> dict[str, ModelEntry | importlib.metadata.EntryPoint]:
    """Every name and alias. Entry points are listed without importing their package."""
    known: dict[str, ModelEntry | importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        known[point.name.lower()] = point
    # Built-in names win: a package cannot replace a model that published numbers refer to.
    for item in (*_ADDED.values(), *BUILT_IN):
        for name in (item.name, *item.aliases):
            known[name] = item
    return known


def names() -> tuple[str, ...]:
    """Every model's name, built-in ones first; aliases are left out."""
    built_in = tuple(item.name for item in BUILT_IN)
    others = sorted(name for name, item in _registry().items() if not isinstance(item, ModelEntry) or name in _ADDED)
    return (*built_in, *others)


def entry(name: str) -> ModelEntry:
    """The list's line for a name or alias, in any case; ``-`` and ``_`` are the same.

    Raises:
        ConfigError: Nothing is known by this name, or a package's entry point is not a ModelEntry.
    """
    known = _registry()
    found = known.get(name) or known.get(name.lower()) or known.get(name.lower().replace("-", "_"))
    if found is None:
        raise ConfigError(f"unknown model '{name}'; {nearest(name, known)}")
    if isinstance(found, ModelEntry):
        return found
    loaded = found.load()
    if not isinstance(loaded, ModelEntry):
        raise ConfigError(
            f"the entry point '{found.name}' of group {GROUP} must name a graphsilo.models.ModelEntry; "
            f"'{found.value}' is a {type(loaded).__name__}."
        )
    return loaded


def resolve(name: str, overrides: Mapping[str, Any] | None = None) -> ModelSettings:
    """The settings of a model, defaults changed by ``overrides``.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type or lies outside its range.
    Example:
        >>> resolve("gcn", {"hidden": [128, 64]}).as_dict()
        {'hidden': [128, 64], 'layers': 3, 'dropout': 0.5, 'pooling': 'sum'}
    """
    item = entry(name)
    return item.settings.of(overrides, owner=item.name)
