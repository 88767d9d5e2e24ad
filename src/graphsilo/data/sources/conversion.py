"""Raw files of the catalogue's data sets as graphs: downloaded and read by PyTorch Geometric."""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.sources import building, transforms
from graphsilo.data.sources.directions import remove_self_loops
from graphsilo.data.sources.entries import CatalogEntry
from graphsilo.errors import ConfigError, DataError, several

DOWNLOAD_TIMEOUT_SECONDS = 60.0


def convert(found: CatalogEntry, where: list[Path], work: Path, use_node_attributes: bool) -> Graph | GraphCollection:
    """Reads raw files, through PyG in a private tree where they are PyG's own."""
    source = found.source
    try:
        if source.alternative and where[0].name == Path(source.alternative).name:
            return read_compact_collection(where[0], name=found.name, num_classes=found.classes)
        raw = where[0].parent
        if found.pyg_class == "PygNodePropPredDataset":
            return _read_ogb(raw.parent, found)
        building.link_folder(raw, source.raw_folder(work))
        # PyG reports its progress on stderr; nothing takes long enough here to need it.
        with contextlib.redirect_stderr(io.StringIO()):
            dataset = _open_pyg(found, work, use_node_attributes)
            return _from_pyg_dataset(found, dataset, use_node_attributes)
    except (DataError, ConfigError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"the raw files of {found.name} in {where[0].parent} could not be read ({type(error).__name__}: {error}); "
            f"they may be incomplete or from another source. Replace them, or remove them to have them downloaded."
        ) from error


def _open_pyg(found: CatalogEntry, root: Path, use_node_attributes: bool, *, download_only: bool = False) -> Any:
    import torch_geometric.datasets

    assert found.pyg_class is not None
    source = found.source
    kind = getattr(torch_geometric.datasets, found.pyg_class)
    if download_only:
        kind = _without_processing(kind)
    arguments = [str(root / source.folder)] + ([source.argument] if source.argument else [])
    return kind(*arguments, use_node_attr=True) if use_node_attributes else kind(*arguments)


class _Downloaded(Exception):
    """Stops a PyG data set after its download."""


def _without_processing(kind: type) -> type:
    def process(self: Any) -> None:
        raise _Downloaded

    return type(kind.__name__, (kind,), {"process": process})


def _from_pyg_dataset(found: CatalogEntry, dataset: Any, use_node_attributes: bool) -> Graph | GraphCollection:
    from graphsilo.data.sources.pyg import collection_from_pyg, graph_from_pyg

    if use_node_attributes and not dataset.num_node_attributes:
        raise ConfigError(f"{found.name} has no node attributes; leave use_node_attributes out.")
    graphs = [dataset[index] for index in range(len(dataset))]
    for data in graphs:
        data.edge_attr = None  # features of edges, which nobody expects of these data sets here
    classes = int(dataset.num_classes)
    if found.task == "graph":
        return collection_from_pyg(graphs, name=found.name, num_classes=classes)
    return graph_from_pyg(graphs[0], name=found.name, num_classes=classes)


def download(found: CatalogEntry, roots: list[Path], folder: Path, downloads: Path) -> None:
    """Lets PyG download into a private folder and moves the raw files into the cache once they are complete."""
    source = found.source
    private = folder / "download"
    reason: str | None = None
    try:
        with _patient_sockets():
            if found.pyg_class == "PygNodePropPredDataset":
                _download_ogb(found, private)
            else:
                _open_pyg(found, private, False, download_only=True)
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        # What counts is whether the files came; the conversion reads them and says what is wrong with them.
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    if source.missing(private):
        raise DataError(_explain_missing(found, roots, reason or "some files did not come"))
    building.keep_folder(source.raw_folder(private), source.raw_folder(downloads))


def _explain_missing(found: CatalogEntry, roots: list[Path], reason: str) -> str:
    source = found.source
    looked = " and ".join(str(source.raw_folder(root)) for root in roots)
    missing = source.missing(roots[0])
    wanted = several(missing, 4)
    return (
        f"{found.name} is not on this machine and could not be downloaded ({reason}). Looked for {wanted} in {looked}. "
        f"Put the raw files into a folder DIR as DIR/{source.folder}/{source.raw}/{source.files[0]} and so on, and "
        f"name it with --data-root DIR or GRAPHSILO_DATA=DIR; or connect to the network and run again. The generated "
        f"data set citation-sbm needs no files."
    )


