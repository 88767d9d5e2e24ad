"""Folders of the benchmark FedGB, whose clients are institutions: hospitals, banks, jurisdictions, laboratories.

A folder of its schema 1.0 has a manifest (``fedgb_manifest.json``) and below ``distrib/PARTITION`` a file ``data_K.pt``
for each client and ``TASK/default_split/{train,val,test}_K.pt`` with truth values. Clients stand side by side in what
is read: each node or graph has its owner, so that the partition ``natural`` gives the clients back, and the splits come
along. Files are read without running code from them.

Where numbers of whole graphs are to be estimated, each graph becomes a node of the type ``graph``, linked with all of
its own nodes and with the means of their features as its own: methods for nodes then estimate numbers of graphs.

Source: the repository SuperYeYu/FedGB, 2026, for the layout alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph, GraphCollection, add_notes
from graphsilo.data.links import Owners
from graphsilo.data.sources import plain, pyg
from graphsilo.data.sources.faults import name_fault
from graphsilo.data.sources.hetero import Keys, typed_graph
from graphsilo.data.sources.targets import with_targets
from graphsilo.data.sources.transforms import stack_features
from graphsilo.errors import DataError, one_line, quote, several

MANIFEST = "fedgb_manifest.json"
_SCHEMA = "1.0"
_LEVELS = {"homo_subgraph": "node_cls", "hetero_subgraph": "node_cls", "graph": "graph_cls or graph_reg"}
"""What a client has, and what is asked of it."""
_KEYS = Keys("x", "y", "edge_weight", "edge_attr")
_MOST_CLIENTS = 10_000

Ints = NDArray[np.int64]
Splits = Mapping[str, NDArray[np.bool_]]


class _Graphs:
    """Stands in for the benchmark's class of a client's graphs, so that its fields can be read without that class."""


@dataclass(frozen=True)
class _Manifest:
    """What a folder says of itself.

    Attributes:
        name: Of the data set.
        level: As in ``_LEVELS``.
        task: What is asked.
        clients: How many there are.
        folder: Where their files are.
    """

    name: str
    level: str
    task: str
    clients: int
    folder: Path

    def split(self, key: str, client: int) -> Path:
        """The file with a client's truth values."""
        return self.folder / self.task / "default_split" / f"{key}_{client}.pt"


@dataclass(frozen=True)
class _Client:
    """One client's content by name, and [items] truth values by split; ``where`` names it in refusals."""

    where: str
    content: Mapping[str, Any]
    splits: Splits


def read_folder(path: Path) -> Graph | GraphCollection:
    """The data set of a folder, with owners and splits.

    Returns:
        A graph where nodes are classified or numbers estimated; a collection where graphs are classified.

    Raises:
        DataError: A file is missing, damaged or of another schema, or the parts do not fit.
    """
    manifest = _read_manifest(path)
    clients = [_read_client(manifest, number) for number in range(manifest.clients)]
    owners = _name_owners(clients)
    if manifest.level != "graph":
        return _join_nodes(manifest, clients, owners)
    return (_join_targets if manifest.task == "graph_reg" else _join_graphs)(manifest, clients, owners)


# -- Files ---------------------------------------------------------------------------------------------------------


def _read_manifest(path: Path) -> _Manifest:
    file = path / MANIFEST
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"the folder {path} has no {MANIFEST} that can be read ({error.strerror or error}); a folder of FedGB's "
            f"has it beside `distrib`."
        ) from error
    except ValueError as error:
        raise DataError(f"{file} is damaged: {one_line(error, 120)}. Unpack the archive again.") from error
    said = said if isinstance(said, dict) else {}
    if said.get("schema_version") != _SCHEMA:
        raise DataError(
            f"{file} says schema_version {quote(said.get('schema_version'))}; graphsilo reads {_SCHEMA}, that of "
            f"FedGB's archives since v1.0.0."
        )
    level, task, count = said.get("level"), said.get("task"), said.get("num_clients")
    wrong = []
    if level not in _LEVELS:
        wrong.append(f"level is one of {', '.join(_LEVELS)}; got {quote(level)}")
    elif task not in _LEVELS[level].split(" or "):
        wrong.append(f"task of the level {level} is {_LEVELS[level]}; got {quote(task)}")
    if type(count) is not int or not 1 <= count <= _MOST_CLIENTS:
        wrong.append(f"num_clients is a number from 1 to {_MOST_CLIENTS}; got {quote(count)}")
    if wrong:
        raise DataError(f"{file}: {'; '.join(wrong)}.")
    return _find_files(path, said)


