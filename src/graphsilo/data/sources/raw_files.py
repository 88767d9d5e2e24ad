"""Data sets of the catalogue from their raw files, which are converted once, then kept.

A converted copy is read with numpy alone, so that a command that only needs the graph does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection, content_hash
from graphsilo.data.sources import cache, files
from graphsilo.data.sources.entries import CatalogEntry, names
from graphsilo.errors import DataError

CACHE_FORMAT = 2
"""Raise whenever a conversion changes its result: older copies in users' caches are then ignored."""


def read_raw(
    found: CatalogEntry, roots: list[Path], use_node_attributes: bool
) -> tuple[Graph | GraphCollection, Mapping[str, Any]]:
    """The data set of an entry, and what is known of it: whether it is ``undirected``, its ``checksum``.

    Args:
        found: Of the catalogue.
        roots: Where raw files are looked for; what is not there is downloaded into the cache.
        use_node_attributes: As PyG's ``use_node_attr``.

    Raises:
        DataError: The files are missing, damaged, of another data set, or cannot be downloaded.
    """
    place = cache.cache_root()
    ready = _load_cached(found, roots, place, use_node_attributes)
    if ready is not None:
        return ready
    from graphsilo.data.sources import building
    from graphsilo.data.sources.conversion import convert, download
    from graphsilo.data.sources.directions import is_undirected

    with building.lock(place, found.name.lower()):
        ready = _load_cached(found, roots, place, use_node_attributes)
        if ready is not None:
            return ready
        with building.make_folder(place) as folder:
            where = found.source.find(roots)
            if where is None:
                download(found, roots, folder, place / "raw")
                where = found.source.find(roots)
                assert where is not None
            graph = convert(found, where, folder / "work", use_node_attributes)
            _check_counts(found, graph, where[0].parent, use_node_attributes)
        target = _cache_file(found, where, place, use_node_attributes)
        told = found.checksum and not use_node_attributes
        facts = {
            "undirected": is_undirected(graph.union.edges, graph.union.num_nodes),
            "checksum": checksum(graph) if told else "",
        }
        try:
            files.write_graph(target, graph, facts=facts)
        except OSError as error:
            raise DataError(
                f"the converted copy of {found.name} could not be written to {target} ({error.strerror or error}); "
                f"make room there, or set GRAPHSILO_CACHE to another folder."
            ) from error
        return graph, facts


def _load_cached(
    found: CatalogEntry, roots: list[Path], place: Path, use_node_attributes: bool
) -> tuple[Graph | GraphCollection, Mapping[str, Any]] | None:
    """The converted copy, or None if there is none yet, or it is damaged or of other data."""
    where = found.source.find(roots)
    if where is None:
        return None
    path = _cache_file(found, where, place, use_node_attributes)
    if not path.is_file():
        return None
    try:
        graph, facts = files.read_graph(path)
        _check_counts(found, graph, where[0].parent, use_node_attributes)
    except DataError:
        return None
    return graph, facts


def _cache_file(found: CatalogEntry, where: list[Path], place: Path, use_node_attributes: bool) -> Path:
    key = cache.fingerprint(where, f"format {CACHE_FORMAT}.{files.FORMAT}", f"attributes {use_node_attributes}")
    return place / "converted" / f"{found.name.lower()}-{key}.npz"


def _check_counts(found: CatalogEntry, graph: Graph | GraphCollection, folder: Path, use_node_attributes: bool) -> None:
    """Refuse files that hold other data than the name promises: what is known of the name would not be true of them.

    Raises:
        DataError: Says which counts differ, and whose they are.
    """
    counts = {
        "graphs": len(graph) if isinstance(graph, GraphCollection) else 1, "nodes": graph.union.num_nodes,
        "edges": graph.union.num_edges, "features": graph.num_features,
        "classes": int(graph.labels.max(initial=-1)) + 1,
    }  # fmt: skip
    if use_node_attributes:
        del counts["features"]
    wrong = {what: count for what, count in counts.items() if count != getattr(found, what)}
    if not wrong:
        return
    others = [other.name for other in names() if all(getattr(other, what) == count for what, count in counts.items())]
    differ = ", ".join(f"{count} {what} where it has {getattr(found, what)}" for what, count in wrong.items())
    raise DataError(
        f"the raw files in {folder} are not those of {found.name}: they hold {differ}"
        f"{f', as {others[0]} has' if others else ''}. Put the files of {found.name} there, or remove these to have "
        f"them downloaded; a graph of your own is named by its file."
    )


def checksum(graph: Graph | GraphCollection) -> str:
    """Sixteen hex digits of nodes, links, features and labels, whatever order links and stored entries have."""
    union = graph.union
    features = sp.csr_matrix(union.features, copy=True)
    features.eliminate_zeros()
    features.sort_indices()
    edges = union.edges[:, np.lexsort(union.edges)].astype(np.int64)
    plain = replace(union, features=features, edges=edges)
    return content_hash([plain if isinstance(graph, Graph) else replace(graph, union=plain)])[:16]