@contextlib.contextmanager
def _patient_sockets() -> Iterator[None]:
    """A connection that gives no answer must end in an error: PyG's downloads set no timeout of their own."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def read_compact_collection(path: Path, *, name: str, num_classes: int) -> GraphCollection:
    """Reads the compact text format of graph-classification benchmarks (``COLLAB.txt.xz``), without features.

    The first line holds the number of graphs; each graph a line ``nodes class`` and then per node a line ``tag degree
    neighbour neighbour ...`` with neighbours counted from 0 within the graph. Self-loops and duplicates are dropped, as
    PyG does when it reads the same data set.

    Raises:
        DataError: Counts in the file contradict each other.
    """
    import lzma

    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as file:
        rows = [np.fromstring(line, dtype=np.int64, sep=" ") for line in file]
    count, line = int(rows[0][0]), 1
    sizes, labels = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    ends: list[list[NDArray[np.int64]]] = [[], []]
    for graph in range(count):
        if line >= len(rows):
            raise DataError(f"{path}: {count} graphs were announced, but the file ends within graph {graph}.")
        first = int(sizes.sum())
        sizes[graph], labels[graph] = rows[line]
        nodes = rows[line + 1 : line + 1 + int(sizes[graph])]
        line += 1 + int(sizes[graph])
        if any(len(row) - 2 != row[1] for row in nodes):
            raise DataError(f"{path}: a node's number of neighbours differs from the number announced; it is damaged.")
        ends[0].append(np.repeat(first + np.arange(len(nodes)), [len(row) - 2 for row in nodes]))
        ends[1] += [first + row[2:] for row in nodes]
    if line != len(rows):
        raise DataError(f"{path}: the graphs end at line {line}, the file at line {len(rows)}; it is damaged.")
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(pointer[-1])
    edges = remove_self_loops(np.stack([np.concatenate([*each, pointer[:0]]) for each in ends]))
    union = Graph(
        features=np.zeros((n, 0), dtype=np.float32),
        edges=transforms.coalesce(edges, n),
        labels=np.full(n, -1, dtype=np.int64),
        num_classes=num_classes,
        name=name,
    )
    return GraphCollection(union=union, pointer=pointer, labels=labels, num_classes=num_classes, name=name)


def _download_ogb(found: CatalogEntry, private: Path) -> None:
    source = found.source
    try:
        from ogb.nodeproppred import PygNodePropPredDataset
    except ImportError as error:
        raise DataError(
            f"{found.name} belongs to the Open Graph Benchmark, whose package is optional: install it with 'pip "
            f"install ogb' to have the data downloaded, or unpack the benchmark's archive so that "
            f"DIR/{source.folder}/{source.raw}/{source.files[0]} exists and name DIR with --data-root or "
            f"GRAPHSILO_DATA; reading it needs no further package."
        ) from error
    _without_processing(PygNodePropPredDataset)(name=found.name, root=str(private / "ogb"))


def _read_ogb(folder: Path, found: CatalogEntry) -> Graph:
    """Reads the benchmark's own CSV files: ``raw/{edge,node-feat,node-label}.csv.gz`` and the official split.

    Deviation: the ``ogb`` package is not used for reading, because it stores and loads a pickle.
    """
    import pyarrow as pa
    from pyarrow import csv

    def table(name: str, kind: Any) -> NDArray[Any]:
        options = csv.ReadOptions(autogenerate_column_names=True)
        first = csv.open_csv(folder / name, read_options=options).read_next_batch()
        types = csv.ConvertOptions(column_types=dict.fromkeys(first.schema.names, kind))
        columns = csv.read_csv(folder / name, read_options=options, convert_options=types)
        return np.stack([column.to_numpy() for column in columns.columns], axis=1)

    edges = table("raw/edge.csv.gz", pa.int64()).T
    if found.name == "ogbn-products":
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    features = transforms.compact_features(table("raw/node-feat.csv.gz", pa.float32()))
    values = table("raw/node-label.csv.gz", pa.float64())[:, 0]
    labels = np.where(np.isnan(values), -1, values).astype(np.int64)
    splits: dict[str, NDArray[np.bool_]] = {}
    for key, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        paths = sorted(folder.glob(f"split/*/{name}.csv.gz"))
        if paths:
            splits[key] = np.zeros(len(labels), dtype=bool)
            splits[key][table(str(paths[0].relative_to(folder)), pa.int64())[:, 0]] = True
    return Graph(
        features=features,
        edges=np.ascontiguousarray(edges),
        labels=labels,
        num_classes=found.classes,
        name=found.name,
        splits=splits,
    )
