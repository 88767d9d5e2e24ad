"""The containers of data: one graph, or a collection of small graphs for graph classification.

Data stays in numpy and scipy here; models turn it into torch tensors once, when a client starts. Nothing in
this module knows of clients.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.arrays import pick_rows
from graphsilo.errors import DataError
from graphsilo.types import Mask, NodeIds, Task

if TYPE_CHECKING:
    from graphsilo.data.links import LinkTable, NodeTypes, OutsideLinks, Owners, Targets
    from graphsilo.data.truth import Words

Features: TypeAlias = "NDArray[np.floating] | sp.csr_matrix"
"""[nodes, features]: a dense array, or CSR where most entries are zero. float64 may come in, since times and the like
lose their digits in less; whatever a model sees is scaled first and float32 then (:mod:`graphsilo.data.silos.scaling`).
"""


SPLITS = ("train", "val", "test")
PARTS = ("outside", "types", "links", "owners", "targets")
"""What a graph may have beside its arrays, each of which knows how it looks for some of the nodes."""


class PublishedSplits(dict[str, Mask]):
    """Splits that a benchmark was published with: used only where they are asked for (``predefined``).

    Federated papers divide these data sets anew at every client. Splits that a user gives are what the user wants.
    """


def edge_type(num_nodes: int) -> type[np.integer]:
    """The narrower of int32 and int64 that holds every node number of a graph."""
    return np.int32 if num_nodes < 2**31 else np.int64


def check_edges(edges: NDArray[np.int64], num_nodes: int, name: str) -> None:
    """Refuse ends of edges that are no nodes.

    Raises:
        DataError: Names one.
    """
    if edges.size and (edges.min() < 0 or edges.max() >= num_nodes):
        bad = int(edges.max()) if edges.max() >= num_nodes else int(edges.min())
        numbered = f"nodes are numbered 0 to {num_nodes - 1}" if num_nodes else "there are no nodes"
        raise DataError(f"{name}: an edge names node {bad}, but {numbered}.")


@dataclass(frozen=True, eq=False)
class Graph:
    """One attributed graph. Arrays are treated as read-only by everyone.

    Attributes:
        features: [n, d] float32 or float64, dense or CSR.
        edges: [2, e] int64, or int32 to halve what a large graph needs; one column per directed edge (source, target).
            An undirected link has two columns. Whoever computes with node numbers widens them first.
        labels: [n] whole class numbers; -1 where the label is unknown.
        num_classes: C. Classes may be absent from ``labels``.
        name: As a user knows it.
        splits: Predefined splits by name: ``{"train": [n] bool or [n, s] bool, "val": ..., "test": ...}``; may be
            empty. ``s`` > 1 means several splits, one per column. They are used unless others are asked for; those of
            :class:`PublishedSplits` are not.
        node_ids: [n] global ids, or None when local and global numbers are the same.
        feature_names, class_names: Optional words for columns and classes.
        edge_weights: [e] float32, finite and above 0; None where every edge weighs 1. Parallel edges add up.
        node_names: [N] text: what the user's own table calls the node with global id i; None where the data has no
            names. A subgraph shares the array of the whole graph, so that nothing is copied per client; see
            :attr:`external_ids`.
        fills: What an empty cell of each feature is filled with, by the feature's name, where the graph came from
            tables that may have such cells.
        estimated: What other nodes decide about a node's row: columns of a table in which an empty cell becomes
            their mean or median, ``degree``, ``largest_component``.
        booleans: Words of 0 and words of 1 of each feature that was made of truth values.
        outside: Links to nodes of other silos, where a silo's own tables name them; None where it is not known
            whether there are any.
        types: Of nodes, where there are several.
        links: Rows of the tables of links, where these say more than which nodes are linked: ``edges`` has each link
            once, whatever its relation.
        time: [n] float64 days since 1970-01-01 that nodes are looked at: what is known later has no part in their
            rows. NaN where a node has none; None where no node has.
        owners: Which institution each node is at, where the data says so.
        targets: What is predicted where that is no class (:func:`graphsilo.data.sources.targets.with_targets`). A label
            is then 0 where something is known of a node and -1 elsewhere, ``num_classes`` the number of targets and
            ``class_names`` what they are called.
        notes: What a person should know of how it was read.
    """

    features: Features
    edges: NDArray[np.int64]
    labels: NDArray[np.int64]
    num_classes: int
    name: str = "graph"
    splits: Mapping[str, Mask] = field(default_factory=dict)
    node_ids: NodeIds | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    edge_weights: NDArray[np.float32] | None = None
    node_names: NDArray[np.str_] | None = None
    fills: Mapping[str, float] | None = None
    estimated: tuple[str, ...] = ()
    booleans: Mapping[str, Words] = field(default_factory=dict)
    outside: OutsideLinks | None = None
    types: NodeTypes | None = None
    links: LinkTable | None = None
    time: NDArray[np.float64] | None = None
    owners: Owners | None = None
    targets: Targets | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _format_repr(self)

    def _repr_html_(self) -> str:
        name, *facts = describe(self).items()
        known = Counter(self.labels[self.labels >= 0].tolist())
        words = self.class_names or range(self.num_classes)
        labels = [[f"nodes of class {word}", known[place]] for place, word in enumerate(words)]
        unlabelled = ["nodes without a label", self.num_nodes - known.total()]
        from graphsilo.notebook import table

        return table(f"Graph {name[1]}", ["", "count"], [*facts, *labels, unlabelled])

    def __post_init__(self) -> None:
        for name in ("features", "edges", "labels"):
            given = getattr(self, name)
            if not isinstance(given, np.ndarray) and not (name == "features" and sp.issparse(given)):
                raise DataError(
                    f"{self.name}: {name} must be a NumPy array; got {type(given).__name__}. np.asarray({name}) makes "
                    f"it one."
                )
        n = self.features.shape[0]
        if self.features.ndim != 2 or self.features.dtype not in (np.float32, np.float64):
            raise DataError(
                f"{self.name}: features must be a float32 or float64 matrix [nodes, features]; got shape "
                f"{self.features.shape} of {self.features.dtype}."
            )
        if self.edges.ndim != 2 or self.edges.shape[0] != 2:
            raise DataError(f"{self.name}: edges must have shape [2, edges]; got {self.edges.shape}.")
        if self.edges.dtype.kind not in "iu":
            raise DataError(
                f"{self.name}: edges must be whole node numbers; got {self.edges.dtype}. Where they are whole, "
                f"edges.astype(np.int64) makes them so."
            )
        if self.labels.shape != (n,):
            raise DataError(f"{self.name}: {n} nodes need {n} labels; got shape {self.labels.shape}.")
        if self.labels.dtype.kind not in "iu":
            raise DataError(
                f"{self.name}: labels must be whole class numbers, -1 where one is unknown; got {self.labels.dtype}."
            )
        check_edges(self.edges, n, self.name)
        if self.edge_weights is not None:
            self._check_weights(self.edge_weights)
        if self.labels.size and (self.labels.max() >= self.num_classes or self.labels.min() < -1):
            bad = int(self.labels.min()) if self.labels.min() < -1 else int(self.labels.max())
            raise DataError(
                f"{self.name}: label {bad} does not fit into {self.num_classes} classes, which are numbered from 0; a "
                f"label that is unknown is -1."
            )
        for key, mask in self.splits.items():
            if np.asarray(mask).dtype != np.bool_ or np.ndim(mask) not in (1, 2) or len(mask) != n:
                raise DataError(
                    f"{self.name}: the split '{key}' must be a mask of truth values for {n} nodes, [n] or [n, splits]; "
                    f"got {np.asarray(mask).dtype} {np.shape(mask)}."
                )
        if self.node_names is not None:
            self._check_names(self.node_names)
        parts = {"time": self.time, "types.of_node": None if self.types is None else self.types.of_node}
        for name, values in parts.items():
            if values is not None and values.shape != (n,):
                raise DataError(f"{self.name}: {name} must have a value for each of {n} nodes; got {values.shape}.")
        if self.links is not None:
            check_edges(self.links.ends, n, f"{self.name}, rows of links")
        if self.targets is not None and self.targets.values.shape != (n, self.num_classes):
            raise DataError(
                f"{self.name}: targets of shape {self.targets.values.shape} do not fit {n} nodes and num_classes="
                f"{self.num_classes}; graphsilo.data.with_targets sets all that belongs to them."
            )

    def _check_weights(self, weights: NDArray[np.float32]) -> None:
        if weights.shape != (self.num_edges,) or weights.dtype != np.float32:
            raise DataError(
                f"{self.name}: {self.num_edges} edges need as many float32 weights; got {weights.dtype} "
                f"{weights.shape}."
            )
        # Written so that NaN fails, too.
        if weights.size and not (weights.min() > 0 and weights.max() < np.inf):
            column = int(np.argmax(~((weights > 0) & (weights < np.inf))))
            raise DataError(
                f"{self.name}: every edge weight must be finite and above 0; that of edge {column} (node "
                f"{int(self.edges[0, column])} to {int(self.edges[1, column])}) is {float(weights[column]):g}. Leave "
                f"out edges that weigh nothing; what can be negative is no weight of a link."
            )

    def _check_names(self, names: NDArray[np.str_]) -> None:
        if names.ndim != 1 or names.dtype.kind != "U":
            raise DataError(f"{self.name}: node_names must be a vector of text; got {names.dtype} {names.shape}.")
        if self.node_ids is None and len(names) != self.num_nodes:
            raise DataError(
                f"{self.name}: {self.num_nodes} nodes without node_ids need as many node_names; got {len(names)}. "
                f"Where nodes were added or removed by hand, give names for all of them, or node_names=None."
            )
        if self.node_ids is not None and self.node_ids.size and self.node_ids.max() >= len(names):
            raise DataError(
                f"{self.name}: node_names has {len(names)} entries, none for the global id {int(self.node_ids.max())}."
            )

    @property
    def union(self) -> Graph:
        """The graph itself: what has nodes and edges here, as the union has in a collection."""
        return self

    @property
    def num_nodes(self) -> int:
        return int(self.features.shape[0])

    @property
    def task(self) -> Task:
        """What its nodes are asked for: their class, unless it has targets."""
        return "node" if self.targets is None else self.targets.task

    @property
    def num_items(self) -> int:
        """What has a label each: nodes."""
        return self.num_nodes

    @property
    def num_edges(self) -> int:
        """Columns of ``edges``: an undirected link counts twice."""
        return int(self.edges.shape[1])

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.features)

    @property
    def has_own_splits(self) -> bool:
        """Whether it has splits that are used unless others are asked for."""
        return bool(self.splits) and not isinstance(self.splits, PublishedSplits)

    @property
    def global_ids(self) -> NodeIds:
        return np.arange(self.num_nodes, dtype=np.int64) if self.node_ids is None else self.node_ids

    @property
    def external_ids(self) -> NDArray[np.str_] | NodeIds:
        """[n] what a user calls each node: its id in the table it came from, else its global id."""
        return self.global_ids if self.node_names is None else self.node_names[self.global_ids]

    def adjacency(self) -> sp.csr_matrix:
        """[n, n] float32 CSR with ``A[target, source]`` = 1, or the edge's weight.

        Parallel unweighted edges collapse to one; weighted ones add up.
        """
        n = self.num_nodes
        weights = np.ones(self.num_edges, dtype=np.float32) if self.edge_weights is None else self.edge_weights
        matrix = sp.csr_matrix((weights, (self.edges[1], self.edges[0])), shape=(n, n))
        if self.edge_weights is None:
            matrix.data[:] = 1.0
        return matrix

    def rows_of(self, ids: NodeIds) -> NDArray[np.int64]:
        """Rows of the nodes with these global ids, in the order given. O(nodes · log nodes).

        Raises:
            DataError: One of them is not in this graph.
        """
        order = np.argsort(self.global_ids, kind="stable")
        found = np.searchsorted(self.global_ids, ids, sorter=order)
        rows: NDArray[np.int64] = order[np.minimum(found, self.num_nodes - 1)]
        if not np.array_equal(self.global_ids[rows], ids):
            raise DataError(f"{self.name}: nodes were asked for that this graph does not hold.")
        return rows

    def subgraph(
        self,
        nodes: NodeIds,
        *,
        columns: NDArray[np.int64] | None = None,
        table: NDArray[np.signedinteger] | None = None,
    ) -> Graph:
        """The graph induced by ``nodes`` (rows of this graph), in the order given.

        Local node i is ``nodes[i]``; only edges with both ends inside stay. O(nodes + edges).

        Args:
            nodes: Which.
            columns: The edges that are looked at; all by default.
            table: As ``number_table`` makes it, for many calls: each then takes O(its nodes + columns). The same again
                afterwards.
        """
        edges, weights = self.edges, self.edge_weights
        if columns is not None:
            edges, weights = edges[:, columns], None if weights is None else weights[columns]
        table = self.number_table() if table is None else table
        table[nodes] = np.arange(len(nodes))
        local = table[edges]
        parts = {key: part.of_nodes(nodes, table) for key in PARTS if (part := getattr(self, key)) is not None}
        table[nodes] = -1
        kept = (local >= 0).all(axis=0)
        return replace(
            self,
            features=self.features[nodes] if sp.issparse(self.features) else pick_rows(self.features, nodes),
            edges=np.ascontiguousarray(local[:, kept]),
            edge_weights=None if weights is None else weights[kept],
            labels=self.labels[nodes],
            splits=(dict if self.has_own_splits else PublishedSplits)(
                {key: mask[nodes] for key, mask in self.splits.items()}
            ),
            node_ids=self.global_ids[nodes],
            time=None if self.time is None else self.time[nodes],
            **parts,
        )

    def number_table(self) -> NDArray[np.signedinteger]:
        """[nodes] -1, to be filled with local numbers; as wide as the edges, which subgraphs then are, too."""
        return np.full(self.num_nodes, -1, dtype=self.edges.dtype)

    def with_edges(self, edges: NDArray[np.int64], weights: NDArray[np.float32] | None = None) -> Graph:
        """The same nodes with other edges, unweighted unless weights are given."""
        return replace(self, edges=np.ascontiguousarray(edges, dtype=np.int64), edge_weights=weights)

    def with_features(self, features: Features) -> Graph:
        return replace(self, features=features)


@dataclass(frozen=True, eq=False)
class GraphCollection:
    """Many small graphs with one label each, stored as one disjoint union.

    Attributes:
        union: Every node of every graph; ``union.labels`` is unused (-1).
        pointer: [g + 1] int64; graph i owns the nodes ``pointer[i]:pointer[i + 1]`` of the union.
        labels: [g] int64 class of each graph.
        num_classes: C.
    """

    union: Graph
    pointer: NDArray[np.int64]
    labels: NDArray[np.int64]
    num_classes: int
    name: str = "graphs"
    graph_ids: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return _format_repr(self)

    def __post_init__(self) -> None:
        if (
            len(self.pointer) != len(self.labels) + 1
            or self.pointer[-1] != self.union.num_nodes
            or self.pointer[0] != 0
            or (np.diff(self.pointer) < 0).any()
        ):
            raise DataError(
                f"{self.name}: {len(self.labels)} graph labels need {len(self.labels) + 1} rising pointers from 0 to "
                f"{self.union.num_nodes}; got {len(self.pointer)}, from {int(self.pointer[0])} to "
                f"{int(self.pointer[-1])}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def task(self) -> Task:
        """What graphs are asked for."""
        return "graph"

    @property
    def num_items(self) -> int:
        """What has a label each: graphs."""
        return len(self)

    @property
    def num_features(self) -> int:
        return self.union.num_features

    @property
    def global_ids(self) -> NDArray[np.int64]:
        return np.arange(len(self), dtype=np.int64) if self.graph_ids is None else self.graph_ids

    @property
    def external_ids(self) -> NDArray[np.int64]:
        """[g] what a user calls each graph: its global id; graphs have no names."""
        return self.global_ids

    def with_features(self, features: Features) -> GraphCollection:
        return replace(self, union=self.union.with_features(features))

    def subset(self, graphs: NDArray[np.int64]) -> GraphCollection:
        """The graphs with these numbers, in the order given."""
        sizes = np.diff(self.pointer)
        graphs = np.asarray(graphs, dtype=np.int64)
        pointer = np.concatenate([[0], np.cumsum(sizes[graphs])]).astype(np.int64)
        nodes = np.repeat(self.pointer[graphs] - pointer[:-1], sizes[graphs]) + np.arange(pointer[-1])
        return GraphCollection(
            union=self.union.subgraph(nodes),
            pointer=pointer,
            labels=self.labels[graphs],
            num_classes=self.num_classes,
            name=self.name,
            graph_ids=self.global_ids[graphs],
        )


Item = TypeVar("Item", bound=Graph | GraphCollection)


def add_notes(item: Item, notes: Iterable[str]) -> Item:
    """The same with more of what a person should know of how it was read."""
    if isinstance(item, GraphCollection):
        return replace(item, union=add_notes(item.union, notes))
    assert isinstance(item, Graph)
    return replace(item, notes=(*item.notes, *notes))


def content_hash(graphs: Sequence[Graph | GraphCollection]) -> str:
    """sha256 over features, edges with their weights, and labels."""
    digest = hashlib.sha256()
    for item in graphs:
        graph = item.union
        arrays: list[np.ndarray] = [graph.edges, graph.labels]
        if graph.edge_weights is not None:
            arrays.append(graph.edge_weights)
        for part in (getattr(graph, key) for key in PARTS):
            found = () if part is None else vars(part).values()
            arrays += [each for each in found if isinstance(each, np.ndarray) and each.dtype.kind != "U"]
        if graph.time is not None:
            arrays.append(graph.time)
        if sp.issparse(graph.features):
            arrays += [graph.features.data, graph.features.indices, graph.features.indptr]
        else:
            arrays.append(np.asarray(graph.features))
        if isinstance(item, GraphCollection):
            arrays += [item.pointer, item.labels]
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def describe(graph: Graph | GraphCollection) -> dict[str, Any]:
    """Counts that a person recognises a data set by."""
    return {
        "name": graph.name,
        **({"graphs": len(graph)} if isinstance(graph, GraphCollection) else {}),
        "nodes": graph.union.num_nodes,
        "edges": graph.union.num_edges,
        "features": graph.num_features,
        "classes" if graph.union.targets is None else "targets": graph.num_classes,
    }


def _format_repr(graph: Graph | GraphCollection) -> str:
    return f"{type(graph).__name__}({', '.join(f'{name}={value!r}' for name, value in describe(graph).items())})"
