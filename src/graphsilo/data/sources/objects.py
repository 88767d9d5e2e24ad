"""Graphs of other libraries, as they are in memory: recognised by their class, so that no library is imported."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, GraphCollection
from graphsilo.data.sources import files
from graphsilo.data.sources.transforms import compact_features
from graphsilo.errors import ConfigError, DataError, several, shown

Names = str | Sequence[str] | None
_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Said:
    """What a person says of an object; None takes what its library is used to.

    Attributes:
        features: Attribute that holds a node's features, or several that are a column each.
        labels: Attribute that holds its class.
        weights: Attribute that holds an edge's weight.
        name: Of the graph.
    """

    features: Names = None
    labels: str | None = None
    weights: str | None = None
    name: str | None = None


def is_graph(thing: object) -> bool:
    """Whether it is a graph, or several, of a library that is known here."""
    if isinstance(thing, list | tuple) and len(thing):
        return _converter(thing[0]) is not None
    return _converter(thing) is not None


def graph_of(
    thing: Any,
    *,
    features: Names = None,
    labels: str | None = None,
    weights: str | None = None,
    name: str | None = None,
) -> Graph | GraphCollection:
    """As :func:`graphsilo.graph_of`."""
    said = Said(features, labels, weights, name)
    if isinstance(thing, Graph | GraphCollection):
        return thing
    if isinstance(thing, list | tuple) and is_graph(thing):
        return _of_several(list(thing), said)
    convert = _converter(thing)
    if convert is None:
        raise ConfigError(
            f"a graph is an object of PyTorch Geometric (Data, Dataset), NetworkX or DGL, or a graphsilo.Graph; got "
            f"{shown(thing)} of type {type(thing).__name__}."
        )
    return convert(thing, said)


Convert = Callable[[Any, Said], "Graph | GraphCollection"]


def _converter(thing: object) -> Convert | None:
    for base in type(thing).__mro__:
        for (package, kind), convert in _LIBRARIES.items():
            if base.__name__ == kind and base.__module__.partition(".")[0] == package:
                return convert
    return None


def _of_several(things: list[Any], said: Said) -> Graph | GraphCollection:
    convert = {_converter(thing) for thing in things}
    if convert == {_of_data}:
        return _of_data(things[0], said) if len(things) == 1 else _collection(things, said)
    if convert == {_of_networkx}:
        return _of_networkx(things[0], said) if len(things) == 1 else _networkx_collection(things, said)
    kinds = sorted({type(thing).__name__ for thing in things})
    raise ConfigError(
        f"a list of graphs holds objects of one kind, torch_geometric's Data or NetworkX's graphs; this one holds "
        f"{several(kinds, 4)}."
    )


# -- PyTorch Geometric ---------------------------------------------------------------------------------------------


def _of_data(data: Any, said: Said, classes: int | None = None) -> Graph:
    name = said.name or "graph"
    return files.graph_from_pyg(_plain_data(data, said, name), name=name, num_classes=classes)


def _of_dataset(dataset: Any, said: Said) -> Graph | GraphCollection:
    name = said.name or str(getattr(dataset, "name", None) or type(dataset).__name__)
    if len(dataset) == 1:
        return _of_data(dataset[0], replace(said, name=name), int(dataset.num_classes))
    return _collection([dataset[index] for index in range(len(dataset))], replace(said, name=name))


def _collection(graphs: list[Any], said: Said) -> GraphCollection:
    name = said.name or "graphs"
    made = [_plain_data(data, said, f"{name}, graph {number}") for number, data in enumerate(graphs)]
    return files.collection_from_pyg(made, name=name)


def _of_hetero(data: Any, said: Said) -> Graph:
    raise DataError(
        f"a HeteroData has several kinds of nodes and links ({several(data.metadata()[0], 4)}), and graphsilo trains "
        f"on graphs of one kind: its models would not know them apart. Where all kinds have the same features, "
        f"data.to_homogeneous() makes one graph of it; else take the part that matters, such as the links between "
        f"nodes of one kind: Data(x=data['paper'].x, y=data['paper'].y, edge_index=data['paper', 'cites', "
        f"'paper'].edge_index)."
    )


def _plain_data(data: Any, said: Said, name: str) -> Any:
    """A copy whose tensors are on the CPU and bear graphsilo's names."""
    found = copy.copy(data).detach().cpu()
    for key, wanted in (("x", said.features), ("y", said.labels), ("edge_weight", said.weights)):
        if wanted is None:
            continue
        if not isinstance(wanted, str) or found.get(wanted) is None:
            raise DataError(
                f"{name}: {key} was to be its '{wanted}', and the data has {several(sorted(data.keys()), 12)}."
            )
        found[key] = found[wanted]
        if wanted == "edge_attr":
            del found[wanted]
    return files.without_attributes(found, name)