def _find_files(path: Path, said: Mapping[str, Any]) -> _Manifest:
    """The manifest, once all files that it speaks of are there."""
    below = path / "distrib"
    folders = sorted(entry.name for entry in below.iterdir() if entry.is_dir()) if below.is_dir() else []
    wanted = said.get("processed_partition")
    chosen = wanted if wanted in folders else folders[0] if not wanted and len(folders) == 1 else None
    if chosen is None:
        asked = f"its manifest asks for {quote(wanted)}" if wanted else "its manifest (processed_partition) names none"
        raise DataError(
            f"{below} should hold the folder of one partition into clients: it holds {several(folders, 4) or 'none'}, "
            f"and {asked}."
        )
    name = said.get("name")
    name = name if isinstance(name, str) and not name_fault(name) else path.resolve().name
    found = _Manifest(name, said["level"], said["task"], said["num_clients"], below / chosen)
    files = [found.folder / f"data_{client}.pt" for client in range(found.clients)]
    files += [found.split(key, client) for client in range(found.clients) for key in SPLITS]
    missing = [str(file.relative_to(path)) for file in files if not file.is_file()]
    if missing:
        raise DataError(
            f"{path} speaks of {found.clients} clients, and lacks {len(missing)} of their {len(files)} files: "
            f"{several(missing, 4)}. Unpack the archive again."
        )
    return found


def _read_client(manifest: _Manifest, number: int) -> _Client:
    where = f"{manifest.name}, client {number}"
    content = pyg.read_safely(manifest.folder / f"data_{number}.pt", {"FGLGraphDataset": _Graphs})
    fields = vars(content) if isinstance(content, _Graphs) else getattr(content, "to_dict", dict)()
    wanted = ("graphs",) if manifest.level == "graph" else ("x", "edge_index", "y")
    if manifest.level == "hetero_subgraph":
        wanted = (*wanted, "node_type", "edge_type", "target_node_type")
    lacking = [key for key in wanted if fields.get(key) is None]
    if lacking:
        raise DataError(
            f"{where}: data_{number}.pt holds a {type(content).__name__.lstrip('_')} without {several(lacking, 6)}, "
            f"which a client of the level {manifest.level} has."
        )
    if manifest.level == "graph":
        graphs = fields["graphs"]
        odd = next((each for each in graphs if not hasattr(each, "edge_index")), None)
        if odd is not None:
            raise DataError(f"{where}: its graphs are objects of torch_geometric's Data; got a {type(odd).__name__}.")
        sizes = [len(plain.array_of(each.get("x"), f"{where}, graph {row}: x")) for row, each in enumerate(graphs)]
        if not sizes or not min(sizes):
            raise DataError(f"{where}: {'a graph has no nodes' if sizes else 'there are no graphs'}.")
        count = len(sizes)
    else:
        count = len(fields["x"])
    splits = {key: _read_split(manifest.split(key, number), count, where) for key in SPLITS}
    twice = sum(mask.astype(np.int64) for mask in splits.values())
    if np.max(twice, initial=0) > 1:
        raise DataError(f"{where}: item {int(np.argmax(twice))} is in two of the splits {', '.join(SPLITS)}.")
    return _Client(where, fields, splits)


def _read_split(file: Path, count: int, where: str) -> NDArray[np.bool_]:
    mask = plain.array_of(pyg.read_safely(file), f"{where}: {file.name}")
    if mask.dtype != np.bool_ or mask.shape != (count,):
        raise DataError(
            f"{where}: {file.name} should hold {count} truth values, one for each node or graph; got {mask.dtype} "
            f"{list(mask.shape)}."
        )
    return mask


def _name_owners(clients: Sequence[_Client]) -> tuple[str, ...]:
    """What the clients are called: by themselves where they say so and differ, else by numbers."""
    said = [client.content.get("client_name") for client in clients]
    names = [name for name in said if isinstance(name, str) and not name_fault(name)]
    if len(set(names)) == len(clients):
        return tuple(names)
    return tuple(map(str, range(len(clients))))


# -- Nodes ---------------------------------------------------------------------------------------------------------


