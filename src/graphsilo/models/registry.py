"""Which backbones exist: a file each in ``graphsilo/models/backbones``, which ends with ``BACKBONE = ModelEntry(...)``.

Listing reads that statement's literals and imports no torch; using a backbone imports its file. A package may add
some through the entry point group ``graphsilo.models``, each entry point naming a ModelEntry.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.listed import find_files, read_listing
from graphsilo.models.settings import ModelEntry, ModelListing, ModelSettings

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

GROUP = "graphsilo.models"


_ADDED: dict[str, ModelEntry] = {}


def register(item: ModelEntry) -> ModelEntry:
    """Make a model known to this process; returns it.

    Raises:
        ConfigError: A model of graphsilo has its name.
    """
    if item.name in built_in():
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
def built_in() -> Mapping[str, ModelListing]:
    """Graphsilo's own, by name."""
    return {item.name: item for item in _modules().values()}


@functools.cache
def _modules() -> Mapping[str, ModelListing]:
    wanted = "a backbone's file says BACKBONE = ModelEntry(name=..., summary=..., paper=..., settings=..., network=...)"
    folder: Traversable = Path(__file__).with_name("backbones")
    if not folder.is_dir():  # an export's lie in an archive
        from importlib.resources import files

        folder = files(f"{__package__}.backbones")
    return {module: read_listing(path, "BACKBONE", ModelListing, wanted) for path, module in find_files(folder)}


@functools.cache
def _registry() -> Mapping[str, ModelListing | importlib.metadata.EntryPoint]:
    """Every name and alias. Entry points are listed without importing their package."""
    known: dict[str, ModelListing | importlib.metadata.EntryPoint] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        known[point.name.lower()] = point
    # Built-in names win: a package cannot replace a model that published numbers refer to.
    for item in (*_ADDED.values(), *built_in().values()):
        for name in (item.name, *item.aliases):
            known[name] = item
    return known


def names() -> tuple[str, ...]:
    """Every model's name, built-in ones first; aliases are left out."""
    points = {name for name, item in _registry().items() if not isinstance(item, ModelListing)}
    return (*built_in(), *sorted({*points, *_ADDED}))


def listing(name: str) -> ModelListing:
    """What is known of a backbone without importing one of graphsilo's; a name or alias, ``-`` and ``_`` the same.

    Raises:
        ConfigError: Nothing is known by this name, or a package's entry point is not a ModelEntry.
    """
    known = _registry()
    found = known.get(name) or known.get(name.lower()) or known.get(name.lower().replace("-", "_"))
    if found is None:
        raise ConfigError(f"unknown model '{name}'; {nearest(name, known)}")
    if isinstance(found, ModelListing):
        return found
    loaded = found.load()
    if not isinstance(loaded, ModelEntry):
        raise ConfigError(
            f"the entry point '{found.name}' of group {GROUP} must name a graphsilo.models.ModelEntry; "
            f"'{found.value}' is a {type(loaded).__name__}."
        )
    return loaded


def entry(name: str) -> ModelEntry:
    """A backbone by its name or alias; imports it.

    Raises:
        ConfigError: As ``listing``.
    """
    found = listing(name)
    if isinstance(found, ModelEntry):
        return found
    module = next(module for module, item in _modules().items() if item is found)
    loaded: ModelEntry = importlib.import_module(f"{__package__}.backbones.{module}").BACKBONE
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
