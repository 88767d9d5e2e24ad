"""Silos that other processes map come back as they were."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.schema import TABLES
from graphsilo.data.silos.silo import EvaluationSet, Links, Schema, Silo
from graphsilo.data.silos.store import SiloStore


def graph(*, sparse=False, **more):
    features = np.array([[1.0, 0.0], [0.0, 2.5], [0.0, 0.0]], dtype=np.float32)
    return Graph(
        features=sp.csr_matrix(features) if sparse else features,
        edges=np.array([[0, 1, 1], [1, 0, 2]]),
        labels=np.array([0, 1, -1]),
        num_classes=2,
        name="tiny",
        **more,
    )


def silo(whole, client=0, **more):
    items = {"val": np.array([1]), "test": np.array([], dtype=np.int64)}
    return Silo(
        client, whole, np.array([0]), (EvaluationSet("seen", whole, items),), Schema("node", 2, 2, ("a", "b")), **more
    )


def stored(tmp_path, *silos):
    writer = SiloStore(tmp_path / "silos")
    for one in silos:
        writer.write(one)
    return SiloStore(tmp_path / "silos")


def assert_same(left, right):
    if isinstance(left, Graph):
        assert left.is_sparse == right.is_sparse
        dense = [one.features.toarray() if one.is_sparse else one.features for one in (left, right)]
        assert np.array_equal(*dense)
        assert right.features.dtype == np.float32
        for name in ("edges", "labels", "global_ids"):
            assert np.array_equal(getattr(left, name), getattr(right, name))
        assert (left.edge_weights is None) == (right.edge_weights is None)
        if left.edge_weights is not None:
            assert np.array_equal(left.edge_weights, right.edge_weights)
        assert (left.num_classes, left.name) == (right.num_classes, right.name)
    else:
        assert_same(left.union, right.union)
        assert np.array_equal(left.pointer, right.pointer)
        assert np.array_equal(left.labels, right.labels)
        assert np.array_equal(left.global_ids, right.global_ids)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_silo_comes_back(tmp_path, sparse):
    whole = graph(sparse=sparse, node_ids=np.array([7, 3, 9]), edge_weights=np.array([1.0, 0.5, 2.0], dtype=np.float32))
    first = silo(whole, parts=3, noisy_labels=np.array([1, 1, -1]), facts={"nodes": 3, "share": 0.5, "lost": [1, 2]})
    first = replace(first, shares_ids=not sparse)
    back = stored(tmp_path, first).read(0)
    assert_same(first.graph, back.graph)
    assert back.train.tolist() == [0]
    assert back.schema == first.schema
    assert back.parts == 3
    assert back.shares_ids is not sparse
    assert back.noisy_labels.tolist() == [1, 1, -1]
    assert back.facts == first.facts
    assert back.links is None
    assert list(back.seen.items) == ["val", "test"]
    assert back.seen.items["test"].shape == (0,)
    assert back.seen.graph is back.graph


def test_nothing_to_train_on(tmp_path):
    first = replace(silo(graph()), train=np.zeros(0, dtype=np.int64))
    bare = replace(first, client=1, graph=graph().with_edges(np.zeros((2, 0))))
    store = stored(tmp_path, first, bare)
    assert store.read(0).train.shape == (0,)
    assert store.read(1).graph.edges.shape == (2, 0)


def test_links_come_back(tmp_path):
    pairs = [np.arange(2 * size).reshape(2, size) for size in range(5)]
    back = stored(tmp_path, silo(graph(), links=Links(*pairs))).read(0)
    for field, pair in zip(fields(Links), pairs, strict=True):
        assert np.array_equal(getattr(back.links, field.name), pair)


def test_a_shared_graph_is_written_once(tmp_path):
    shared = graph(sparse=True)
    new = EvaluationSet("new_client", shared, {"new_client": np.array([0, 1])}, part=np.array([0, 1, -1]))
    silos = [
        replace(silo(graph(), client), evaluations=(*silo(graph(), client).evaluations, new)) for client in range(3)
    ]
    store = stored(tmp_path, *silos)
    graphs = list((tmp_path / "silos").glob("graph-*.json"))
    assert len(graphs) == 3 * 2 + 1
    read = [store.read(client) for client in range(3)]
    assert read[0].evaluations[1].graph is read[2].evaluations[1].graph
    assert read[1].evaluations[1].part.tolist() == [0, 1, -1]
    assert_same(shared, read[1].evaluations[1].graph)


def test_a_collection_comes_back(tmp_path):
    union = replace(graph(), labels=np.full(3, -1))
    graphs = GraphCollection(union, np.array([0, 2, 3]), np.array([1, 0]), 2, "pair", np.array([5, 8]))
    first = silo(graphs)
    back = stored(tmp_path, first).read(0)
    assert isinstance(back.graph, GraphCollection)
    assert_same(graphs, back.graph)


def test_mapped_arrays_do_not_write_through(tmp_path):
    store = stored(tmp_path, silo(graph()))
    store.read(0).graph.features[0, 0] = 99.0
    assert SiloStore(store.folder).read(0).graph.features[0, 0] == 1.0


def test_memory_order_does_not_matter(tmp_path):
    whole = graph()
    columns = replace(whole, features=np.asfortranarray(whole.features), edges=np.asfortranarray(whole.edges))
    assert_same(whole, stored(tmp_path, silo(columns)).read(0).graph)


def test_names_come_back_for_the_nodes_of_the_silo_only(tmp_path):
    """A silo's folder may go to another machine: it holds no name of a node elsewhere."""
    names = np.array(["p0", "secret", "p2", "p3"])
    part = graph(node_ids=np.array([3, 0, 2]), node_names=names, feature_names=("a", "b"), class_names=("no", "yes"))
    store = stored(tmp_path, silo(part))
    back = store.read(0).graph
    assert back.external_ids.tolist() == ["p3", "p0", "p2"]
    assert (back.feature_names, back.class_names) == (("a", "b"), ("no", "yes"))
    assert back.subgraph(np.array([2])).external_ids.tolist() == ["p2"]
    assert all("secret".encode("utf-32-le") not in path.read_bytes() for path in store.folder.iterdir())
    assert (stored(tmp_path / "b", silo(graph())).read(0).graph.node_names, store.clients()) == (None, [0])


def test_a_silo_that_was_written_before_there_were_tables_of_links_comes_back(tmp_path):
    store = stored(tmp_path, silo(graph()))
    file = store.folder / "silo-0.json"
    head = json.loads(file.read_text())
    head["schema"] = {key: value for key, value in head["schema"].items() if key not in TABLES}
    file.write_text(json.dumps(head))
    assert store.read(0).schema == silo(graph()).schema


def test_no_pickle_on_disk(tmp_path):
    store = stored(tmp_path, silo(graph(sparse=True)))
    for path in store.folder.glob("*.npy"):
        np.load(path, allow_pickle=False)
    assert {path.suffix for path in store.folder.iterdir()} == {".npy", ".json"}


def test_sparse_features_are_mapped_and_no_file_stays_open(tmp_path):
    """A thousand silos of a dozen arrays would be more open files than a process may have."""
    store = stored(tmp_path, silo(graph(sparse=True)))
    store.read(0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = store.read(0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert all(f"{store.folder}/graph-0.features_{part}.npy" in maps for part in ("data", "indices", "indptr"))
    assert found.graph.features.nnz == 2
