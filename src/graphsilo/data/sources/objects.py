"""Graphs of other libraries, as they are in memory: recognised by their class, so that no library is imported."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph, GraphCollection, add_notes
from graphsilo.data.sources import plain, pyg
from graphsilo.data.sources.classes import ClassNames, is_signed
from graphsilo.data.sources.faults import name_fault, unseen_fault
from graphsilo.data.sources.missing import UNLABELLED, unlabelled_note
from graphsilo.data.sources.plain import plain_graph
from graphsilo.data.sources.targets import with_targets
from graphsilo.errors import ConfigError, DataError, quote, several

Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Said:
    """What a person says of an object; None takes what its library is used to.

    Attributes:
        features: Attribute that holds a node's features, or several that are a column each.
        labels: Attribute that holds its class.
        weights: Attribute that holds an edge's weight.
        name: Of the graph.
        target: Type of the nodes that are classified.
    """

    features: Names = None
    labels: str | None = None
    weights: str | None = None
    name: str | None = None
    target: str | None = None


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
    target: str | None = None,
) -> Graph | GraphCollection:
    """As :func:`graphsilo.graph_of`."""
    said = Said(features, labels, weights, name, target)
    if isinstance(thing, Graph | GraphCollection):
        return thing
    if isinstance(thing, list | tuple) and is_graph(thing):
        return _of_several(list(thing), said)
    convert = _converter(thing)
    if convert is None:
        raise ConfigError(
            f"a graph is an object of PyTorch Geometric (Data, Dataset), NetworkX or DGL, or a graphsilo.Graph; got "
            f"{quote(thing)} of type {type(thing).__name__}."
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
    return pyg.graph_from_pyg(_rename_tensors(data, said, name), name=name, num_classes=classes)


def _of_dataset(dataset: Any, said: Said) -> Graph | GraphCollection:
    name = said.name or str(getattr(dataset, "name", None) or type(dataset).__name__)
    if len(dataset) == 1:
        return _of_data(dataset[0], replace(said, name=name), int(dataset.num_classes))
    return _collection([dataset[index] for index in range(len(dataset))], replace(said, name=name))


def _collection(graphs: list[Any], said: Said) -> GraphCollection:
    name = said.name or "graphs"
    made = [_rename_tensors(data, said, f"{name}, graph {number}") for number, data in enumerate(graphs)]
    return pyg.collection_from_pyg(made, name=name)


def _of_hetero(data: Any, said: Said) -> Graph:
    name = said.name or "graph"
    features, labels, weights = _one_key(said.features, "x"), said.labels or "y", said.weights or "edge_weight"
    return pyg.typed_from_pyg(
        data, name=name, features=features, labels=labels, weights=weights, target=said.target
    )  # fmt: skip


def _rename_tensors(data: Any, said: Said, name: str) -> Any:
    """A copy whose tensors bear graphsilo's names."""
    found = copy.copy(data)
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
    return found


# -- NetworkX ------------------------------------------------------------------------------------------------------


def _of_networkx(graph: Any, said: Said) -> Graph:
    name, key = said.name or graph.name or "graph", said.labels or "y"
    values = [data.get(key) for _, data in graph.nodes(data=True)]
    part = _networkx_part(graph, replace(said, name=name))
    if said.labels is None and all(value is None for value in values):
        return part
    if all(value is None or isinstance(value, Real) for value in values):
        numbers = np.array([np.nan if value is None else float(value) for value in values])
        if plain.are_targets(numbers):
            return with_targets(part, numbers, [key])
    labels, words, notes = _labels(values, name, key)
    classes = plain.class_count(labels, words)
    return add_notes(replace(part, labels=labels, class_names=words, num_classes=classes), notes)


def _networkx_part(graph: Any, said: Said) -> Graph:
    name = said.name or "graph"
    nodes, columns = list(graph.nodes), [data for _, data in graph.nodes(data=True)]
    features, titles = _attributes(columns, said.features, nodes, name)
    ends, weights = _links(graph, {node: row for row, node in enumerate(nodes)}, said.weights, name)
    made = plain_graph(
        name, x=features, edge_index=ends, y=None, edge_weight=weights, num_nodes=len(nodes),
        masks={key: _mask(columns, f"{key}_mask", nodes, name) for key in SPLITS},
    )  # fmt: skip
    return replace(made, feature_names=titles, node_names=_names(nodes, name))


