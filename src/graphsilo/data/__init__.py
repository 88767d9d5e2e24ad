"""Data: graphs by name or from own tables, partitions, splits, and what one client holds.

Names are imported when they are first used, so that ``import graphsilo.data`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.sources.catalog import LoadOptions, load
    from graphsilo.data.sources.entries import CatalogEntry, entry, names
    from graphsilo.data.sources.files import load_graph, save_graph
    from graphsilo.data.sources.tables import load_tables
    from graphsilo.data.sources.targets import with_targets

__all__ = [
    "CatalogEntry",
    "Graph",
    "GraphCollection",
    "LoadOptions",
    "entry",
    "load",
    "load_graph",
    "load_tables",
    "names",
    "save_graph",
    "with_targets",
]

_HOMES = {
    "CatalogEntry": "sources.entries",
    "Graph": "graph",
    "GraphCollection": "graph",
    "LoadOptions": "sources.catalog",
    "entry": "sources.entries",
    "load": "sources.catalog",
    "load_graph": "sources.files",
    "load_tables": "sources.tables",
    "names": "sources.entries",
    "save_graph": "sources.files",
    "with_targets": "sources.targets",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'graphsilo.data' has no attribute '{name}'")
    return getattr(import_module(f"graphsilo.data.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
