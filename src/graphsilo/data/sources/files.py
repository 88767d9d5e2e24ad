"""Graphs in files of graphsilo's own, ``.npz`` without pickle.

The ``.npz`` holds plain arrays and one JSON text (``meta``), so any numpy can read it; entries carry checksums.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.arrays import read_npz
from graphsilo.data.graph import Features, Graph, GraphCollection, PublishedSplits
from graphsilo.data.sources.faults import unseen_fault
from graphsilo.errors import DataError, RunError, quote

FORMAT = 1
_SPLIT = "split_"
_CSR = ("data", "indices", "indptr")
_PARTS = {"types": "NodeTypes", "links": "LinkTable", "owners": "Owners", "targets": "Targets"}
"""What a graph may have beside its arrays, and what it is called in :mod:`graphsilo.data.links`."""


def save_graph(path: str | os.PathLike[str], graph: Graph | GraphCollection) -> Path:
    """Writes a graph or a collection to an ``.npz`` file without pickle.

    The file appears whole or not at all (temporary file, fsync, rename).

    Raises:
        DataError: The name does not end in ``.npz``.
        RunError: The disk is full, or the folder cannot be written.
    """
    target = Path(path)
    if target.suffix.lower() != ".npz":
        raise DataError(f"a graph is saved as an .npz file; got the name '{target.name}'. Use e.g. {target.stem}.npz.")
    try:
        write_graph(target, graph)
    except OSError as error:
        raise RunError(
            f"the graph could not be saved to {target} ({error.strerror or error}). What was there before is unharmed; "
            f"free some space or choose another place."
        ) from error
    return target


def load_graph(path: str | os.PathLike[str]) -> Graph | GraphCollection:
    """Reads what :func:`save_graph` wrote.

    Raises:
        DataError: The file is missing, damaged, of another format, or needs pickle.
    """
    return read_graph(Path(path))[0]


def write_graph(path: Path, graph: Graph | GraphCollection, *, facts: Mapping[str, Any] | None = None) -> None:
    """As :func:`save_graph`, with further plain values for the reader; raises OSError as it comes."""
    union = graph.union
    head, arrays = parts_of(graph)
    published = isinstance(union.splits, PublishedSplits)
    meta = {"format": FORMAT, "facts": dict(facts or {}), **head, "published_splits": published}
    # Edges are most of a large graph; node numbers nearly always fit into half the width.
    arrays["edges"] = union.edges.astype(np.int32 if union.num_nodes < 2**31 else np.int64)
    arrays |= {_SPLIT + name: np.asarray(mask) for name, mask in union.splits.items()}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    from graphsilo.data.sources.atomic import atomic_file

    with atomic_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def parts_of(graph: Graph | GraphCollection) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A graph but for its splits as plain values and arrays, from which ``graph_of`` makes it again."""
    if isinstance(graph, GraphCollection):
        head, arrays = parts_of(graph.union)
        arrays |= {"pointer": graph.pointer, "graph_labels": graph.labels}
        if graph.graph_ids is not None:
            arrays["graph_ids"] = graph.graph_ids
        return {**head, "collection": {"name": graph.name, "num_classes": graph.num_classes}}, arrays
    head = {key: getattr(graph, key) for key in ("name", "num_classes", "feature_names", "class_names", "estimated")}
    arrays = {"edges": graph.edges, "labels": graph.labels}
    if sp.issparse(graph.features):
        arrays |= {f"features_{key}": getattr(graph.features, key) for key in _CSR}
        arrays["features_shape"] = np.asarray(graph.features.shape, dtype=np.int64)
    else:
        arrays["features"] = np.asarray(graph.features)
    given = {"edge_weights": graph.edge_weights, "node_ids": graph.node_ids, "time": graph.time}
    arrays |= {key: array for key, array in given.items() if array is not None}
    for key in _PARTS:
        for name, value in {} if (part := getattr(graph, key)) is None else vars(part).items():
            if isinstance(value, np.ndarray):
                arrays[f"{key}_{name}"] = value
            elif value is not None:
                head.setdefault("parts", {}).setdefault(key, {})[name] = value
    if graph.node_names is not None:
        # Of the nodes that are in the file only: a silo's file must not tell of nodes elsewhere.
        arrays["node_names"] = np.asarray(graph.external_ids)
    return head, arrays


