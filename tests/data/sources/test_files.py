"""Graph files: what is saved comes back, and nothing unsafe is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import graphsilo
from graphsilo.data import Graph, GraphCollection, load_graph, save_graph
from graphsilo.errors import DataError, RunError


def small_graph(**changes: object) -> Graph:
    values: dict[str, object] = {
        "features": np.array([[1, 0], [0, 2], [3, 0]], dtype=np.float32),
        "edges": np.array([[0, 1, 2], [1, 0, 2]]),
        "labels": np.array([0, -1, 2]),
        "num_classes": 3,
        "name": "small",
    }
    return Graph(**(values | changes))  # type: ignore[arg-type]


def test_graph_round_trip(tmp_path: Path) -> None:
    graph = small_graph(
        splits={"train": np.array([True, False, False]), "test": np.array([[True, False]] * 3)},
        node_ids=np.array([7, 8, 11]),
        feature_names=("age", "größe"),
        class_names=("a", "b", "c"),
        estimated=("sums",),
    )
    back = load_graph(save_graph(tmp_path / "deep" / "g.npz", graph))
    assert isinstance(back, Graph)
    assert np.array_equal(back.features, graph.features)
    assert np.array_equal(back.edges, graph.edges)
    assert back.edges.dtype == np.int64
    assert back.labels.tolist() == [0, -1, 2]
    assert (back.num_classes, back.name) == (3, "small")
    assert back.splits["train"].tolist() == [True, False, False]
    assert back.splits["test"].shape == (3, 2)
    assert back.node_ids is not None
    assert back.node_ids.tolist() == [7, 8, 11]
    assert (back.feature_names, back.class_names) == (("age", "größe"), ("a", "b", "c"))
    assert back.estimated == ("sums",)  # on which noise for single nodes depends
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["g.npz"]


def test_edge_weights_are_kept(tmp_path: Path) -> None:
    weights = np.array([0.5, 0.5, 7.0], dtype=np.float32)
    back = load_graph(save_graph(tmp_path / "g.npz", small_graph(edge_weights=weights)))
    assert isinstance(back, Graph)
    assert back.edge_weights is not None
    assert back.edge_weights.tolist() == [0.5, 0.5, 7.0]
    # Through the catalog, as a run loads it: undirected, the loop gone.
    loaded = graphsilo.load(str(tmp_path / "g.npz"))
    assert (loaded.edges.tolist(), loaded.edge_weights.tolist()) == ([[0, 1], [1, 0]], [0.5, 0.5])
    kept = graphsilo.load(str(tmp_path / "g.npz"), undirected=False)
    assert (kept.edges.tolist(), kept.edge_weights.tolist()) == ([[0, 1, 2], [1, 0, 2]], [0.5, 0.5, 7.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edge_weights": np.array([1, -1, 1], np.float32)}, r"above 0; that of edge 1 \(node 1 to 0\) is -1"),
        ({"edge_weights": np.array([1, 1, np.nan], np.float32)}, r"edge 2 \(node 2 to 2\) is nan"),
        ({"edge_weights": np.array([np.inf, 1, 1], np.float32)}, r"edge 0 \(node 0 to 1\) is inf"),
        ({"edge_weights": np.array([1, 0, 1], np.float32)}, "Leave out edges that weigh nothing"),
        ({"edge_weights": np.array([1, 1], np.float32)}, r"3 edges need as many float32 weights; got float32 \(2,\)"),
        ({"edge_weights": np.array([1, 1, 1])}, "got int64"),
        ({"edges": np.array([[0.6, 1.0], [1.0, 0.0]])}, "edges must be whole node numbers; got float64"),
        ({"labels": np.array([0.0, 1.0, 2.0])}, "labels must be whole class numbers"),
        ({"labels": np.array([0, -100, 2])}, "label -100 does not fit into 3 classes"),
        ({"splits": {"train": np.array([0, 1, 1])}}, "the split 'train' must be a mask of truth values for 3 nodes"),
        ({"splits": {"val": np.array([True])}}, "the split 'val' must be a mask"),
    ],
)
def test_graphs_that_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        small_graph(**changes)


def test_sparse_features_stay_sparse(tmp_path: Path) -> None:
    graph = small_graph(features=sp.csr_matrix(np.eye(3, 80, dtype=np.float32)))
    back = load_graph(save_graph(tmp_path / "g.npz", graph))
    assert isinstance(back, Graph)
    assert back.is_sparse
    assert (back.features != graph.features).nnz == 0
    assert (back.node_ids, back.feature_names, dict(back.splits)) == (None, None, {})


def test_collection_round_trip(tmp_path: Path) -> None:
    graphs = GraphCollection(small_graph(labels=np.full(3, -1)), np.array([0, 1, 3]), np.array([1, 0]), 2, "pair")
    back = load_graph(save_graph(tmp_path / "g.npz", graphs))
    assert isinstance(back, GraphCollection)
    assert (len(back), back.name, back.num_classes) == (2, "pair", 2)
    assert back.pointer.tolist() == [0, 1, 3]
    assert back.labels.tolist() == [1, 0]
    assert back.graph_ids is None


def test_save_needs_an_npz_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.npz"):
        save_graph(tmp_path / "graph.pkl", small_graph())


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_graph(tmp_path / "g.npz", small_graph(name="old"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(RunError, match="No space left"):
        save_graph(path, small_graph(name="new"))
    assert load_graph(path).name == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["g.npz"]


def test_every_flipped_byte_of_the_data_is_noticed(tmp_path: Path) -> None:
    path = save_graph(tmp_path / "g.npz", small_graph(features=np.full((3, 2), 0.125, dtype=np.float32)))
    content = bytearray(path.read_bytes())
    place = content.index(np.float32(0.125).tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_graph(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense", b"text"])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "g.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"g\.npz cannot be read"):
        load_graph(path)


def test_other_npz_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, nodes_0=np.arange(3))
    with pytest.raises(DataError, match="not a graph"):
        load_graph(path)
    np.savez(path, meta=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="plain arrays"):
        load_graph(path)
    with pytest.raises(DataError, match="does not exist"):
        load_graph(tmp_path / "none.npz")


def test_names_of_nodes_are_saved(tmp_path: Path) -> None:
    whole = small_graph(node_names=np.array(["a1", "ö2", "a3"]))
    assert load_graph(save_graph(tmp_path / "g.npz", whole)).external_ids.tolist() == ["a1", "ö2", "a3"]
    assert load_graph(save_graph(tmp_path / "g.npz", small_graph())).external_ids.tolist() == [0, 1, 2]


def test_the_file_of_a_part_tells_no_names_of_other_nodes(tmp_path: Path) -> None:
    part = small_graph(node_names=np.array(["a1", "secret", "a3"])).subgraph(np.array([2, 0]))
    path = save_graph(tmp_path / "part.npz", part)
    with np.load(path, allow_pickle=False) as stored:
        assert stored["node_names"].tolist() == ["a3", "a1"]
    back = load_graph(path)
    assert isinstance(back, Graph)
    assert (back.external_ids.tolist(), back.global_ids.tolist()) == (["a3", "a1"], [2, 0])


@pytest.mark.parametrize(
    "changes",
    [
        {"node_names": np.array(["a", "b"])},
        {"node_names": np.array([1, 2, 3])},
        {"node_names": np.array(["a", "b", "c"]), "node_ids": np.array([0, 1, 3])},
    ],
    ids=["too few", "numbers", "an id without a name"],
)
def test_names_that_do_not_fit(changes: dict[str, object]) -> None:
    with pytest.raises(DataError, match="node_names"):
        small_graph(**changes)


def change(path: Path, **arrays: np.ndarray) -> Path:
    """A file as it was, but for some of its arrays."""
    with np.load(path) as found:
        kept = {name: found[name] for name in found.files}
    np.savez(path, **{**kept, **arrays})
    return path


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("features_indices", [1 << 30, 1, 0]),
        ("features_indices", [-1, 1, 0]),
        ("features_indices", [2, 1, 0]),
        ("features_indptr", [0, 2, 1, 3]),
        ("features_indptr", [0, 1, 2, 9]),
    ],
)
def test_places_of_sparse_features_are_looked_at(tmp_path: Path, name: str, numbers: list[int]) -> None:
    """Compiled code reads and writes where they point, whoever made the file."""
    graph = small_graph(features=sp.csr_matrix(np.array([[1, 0], [0, 2], [3, 0]], dtype=np.float32)))
    path = change(save_graph(tmp_path / "g.npz", graph), **{name: np.array(numbers, dtype=np.int32)})
    with pytest.raises(DataError, match=r"is an \.npz file but not a graph"):
        load_graph(path)


@pytest.mark.parametrize("pointer", [[0, 2, 1, 3], [-1, 1, 2, 3]])
def test_graphs_of_a_collection_do_not_overlap(tmp_path: Path, pointer: list[int]) -> None:
    collection = GraphCollection(small_graph(), np.array([0, 1, 2, 3]), np.array([0, 1, 0]), 2)
    path = change(save_graph(tmp_path / "c.npz", collection), pointer=np.array(pointer))
    with pytest.raises(DataError, match="rising pointers from 0"):
        load_graph(path)


@pytest.mark.parametrize("more", [{"name": "a\x1b[2J"}, {"class_names": ("a", "b", "c\u202e")}])
def test_names_in_a_file_steer_no_terminal(tmp_path: Path, more: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"is an \.npz file but not a graph") as caught:
        load_graph(save_graph(tmp_path / "g.npz", small_graph(**more)))
    assert str(caught.value).isprintable()
