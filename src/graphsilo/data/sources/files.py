"""Graphs in files: graphsilo's own ``.npz`` (no pickle), and PyTorch Geometric's ``.pt`` for reading.

The ``.npz`` holds plain arrays and one JSON text (``meta``), so any numpy can read it; entries carry checksums.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.arrays import read_npz
from graphsilo.data.graph import Features, Graph, GraphCollection, PublishedSplits
from graphsilo.data.sources.transforms import compact_features
from graphsilo.errors import DataError, RunError

FORMAT = 1
_SPLIT = "split_"
_CSR = ("data", "indices", "indptr")


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
    arrays: dict[str, NDArray[Any]] = {}
    meta: dict[str, Any] = {"format": FORMAT, "facts": dict(facts or {})}
    union = graph.union
    if isinstance(graph, GraphCollection):
        arrays["pointer"], arrays["graph_labels"] = graph.pointer, graph.labels
        if graph.graph_ids is not None:
            arrays["graph_ids"] = graph.graph_ids
        meta["collection"] = {"name": graph.name, "num_classes": graph.num_classes}
    head, own = parts_of(union)
    meta |= {**head, "published_splits": isinstance(union.splits, PublishedSplits)}
    arrays |= own
    # Edges are most of a large graph; node numbers nearly always fit into half the width.
    arrays["edges"] = union.edges.astype(np.int32 if union.num_nodes < 2**31 else np.int64)
    arrays |= {_SPLIT + name: np.asarray(mask) for name, mask in union.splits.items()}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    with atomic_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def parts_of(graph: Graph) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A graph but for its splits as plain values and arrays, from which ``graph_of`` makes it again."""
    head = {key: getattr(graph, key) for key in ("name", "num_classes", "feature_names", "class_names")}
    arrays: dict[str, NDArray[Any]] = {"edges": graph.edges, "labels": graph.labels}
    if sp.issparse(graph.features):
        arrays |= {f"features_{key}": getattr(graph.features, key) for key in _CSR}
        arrays["features_shape"] = np.asarray(graph.features.shape, dtype=np.int64)
    else:
        arrays["features"] = np.asarray(graph.features)
    given = {"edge_weights": graph.edge_weights, "node_ids": graph.node_ids}
    arrays |= {key: array for key, array in given.items() if array is not None}
    if graph.node_names is not None:
        # Of the nodes that are in the file only: a silo's file must not tell of nodes elsewhere.
        arrays["node_names"] = np.asarray(graph.external_ids)
    return head, arrays


def graph_of(
    head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], splits: Mapping[str, NDArray[np.bool_]] | None = None
) -> Graph:
    """The graph that ``parts_of`` took apart; of values that JSON held, too."""
    if "features" in arrays:
        features: Features = arrays["features"]
    else:
        parts = tuple(arrays[f"features_{key}"] for key in _CSR)
        features = sp.csr_matrix(parts, shape=tuple(arrays["features_shape"].tolist()), copy=False)
    names = {key: None if head[key] is None else tuple(head[key]) for key in ("feature_names", "class_names")}
    return Graph(
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
    )


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
    graph = graph_of(meta, wide, PublishedSplits(splits) if meta.get("published_splits") else splits)
    if "collection" not in meta:
        return graph, meta["facts"]
    collection = GraphCollection(
        union=graph,
        pointer=arrays["pointer"],
        labels=arrays["graph_labels"],
        num_classes=meta["collection"]["num_classes"],
        name=meta["collection"]["name"],
        graph_ids=arrays.get("graph_ids"),
    )
    return collection, meta["facts"]


def by_global_id(names: NDArray[Any] | None, ids: NDArray[Any] | None) -> NDArray[np.str_] | None:
    """One name per row as one per global id; ids that are not in the file have an empty name."""
    if names is None or ids is None:
        return names
    if names.shape != ids.shape:
        raise ValueError(f"{len(names)} node_names for {len(ids)} nodes")
    table = np.zeros(int(ids.max(initial=-1)) + 1, dtype=names.dtype)
    table[ids] = names
    return table


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of ``path`` only when everything is on disk.

    ``mode`` says who may read and write it, from its first byte on; the umask is taken off.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _unfinished(path)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_names(path.parent)


