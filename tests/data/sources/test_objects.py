"""Graphs of other libraries in memory: the graph that they are, and refusals that say what to do."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import FakeDataset, KarateClub

import graphsilo
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.errors import ConfigError, DataError
from kit.own import QUICK, SMALL, numbers


def triangle(**more) -> Data:
    """Three nodes, a link 0 - 1 and an edge 1 -> 2."""
    given = {
        "x": torch.tensor([[1.0, 0.5], [0.0, 2.0], [3.0, 0.0]]), "edge_index": torch.tensor([[0, 1, 1], [1, 0, 2]]),
        "y": torch.tensor([0, 1, -1]),
    }  # fmt: skip
    return Data(**given | more)


def test_data_is_taken_as_it_is():
    mask = torch.tensor([True, True, False])
    found = graphsilo.graph_of(triangle(edge_weight=torch.tensor([0.5, 0.5, 2.0]), train_mask=mask))
    assert isinstance(found, Graph)
    assert found.features.tolist() == [[1.0, 0.5], [0.0, 2.0], [3.0, 0.0]]
    assert (found.edges.tolist(), found.labels.tolist(), found.num_classes) == ([[0, 1, 1], [1, 0, 2]], [0, 1, -1], 2)
    assert found.edge_weights.tolist() == [0.5, 0.5, 2.0]
    assert found.splits["train"].tolist() == [True, True, False]
    assert graphsilo.load(triangle()).edges.shape == (2, 4)  # symmetrised, as a file would be
    assert graphsilo.load(triangle(), undirected=False).edges.shape == (2, 3)


def test_other_names_are_said():
    data = triangle(y=None, kind=torch.tensor([1, 0, 1]), edge_attr=torch.tensor([[1.0], [1.0], [4.0]]))
    found = graphsilo.graph_of(data, labels="kind", weights="edge_attr", name="mine")
    assert (found.labels.tolist(), found.edge_weights.tolist(), found.name) == ([1, 0, 1], [1.0, 1.0, 4.0], "mine")
    with pytest.raises(DataError, match=r"y was to be its 'kin', and the data has edge_attr, edge_index, kind, x"):
        graphsilo.graph_of(data, labels="kin", weights="edge_attr")


def test_data_in_memory_is_the_file_s(tmp_path):
    """The same run, whichever way the data comes; tensors that need a gradient are taken too."""
    graph = graphsilo.load(**SMALL)
    data = Data(
        x=torch.from_numpy(graph.features.toarray() if graph.is_sparse else graph.features),
        edge_index=torch.from_numpy(graph.edges.astype(np.int64)), y=torch.from_numpy(graph.labels),
    )  # fmt: skip
    torch.save(data, tmp_path / "graph.pt")
    data.x.requires_grad_()
    of_file = graphsilo.run(**{**QUICK, "data": str(tmp_path / "graph.pt")})
    in_memory = graphsilo.run(**{**QUICK, "data": data}, out=tmp_path / "run")
    assert numbers(in_memory) == numbers(of_file)
    assert numbers(graphsilo.run(tmp_path / "run" / "config.yaml", report=False)) == numbers(of_file)
    assert numbers(graphsilo.run(**{**QUICK, "data": {"name": data, "scale": "none"}})) == numbers(of_file)
    assert graphsilo.partition(data, "random", clients=3).num_clients == 3
    asked = graphsilo.predict(tmp_path / "run", 0, graph=data)
    assert asked.probabilities.shape == (90, 3)
    assert in_memory.tree["config"]["data"]["name"] == str(tmp_path / "run" / "data.npz")


def test_a_data_set_of_one_graph_and_of_many():
    one = graphsilo.graph_of(KarateClub())
    assert (one.name, one.num_nodes, one.num_classes, one.num_edges) == ("KarateClub", 34, 4, 156)
    torch.manual_seed(0)
    many = graphsilo.graph_of(FakeDataset(num_graphs=5, edge_dim=0, task="graph", num_classes=3))
    assert isinstance(many, GraphCollection)
    assert len(many) == 5
    assert isinstance(graphsilo.graph_of([triangle()]), Graph)


def club() -> networkx.Graph:
    return networkx.karate_club_graph()


def test_networkx_by_attributes():
    found = graphsilo.graph_of(club(), labels="club")
    assert (found.class_names, found.num_edges, found.num_features) == (("Mr. Hi", "Officer"), 156, 0)
    assert found.edge_weights is not None
    weights = {(int(a), int(b)): float(w) for (a, b), w in zip(found.edges.T, found.edge_weights, strict=True)}
    assert weights[0, 1] == weights[1, 0] == club()[0][1]["weight"] == 4
    graph = networkx.DiGraph()
    graph.add_node("ada", age=36, income=2.5, y=1, train_mask=True)
    graph.add_node("bob", age=20, income=1.0, train_mask=False)
    graph.add_edge("ada", "bob")
    found = graphsilo.graph_of(graph, features=["age", "income"])
    assert found.features.tolist() == [[36.0, 2.5], [20.0, 1.0]]
    assert (found.feature_names, found.labels.tolist()) == (("age", "income"), [1, -1])
    assert (found.external_ids.tolist(), found.edges.tolist()) == (["ada", "bob"], [[0], [1]])
    assert found.splits["train"].tolist() == [True, False]
    networkx.set_node_attributes(graph, {"ada": [1.0, 2.0], "bob": np.array([3, 4])}, "x")
    assert graphsilo.graph_of(graph).features.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_networkx_graphs_are_a_collection():
    graphs = [networkx.cycle_graph(size) for size in (3, 4)]
    for graph, kind in zip(graphs, ("odd", "even"), strict=True):
        graph.graph["kind"] = kind
    found = graphsilo.graph_of(graphs, labels="kind")
    assert (len(found), found.labels.tolist(), found.pointer.tolist()) == (2, [1, 0], [0, 3, 7])
    assert found.union.num_edges == 2 * 7


@pytest.mark.parametrize(
    ("given", "labels", "classes", "said"),
    [
        (["yes", "Unknown", "no", "?"], [1, -1, 0, -1], ("no", "yes"), "'Unknown' (1), '?' (1)"),
        ([1, "NA", 0, None], [1, -1, 0, -1], None, "'NA' (1)"),
        (["yes", "-1", "no", ""], [1, -1, 0, -1], ("no", "yes"), None),
        (["1", "-1", "1", "-1"], [1, 0, 1, 0], ("-1", "1"), None),
    ],
)
def test_words_for_no_class_are_no_class(given, labels, classes, said):
    graph = networkx.path_graph(4)
    networkx.set_node_attributes(graph, dict(enumerate(given)), "y")
    made = graphsilo.graph_of(graph)
    assert (made.labels.tolist(), made.class_names) == (labels, classes)
    ending = "count as unlabelled; where such a word is a class, call it otherwise"
    assert made.notes == (() if said is None else (f"'y': nodes with {said} {ending}",))
    graphs = [networkx.Graph([(0, 1)], y=word) for word in ("a", "n/a", "b")]
    (note,) = graphsilo.graph_of(graphs).union.notes
    assert note.startswith("'y': graphs with 'n/a' (1) count")


def test_networkx_runs_by_its_nodes_names(tmp_path):
    graph = networkx.relabel_nodes(club(), {node: f"member {node}" for node in range(34)})
    made = graphsilo.graph_of(graph, labels="club")
    graphsilo.run(data=made, partition="random", clients=2, rounds=2, report=False, out=tmp_path / "run")
    found = graphsilo.predict(tmp_path / "run", 0)
    assert found.class_names == ("Mr. Hi", "Officer")
    assert found.node_ids[0].startswith("member ")


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.zeros(2, 3)
    data["author"].x = torch.zeros(2, 3)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0], [1]])
    return data


def unlabelled() -> networkx.Graph:
    return networkx.path_graph(3)


def uneven() -> networkx.Graph:
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, 0, "y")
    networkx.set_node_attributes(graph, {0: [1.0], 1: [1.0, 2.0], 2: [3.0]}, "x")
    return graph


def masked() -> networkx.Graph:
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, {0: True, 2: False}, "train_mask")
    return graph


def relabelled(name: str) -> networkx.Graph:
    return networkx.relabel_nodes(networkx.path_graph(3), {0: name})


def lacking() -> networkx.Graph:
    graph = uneven()
    del graph.nodes[1]["x"]
    return graph


def half_weighted() -> networkx.Graph:
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, 0, "y")
    graph[0][1]["weight"] = 2.0
    return graph


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (hetero(), r"no type has labels 'y', and nodes of one type are classified \(there are paper, author\)"),
        (triangle(edge_index=None), r"has no edge_index \[2, e\], the links between its nodes \(found: x, y\)"),
        (triangle(y=torch.eye(3)), r"got shape \(3, 3\)\. Where its rows are one-hot, y\.argmax\(dim=1\)"),
        (triangle(edge_index=torch.tensor([[0], [7]])), r"an edge names node 7, but nodes are numbered 0 to 2"),
        (triangle(edge_attr=torch.zeros(2, 2)), r"edge_attr should have a row per edge, \[3, k\]; got shape \[2, 2\]"),
        (triangle(y=torch.tensor([0, 1])), r"there are 3 rows of x, 2 labels in y"),
        (masked(), r"node 1 has no 'train_mask', and others have one"),
        (relabelled("1"), r"the nodes '1' and 1 are written alike"),
        (relabelled("a\nb"), r"the node 'a\\nb' holds the unseen character U\+000A"),
        (uneven(), r"the features \(x\) should be numbers, as many in every row"),
        (lacking(), r"node 1 has no attribute 'x' for its features \(it has y\)"),
        (half_weighted(), r"1 of 2 edges have no 'weight'; give it to all or to none"),
        ([triangle(), unlabelled()], r"objects of one kind.*this one holds Data, Graph"),
        ([triangle(), triangle()], r"graph 0 needs an edge_index and one label y"),
        ([unlabelled(), unlabelled()], r"graph 0 has no label; each graph has its class in graph\.graph\['y'\]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the same in every process
)
def test_what_is_missing_or_too_much(thing, text, tmp_path):
    with pytest.raises((DataError, ConfigError), match=text):
        graphsilo.graph_of(thing)
    for call in (graphsilo.load, lambda one: graphsilo.run(**{**QUICK, "data": one}, out=tmp_path / "run")):
        with pytest.raises((DataError, ConfigError), match=text):
            call(thing)
    assert not (tmp_path / "run").exists()


def test_labels_of_networkx():
    graph = networkx.path_graph(4)
    for values, labels, names in (
        ([0, float("nan"), 1, None], [0, -1, 1, -1], None),
        ([-1, 1, None, 1], [0, 1, -1, 1], ("-1", "1")),
        (["b", "", "a", " "], [1, -1, 0, -1], ("a", "b")),
        ([torch.tensor(1), np.int64(0), True, 2.0], [1, 0, 1, 2], None),
    ):
        networkx.set_node_attributes(graph, dict(enumerate(values)), "y")
        found = graphsilo.graph_of(graph)
        assert (found.labels.tolist(), found.class_names) == (labels, names)
    for value, text in (([0, 1], r"'y' should be a class.*got \[0, 1\]"),
                        ("=A1", "which begins with '='"), (10**12, "numbered 1000000000000")):  # fmt: skip
        networkx.set_node_attributes(graph, "a" if isinstance(value, str) else 0, "y")
        graph.nodes[2]["y"] = value
        with pytest.raises(DataError, match=text):
            graphsilo.graph_of(graph)
    with pytest.raises(DataError, match=r"no node has a label 'club'.*labels='club'"):
        graphsilo.graph_of(graph, labels="club")


def test_networkx_without_edges():
    graph = networkx.empty_graph(3)
    networkx.set_node_attributes(graph, 1, "y")
    assert graphsilo.graph_of(graph).num_edges == 0
    with_edges = half_weighted()
    with_edges[1][2]["weight"] = 1.0
    for number, one in enumerate((graph, with_edges)):
        one.graph["y"] = number
    assert graphsilo.graph_of([graph, with_edges]).union.edge_weights.tolist() == [2, 1, 2, 1]
    networkx.set_node_attributes(graph, {node: torch.ones(2, requires_grad=True) for node in graph}, "x")
    assert graphsilo.graph_of(graph).features.tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("thing", [triangle(y=None), unlabelled(), triangle(y=torch.full((3,), -1))], ids=type)
def test_without_labels_only_links_are_predicted(thing):
    with pytest.raises(DataError, match=r"none of the 3 nodes has a label\. Say which .*task=link, which needs none"):
        graphsilo.run(data=thing, partition="random", clients=1, report=False)
    assert graphsilo.graph_of(thing).num_classes == 0


def test_a_transposed_matrix_is_read():
    transposed = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0]])  # [target, source]: 0 -> 1 -> 2
    found = graphsilo.graph_of(triangle(edge_index=None, adj_t=transposed.to_sparse_csr()))
    assert (found.edges.tolist(), found.edge_weights) == ([[0, 1], [1, 2]], None)
    found = graphsilo.graph_of(triangle(edge_index=None, adj_t=(0.5 * transposed).to_sparse()))
    assert found.edge_weights.tolist() == [0.5, 0.5]
    with pytest.raises(DataError, match="adj_t should be a sparse matrix"):
        graphsilo.graph_of(triangle(edge_index=None, adj_t="abc"))


def test_what_is_no_graph():
    with pytest.raises(ConfigError, match=r"a graph is an object of PyTorch Geometric .* got 3 of type int"):
        graphsilo.graph_of(3)
    with pytest.raises(ConfigError, match=r"data=\.\.\.\) takes a data set's name, a file, .* got 3 of type int"):
        graphsilo.run(data=3)


def test_not_a_number_is_refused_before_anything_is_written(tmp_path):
    data = triangle()
    data.x[1, 0] = float("nan")
    with pytest.raises(DataError, match=r"feature 0 of node 1 is nan, and 1 features in all"):
        graphsilo.run(**{**QUICK, "data": data}, out=tmp_path / "run")
    assert [item.name for item in tmp_path.rglob("*") if item.is_file() and item.name != ".lock"] == []


def test_dgl():
    dgl = pytest.importorskip("dgl")
    graph = dgl.graph((torch.tensor([0, 1, 1]), torch.tensor([1, 0, 2])))
    graph.ndata["feat"], graph.ndata["label"] = torch.eye(3), torch.tensor([0, 1, 0])
    graph.ndata["train_mask"] = torch.tensor([1, 0, 1], dtype=torch.uint8)
    found = graphsilo.graph_of(graph)
    assert (found.edges.tolist(), found.labels.tolist()) == ([[0, 1, 1], [1, 0, 2]], [0, 1, 0])
    assert found.splits["train"].tolist() == [True, False, True]
    with pytest.raises(DataError, match=r"no ndata\['kind'\] \(it has feat, label, train_mask\)"):
        graphsilo.graph_of(graph, labels="kind")


def test_numbers_that_are_not_whole_are_estimated():
    found = graphsilo.graph_of(triangle(y=torch.tensor([0.5, float("nan"), 3.0])))
    assert (found.task, found.labels.tolist()) == ("regression", [0, -1, 0])
    assert "estimated" in found.notes[0]
    labels = graphsilo.graph_of(triangle(y=torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]])))
    assert (labels.task, labels.num_classes) == ("multilabel", 3)
    graph = networkx.path_graph(3)
    networkx.set_node_attributes(graph, {0: 1.5, 2: 2}, "income")
    told = graphsilo.graph_of(graph, labels="income")
    assert (told.task, told.class_names) == ("regression", ("income",))


def test_features_of_edges_are_columns_of_links() -> None:
    graph = graphsilo.graph_of(triangle(edge_attr=torch.tensor([[1.0], [2], [3]])))
    assert graph.links.feature_names == ("link.0",)
    assert graph.links.features.tolist() == [[1], [2], [3]]
    parts = [triangle(y=torch.tensor([place]), edge_attr=torch.ones(3, 2)) for place in (0, 1)]
    links = graphsilo.graph_of(parts).union.links
    assert links.ends[:, 3:].min() >= 3
    del parts[1].edge_attr
    with pytest.raises(DataError, match="graph 0 has 2 columns of its edges, and graph 1 has none"):
        graphsilo.graph_of(parts)
