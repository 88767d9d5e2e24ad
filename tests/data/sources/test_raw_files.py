"""Raw files: what is missing, damaged or another data set's, the cache, and every real data set that is at hand."""

from __future__ import annotations

import gzip
import socket
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data import Graph, GraphCollection, entry, load
from graphsilo.data.sources import catalog, entries, raw_files
from graphsilo.errors import DataError
from kit.raw_files import copy_raw


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("offline")
def test_without_files_and_network(own_cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "planetoid" / "Cora" / "raw").mkdir(parents=True)
    (root / "planetoid" / "Cora" / "raw" / "ind.cora.x").write_bytes(b"")
    for name, first in (("Cora", "ind.cora.tx"), ("MUTAG", "MUTAG_A.txt"), ("Actor", "out1_node_feature_label.txt")):
        with pytest.raises(DataError, match="could not be downloaded") as caught:
            load(name, root=root)
        message = str(caught.value)
        assert first in message
        assert str(root) in message
        assert "--data-root DIR or GRAPHSILO_DATA=DIR" in message
        assert "\n" not in message
    with pytest.raises(DataError, match="could not be downloaded"):
        load("Photo")
    assert not list((own_cache / "building").iterdir())
    assert not (own_cache / "raw").exists()
    assert not (own_cache / "converted").exists()


