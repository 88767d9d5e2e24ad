"""FedGCN: sums over silos are those of the whole graph, and so is what the model says of a silo's own nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo.data import save_graph
from graphsilo.data.scales import UNSCALED
from graphsilo.data.silos.scaling import prepare_silo
from graphsilo.data.silos.store import SiloStore
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext
from graphsilo.federation.server import ServerContext
from graphsilo.methods.fedgcn.messages import Border
from graphsilo.models.hops import hop_matrix
from graphsilo.models.view import GraphTensors
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.testing import conformance
from kit.cut_links import cut_of, set_up
from kit.site_tables import NAMES, short_settings, write_tables


def simulation_of(method="fedgcn", *, data="citation-sbm", **settings):
    named = {name if "." in name else f"method.{name}": value for name, value in settings.items()}
    return cut_of(method, **{"data.name": data, **named})


def federation_of(method="fedgcn", silos=None, **settings):
    """A federation after set-up, and the graph that was cut."""
    return set_up(simulation_of(method, **settings), silos)


@pytest.mark.parametrize("data", ["citation-sbm", "heterophily-sbm"], ids=["sparse", "dense"])
def test_two_hops_say_of_own_nodes_what_one_gcn_on_the_whole_graph_says(data):
    server, federation, whole = federation_of(data=data)
    expected = server.build_model()(GraphTensors(whole).full).detach()
    cut = 0
    for number in federation.clients:
        client = federation.client(number)
        found = client.predict(client.data)
        nodes = client.silo.graph.global_ids
        assert found.shape == (len(nodes), whole.num_classes)
        assert (found - expected[nodes]).abs().max() < 1e-6
        cut += len(client.silo.cut.node)
    assert cut > 100  # most links lead elsewhere: without them it would be another model
    alone = federation_of(hops=0, data=data)[1].client(0)
    assert (alone.predict(alone.data) - expected[alone.silo.graph.global_ids]).abs().max() > 1e-2


@pytest.mark.parametrize("hops", [1, 2])
def test_totals_are_the_first_propagation_of_the_whole_graph(hops):
    """With one hop a silo's first layer is exact and its second lacks the others' nodes."""
    _, federation, whole = federation_of(hops=hops)
    sums = hop_matrix(GraphTensors(whole), 1, "gcn")
    sums = sums if isinstance(sums, np.ndarray) else sums.toarray()
    for number in federation.clients:
        client = federation.client(number)
        given, ids = client._given, client.silo.graph.global_ids
        rows = given.rows if isinstance(given.rows, np.ndarray) else given.rows.toarray()
        beyond = np.unique(client.silo.cut.other)
        assert len(rows) == len(ids) + (len(beyond) if hops == 2 else 0)
        assert np.abs(rows - sums[np.concatenate([ids, beyond])[: len(rows)]]).max() < 1e-6
        matrix = GraphTensors(whole).matrix("gcn")[ids][:, np.concatenate([ids, beyond])[: len(rows)]]
        assert abs(given.matrix("gcn")[: len(ids)] - matrix).max() < 1e-7


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_more_layers_lack_the_links_of_others_among_themselves_alone(tmp_path, layers):
    """Two silos with links between them and none within: each knows all links, and any depth is the whole graph's."""
    graph, cut = graphsilo.load("citation-sbm", nodes=90, features=12), {"partition.clients": 2, "model.layers": layers}
    owner = np.zeros(graph.num_nodes, dtype=int)
    owner[simulation_of(**cut)[2].silos[1].graph.global_ids] = 1  # which the random rule says without looking at links
    between = owner[graph.edges[0]] != owner[graph.edges[1]]
    file = save_graph(tmp_path / "graph.npz", graph.with_edges(graph.edges[:, between]))
    server, federation, whole = federation_of(data=str(file), **cut, **{"data.generator": {}, "data.scale": "none"})
    assert [federation.client(number).silo.graph.num_edges for number in (0, 1)] == [0, 0]
    expected = server.build_model()(GraphTensors(whole).full).detach()
    for number in federation.clients:
        client = federation.client(number)
        assert (client.predict(client.data) - expected[client.silo.graph.global_ids]).abs().max() < 1e-6