def _join_nodes(manifest: _Manifest, clients: Sequence[_Client], owners: tuple[str, ...]) -> Graph:
    """All clients' nodes side by side."""
    parts = [
        plain.plain_graph(client.where, x=has["x"], edge_index=has["edge_index"], y=None, masks={})
        for client in clients
        if (has := client.content)
    ]
    _check_widths([(client.where, part.num_features) for client, part in zip(clients, parts, strict=True)])
    starts = np.cumsum([0, *(part.num_nodes for part in parts)])
    owner = np.repeat(np.arange(len(clients)), np.diff(starts))
    known = [_labels(client, part.num_nodes) for client, part in zip(clients, parts, strict=True)]
    labels = np.concatenate(known)
    splits = _join_splits(clients, labels)
    edges = np.concatenate([part.edges + start for part, start in zip(parts, starts, strict=False)], axis=1)
    columns = _join_columns([(client.where, client.content.get("edge_attr"), part.num_edges)
                             for client, part in zip(clients, parts, strict=True)])  # fmt: skip
    x = stack_features([part.features for part in parts])
    names, copies = _name_nodes(clients, [part.num_nodes for part in parts])
    classes = max(_count_classes(client, int(labels.max(initial=0)) + 1) for client in clients)
    if manifest.level == "hetero_subgraph":
        graph, order = _typed(manifest, clients, x, labels, splits, edges, columns, starts)
    else:
        graph = plain.plain_graph(manifest.name, x=x, edge_index=edges, y=None, masks=splits)
        graph = graph if columns is None else plain.with_link_columns(graph, columns)
        graph = replace(graph, labels=labels, num_classes=classes)
        order = np.arange(graph.num_nodes)
    graph = replace(graph, num_classes=classes, owners=Owners(owners, owner[order]), node_names=names[order])
    said = f"{copies} nodes are at several clients, each with a copy of its own" if copies else ""
    return add_notes(graph, [said]) if said else graph


