"""PyTorch Geometric's graphs, in memory and in ``.pt`` files, which are read without running code from them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.graph import SPLITS, Graph, GraphCollection
from graphsilo.data.sources.plain import array_of, class_numbers, collection, plain_graph, with_link_columns
from graphsilo.errors import DataError, one_line, several

_PER_NODE = ("pos", *(f"{key}_mask" for key in SPLITS))
"""What else has a row per node, where neither features nor labels say how many there are."""


def load_pyg_file(path: str | os.PathLike[str]) -> Graph | GraphCollection:
    """Reads a ``.pt`` file made with PyTorch Geometric, without running code from it.

    Understood are a ``Data`` or ``HeteroData`` object, a dictionary of its tensors, a list of ``Data`` objects (a
    collection), and what ``InMemoryDataset.save`` writes (``processed/data.pt``). Needed is ``edge_index``; ``x``,
    ``y``, ``edge_weight``, ``edge_attr`` and the masks ``train_mask``, ``val_mask``, ``test_mask`` are taken where they
    are there.

    Raises:
        DataError: The file is missing or damaged, needs pickle, or lacks a tensor.
    """
    import torch_geometric.data.data as pyg
    from torch_geometric.data import HeteroData

    source = Path(path)
    content = read_safely(source)
    name = source.stem
    match content:
        case HeteroData():
            return typed_from_pyg(content, name=name)
        case dict() if any(isinstance(key, tuple) for key in content):
            return typed_from_pyg(HeteroData.from_dict(dict(content)), name=name)
        case pyg.Data():
            return graph_from_pyg(content, name=name)
        case dict():
            return graph_from_pyg(pyg.Data.from_dict(dict(content)), name=name)
        case list() if content and all(isinstance(item, pyg.Data) for item in content):
            return collection_from_pyg(content, name=name)
        case tuple() if len(content) >= 2 and isinstance(content[0], dict | pyg.Data):
            data = pyg.Data.from_dict(content[0]) if isinstance(content[0], dict) else content[0]
            if content[1] is None:
                return graph_from_pyg(data, name=name)
            return collection_from_pyg(_separate(data, content[1]), name=name)
    raise DataError(
        f"{source} holds a {type(content).__name__}; a graph file holds a torch_geometric Data object, a dictionary "
        f"with x, edge_index and y, or a list of Data objects."
    )


def read_safely(source: Path, stand_ins: Mapping[str, type] | None = None) -> Any:
    """What ``torch.save`` wrote, without running code from it.

    Args:
        source: The file.
        stand_ins: Plain classes that take the fields of objects of classes with these names, wherever they are from.
            With them numbers and arrays of numpy's may be in the file, too.

    Raises:
        DataError: The file is missing or damaged, or needs pickle.
    """
    import torch
    import torch_geometric.data.data as pyg
    from torch_geometric.data import HeteroData, storage

    if not source.is_file():
        raise DataError(f"the graph file {source} does not exist.")
    if not source.stat().st_size:
        raise DataError(f"the graph file {source} is empty: write it again with torch.save.")
    allowed: list[Any] = [
        pyg.Data, pyg.DataEdgeAttr, pyg.DataTensorAttr, storage.BaseStorage, storage.GlobalStorage, HeteroData,
        storage.NodeStorage, storage.EdgeStorage,
    ]  # fmt: skip
    try:
        if stand_ins:
            called = torch.serialization.get_unsafe_globals_in_checkpoint(source)
            allowed += [(kind, name) for name in called if (kind := stand_ins.get(name.rpartition(".")[2]))]
            allowed += _numpy_parts()
        with torch.serialization.safe_globals(allowed):
            content = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise DataError(f"{source} cannot be read as a torch file: {one_line(error, 200)}.") from error
        named = re.search(r"GLOBAL (\S+) was not an allowed global", str(error))
        raise DataError(
            f"{source} cannot be read safely: it holds objects other than tensors and PyTorch Geometric's Data"
            f"{f' ({one_line(named[1], 80)})' if named else ''}, or it is damaged. Reading such a file would run code "
            f"from it, so graphsilo does not. Where you trust it, load it yourself with torch.load(..., "
            f"weights_only=False) and save the plain tensors: "
            f'torch.save({{"x": data.x, "edge_index": data.edge_index, "y": data.y}}, "plain.pt").'
        ) from error
    return content


def _numpy_parts() -> list[Any]:
    """What numpy's numbers and arrays are written with, by the names that numpy 1 and 2 give it; none runs code."""
    calls: list[Any] = [np.int64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]]
    made = [(part, f"numpy.{core}.multiarray.{part.__name__}") for part in calls for core in ("core", "_core")]
    return [*made, np.dtype, np.ndarray, *(type(np.dtype(kind)) for kind in "?bhilBHILfd")]