def test_features_cross_in_set_up_alone():
    server, federation, _ = federation_of()
    ledger = federation.ledger
    assert {row[4] for row in ledger.rows()} == {"border", "sums", "install"}
    federation.at("round", 1)
    server.round(federation, 1)
    assert {row[4] for row in ledger.rows() if row[1] == 1} == {"train"}
    # Up: a row of 12 floats and an id for each node of the border and beyond it; down: the same without the ids.
    for number in federation.clients:
        cut = federation.client(number).silo.cut
        held = len(np.unique(cut.node)) + len(np.unique(cut.other))
        sizes = {
            (row[3], row[7]): row[8]
            for row in ledger.rows()
            if row[2] == number and row[4] in ("sums", "install") and row[7] == "statistic"
        }
        assert sizes["up", "statistic"] == pytest.approx(48 * held, abs=64)
        assert sizes["down", "statistic"] == pytest.approx(48 * held, abs=64)


def test_training_moves_with_the_neighbours_elsewhere():
    """One step of the loss on own training nodes: its gradient is that of the whole graph's model on these nodes."""
    _, federation, whole = federation_of(local_epochs=1, weight_decay=0.0)
    client = federation.client(1)
    client.model.dropout = 0.0
    items = client.silo.graph.global_ids[client.silo.train]
    model = federation_of()[0].build_model()
    logits = model(GraphTensors(whole).full)[torch.from_numpy(items)]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(whole.labels[items]))
    expected = torch.autograd.grad(loss, list(model.parameters()))
    found = client.trainer.objective.gradients(client.model, next(client.trainer.objective.batches(0, None)), None,
                                               client.trainer.parameters)  # fmt: skip
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine - theirs).abs().max() < 1e-6


def test_a_client_comes_back_from_its_state_and_its_models():
    server, federation, _ = federation_of()
    federation.at("round", 1)
    server.round(federation, 1)
    client = federation.client(0)
    before = client.predict(client.data)
    fresh = [type(client)(client.context) for _ in range(2)]
    fresh[0].load_state(client.state())
    fresh[1].load_final(client.final_models())
    for other in fresh:
        assert torch.equal(other.predict(other.data), before)


def test_silos_from_a_store_know_their_links(tmp_path):
    _, _, simulation = simulation_of()
    store = SiloStore(tmp_path)
    for silo in simulation.silos:
        store.write(silo)
    silos = [replace(SiloStore(tmp_path).read(silo.client)) for silo in simulation.silos]
    found = federation_of(silos=silos)[1].client(2)
    usual = federation_of()[1].client(2)
    assert torch.equal(found.predict(found.data), usual.predict(usual.data))


@pytest.mark.parametrize(
    "change",
    [lambda silo: replace(silo, cut=None), lambda silo: replace(silo, graph=silo.graph.with_edges(silo.graph.edges))],
    ids=["no links known", "another graph is scored"],
)
def test_what_it_cannot_serve_is_refused(change):
    _, _, simulation = simulation_of()
    with pytest.raises(UnsupportedError, match=r"client 0: FedGCN adds up neighbours.*hops=0 does without"):
        federation_of(silos=[change(silo) for silo in simulation.silos])
    federation_of(silos=[change(silo) for silo in simulation.silos], hops=0)


@pytest.mark.parametrize("scenario", ["unseen", "open"])
def test_what_appears_at_test_time_is_in_no_sum(scenario):
    """Sums are of the graph that all silos train on together; a grown graph is scored by its own links alone."""
    few = {"data.generator": {"nodes": 120, "features": 12, "classes": 3}}
    server, federation, whole = federation_of(**{"scenario.name": scenario, "scenario.hops": 1}, **few)
    trained = np.sort(np.concatenate([federation.client(k).silo.graph.global_ids for k in federation.clients]))
    assert len(trained) < whole.num_nodes
    model = server.build_model()
    expected = model(GraphTensors(whole.subgraph(trained)).full).detach()
    for number in federation.clients:
        client = federation.client(number)
        seen, grown, new, _ = client.silo.evaluations
        assert seen.graph is client.silo.graph
        rows = np.searchsorted(trained, seen.graph.global_ids)
        assert (client.predict(client.data) - expected[rows]).abs().max() < 1e-6
        for later in (grown.graph, new.graph):
            data = GraphTensors(later)
            assert torch.equal(client.predict(data), model(data.full).detach())


