"""Data sets by name or file, and what happens to them on their way in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data import Graph, GraphCollection, LoadOptions, entry, load, save_graph
from graphsilo.data.sources import catalog
from graphsilo.errors import ConfigError, DataError
from kit.raw_files import run_python

SMALL = {"nodes": 200, "features": 80, "feature_density": 0.05}


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'data\.scales' for citation-sbm; .* 'data\.scale'"):
        load("citation-sbm", options={"scales": True})
    with pytest.raises(ConfigError, match=r"'data\.nodes' for Cora; it is a setting of generated data"):
        load("Cora", options={"nodes": 5})
    with pytest.raises(ConfigError, match="scale must be one of none, standard, robust, unit_rows or null; got 'yes'"):
        load("citation-sbm", options={"scale": "yes"})
    with pytest.raises(ConfigError, match="max_degree"):
        LoadOptions(max_degree=0)
    with pytest.raises(ConfigError, match="degree_features"):
        LoadOptions(degree_features="always")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="data must be a table of settings"):
        load("citation-sbm", options=["nodes"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="TU data sets"):
        load("Cora", options={"use_node_attributes": True})
    with pytest.raises(ConfigError, match="collection of 188"):
        load("MUTAG", options={"largest_component": True})
    with pytest.raises(ConfigError, match="takes no generator settings"):
        load("Cora", options=LoadOptions(generator={"nodes": 3}))


def test_generated_data_takes_settings_beside_options() -> None:
    graph = load("Citation-SBM", options={**SMALL, "scale": "unit_rows"}, seed=4)
    assert isinstance(graph, Graph)
    assert graph.num_nodes == 200
    np.testing.assert_allclose(np.asarray(graph.features.sum(axis=1)), 1, rtol=1e-5)
    same = load("citation-sbm", options=LoadOptions(generator={**SMALL, "seed": 4}), seed=1)
    assert isinstance(same, Graph)
    assert np.array_equal(graph.edges, same.edges)
    other = load("citation-sbm", options=SMALL, seed=5)
    assert isinstance(other, Graph)
    assert not np.array_equal(graph.edges, other.edges)


def test_generated_counts_are_the_catalog_s() -> None:
    for name in ("citation-sbm", "heterophily-sbm"):
        graph, item = load(name), entry(name)
        assert isinstance(graph, Graph)
        found = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
        assert found == (item.nodes, item.edges, item.features, item.classes)


def test_own_file_with_options(tmp_path: Path) -> None:
    # 0 - 1 - 2 and 3 - 4, edges in one direction, no features
    edges = np.array([[0, 2, 3, 1], [1, 1, 4, 1]])
    graph = Graph(np.zeros((5, 0), dtype=np.float32), edges, np.array([0, 1, 0, 1, 1]), 2)
    path = str(save_graph(tmp_path / "own.NPZ", graph))
    loaded = load(path)
    assert isinstance(loaded, Graph)
    assert loaded.edges.tolist() == [[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]]
    assert loaded.features.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]]
    raw = load(path, options={"undirected": False, "degree_features": False})
    assert isinstance(raw, Graph)
    assert raw.edges.tolist() == edges.tolist()
    assert raw.num_features == 0
    large = load(path, options={"largest_component": True, "max_degree": 1})
    assert isinstance(large, Graph)
    assert (large.num_nodes, large.num_edges, large.num_features) == (3, 4, 2)
    with pytest.raises(DataError, match="does not exist"):
        load(str(tmp_path / "none.npz"))
    with pytest.raises(ConfigError, match="do not apply"):
        load(path, options={"use_node_attributes": True})


def test_degrees_beside_features(tmp_path: Path) -> None:
    graph = Graph(
        np.array([[5.0], [6.0]], dtype=np.float32), np.array([[0], [1]]), np.zeros(2, dtype=np.int64), 1,
        feature_names=("age",),
    )  # fmt: skip
    loaded = load(str(save_graph(tmp_path / "g.npz", graph)), options={"degree_features": True})
    assert isinstance(loaded, Graph)
    assert loaded.features.tolist() == [[5, 0, 1], [6, 0, 1]]
    assert loaded.feature_names == ("age", "degree=0", "degree=1")


def test_a_root_that_is_not_there(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="nowhere, is not a folder"):
        load("Cora", root=tmp_path / "nowhere")
    monkeypatch.setenv("GRAPHSILO_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match=r"from GRAPHSILO_DATA, .*elsewhere, is not"):
        load("Cora")
    assert not own_cache.exists()


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, graphsilo.data; print([m for m in ('numpy', 'scipy', 'torch', 'pyarrow') if m in sys.modules])"
    assert run_python(code) == "[]"
    code = (
        "import sys; from graphsilo.data import names; names(); heavy = 'torch', 'pandas', 'pyarrow'; "
        "print([m for m in (*heavy, 'torch_geometric', 'sklearn', 'sknetwork') if m in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_public_names() -> None:
    import graphsilo.data as data

    assert all(getattr(data, name) is not None for name in data.__all__)
    assert dir(data) == sorted(data.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = data.lod  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.data
def test_graphs_without_features_get_their_degrees(data_root: Path) -> None:
    graphs = load("IMDB-BINARY", root=data_root)
    assert isinstance(graphs, GraphCollection)
    degree = np.bincount(graphs.union.edges[0], minlength=graphs.union.num_nodes)
    assert graphs.num_features == degree.max() + 1 == 136
    assert np.array_equal(graphs.union.features.indices, degree)
    capped = load("IMDB-BINARY", root=data_root, options={"max_degree": 64})
    assert capped.num_features == 65


@pytest.mark.slow
@pytest.mark.data
def test_node_attributes_of_proteins(data_root: Path) -> None:
    with_attributes = load("PROTEINS", root=data_root, options={"use_node_attributes": True})
    without = load("PROTEINS", root=data_root)
    assert isinstance(with_attributes, GraphCollection)
    assert isinstance(without, GraphCollection)
    assert with_attributes.num_features == 4
    assert np.array_equal(with_attributes.union.features[:, 1:], without.union.features)
    with pytest.raises(ConfigError, match="has no node attributes"):
        load("MUTAG", root=data_root, options={"use_node_attributes": True})


@pytest.mark.data
def test_components_of_the_papers(data_root: Path) -> None:
    graph = load("Photo", root=data_root, options={"largest_component": True})
    assert isinstance(graph, Graph)
    assert (graph.num_nodes, graph.num_edges) == (7487, 2 * 119_043)


@pytest.mark.parametrize("names", [["a.yaml", "b.yaml", "./a.yaml"], ["Cora", "b.npz", "cora"], ["citation_sbm"] * 3])
def test_the_same_data_at_two_clients_is_refused(names: list[str]) -> None:
    catalog.check_distinct(dict(enumerate(names[:2] if names[0] != names[1] else names[:1])))
    with pytest.raises(DataError, match=r"clients 0 and \d would hold the same data.*Name each data set once"):
        catalog.check_distinct(dict(enumerate(names)))