def _separate(data: Any, slices: Any) -> list[Any]:
    from torch_geometric.data import Data
    from torch_geometric.data.separate import separate

    count = len(next(iter(slices.values()))) - 1
    return [separate(Data, data, index, slices, decrement=False) for index in range(count)]


def graph_from_pyg(data: Any, *, name: str, num_classes: int | None = None) -> Graph:
    """A Graph from one torch_geometric ``Data``.

    Args:
        data: ``edge_index`` [2, e], and where they are there ``x`` [n, d], ``edge_weight`` [e] or [e, 1], ``y`` [n] or
            [n, 1], and masks [n] or [n, s]: tensors, arrays or lists.
        name: The graph's name.
        num_classes: C; None takes the largest label plus one.

    Raises:
        DataError: A part is missing or does not fit.
    """
    return _graph(data, name, num_classes)


def typed_from_pyg(
    data: Any, *, name: str, features: str = "x", labels: str = "y", weights: str = "edge_weight",
    target: str | None = None,
) -> Graph:  # fmt: skip
    """A Graph with types from a torch_geometric ``HeteroData``.

    Raises:
        ConfigError: It is not clear which type is classified.
        DataError: A part is missing or does not fit.
    """
    from graphsilo.data.sources.hetero import Keys, typed_graph

    nodes = {kind: (data[kind].num_nodes, dict(data[kind].items())) for kind in data.node_types}
    links = {}
    for triple in data.edge_types:
        store = dict(data[triple].items())
        ends = store.get("edge_index")
        if ends is None and store.get("adj_t") is not None:
            ends, store["edge_weight"] = _transpose(store["adj_t"], f"{name}: '{' '.join(triple)}'")
        if ends is None:
            raise DataError(f"{name}: the links '{' '.join(triple)}' have no edge_index [2, e].")
        links[triple] = (ends, store)
    return typed_graph(name, nodes, links, Keys(features, labels, weights, "edge_attr"), target)


def collection_from_pyg(graphs: Sequence[Any], *, name: str, num_classes: int | None = None) -> GraphCollection:
    """A GraphCollection from torch_geometric ``Data`` objects with one label each.

    Raises:
        DataError: A part is missing or does not fit, or they differ in what they have; names the graph.
    """
    parts, found = [], []
    for number, data in enumerate(graphs):
        called = f"{name}, graph {number}"
        y = None if data.get("y") is None else array_of(data["y"], f"{called}: y").reshape(-1)
        if y is None or len(y) != 1:
            got = "none" if y is None else f"{len(y)} values"
            raise DataError(f"{called} needs an edge_index and one label y, its class; it has {got} in y.")
        parts.append(_graph(data, called, has_one_label=True))
        found.append(y)
    labels, words = class_numbers(np.concatenate(found), name, num_classes=num_classes)
    return collection(parts, labels, name, num_classes=num_classes, class_names=words)


def _graph(data: Any, name: str, num_classes: int | None = None, *, has_one_label: bool = False) -> Graph:
    keys = sorted(str(key) for key in data.keys())  # noqa: SIM118  # an object of PyG's, no mapping
    edges, weights = data.get("edge_index"), data.get("edge_weight")
    if edges is None and data.get("adj_t") is not None:
        edges, weights = _transpose(data["adj_t"], name)
    if edges is None:
        raise DataError(f"{name} has no edge_index [2, e], the links between its nodes (found: {several(keys, 12)}).")
    told = None if "num_nodes" not in keys else data["num_nodes"]
    if told is None and data.get("x") is None and (has_one_label or data.get("y") is None):
        told = next((len(data[key]) for key in _PER_NODE if data.get(key) is not None), None)
    made = plain_graph(
        name, x=data.get("x"), edge_index=edges, y=None if has_one_label else data.get("y"), edge_weight=weights,
        masks={key: data.get(f"{key}_mask") for key in SPLITS}, num_nodes=None if told is None else int(told),
        num_classes=num_classes,
    )  # fmt: skip
    attributes = data.get("edge_attr")
    return made if attributes is None else with_link_columns(made, attributes)


def _transpose(adjacency: Any, name: str) -> tuple[Any, Any]:
    """Edges and weights of the transposed adjacency matrix that the transform ``ToSparseTensor`` leaves."""
    if hasattr(adjacency, "to_sparse_coo"):
        coo = adjacency.to_sparse_coo().coalesce()
        (target, source), values = coo.indices(), coo.values()
    elif hasattr(adjacency, "coo"):
        target, source, values = adjacency.coo()
    else:
        raise DataError(f"{name}: adj_t should be a sparse matrix, as ToSparseTensor makes it; give edge_index [2, e].")
    if values is not None and bool((values == 1).all()):
        values = None
    import torch

    return torch.stack([source, target]), values