def _typed(
    manifest: _Manifest, clients: Sequence[_Client], x: Any, labels: Ints, splits: Splits, edges: Ints,
    columns: NDArray[Any] | None, starts: Ints,
) -> tuple[Graph, Ints]:  # fmt: skip
    """A graph with types, and [n] the place that each of its nodes had."""
    target = str(clients[0].content["target_node_type"])
    _check_alike(clients, "target_node_type", quote)
    kinds = [_numbers(client, "node_type", len(client.content["x"])) for client in clients]
    types, of_node = _agree(clients, kinds, "hetero_node_types", "type", labels, target, starts)
    found = [_numbers(client, "edge_type", _width(client)) for client in clients]
    relations, of_link = _agree(clients, found, "hetero_edge_types", "relation")
    if target not in types:
        raise DataError(f"{manifest.name}: no node is of the type '{target}', which is classified.")
    rows = {kind: np.flatnonzero(of_node == number) for number, kind in enumerate(types)}
    place = np.empty(len(of_node), dtype=np.int64)
    for chosen in rows.values():
        place[chosen] = np.arange(len(chosen))
    nodes: dict[str, tuple[int, dict[str, Any]]] = {}
    for kind, chosen in rows.items():
        values = x[chosen]
        used = np.flatnonzero(np.asarray(abs(values).sum(axis=0)).ravel())
        # Rows of types with fewer features were filled up with zeros.
        nodes[kind] = (len(chosen), {"x": values[:, : int(used.max(initial=-1)) + 1]})
    nodes[target][1].update(
        y=labels[rows[target]], **{f"{key}_mask": mask[rows[target]] for key, mask in splits.items()}
    )
    links: dict[tuple[str, str, str], tuple[Any, dict[str, Any]]] = {}
    between = (of_link * len(types) + of_node[edges[0]]) * len(types) + of_node[edges[1]]
    for code in np.unique(between):
        chosen = between == code
        (number, start), end = divmod(int(code) // len(types), len(types)), int(code) % len(types)
        has = {} if columns is None else {"edge_attr": columns[chosen]}
        links[types[start], relations[number], types[end]] = (place[edges[:, chosen]], has)
    graph = typed_graph(manifest.name, nodes, links, _KEYS, target)
    return graph, np.concatenate([rows[kind] for kind in sorted(types)])


def _labels(client: _Client, count: int) -> Ints:
    """[n] classes, -1 where one is not known."""
    found = plain.array_of(client.content["y"], f"{client.where}: y").reshape(-1)
    if found.dtype.kind not in "iu" or len(found) != count or found.min(initial=0) < -1:
        raise DataError(
            f"{client.where}: y should hold {count} class numbers, one for each node, and -1 where a class is not "
            f"known; got {found.dtype} {list(found.shape)}{f', with {found.min()}' if found.size else ''}."
        )
    return found.astype(np.int64)


def _numbers(client: _Client, key: str, count: int) -> Ints:
    found = plain.array_of(client.content[key], f"{client.where}: {key}").reshape(-1)
    if found.dtype.kind not in "iu" or len(found) != count or found.min(initial=0) < 0:
        raise DataError(f"{client.where}: {key} should hold {count} numbers from 0; got {found.dtype} {found.shape}.")
    return found.astype(np.int64)


def _width(client: _Client) -> int:
    return int(client.content["edge_index"].shape[1])


def _agree(
    clients: Sequence[_Client], numbers: Sequence[Ints], key: str, word: str, labels: Ints | None = None,
    target: str = "", starts: Ints | None = None,
) -> tuple[list[str], Ints]:  # fmt: skip
    """Names of all types (or relations), and the number of each node (or link) among these; clients may number them
    differently where they name them. The type without a name that has labels is the target."""
    names: list[str] = []
    found = []
    _check_alike(clients, key, lambda said: "names" if said else "none")
    for place, (client, own) in enumerate(zip(clients, numbers, strict=True)):
        said = client.content.get(key) or ()
        called = [str(each[1]) if isinstance(each, tuple | list) and len(each) == 3 else str(each) for each in said]
        called += [f"{word}{number}" for number in range(len(called), int(own.max(initial=-1)) + 1)]
        if not said and labels is not None and starts is not None:
            known = np.unique(own[labels[starts[place] : starts[place + 1]] >= 0])
            if len(known) == 1:
                called[int(known[0])] = target
        for number in np.unique(own).tolist():
            if called[number] not in names:
                names.append(called[number])
        table = np.array([names.index(each) if each in names else -1 for each in called], dtype=np.int64)
        found.append(table[own])
    return names, np.concatenate(found)


def _name_nodes(clients: Sequence[_Client], sizes: Sequence[int]) -> tuple[NDArray[np.str_], int]:
    """[n] CLIENT/NUMBER, where the number is the one in the whole graph if the clients tell it; how many nodes are at
    several clients. Where all number their nodes from 0 it is not told."""
    numbers, known, told = [], True, False
    for client, size in zip(clients, sizes, strict=True):
        said = client.content.get("global_map")
        if isinstance(said, Mapping):
            said = [said.get(row, -1) for row in range(size)]
        found = np.zeros(0) if said is None else plain.array_of(said, f"{client.where}: global_map").reshape(-1)
        fits = found.dtype.kind in "iu" and len(found) == size == len(np.unique(found))
        known &= fits
        told |= fits and bool((found != np.arange(size)).any())
        numbers.append(found.astype(np.int64) if fits else np.arange(size))
    whole = np.concatenate(numbers)
    of_client = np.repeat(np.arange(len(clients)), sizes).astype(np.str_)
    names = np.char.add(np.char.add(of_client, "/"), whole.astype(np.str_))
    return names, int((np.unique(whole, return_counts=True)[1] > 1).sum()) if known and told else 0


# -- Graphs --------------------------------------------------------------------------------------------------------


def _join_graphs(manifest: _Manifest, clients: Sequence[_Client], owners: tuple[str, ...]) -> GraphCollection:
    """All clients' graphs, of which each has a class."""
    graphs = [graph for client in clients for graph in client.content["graphs"]]
    counts = [_count_classes(client, 0) for client in clients]
    found = pyg.collection_from_pyg(graphs, name=manifest.name, num_classes=max(counts) or None)
    owner = np.repeat(np.arange(len(clients)), [len(client.content["graphs"]) for client in clients])
    sizes = np.diff(found.pointer)
    splits = {key: np.repeat(mask, sizes) for key, mask in _join_splits(clients, found.labels).items()}
    union = replace(found.union, owners=Owners(owners, np.repeat(owner, sizes)), splits=splits)
    found = replace(found, union=union)
    if len(set(counts)) == 1:
        return found
    return add_notes(found, [
        f"clients have {several(sorted(set(map(str, counts))), 4)} classes: the same number may mean different things "
        f"at different clients"
    ])  # fmt: skip


def _join_targets(manifest: _Manifest, clients: Sequence[_Client], owners: tuple[str, ...]) -> Graph:
    """All clients' graphs as nodes that are linked with their own nodes; numbers of these are estimated."""
    graphs = [(f"{client.where}, graph {place}", graph)
              for client in clients for place, graph in enumerate(client.content["graphs"])]  # fmt: skip
    parts = [plain.plain_graph(where, x=graph.get("x"), edge_index=_ends(where, graph), y=None, masks={})
             for where, graph in graphs]  # fmt: skip
    _check_widths([(where, part.num_features) for (where, _), part in zip(graphs, parts, strict=True)])
    starts = np.cumsum([0, *(part.num_nodes for part in parts)])
    of_graph = np.repeat(np.arange(len(parts)), np.diff(starts))
    rows = np.arange(len(of_graph))
    x = stack_features([part.features for part in parts])
    edges = np.concatenate([part.edges + start for part, start in zip(parts, starts, strict=False)], axis=1)
    columns = _join_columns([(where, graph.get("edge_attr"), part.num_edges)
                             for (where, graph), part in zip(graphs, parts, strict=True)])  # fmt: skip
    means = sp.csr_matrix((1.0 / np.diff(starts)[of_graph], (of_graph, rows)), shape=(len(parts), len(rows))) @ x
    values = _join_values(graphs)
    known = np.where(np.isnan(values).all(axis=1), -1, 0)
    splits = {f"{key}_mask": mask for key, mask in _join_splits(clients, known).items()}
    graph = typed_graph(
        manifest.name,
        {"graph": (len(parts), {"x": means.astype(np.float32), **splits}), "node": (len(rows), {"x": x})},
        {
            ("node", "in", "graph"): (np.stack([rows, of_graph]), {}),
            ("node", "link", "node"): (edges, {} if columns is None else {"edge_attr": columns}),
        },
        _KEYS,
        "graph",
    )
    table = np.full((graph.num_nodes, values.shape[1]), np.nan, dtype=np.float32)
    table[: len(parts)] = values
    names = next((list(map(str, said)) for client in clients if (said := client.content.get("target_names"))), None)
    fits = names is not None and len(set(names)) == values.shape[1] and not any(map(name_fault, names))
    found = with_targets(graph, table, names if fits else None, task="regression")
    sizes = [len(client.content["graphs"]) for client in clients]
    owner = np.repeat(np.arange(len(clients)), sizes)
    return replace(found, owners=Owners(owners, np.concatenate([owner, owner[of_graph]])))


def _ends(where: str, graph: Any) -> Any:
    ends = graph.get("edge_index")
    if ends is None:
        raise DataError(f"{where} has no edge_index [2, e], the links between its nodes.")
    return ends


def _join_values(graphs: Sequence[tuple[str, Any]]) -> NDArray[np.float32]:
    """[graphs, m] numbers, NaN where they are not known."""
    found = []
    for where, graph in graphs:
        values = plain.array_of(graph.get("y"), f"{where}: y").reshape(-1).astype(np.float64)
        known = graph.get("y_mask")
        if known is not None:
            mask = plain.array_of(known, f"{where}: y_mask").reshape(-1).astype(np.bool_)
            if mask.shape != values.shape:
                raise DataError(f"{where}: y has {len(values)} targets and y_mask {len(mask)}.")
            values = np.where(mask, values, np.nan)
        found.append(values)
    for (where, _), (one, other) in zip(graphs[1:], pairwise(found), strict=True):
        if len(one) != len(other):
            raise DataError(f"{where} has {len(other)} targets in y, and the graph before it {len(one)}.")
    return np.stack(found).astype(np.float32)


# -- Both ----------------------------------------------------------------------------------------------------------


def _join_splits(clients: Sequence[_Client], labels: Ints) -> Splits:
    """[items] truth values; what has no label is in no split."""
    return {key: np.concatenate([client.splits[key] for client in clients]) & (labels >= 0) for key in SPLITS}


def _count_classes(client: _Client, least: int) -> int:
    said = client.content.get("num_global_classes")
    return max(least, said) if type(said) is int else least


def _check_alike(clients: Sequence[_Client], key: str, tell: Callable[[Any], str]) -> None:
    first, *others = [(client.where, tell(client.content.get(key))) for client in clients]
    other = next((each for each in others if each[1] != first[1]), None)
    if other is not None:
        raise DataError(f"{first[0]} has {first[1]} in {key}, and {other[0]} has {other[1]}: all clients must agree.")


def _check_widths(found: Sequence[tuple[str, int]]) -> None:
    first = found[0]
    other = next((each for each in found if each[1] != first[1]), None)
    if other is not None:
        raise DataError(f"{first[0]} has {first[1]} features of each node, and {other[0]} has {other[1]}.")


def _join_columns(found: Sequence[tuple[str, Any, int]]) -> NDArray[np.float64] | None:
    """[e, k] columns of all links, where these have some."""
    linked = [(where, given, count) for where, given, count in found if count]
    if all(given is None for _, given, _ in linked):
        return None
    parts: list[NDArray[np.float64]] = []
    for where, given, count in linked:
        values = np.zeros((0, 0)) if given is None else plain.array_of(given, f"{where}: edge_attr")
        if len(values) != count or (parts and values.reshape(count, -1).shape[1] != parts[0].shape[1]):
            raise DataError(
                f"{where}: edge_attr should have a row for each of {count} links, with as many columns as that of "
                f"others; got {list(values.shape)}."
            )
        parts.append(values.reshape(count, -1).astype(np.float64))
    return np.concatenate(parts)