# -- NetworkX ------------------------------------------------------------------------------------------------------


def _of_networkx(graph: Any, said: Said) -> Graph:
    name, key = said.name or graph.name or "graph", said.labels or "y"
    labels, words = _labels([data.get(key) for _, data in graph.nodes(data=True)], name, key)
    return _networkx_graph(graph, replace(said, name=name), labels, words)


def _networkx_graph(graph: Any, said: Said, labels: NDArray[np.int64], words: tuple[str, ...] | None) -> Graph:
    name = said.name or "graph"
    nodes, columns = list(graph.nodes), [data for _, data in graph.nodes(data=True)]
    masks = {key: [data.get(f"{key}_mask") for data in columns] for key in _SPLITS}
    features, titles = _attributes(columns, said.features, nodes, name)
    ends, weights = _links(graph, {node: row for row, node in enumerate(nodes)}, said.weights, name)
    return Graph(
        features=features,
        edges=ends,
        labels=labels,
        num_classes=len(words) if words else int(labels.max(initial=-1)) + 1,
        name=name,
        splits={key: np.array(mask, dtype=np.bool_) for key, mask in masks.items() if None not in mask and mask},
        feature_names=titles,
        class_names=words,
        edge_weights=weights,
        node_names=None if nodes == list(range(len(nodes))) else np.array([str(node) for node in nodes], dtype=np.str_),
    )