def _unfinished(path: Path) -> Path:
    """A new name beside a file, under which it is written until it is whole."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def remove_unfinished(folder: Path) -> None:
    """Remove what a process that was killed while it wrote has left in a folder; nobody else may be writing there."""
    for path in folder.rglob(".*.tmp"):
        if re.fullmatch(r"\..+\.[0-9a-f]{32}\.tmp", path.name):
            path.unlink(missing_ok=True)


MANY_FILES = 32
"""Files from which on flushing everything once is faster than flushing each; measured with 500, it takes a third."""


@contextlib.contextmanager
def atomic_files() -> Iterator[Callable[[Path, bytes | memoryview], None]]:
    """Writes files that take their places together, when all of them are on disk; none does where something fails."""
    waiting: dict[Path, Path] = {}

    def write(path: Path, data: bytes | memoryview) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = waiting.setdefault(path, _unfinished(path))
        temporary.write_bytes(data)

    try:
        yield write
        if len(waiting) >= MANY_FILES and hasattr(os, "sync"):
            os.sync()
        else:
            for temporary in waiting.values():
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
        for path, temporary in waiting.items():
            temporary.replace(path)
    finally:
        for temporary in waiting.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in waiting}:
        _flush_names(folder)


def _flush_names(folder: Path) -> None:
    """A rename survives a power cut only once its folder is on disk, too; not every platform can open one."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load_pyg_file(path: str | os.PathLike[str]) -> Graph | GraphCollection:
    """Reads a ``.pt`` file made with PyTorch Geometric, without running code from it.

    Understood are a ``Data`` object, a dictionary of its tensors, a list of ``Data`` objects (a collection), and what
    ``InMemoryDataset.save`` writes (``processed/data.pt``). Needed are ``edge_index`` and ``y``; ``x``,
    ``edge_weight`` and the masks ``train_mask``, ``val_mask``, ``test_mask`` are taken where they are there.

    Raises:
        DataError: The file is missing or damaged, needs pickle, or lacks a tensor.
    """
    import torch
    import torch_geometric.data.data as pyg
    from torch_geometric.data import storage

    source = Path(path)
    if not source.is_file():
        raise DataError(f"the graph file {source} does not exist.")
    allowed = [pyg.Data, pyg.DataEdgeAttr, pyg.DataTensorAttr, storage.BaseStorage, storage.GlobalStorage]
    try:
        with torch.serialization.safe_globals(allowed):
            content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise DataError(f"{source} cannot be read as a torch file: {error}.") from error
        reason = str(error).strip().splitlines()[0]
        raise DataError(
            f"{source} cannot be read safely: it holds objects other than tensors and PyTorch Geometric's Data, or it "
            f"is damaged ({reason}). Reading such a file would run code from it, so graphsilo does not. Where you "
            f"trust it, load it yourself with torch.load(..., weights_only=False) and save the plain tensors: "
            f'torch.save({{"x": data.x, "edge_index": data.edge_index, "y": data.y}}, "plain.pt").'
        ) from error
    name = source.stem
    match content:
        case pyg.Data():
            return graph_from_pyg(without_attributes(content, source), name=name)
        case dict():
            return graph_from_pyg(without_attributes(_as_data(content, source), source), name=name)
        case list() if content and all(isinstance(item, pyg.Data) for item in content):
            return collection_from_pyg([without_attributes(item, source) for item in content], name=name)
        case tuple() if len(content) >= 2 and isinstance(content[0], dict | pyg.Data):
            data = _as_data(content[0], source) if isinstance(content[0], dict) else content[0]
            data = without_attributes(data, source)
            if content[1] is None:
                return graph_from_pyg(data, name=name)
            return collection_from_pyg(_separate(data, content[1]), name=name)
    raise DataError(
        f"{source} holds a {type(content).__name__}; a graph file holds a torch_geometric Data object, a dictionary "
        f"with x, edge_index and y, or a list of Data objects."
    )


def without_attributes(data: Any, source: Path | str) -> Any:
    """The data, refused where edges have attributes that would have no effect.

    Raises:
        DataError: They have.
    """
    found = data.get("edge_attr")
    if found is not None and data.get("edge_weight") is None:
        raise DataError(
            f"{source} holds edge_attr {list(found.shape)}, features of edges, which no model here uses. Where they "
            f"are weights of the edges, let the data have them as edge_weight [e]; else leave them out "
            f"(data.edge_attr = None)."
        )
    return data


def _as_data(content: Mapping[str, Any], source: Path) -> Any:
    from torch_geometric.data import Data

    if "edge_index" not in content:
        found = ", ".join(sorted(str(key) for key in content)) or "nothing"
        raise DataError(f"{source} holds a dictionary without 'edge_index' (found: {found}).")
    return Data.from_dict(dict(content))


def _separate(data: Any, slices: Any) -> list[Any]:
    from torch_geometric.data import Data
    from torch_geometric.data.separate import separate

    count = len(next(iter(slices.values()))) - 1
    return [separate(Data, data, index, slices, decrement=False) for index in range(count)]