def test_benchmark_without_its_package(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(DataError, match=r"pip install ogb.*DIR/ogb/ogbn_arxiv/raw/edge\.csv\.gz"):
        load("ogbn-arxiv")
    assert not list((own_cache / "building").iterdir())


def test_benchmark_files_are_read_without_its_package(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "root" / "ogb" / "ogbn_arxiv"
    contents = {
        "raw/edge.csv.gz": "0,1\n2,1\n",
        "raw/node-feat.csv.gz": "0.5,-1\n1,2\n3,4\n",
        "raw/node-label.csv.gz": "3\n0\n39\n",
        "split/time/train.csv.gz": "0\n",
        "split/time/valid.csv.gz": "2\n",
        "split/time/test.csv.gz": "1\n",
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=r"not those of ogbn-arxiv: they hold 3 nodes where it has 169343, 2 edges"):
        load("ogbn-arxiv", root=tmp_path / "root")
    stand_in = replace(entry("ogbn-arxiv"), nodes=3, edges=2, features=2)
    monkeypatch.setitem(entries._CATALOG, "ogbn-arxiv", stand_in)
    graph = load("ogbn-arxiv", root=tmp_path / "root", options={"undirected": False})
    assert isinstance(graph, Graph)
    assert graph.edges.tolist() == [[0, 2], [1, 1]]
    assert graph.features.tolist() == [[0.5, -1], [1, 2], [3, 4]]
    assert (graph.labels.tolist(), graph.num_classes) == ([3, 0, 39], 40)
    assert graph.splits["val"].tolist() == [False, False, True]


@pytest.mark.data
def test_another_set_s_files_are_told(own_cache: Path, data_root: Path, tmp_path: Path) -> None:
    copy_raw(data_root, tmp_path, "amazon/Computers/raw")
    (tmp_path / "amazon" / "Photo" / "raw").mkdir(parents=True)
    source = tmp_path / "amazon" / "Computers" / "raw" / "amazon_electronics_computers.npz"
    source.rename(tmp_path / "amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz")
    with pytest.raises(
        DataError, match=r"not those of Photo: they hold 13752 nodes where it has 7650.*as Computers has"
    ):
        load("Photo", root=tmp_path)
    assert not (own_cache / "converted").exists()


@pytest.mark.data
def test_a_set_with_another_content_is_remarked(own_cache: Path, data_root: Path, tmp_path: Path) -> None:
    # The counts of Photo hold however its nodes are mixed up.
    copy_raw(data_root, tmp_path, "amazon/Photo/raw")
    path = tmp_path / "amazon/Photo/raw/amazon_electronics_photo.npz"
    held = dict(np.load(path))
    held["labels"] = held["labels"][::-1]
    np.savez(path, **held)
    for _ in range(2):  # converted, then from the cache
        assert load("Photo", root=tmp_path).union.notes == (catalog.OTHER_CONTENT,)


def test_a_checksum_is_of_content_in_any_order() -> None:
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    words = sp.csr_matrix(([2.0, 0.0, 1.0], [1, 2, 0], [0, 3, 3, 3]), shape=(3, 4), dtype=np.float32)
    one = Graph(features=words, edges=edges, labels=np.array([0, 1, 0]), num_classes=2)
    same = replace(one, features=words.toarray(), edges=edges[:, ::-1].astype(np.int32))
    assert raw_files.checksum(one) == raw_files.checksum(same)
    assert raw_files.checksum(one) != raw_files.checksum(replace(one, labels=np.array([0, 1, 1])))


# name: nodes of each class, as the raw files' own description has them
NODE_CLASSES = {
    "Cora": [351, 217, 418, 818, 426, 298, 180],
    "CiteSeer": [264, 590, 668, 701, 596, 508],
    "PubMed": [4103, 7739, 7875],
    "Computers": [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291],
    "Photo": [369, 1686, 703, 915, 882, 823, 1941, 331],
    "CS": [708, 462, 2050, 429, 1394, 2193, 371, 924, 775, 118, 1444, 2033, 420, 4136, 876],
    "Physics": [5750, 5045, 17426, 2753, 3519],
    "Actor": [853, 1337, 1630, 1815, 1965],
    "chameleon": [456, 460, 453, 521, 387],
    "squirrel": [1042, 1040, 1039, 1040, 1040],
    "Minesweeper": [8000, 2000],
    "Tolokers": [9192, 2566],
}


GRAPH_CLASSES = {
    "MUTAG": [63, 125],
    "PROTEINS": [663, 450],
    "NCI1": [2053, 2057],
    "IMDB-BINARY": [500, 500],
    "COLLAB": [2600, 775, 1625],
}


LONG = ("CS", "Physics", "chameleon", "squirrel", "COLLAB")


def marked(listed: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in listed]


@pytest.mark.data
@pytest.mark.parametrize("name", marked(list(NODE_CLASSES)))
def test_node_data(name: str, data_root: Path) -> None:
    item = entry(name)
    for _ in range(2):  # converted, then from the cache
        graph = load(name, root=data_root, options={"undirected": False})
        assert isinstance(graph, Graph)
        found = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
        assert found == (item.nodes, item.edges, item.features, item.classes)
        assert np.bincount(graph.labels).tolist() == NODE_CLASSES[name]
        assert graph.name == name
        assert graph.notes == ()
    public = {"Planetoid": (item.nodes,), "Amazon": None, "Coauthor": None}
    shape = public.get(item.pyg_class or "", (item.nodes, 10))
    assert {key: mask.shape for key, mask in graph.splits.items()} == (
        {} if shape is None else dict.fromkeys(("train", "val", "test"), shape)
    )
    undirected = load(name, root=data_root)
    assert isinstance(undirected, Graph)
    adjacency = undirected.adjacency()
    assert (adjacency != adjacency.T).nnz == 0
    assert adjacency.nnz == undirected.num_edges
    assert adjacency.diagonal().sum() == 0
    if item.pyg_class in ("Planetoid", "Amazon", "Coauthor"):
        assert undirected.num_edges == item.edges


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", marked(list(GRAPH_CLASSES)))
def test_graph_data(name: str, data_root: Path) -> None:
    item = entry(name)
    for _ in range(2):
        graphs = load(name, root=data_root, options={"degree_features": False})
        assert isinstance(graphs, GraphCollection)
        union = graphs.union
        assert (len(graphs), union.num_nodes, union.num_edges) == (item.graphs, item.nodes, item.edges)
        assert (graphs.num_features, graphs.num_classes) == (item.features, item.classes)
        assert np.bincount(graphs.labels).tolist() == GRAPH_CLASSES[name]
        assert set(union.labels.tolist()) == {-1}
    owner = np.repeat(np.arange(len(graphs)), np.diff(graphs.pointer))
    assert np.array_equal(owner[union.edges[0]], owner[union.edges[1]])


@pytest.mark.data
def test_citeseer_has_nodes_without_words(data_root: Path) -> None:
    graph = load("CiteSeer", root=data_root)
    assert isinstance(graph, Graph)
    silent = np.asarray(graph.features.sum(axis=1)).ravel() == 0
    degree = np.bincount(graph.edges[0], minlength=graph.num_nodes)
    # The nodes that PyG adds have no words, but one or two links each; 48 other nodes have no links.
    assert silent.sum() == 15
    assert (degree[silent] > 0).all()
    assert (degree == 0).sum() == 48
    assert set(graph.labels[silent].tolist()) == {0}


@pytest.mark.data
def test_agrees_with_pyg(data_root: Path, tmp_path: Path) -> None:
    from torch_geometric.datasets import Actor, TUDataset

    for folder in ("actor", "tu/MUTAG"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "raw").symlink_to(data_root / folder / "raw")
    data = Actor(str(tmp_path / "actor"))[0]
    graph = load("Actor", root=data_root, options={"undirected": False})
    assert isinstance(graph, Graph)
    assert np.array_equal(graph.edges, data.edge_index.numpy())
    assert np.array_equal(graph.features.toarray(), data.x.numpy())
    assert np.array_equal(graph.splits["test"], data.test_mask.numpy())
    dataset = TUDataset(str(tmp_path / "tu"), "MUTAG")
    graphs = load("MUTAG", root=data_root)
    assert isinstance(graphs, GraphCollection)
    for number in (0, 17, 187):
        one, ours = dataset[number], graphs.subset(np.array([number]))
        assert np.array_equal(ours.union.edges, one.edge_index.numpy())
        assert np.array_equal(ours.union.features, one.x.numpy())
        assert ours.labels.tolist() == one.y.tolist()


@pytest.mark.data
def test_raw_files_that_are_not_what_they_should_be(own_cache: Path, data_root: Path, tmp_path: Path) -> None:
    root = copy_raw(data_root, tmp_path / "root", "amazon/Photo/raw")
    (root / "amazon/Photo/raw/amazon_electronics_photo.npz").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"raw files of Photo in .* could not be read"):
        load("Photo", root=root)
    assert not (own_cache / "converted").exists()