def _links(
    graph: Any, rows: Mapping[Any, int], wanted: str | None, name: str
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Both directions of a link where links have none."""
    found = [(rows[one], rows[other], data.get(wanted or "weight")) for one, other, data in graph.edges(data=True)]
    given = [weight is not None for *_, weight in found]
    if any(given) != all(given) or (wanted is not None and not any(given)):
        raise DataError(
            f"{name}: {len(given) - sum(given)} of {len(given)} edges have no '{wanted or 'weight'}'; give it to all "
            f"or to none."
        )
    ends = np.array([pair[:2] for pair in found], dtype=np.int64).reshape(-1, 2).T
    weights = _numbers([pair[2] for pair in found], name, "an edge's weight").reshape(-1) if any(given) else None
    if not graph.is_directed():
        apart = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, apart]], axis=1)
        weights = None if weights is None else np.concatenate([weights, weights[apart]])
    return np.ascontiguousarray(ends), weights


def _attributes(
    nodes: list[Mapping[str, Any]], wanted: Names, called: Sequence[Any], name: str
) -> tuple[Features, tuple[str, ...] | None]:
    """[n, d] the nodes' features, and the columns' names where each is an attribute."""
    keys = [wanted or "x"] if isinstance(wanted, str | None) else list(wanted)
    if wanted is None and not any("x" in node for node in nodes):
        return np.zeros((len(nodes), 0), dtype=np.float32), None
    for key in keys:
        lacking = next((place for place, node in enumerate(nodes) if node.get(key) is None), None)
        if lacking is not None:
            known = sorted(str(one) for one in nodes[lacking])
            raise DataError(
                f"{name}: node {called[lacking]!r} has no attribute '{key}' for its features (it has "
                f"{several(known, 8) or 'none'}). Give it to all nodes, or say which hold features, such as "
                f"features=['age', 'income']."
            )
    if isinstance(wanted, str | None):
        return compact_features(_numbers([node[keys[0]] for node in nodes], name, f"'{keys[0]}'")), None
    table = _numbers([[node[key] for key in keys] for node in nodes], name, f"a feature ({several(keys, 8)})")
    return compact_features(table), tuple(keys)


def _numbers(values: list[Any], name: str, what: str) -> NDArray[np.float32]:
    """[n, d] numbers.

    Raises:
        DataError: Some are no numbers, or not as many everywhere.
    """
    try:
        found = np.array([np.asarray(value) for value in values])
        found = found.reshape(len(values), -1).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name}: {what} should be a number, or as many numbers everywhere; {error}. Encode words as numbers first."
        ) from None
    return found


def _labels(values: Sequence[Any], name: str, key: str) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Class numbers, -1 where there is none, and the classes' names where these are words."""
    there = [value for value in values if value is not None]
    if not there:
        raise DataError(
            f"{name}: no node has a label '{key}'. Give the nodes one, or name the attribute that holds it, such as "
            f"labels='club'."
        )
    if all(isinstance(value, str) for value in there):
        words = tuple(sorted(set(there)))
        numbers = {word: number for number, word in enumerate(words)}
        return np.array([-1 if value is None else numbers[value] for value in values], dtype=np.int64), words
    try:
        found = np.array([-1 if value is None else int(value) for value in values], dtype=np.int64)
    except (TypeError, ValueError):
        found = None
    odd = [value for value in there if isinstance(value, str) or found is None or value != int(value)]
    if odd or found is None:
        raise DataError(
            f"{name}: '{key}' should be a class, a whole number from 0 or a word; got {shown((odd or there)[0])}."
        )
    return found, None


def _networkx_collection(graphs: list[Any], said: Said) -> GraphCollection:
    name, key = said.name or "graphs", said.labels or "y"
    lacking = next((number for number, graph in enumerate(graphs) if graph.graph.get(key) is None), None)
    if lacking is not None:
        raise DataError(f"{name}: graph {lacking} has no label; each graph has its class in graph.graph['{key}'].")
    labels, words = _labels([graph.graph[key] for graph in graphs], name, key)
    parts = [
        _networkx_graph(graph, replace(said, name=f"{name}, graph {number}"), np.full(len(graph), -1), None)
        for number, graph in enumerate(graphs)
    ]
    pointer = np.concatenate([[0], np.cumsum([part.num_nodes for part in parts])]).astype(np.int64)
    widths = {part.num_features for part in parts}
    if len(widths) > 1:
        raise DataError(f"{name}: nodes have {several(sorted(widths), 4)} features; give all graphs as many.")
    classes = len(words) if words else int(labels.max(initial=-1)) + 1
    weights = [part.edge_weights for part in parts if part.edge_weights is not None]
    if weights and len(weights) < len(parts):
        raise DataError(f"{name}: some of the graphs have weights of edges and some have none.")
    union = Graph(
        features=compact_features(np.concatenate([_dense(part.features) for part in parts])),
        edges=np.concatenate([part.edges + start for part, start in zip(parts, pointer[:-1], strict=True)], axis=1),
        labels=np.full(int(pointer[-1]), -1, dtype=np.int64),
        num_classes=classes,
        name=name,
        feature_names=parts[0].feature_names,
        edge_weights=np.concatenate(weights) if weights else None,
    )
    return GraphCollection(union=union, pointer=pointer, labels=labels, num_classes=classes, name=name)


def _dense(features: Features) -> NDArray[np.float32]:
    return np.asarray(features if isinstance(features, np.ndarray) else features.toarray())


# -- DGL -----------------------------------------------------------------------------------------------------------


def _of_dgl(graph: Any, said: Said) -> Graph:
    name = said.name or "graph"
    if not graph.is_homogeneous:
        raise DataError(
            f"{name}: a DGL graph with several kinds of nodes or links ({several(graph.ntypes, 4)}; "
            f"{several(graph.etypes, 4)}) is more than graphsilo's models know apart. dgl.to_homogeneous(graph, "
            f"ndata=['feat', 'label']) makes one graph of it."
        )
    features, labels, weights = _dgl_key(said.features, "feat"), said.labels or "label", said.weights or "weight"
    nodes, links = graph.ndata, graph.edata
    for key, wanted, there in (
        (features, said.features, nodes),
        (labels, labels, nodes),
        (weights, said.weights, links),
    ):
        if wanted is not None and key not in there:
            kind = "ndata" if there is nodes else "edata"
            raise DataError(
                f"{name}: the DGL graph has no {kind}['{key}'] (it has {several(sorted(there), 8) or 'none'}). Name "
                f"the one that holds it: graphsilo.graph_of(graph, features='feat', labels='label', weights='weight')."
            )
    from torch_geometric.data import Data

    source, target = graph.edges()
    parts = {"x": nodes.get(features), "y": nodes[labels], "edge_weight": links.get(weights)}
    parts |= {f"{key}_mask": nodes.get(f"{key}_mask") for key in _SPLITS}
    kept = {key: value.detach().cpu() for key, value in parts.items() if value is not None}
    ends = np.stack([source.cpu().numpy(), target.cpu().numpy()]).astype(np.int64)
    import torch

    data = Data(edge_index=torch.from_numpy(ends), num_nodes=graph.num_nodes(), **kept)
    for key in _SPLITS:
        if (mask := data.get(f"{key}_mask")) is not None:
            data[f"{key}_mask"] = mask.bool()
    return files.graph_from_pyg(data, name=name)


def _dgl_key(wanted: Names, usual: str) -> str:
    if wanted is not None and not isinstance(wanted, str):
        raise ConfigError("of a DGL graph one entry of ndata holds the features: name it, such as features='feat'.")
    return wanted or usual


_LIBRARIES: dict[tuple[str, str], Convert] = {
    ("torch_geometric", "HeteroData"): _of_hetero,
    ("torch_geometric", "Data"): _of_data,
    ("torch_geometric", "Dataset"): _of_dataset,
    ("networkx", "Graph"): _of_networkx,
    ("dgl", "DGLGraph"): _of_dgl,
}
"""By package and class; a class that derives from one of these counts as it."""