def graph_from_pyg(data: Any, *, name: str, num_classes: int | None = None) -> Graph:
    """A Graph from one torch_geometric ``Data`` with node labels.

    Args:
        data: ``x`` [n, d] (may be missing), ``edge_index`` [2, e], ``edge_weight`` [e] or [e, 1] (may be missing),
            ``y`` [n] or [n, 1], and masks [n] or [n, s].
        name: The graph's name.
        num_classes: C; None takes the largest label plus one.

    Raises:
        DataError: A tensor is missing or does not fit.
    """
    if data.get("edge_index") is None or data.get("y") is None:
        raise DataError(
            f"{name}: node classification needs edge_index [2, e] and labels y [n], -1 where one is unknown; the data "
            f"has {', '.join(sorted(data.keys())) or 'nothing'}."
        )
    n = int(data.num_nodes)
    if data.y.dim() == 2 and data.y.shape[1] > 1:
        raise DataError(
            f"{name}: y should hold one class number per node, [{n}]; got shape {tuple(data.y.shape)}. Where its rows "
            f"are one-hot, y.argmax(dim=1) makes classes of them; several labels of a node cannot be learned."
        )
    labels = _labels(data.y, name)
    if labels.shape != (n,):
        raise DataError(f"{name}: {n} nodes need {n} labels; y has shape {tuple(data.y.shape)}.")
    masks = {key: data.get(f"{key}_mask") for key in ("train", "val", "test")}
    return Graph(
        features=_features(data.get("x"), n),
        edges=_edges(data.edge_index, name),
        edge_weights=_edge_weights(data, name),
        labels=labels,
        num_classes=num_classes if num_classes is not None else int(labels.max(initial=-1)) + 1,
        name=name,
        splits={key: mask.numpy().astype(np.bool_) for key, mask in masks.items() if mask is not None},
    )


def collection_from_pyg(graphs: Sequence[Any], *, name: str, num_classes: int | None = None) -> GraphCollection:
    """A GraphCollection from torch_geometric ``Data`` objects with one label each."""
    for number, data in enumerate(graphs):
        if data.get("edge_index") is None or data.get("y") is None or data.y.numel() != 1:
            raise DataError(f"{name}: graph {number} needs an edge_index and one label y.")
    sizes = np.array([data.num_nodes for data in graphs], dtype=np.int64)
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edges = np.concatenate([_edges(data.edge_index, name) for data in graphs], axis=1)
    weights = [_edge_weights(data, name) for data in graphs]
    if any(part is None for part in weights) and not all(part is None for part in weights):
        raise DataError(
            f"{name}: some of the graphs have an edge_weight and some have none; give it to all or to none."
        )
    edges += np.repeat(pointer[:-1], [data.edge_index.shape[1] for data in graphs])
    n = int(pointer[-1])
    features: Features = np.zeros((n, 0), dtype=np.float32)
    if all(data.get("x") is not None for data in graphs):
        features = compact_features(np.concatenate([data.x.numpy() for data in graphs]).astype(np.float32))
    labels = np.concatenate([_labels(data.y, name) for data in graphs])
    classes = num_classes if num_classes is not None else int(labels.max(initial=-1)) + 1
    unlabelled = np.full(n, -1, dtype=np.int64)
    union = Graph(
        features=features,
        edges=edges,
        labels=unlabelled,
        num_classes=classes,
        name=name,
        edge_weights=np.concatenate([part for part in weights if part is not None]) if weights[0] is not None else None,
    )
    return GraphCollection(union=union, pointer=pointer, labels=labels, num_classes=classes, name=name)


def _labels(y: Any, name: str) -> NDArray[np.int64]:
    values = y.reshape(-1).numpy() if y.dim() == 2 and y.shape[1] == 1 else y.numpy()
    labels = np.where(np.isnan(values), -1, values).astype(np.int64) if values.dtype.kind == "f" else values
    if labels.dtype.kind not in "iub" or (values.dtype.kind == "f" and not np.all((labels == values) | (labels == -1))):
        raise DataError(
            f"{name}: y must hold class numbers; got {values.dtype} values that are not whole numbers. "
            f"What is measured rather than classified must be cut into classes first."
        )
    return np.ascontiguousarray(labels, dtype=np.int64)


def _edges(edge_index: Any, name: str) -> NDArray[np.int64]:
    edges = edge_index.numpy()
    if edges.dtype.kind not in "iu":
        raise DataError(f"{name}: edge_index must hold whole node numbers; got {edges.dtype}.")
    return np.ascontiguousarray(edges, dtype=np.int64)


def _edge_weights(data: Any, name: str) -> NDArray[np.float32] | None:
    given = data.get("edge_weight")
    if given is None:
        return None
    if given.numel() != data.edge_index.shape[1]:
        raise DataError(f"{name}: edge_weight must be one number per edge; got shape {list(given.shape)}.")
    return np.ascontiguousarray(given.reshape(-1).numpy(), dtype=np.float32)


def _features(x: Any, num_nodes: int) -> Features:
    if x is None:
        return np.zeros((num_nodes, 0), dtype=np.float32)
    if x.layout is not None and str(x.layout) != "torch.strided":
        coo = x.to_sparse_coo().coalesce()
        row, column = coo.indices().numpy()
        matrix = sp.csr_matrix((coo.values().numpy(), (row, column)), shape=tuple(x.shape), dtype=np.float32)
        return compact_features(matrix)
    array = x.numpy()
    return compact_features(array.reshape(num_nodes, -1) if array.ndim != 2 else array)
