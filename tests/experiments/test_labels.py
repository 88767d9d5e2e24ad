"""Labels of a run, whatever the data comes as: two classes written -1 and 1, one class, none."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphsilo
from graphsilo.errors import DataError, GraphsiloError, PartitionError, UnsupportedError
from graphsilo.federation import registry

NODES = 24
EDGES = torch.tensor([list(range(NODES)), [(node * 5 + 1) % NODES for node in range(NODES)]])
MASKS = ("train_mask", "val_mask", "test_mask")
SHORT = {"partition": "random", "clients": 2, "rounds": 1, "seeds": [0], "report": False}


def data(labels, **more) -> Data:
    x = torch.arange(NODES * 2.0).reshape(NODES, 2) / NODES
    return Data(x=x, edge_index=EDGES, y=None if labels is None else torch.as_tensor(labels), **more)


def club(labels) -> networkx.Graph:
    graph = networkx.Graph(EDGES.T.tolist())
    networkx.set_node_attributes(graph, dict(enumerate(labels)), "y")
    return graph


def several(labels) -> list[Data]:
    one = torch.zeros(2, 0, dtype=torch.int64)
    return [Data(x=torch.ones(2, 1) * number, y=label, edge_index=one) for number, label in enumerate(labels)]


def tables(folder, labels, more: str = "") -> str:
    rows = [f"n{node},{node},{label}" for node, label in enumerate(labels)]
    (folder / "nodes.csv").write_text("\n".join(["id,x,y", *rows]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["a,b", *(f"n{a},n{b}" for a, b in EDGES.T.tolist())]) + "\n")
    described = "nodes: {path: nodes.csv, id: id, label: y}\nedges: {path: edges.csv, source: a, target: b}\n"
    (folder / "t.yaml").write_text(described + more)
    return str(folder / "t.yaml")


def file_of(folder, labels) -> str:
    torch.save(data(labels), folder / "graph.pt")
    return str(folder / "graph.pt")


KINDS = {
    "data": lambda folder, labels: data(labels),
    "file": file_of,
    "list": lambda folder, labels: several(labels),
    "networkx": lambda folder, labels: club(labels),
    "tables": tables,
}


@pytest.mark.parametrize("kind", KINDS)
def test_minus_one_and_one_are_two_classes(kind, tmp_path):
    tree = graphsilo.run(data=KINDS[kind](tmp_path, [-1, 1] * 12), **SHORT).tree
    labels = np.sum([row["labels"] for row in tree["partition"]["per_client"]], axis=0)
    assert (tree["data"]["classes"], labels.tolist()) == (2, [12, 12])
    assert [text for text in tree["warnings"] if "-1 and 1, which are taken as two classes" in text]


@pytest.mark.parametrize("kind", KINDS)
def test_minus_one_beside_other_classes_is_unknown(kind, tmp_path):
    tree = graphsilo.run(data=KINDS[kind](tmp_path, [-1, 1, 0, 1] * 6), **SHORT).tree
    assert tree["data"]["classes"] == 2
    assert sum(sum(row["labels"]) for row in tree["partition"]["per_client"]) == 18
    assert not [text for text in tree["warnings"] if "two classes" in text]


@pytest.mark.parametrize("kind", KINDS)
def test_one_class_is_refused(kind, tmp_path):
    given = KINDS[kind](tmp_path, [1] * NODES)
    with pytest.raises(DataError, match=r"all labels are the same, .*1'?, and \w+ classification tells two classes"):
        graphsilo.run(data=given, **SHORT)


def test_what_declared_classes_say(tmp_path):
    graphsilo.run(data=tables(tmp_path, [-1, 1, 0, 1] * 6, 'classes: ["0", "1"]\n'), **SHORT)
    three = tables(tmp_path, [-1, 1, 0, 1] * 6, 'classes: ["-1", "0", "1"]\n')
    tree = graphsilo.run(data=three, **SHORT).tree
    assert sum(np.array(row["labels"]) for row in tree["partition"]["per_client"]).tolist() == [6, 6, 12]
    two = tables(tmp_path, [-1, 1] * 12, 'classes: ["-1", "1"]\n')
    tree = graphsilo.run(data=two, **SHORT).tree
    assert not [text for text in tree["warnings"] if "two classes" in text]


def test_a_graph_s_own_minus_one_is_unknown():
    graph = graphsilo.Graph(np.ones((NODES, 1), np.float32), EDGES.numpy(), np.array([-1, 1] * 12), 2)
    with pytest.raises(DataError, match=r"class 1, and .* A label -1 is unknown; where -1 and 1 .* this line "):
        graphsilo.run(data=graph, **SHORT)


def test_silos_of_which_one_has_unknown_labels_and_one_class(tmp_path):
    names = []
    for place, labels in enumerate(([-1, 1] * 12, [0, 1] * 12)):
        torch.save(data(labels), tmp_path / f"{place}.pt")
        names.append(str(tmp_path / f"{place}.pt"))
    tree = graphsilo.run(data=names, rounds=1, seeds=[0], report=False).tree
    assert [row["labels"] for row in tree["partition"]["per_client"]] == [[0, 12], [12, 12]]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (data([-1] * NODES), DataError, r"none of the 24 nodes has a label.*labels=\.\.\."),
        (data(None), DataError, "none of the 24 nodes has a label"),
        (
            data([-1] * 12 + [0, 1] * 6, **dict.fromkeys(MASKS, [True] * 12 + [False] * 12)),
            PartitionError, "the training masks choose no node that has a label, and 12 of 24 nodes have one",
        ),
        (data(range(NODES)), PartitionError, "name 24 classes for 24 nodes, at most 1 of each: do they hold ids"),
        (several([-1] * NODES), DataError, "none of the 24 graphs has a label"),
    ],
    ids=["unknown", "absent", "masks", "ids", "graphs"],
)  # fmt: skip
def test_nobody_to_train_on_for_a_reason(given, error, text):
    with pytest.raises(error, match=text):
        graphsilo.run(data=given, **SHORT)


@pytest.mark.parametrize("name", [listing.name for listing in registry.listings() if "link" in listing.tasks])
def test_links_need_no_labels(name):
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, 120))
    called = {"data": data(None), "task": "link", "method": name, **SHORT}
    called["data"].edge_index = edges
    if name == "opfgl":  # begins with classes
        with pytest.raises(UnsupportedError, match=r"begins with a graph of classes.*the data has no labels"):
            graphsilo.run(**called)
    else:
        assert 0 < graphsilo.run(**called).accuracy() < 1


def test_links_of_every_kind_need_no_labels():
    edges = np.random.default_rng(0).integers(0, NODES, (2, 120))
    graph = graphsilo.Graph(np.ones((NODES, 1), np.float32), edges, np.full(NODES, -1), 0)
    for given in (graph, networkx.Graph(edges.T.tolist())):
        found = graphsilo.run(data=given, task="link", **SHORT).record
        assert all(row.train > row.test > 0 for row in found.partition.per_client)  # links, not nodes
        assert [row.test_items for row in found.seeds[0].clients] == [row.test for row in found.partition.per_client]


def test_a_label_too_large_costs_nothing():
    for top in (10**12, 3000):
        with pytest.raises(DataError, match=f"numbered {top};"):
            graphsilo.run(data=data([top, *[0, 1] * 11, 0]), **SHORT)
    graph = graphsilo.Graph(np.ones((NODES, 1), np.float32), EDGES.numpy(), np.array([0, 1] * 12), 10**12)
    with pytest.raises(GraphsiloError, match="said to be 1000000000000 classes, and only 24 labels"):
        graphsilo.run(data=graph, **SHORT)