def _mask(columns: list[Mapping[str, Any]], key: str, called: Sequence[Any], name: str) -> list[Any] | None:
    found = [data.get(key) for data in columns]
    if all(value is None for value in found):
        return None
    lacking = next((place for place, value in enumerate(found) if value is None), None)
    if lacking is not None:
        raise DataError(
            f"{name}: node {called[lacking]!r} has no '{key}', and others have one. Give all nodes True or False."
        )
    return found


def _names(nodes: list[Any], name: str) -> NDArray[np.str_] | None:
    """What the nodes are called, where they are not numbered from 0 in order.

    Raises:
        DataError: Two are written alike, or one cannot be shown.
    """
    if nodes == list(range(len(nodes))):
        return None
    words = [str(node) for node in nodes]
    for node, word in zip(nodes, words, strict=True):
        if wrong := unseen_fault(word):
            raise DataError(f"{name}: the node {node!r} {wrong}. Rename it: networkx.relabel_nodes.")
    if len(set(words)) < len(words):
        first: dict[str, Any] = {}
        one, other = next((first[word], node) for node, word in zip(nodes, words, strict=True)
                          if first.setdefault(word, node) is not node)  # fmt: skip
        raise DataError(
            f"{name}: the nodes {one!r} and {other!r} are written alike. Rename one of them: networkx.relabel_nodes."
        )
    return np.array(words, dtype=np.str_)


def _links(
    graph: Any, rows: Mapping[Any, int], wanted: str | None, name: str
) -> tuple[NDArray[np.int64], NDArray[Any] | None]:
    """Both directions of a link where links have none."""
    found = [(rows[one], rows[other], data.get(wanted or "weight")) for one, other, data in graph.edges(data=True)]
    given = [pair[2] for pair in found if pair[2] is not None]
    if len(given) < len(found) and (given or wanted is not None):
        raise DataError(
            f"{name}: {len(found) - len(given)} of {len(found)} edges have no '{wanted or 'weight'}'; give it to all "
            f"or to none."
        )
    ends = np.array([pair[:2] for pair in found], dtype=np.int64).reshape(-1, 2).T
    weights = plain.array_of(given, f"{name}: an edge's weight") if given else None
    if not graph.is_directed():
        apart = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, apart]], axis=1)
        weights = None if weights is None else np.concatenate([weights, weights[apart]])
    return ends, weights


def _attributes(
    nodes: list[Mapping[str, Any]], wanted: Names, called: Sequence[Any], name: str
) -> tuple[NDArray[Any] | None, tuple[str, ...] | None]:
    """[n, d] the nodes' features, and the columns' names where each is an attribute."""
    keys = [wanted or "x"] if isinstance(wanted, str | None) else list(wanted)
    if not nodes or (wanted is None and not any("x" in node for node in nodes)):
        return None, None
    for key in keys:
        lacking = next((place for place, node in enumerate(nodes) if node.get(key) is None), None)
        if lacking is not None:
            known = sorted(str(one) for one in nodes[lacking])
            raise DataError(
                f"{name}: node {called[lacking]!r} has no attribute '{key}' for its features (it has "
                f"{several(known, 8) or 'none'}). Give it to all nodes, or say which hold features, such as "
                f"features=['age', 'income']."
            )
    what = f"{name}: {'a feature' if len(keys) > 1 else 'the features'} ({several(keys, 8)})"
    if isinstance(wanted, str | None):
        return plain.array_of([node[keys[0]] for node in nodes], what), None
    return plain.array_of([[node[key] for key in keys] for node in nodes], what), tuple(keys)