def graph_of(
    head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], splits: Mapping[str, NDArray[np.bool_]] | None = None
) -> Graph | GraphCollection:
    """The graph that ``parts_of`` took apart; of values that JSON held, too.

    Raises:
        ValueError: Numbers of columns or rows are beyond the features' shape, or a name holds what nobody sees.
    """
    if "features" in arrays:
        features: Features = arrays["features"]
    else:
        parts = tuple(arrays[f"features_{key}"] for key in _CSR)
        features = sp.csr_matrix(parts, shape=tuple(arrays["features_shape"].tolist()), copy=False)
        features.check_format(full_check=True)  # compiled code writes where these numbers point
    names = {key: None if head[key] is None else tuple(head[key]) for key in ("feature_names", "class_names")}
    for name in (head["name"], *(names["feature_names"] or ()), *(names["class_names"] or ())):
        if wrong := unseen_fault(str(name)):
            raise ValueError(f"the name {quote(name)} {wrong}")
    graph = Graph(
        features=features,
        edges=arrays["edges"],
        labels=arrays["labels"],
        num_classes=head["num_classes"],
        name=head["name"],
        splits={} if splits is None else splits,
        node_ids=arrays.get("node_ids"),
        feature_names=names["feature_names"],
        class_names=names["class_names"],
        edge_weights=arrays.get("edge_weights"),
        node_names=by_global_id(arrays.get("node_names"), arrays.get("node_ids")),
        time=arrays.get("time"),
        estimated=tuple(head.get("estimated", ())),  # older files do not say
        **_assemble_parts(head.get("parts", {}), arrays),
    )
    if "collection" not in head:
        return graph
    return GraphCollection(
        graph, arrays["pointer"], arrays["graph_labels"], **head["collection"], graph_ids=arrays.get("graph_ids")
    )


def _assemble_parts(heads: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Types, links and owners, as ``parts_of`` took them apart.

    Raises:
        ValueError: A name holds what nobody sees.
    """
    if not heads:
        return {}
    from graphsilo.data import links

    found = {}
    for key, kind in _PARTS.items():
        if key not in heads:
            continue
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in heads[key].items()}
        for name in (word for value in plain.values() if isinstance(value, tuple) for word in value):
            if wrong := unseen_fault(str(name)):
                raise ValueError(f"the name {quote(name)} {wrong}")
        start = f"{key}_"
        found[key] = getattr(links, kind)(
            **plain, **{name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
        )
    return found


def read_graph(path: Path) -> tuple[Graph | GraphCollection, dict[str, Any]]:
    """The graph in an ``.npz`` file and the plain values saved with it."""
    if not path.is_file():
        raise DataError(f"the graph file {path} does not exist.")
    try:
        arrays = read_npz(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read as a graph: {error}. It is damaged, or it is not an .npz file of plain arrays; "
            f"write it again with graphsilo.data.save_graph."
        ) from error
    try:
        return _assemble(arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is an .npz file but not a graph of format {FORMAT} ({error}); graph files are written by "
            f"graphsilo.data.save_graph. Partition files belong to the setting that names a partition file."
        ) from error


def _assemble(arrays: Mapping[str, NDArray[Any]]) -> tuple[Graph | GraphCollection, dict[str, Any]]:
    meta = json.loads(arrays["meta"].tobytes().decode())
    if meta["format"] != FORMAT:
        raise ValueError(f"it says format {meta['format']}")
    splits = {key[len(_SPLIT) :]: mask for key, mask in arrays.items() if key.startswith(_SPLIT)}
    wide = {**arrays, "edges": arrays["edges"].astype(np.int64)}
    return graph_of(meta, wide, PublishedSplits(splits) if meta.get("published_splits") else splits), meta["facts"]


def by_global_id(names: NDArray[Any] | None, ids: NDArray[Any] | None) -> NDArray[np.str_] | None:
    """One name per row as one per global id; ids that are not in the file have an empty name."""
    if names is None or ids is None:
        return names
    if names.shape != ids.shape:
        raise ValueError(f"{len(names)} node_names for {len(ids)} nodes")
    table = np.zeros(int(ids.max(initial=-1)) + 1, dtype=names.dtype)
    table[ids] = names
    return table