@pytest.mark.parametrize("step", ["border", "sums"])
def test_whose_degree_nobody_says_counts_for_nothing(monkeypatch, step):
    """A silo that fails in set-up takes its nodes along, named or not; the others go on with the rest."""
    from graphsilo.methods.fedgcn.client import Client

    plain = getattr(Client, step).function

    def failing(self, request):
        if self.id == 3:
            raise RuntimeError("no answer")
        return plain(self, request)

    monkeypatch.setattr(getattr(Client, step), "function", failing)
    _, federation, _ = federation_of(min_clients=3)
    client = federation.client(0)
    matrix, count = client._given.matrix("gcn"), client.silo.num_items
    absent = np.isin(np.unique(client.silo.cut.other), federation.client(3).silo.graph.global_ids)
    assert absent.any()
    assert abs(matrix[:, count:][:, absent]).sum() == 0
    assert abs(client._given.rows[count:][absent]).sum() == 0
    assert torch.isfinite(client.predict(client.data)).all()


def test_a_border_that_cannot_be_is_refused():
    one = torch.ones(1, dtype=torch.int64)
    with pytest.raises(MessageError, match="must ascend"):
        Border(own=torch.tensor([4, 4]), degrees=torch.tensor([2, 2]), beyond=one).check()
    with pytest.raises(MessageError, match="degree of 2"):
        Border(own=one, degrees=one, beyond=one).check()


def test_silos_with_tables_of_their_own_are_one_graph(tmp_path):
    """Over the links that their tables name, as if one graph had been cut."""
    files = [write_tables(tmp_path / name, name, number, nodes=30, linked=True) for number, name in enumerate(NAMES)]
    tables = [str(file.parent / "tables.yaml") for file in files]
    config = load_config(overrides=short_settings(tables, {"method.name": "fedgcn", "data.scale": "none"}))
    loaded = registry.load("fedgcn")
    simulation = prepare(config, loaded)
    typed, models, silos = config.method_config(), simulation.models, simulation.silos
    federation = InProcess(
        [0, 1, 2],
        lambda client: loaded.client(
            ClientContext(client, prepare_silo(silos[client], UNSCALED, None), typed, models[client], 0)
        ),
    )
    server = loaded.server(ServerContext(typed, simulation.schema, models, 0, federation.clients))
    federation.at("setup", 0)
    server.set_up(federation)
    graph, here = simulation.graph, np.arange(20)
    between = [np.stack([30 * k + here, 30 * ((k + 1) % 3) + here + 1]) for k in range(3)]
    whole = graph.with_edges(np.concatenate([graph.edges, *between, *(pair[::-1] for pair in between)], axis=1))
    expected = server.build_model()(GraphTensors(whole).full).detach()
    for number in federation.clients:
        client = federation.client(number)
        part = expected[30 * number : 30 * number + 30]
        assert torch.allclose(client.predict(client.data), part, rtol=1e-5, atol=1e-3)  # features reach 250,000


def test_tables_that_name_no_links_to_others_are_refused(tmp_path):
    files = [write_tables(tmp_path / name, name, number, nodes=30) for number, name in enumerate(NAMES)]
    tables = [str(file.parent / "tables.yaml") for file in files]
    with pytest.raises(UnsupportedError, match=r"tables that all name their links to other silos \(outside\)"):
        run(load_config(overrides=short_settings(tables, {"method.name": "fedgcn"})))


def test_labels_stay_with_one_hop():
    method = registry.load("fedgcn")
    conformance.check_labels_stay(method, {**method.quick, **{"hops": 1}})