def _labels(
    values: Sequence[Any], name: str, key: str, what: str = "nodes"
) -> tuple[NDArray[np.int64], ClassNames, list[str]]:
    """Class numbers, -1 where there is none, the classes' names where these are words, and what is to be said."""
    words = Counter(value for value in values if isinstance(value, str) and value.strip())
    spare = {word: count for word, count in words.items() if word.strip().casefold() in UNLABELLED}
    notes = [unlabelled_note(f"'{key}'", spare, "call it otherwise", what)] if spare else []
    empty = {*spare, *(() if is_signed(words.keys() - spare.keys()) else ("-1",))}
    values = [None if isinstance(value, str) and value in empty else value for value in values]
    there = [value for value in values if not _is_missing(value)]
    if not there:
        raise DataError(
            f"{name}: no node has a label '{key}'. Give the nodes one, or name the attribute that holds it, such as "
            f"labels='club'."
        )
    if all(isinstance(value, str) for value in there):
        classes = tuple(sorted(set(there)))
        for word in classes:
            if wrong := name_fault(word):
                raise DataError(f"{name}: '{key}' names the class {word!r}, which {wrong}. Rename it.")
        numbers = {word: number for number, word in enumerate(classes)}
        labels = np.array([-1 if _is_missing(value) else numbers[value] for value in values], dtype=np.int64)
        return labels, classes, notes
    odd = next((value for value in there if isinstance(value, str) or np.ndim(value)), None)
    if odd is not None:
        raise DataError(f"{name}: '{key}' should be a class, a whole number from 0 or a word; got {quote(odd)}.")
    if len(there) < len(values):
        values = [np.nan if _is_missing(value) else value for value in values]
    return *plain.class_numbers(plain.array_of(values, f"{name}: '{key}'"), name, f"'{key}'"), notes


def _is_missing(value: Any) -> bool:
    """Whether a label is none: not there, empty or NaN."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (np.ndim(value) == 0 and bool(value != value))


def _networkx_collection(graphs: list[Any], said: Said) -> GraphCollection:
    name, key = said.name or "graphs", said.labels or "y"
    lacking = next((number for number, graph in enumerate(graphs) if graph.graph.get(key) is None), None)
    if lacking is not None:
        raise DataError(f"{name}: graph {lacking} has no label; each graph has its class in graph.graph['{key}'].")
    labels, words, notes = _labels([graph.graph[key] for graph in graphs], name, key, "graphs")
    parts = [
        _networkx_part(graph, replace(said, name=f"{name}, graph {number}")) for number, graph in enumerate(graphs)
    ]
    return add_notes(plain.collection(parts, labels, name, class_names=words), notes)


# -- DGL -----------------------------------------------------------------------------------------------------------


def _of_dgl(graph: Any, said: Said) -> Graph:
    name = said.name or "graph"
    if not graph.is_homogeneous:
        from graphsilo.data.sources.hetero import Keys, typed_graph

        ends = {triple: [part.cpu().numpy() for part in graph.edges(etype=triple)] for triple in graph.canonical_etypes}
        return typed_graph(
            name,
            {kind: (graph.num_nodes(kind), graph.nodes[kind].data) for kind in graph.ntypes},
            {triple: (np.stack(pair), graph.edges[triple].data) for triple, pair in ends.items()},
            Keys(_one_key(said.features, "feat"), said.labels or "label", said.weights or "weight", "feat"),
            said.target,
        )
    features, labels, weights = _one_key(said.features, "feat"), said.labels or "label", said.weights or "weight"
    nodes, links = graph.ndata, graph.edata
    for key, wanted, there in (
        (features, said.features, nodes),
        (labels, said.labels, nodes),
        (weights, said.weights, links),
    ):
        if wanted is not None and key not in there:
            kind = "ndata" if there is nodes else "edata"
            raise DataError(
                f"{name}: the DGL graph has no {kind}['{key}'] (it has {several(sorted(there), 8) or 'none'}). Name "
                f"the one that holds it: graphsilo.graph_of(graph, features='feat', labels='label', weights='weight')."
            )
    source, target = graph.edges()
    return plain_graph(
        name, x=nodes.get(features), edge_index=np.stack([source.cpu().numpy(), target.cpu().numpy()]),
        y=nodes.get(labels), edge_weight=links.get(weights), num_nodes=graph.num_nodes(),
        masks={key: nodes.get(f"{key}_mask") for key in SPLITS},
    )  # fmt: skip


def _one_key(wanted: Names, usual: str) -> str:
    if wanted is not None and not isinstance(wanted, str):
        raise ConfigError(f"one entry holds the nodes' features: name it, such as features='{usual}'.")
    return wanted or usual


_LIBRARIES: dict[tuple[str, str], Convert] = {
    ("torch_geometric", "HeteroData"): _of_hetero,
    ("torch_geometric", "Data"): _of_data,
    ("torch_geometric", "Dataset"): _of_dataset,
    ("networkx", "Graph"): _of_networkx,
    ("dgl", "DGLGraph"): _of_dgl,
}
"""By package and class; a class that derives from one of these counts as it."""
