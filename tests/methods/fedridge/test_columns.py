"""FedRidge on tables: columns on one scale, and the ridge of all rows in one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable, NodeTypes
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import MessageError, RequestError, UnsupportedError
from graphsilo.federation import registry
from graphsilo.methods.fedridge import columns
from graphsilo.methods.fedridge.client import Client
from graphsilo.methods.fedridge.config import FedRidgeConfig
from graphsilo.methods.fedridge.features import CONSTANT
from graphsilo.methods.fedridge.messages import ColumnSums, StatisticsRequest
from graphsilo.models.view import GraphTensors
from graphsilo.testing import conformance
from kit.fedridge import PLAIN, played

SETTINGS = {"features": "columns", "wire": "float64", **PLAIN}


def bank_of(client: int, nodes: int = 14) -> Silo:
    """Accounts with a balance, of which whoever was paid much is of class 1; one of two relations has few rows."""
    draw = np.random.default_rng(client)
    ends = np.array([draw.permutation(nodes)[:2] for _ in range(3 * nodes)]).T
    features = draw.lognormal(3, 2, size=(nodes, 2)).astype(np.float32)
    known = LinkTable(
        ("paid", "rang"), (np.arange(3 * nodes) % 5 == 0).astype(np.int16), ends, np.zeros((3 * nodes, 0)),
        between=np.zeros((2, 2), np.int16),
    )  # fmt: skip
    edges = np.unique(np.hstack([ends, ends[::-1]]), axis=1)
    types = NodeTypes(("account",), np.zeros(nodes, np.int16), np.arange(nodes, dtype=np.int16), 0)
    labels = (features[:, 0] > 20).astype(np.int64)
    graph = Graph(
        features, edges, labels, 2, feature_names=("account.balance", "account.age"), types=types, links=known
    )
    items = {"val": np.arange(6, 10), "test": np.arange(10, nodes)}
    return Silo(client, graph, np.arange(6), (EvaluationSet("seen", graph, items),), Schema.of(graph, "node"))


def test_a_scale_by_hand():
    # log(1 + x) of 0, e - 1 and e² - 1 is 0, 1, 2; of -(e - 1) it is -1. The second column does not differ.
    rows = np.array([[0, 7, 0], [np.e - 1, 7, 0], [np.e**2 - 1, 7, 1 - np.e]], dtype=np.float32)
    found = columns.take_logarithms(rows)
    assert found[:, [0, 2]] == pytest.approx(np.array([[0, 0], [1, 0], [2, -1]]), abs=1e-6)
    scale = columns.find_scale(*columns.add_moments(found), 3)
    third, two = 1 / 3, np.sqrt(2)
    assert scale[0].tolist() == pytest.approx([1, np.log(8), -third], abs=1e-6)
    # Deviations of √(2/3) and √(2/9), each over the root of two columns.
    assert scale[1].tolist() == pytest.approx([np.sqrt(3 / 2) / two, 0, 3 / two / two], abs=1e-5)
    far = np.array([[2.0, 9, -third], [1e9, -9, -1e9]], dtype=np.float32)
    most = columns.CLIP / two
    assert columns.standardise(far, scale) == pytest.approx(
        np.array([[np.sqrt(3) / 2, 0, 0], [most, 0, -most]]), abs=1e-5
    )


def test_as_many_columns_as_there_is_room_for():
    schema = bank_of(0).schema
    assert columns.widths(schema, 0) == columns.widths(schema, 2048) == (2 + 3 * 2 + 2, 4 * (2 * 2 + 2))
    assert schema.num_features == 2
    for dim in (7, 12, 30):
        assert 0 < sum(columns.widths(schema, dim)) <= dim or columns.features_taken(schema, dim) < 1
    assert sum(columns.widths(schema, 20)) == (1 + 2 + 2) + 4 * 2
    raw = columns.raw_columns(GraphTensors(bank_of(0).graph), schema, 20, 0)
    assert raw.shape == (14, 13)


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize(("kind", "width"), [("columns", 10), ("columns+relations", 34)])
def test_the_common_model_is_the_ridge_of_all_rows_in_one_place(kit, clients, kind, width):
    silos = [bank_of(client) for client in range(clients)]
    server, _ = played(kit, silos, rounds=False, ridge=(0.3,), **SETTINGS)
    assert server.kinds == ("columns", "columns+relations")
    raw = np.vstack([columns.raw_columns(GraphTensors(each.graph), each.schema, 0, 0)[:6] for each in silos])
    signed = np.sign(raw) * np.log1p(np.abs(raw.astype(np.float64)))
    away, deviation = signed - signed.mean(axis=0), signed.std(axis=0)
    differs = deviation > 1e-5
    rows = np.clip(away / np.where(differs, deviation, 1), -5, 5) * differs / np.sqrt(differs.sum())
    rows = np.insert(rows, 10, CONSTANT, axis=1)[:, : width + 1]
    truth = np.eye(2)[np.concatenate([each.labels[:6] for each in silos])]
    exact = np.linalg.solve(rows.T @ rows + 0.3 * np.eye(width + 1), rows.T @ truth)
    ((_, (found,)),) = server.solutions()[kind].items()
    assert found.numpy() == pytest.approx(exact, abs=1e-5)
    assert server.scale[1].gt(0).sum() == differs.sum()


def test_who_has_missed_the_scale_says_so_and_takes_part_once_it_has_it(kit):
    silos = [bank_of(client) for client in range(2)]
    server, federation = played(kit, silos, rounds=False, **SETTINGS)
    late = federation.client(1)
    late._scale = torch.zeros(2, 0, dtype=torch.float64)
    request = StatisticsRequest(
        kinds=["columns"], dim=2048, class_weights=server.class_weights, size=1.0, blocks={}, constants={}
    )
    with pytest.raises(RequestError, match="has missed the scale"):
        late.statistics(request)
    server.round(federation, 1)
    assert late.predict(late.data).shape == (14, 2)
    again = kit.build("fedridge", silos, **SETTINGS)[1].client(1)
    again.load_final(late.final_models())
    assert torch.equal(again.predict(again.data), late.predict(late.data))


def test_shares_add_up_to_the_score(kit):
    server, federation = played(kit, [bank_of(client) for client in range(2)], **SETTINGS)
    client: Client = federation.client(0)
    output = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    scores = (client.predict(client.data).double() @ output).numpy()
    for item, each in enumerate(client.explain(client.data, np.arange(3), output)):
        assert each.score == pytest.approx(scores[item], abs=1e-4)
        assert each.base + each.node_shares.sum() == pytest.approx(scores[item], abs=1e-4)
    assert server.log["features"] == 4


def test_auto_tries_them_where_relations_are_known_apart():
    schema = bank_of(0).schema
    assert FedRidgeConfig().kinds(schema)[-2:] == ("columns", "columns+relations")
    assert FedRidgeConfig().kinds(replace(schema, relations=(), ends=())) == FedRidgeConfig(dim=3).kinds(schema)
    assert not any(name.startswith("columns") for name in FedRidgeConfig(epsilon=1.0).kinds(schema))
    with pytest.raises(UnsupportedError, match=r"a method\.dim of some 34; got .* method\.dim=3\."):
        FedRidgeConfig(features="columns", dim=3).kinds(schema)


@pytest.mark.parametrize(("sums", "squares", "count"), [(0.0, -1.0, 3), (4.0, 1.0, 3), (0.0, 1e5, 3), (0.0, 0.0, -1)])
def test_sums_of_no_nodes_are_refused(sums, squares, count):
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(MessageError, match=r"no .* nodes can have"):
        ColumnSums(sums=sums * one, squares=squares * one, num_samples=count).check()


@pytest.mark.slow
def test_conformance():
    method = replace(registry.load("fedridge"), tasks=("node", "regression"))
    conformance.check_method(method, settings={"features": "columns"})
