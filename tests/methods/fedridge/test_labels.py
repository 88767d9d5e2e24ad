"""Label features by hand: nobody's own label, nobody else's silo, nothing of validation and test nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare
from graphsilo.methods.fedridge.config import FedRidgeConfig, kind_of
from graphsilo.methods.fedridge.features import Features, Recipe
from graphsilo.methods.fedridge.labels import Joined
from graphsilo.models.columns import label_columns
from graphsilo.models.view import GraphTensors


def path(count, **more):
    """Nodes in a row, with two features."""
    ends = np.stack([np.arange(count - 1), np.arange(1, count)])
    features = np.eye(count, 2, dtype=np.float32)
    return Graph(features, np.concatenate([ends, ends[::-1]], axis=1), np.zeros(count, np.int64), 2, **more)


def columns(graph, nodes, labels, classes=2):
    return label_columns(GraphTensors(graph), np.array(nodes), np.array(labels), classes).toarray()


def test_by_hand_on_a_path():
    # 0 - 1 - 2 - 3, of which 0 is of class 0 and 2 of class 1. N halves in the middle: N Y is e0/2 + e1/2 for node 1
    # and e1 for node 3. In two steps: node 0 reaches 0 and 2 by halves, node 1 reaches 1 (3/4) and 3 (1/4), node 2
    # reaches 0 (1/4) and 2 (3/4), node 3 reaches 1 and 3 by halves; what comes back to itself is left out.
    found = columns(path(4), [0, 2], [0, 1])
    assert found.tolist() == [[0, 0, 0, 0.25], [0.25, 0.25, 0, 0], [0, 0, 0.125, 0], [0, 0.5, 0, 0]]


def test_no_nodes_own_label_is_in_its_row():
    draw = np.random.default_rng(0)
    ends = draw.integers(0, 30, (2, 80))
    graph = Graph(np.zeros((30, 1), np.float32), np.concatenate([ends, ends[::-1]], 1), np.zeros(30, np.int64), 3)
    nodes, labels = np.arange(20), draw.integers(0, 3, 20)
    before = columns(graph, nodes, labels, 3)
    for node in range(20):
        changed = labels.copy()
        changed[node] = (labels[node] + 1) % 3
        after = columns(graph, nodes, changed, 3)
        assert np.allclose(after[node], before[node], atol=1e-9)
    alone = columns(path(2), [0], [1])
    assert alone.tolist() == [[0, 0, 0, 0], [0, 0.5, 0, 0]]  # exactly: its label comes back and is taken off


def test_without_training_nodes_all_are_zero():
    assert not columns(path(3), [], []).any()


def test_phi_has_them_as_its_last_columns():
    data = GraphTensors(path(5))
    plain = Features(data, Recipe("mean", 1, 0, 3, 0))
    made = Joined(plain, label_columns(data, np.array([0, 3]), np.array([0, 1]), 2))
    ((_, rows),) = made.blocks(np.arange(5))
    ((_, bare),) = plain.blocks(np.arange(5))
    assert made.width == plain.width + 4
    assert torch.equal(rows[:, :-4], bare)
    assert rows[:, -4:].tolist() == columns(path(5), [0, 3], [0, 1]).tolist()
    weights = torch.randn(made.width, 3, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(made.times(weights), (rows @ weights.double()).float(), atol=1e-6)


def test_nodes_are_found_by_their_global_ids():
    graph = path(4, node_ids=np.array([5, 2, 9, 7]))
    assert graph.rows_of(np.array([7, 2, 5])).tolist() == [3, 1, 0]


def scenario(name):
    config = load_config(
        overrides={"data.name": "citation-sbm", "data.generator": {"nodes": 160, "classes": 3, "features": 12},
                   "partition.rule": "metis", "partition.clients": 2, "scenario.name": name}
    )  # fmt: skip
    return prepare(config).silos


def finished(kit, silos, **settings):
    server, federation = kit.build("fedridge", silos, **settings)
    server.set_up(federation)
    server.round(federation, 1)
    return server, federation.client(silos[0].client)


def test_graphs_other_than_its_own_are_for_the_model_without_them(kit):
    """A node of a class that the silo has no label of would have only labels that speak against it."""
    silos = scenario("unseen")
    server, client = finished(kit, silos, label_features="always", features="mean")
    plain, other = finished(kit, silos, label_features="never", features="mean")
    assert list(server.weights) == ["mean+labels", "mean"]
    assert torch.allclose(server.weights["mean"], plain.weights["mean"], atol=1e-6)
    client.install_aggregate(server.aggregate())
    other.install_aggregate(plain.aggregate())
    for evaluation in client.silo.evaluations:
        data = client.tensors(evaluation.graph)
        for view in ("own", "aggregate"):
            same = torch.allclose(client.predict(data, view), other.predict(data, view), atol=1e-4)
            assert same is (evaluation.name != "seen")


def test_models_come_back_from_a_file_with_both(kit):
    silos = scenario("unseen")
    _, client = finished(kit, silos, label_features="always", features="mean")
    _, again = finished(kit, silos, label_features="never", features="mean")
    again.load_final({view: dict(sorted(models.items())) for view, models in client.final_models().items()})
    for evaluation in client.silo.evaluations:
        data = client.tensors(evaluation.graph)
        assert torch.equal(client.predict(data), again.predict(data))


def test_where_training_saw_a_part_of_the_graph_its_nodes_are_found_on_all_of_it(kit):
    silos = scenario("inductive")
    _, federation = kit.build("fedridge", silos, label_features="always")
    client = federation.client(silos[0].client)
    data = client._seen
    columns = client._features(data, "mean+labels")._columns
    train = np.flatnonzero(np.isin(data.graph.global_ids, client.data.graph.global_ids))
    assert len(train) == client.data.num_nodes < data.num_nodes
    assert np.array_equal(columns.toarray(), label_columns(data, train, data.graph.labels[train], 3).toarray())


def test_labels_of_validation_and_test_nodes_are_in_no_feature(kit):
    silo = kit.tiny_silo(0)
    labels = silo.graph.labels.copy()
    labels[3:] = 1 - labels[3:]
    other = replace(silo, graph=replace(silo.graph, labels=labels))
    found = []
    for each in (silo, other):
        _, federation = kit.build("fedridge", [each], label_features="always")
        client = federation.client(0)
        found.append(client._features(client.data, "mean+labels")._columns.toarray())
    assert np.array_equal(*found)


def test_classes_left_out_of_the_sums_are_left_out_of_the_features(kit):
    _, federation = kit.build("fedridge", [kit.tiny_silo(0)], label_features="always", min_count=2)
    client = federation.client(0)  # of class 1 it has one training node
    assert client._features(client.data, "mean+labels")._columns.toarray()[:, 1::2].sum() == 0


def test_sums_without_them_are_a_part_of_the_sums_with_them(kit):
    silos = [kit.tiny_silo(client, nodes=9, train=range(5)) for client in range(3)]
    found = {}
    for which in ("auto", "never", "always"):
        server, federation = kit.build(
            "fedridge", silos, features="separate", label_features=which, ridge=(0.1,), wire="float64"
        )
        server.set_up(federation)
        found[which] = {kind: weights[0][0] for kind, weights in server.solutions().items()}
    assert list(found["auto"]) == ["separate", "separate+labels"]
    assert torch.allclose(found["auto"]["separate"], found["never"]["separate"], atol=1e-10)
    assert torch.allclose(found["auto"]["separate+labels"], found["always"]["separate+labels"], atol=1e-10)


def test_where_neighbours_tell_the_class_validation_takes_them(kit):
    """Triangles of one class, features that say nothing, two nodes to train on: only labels of others help."""

    def silo(client):
        draw = np.random.default_rng(client)
        labels = np.repeat(draw.integers(0, 2, 40), 3)
        first = np.arange(0, 120, 3)
        ends = np.concatenate([[first, first + 1], [first + 1, first + 2], [first + 2, first]], axis=1)
        edges = np.concatenate([ends, ends[::-1]], axis=1)
        graph = Graph(draw.standard_normal((120, 3)).astype(np.float32), edges, labels, 2)
        items = {"val": first[::2], "test": first[1::2]}
        train = np.sort(np.concatenate([first + 1, first + 2]))
        return Silo(client, graph, train, (EvaluationSet("seen", graph, items),), Schema("node", 3, 2))

    silos = [silo(client) for client in range(3)]
    server, federation = kit.build("fedridge", silos)
    server.set_up(federation)
    server.round(federation, 1)
    assert server.log["labels"] == 1.0
    for each in silos:
        client = federation.client(each.client)
        test = each.seen.items["test"]
        assert (client.predict(client.data).argmax(1).numpy()[test] == each.graph.labels[test]).all()


def test_graphs_have_no_label_features():
    with pytest.raises(MessageError, match=r"'gcn\+labels' is no kind of features"):
        kind_of("gcn+labels")
    assert FedRidgeConfig().kinds(Schema("graph", 3, 2)) == ("mean", "separate", "wl")
    assert FedRidgeConfig(features="sgc").kinds(Schema("node", 3, 2)) == ("sgc", "sgc+labels")
