"""FedGL: what is averaged of shared nodes, by hand, and what is sent where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsilo.data import save_graph
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.message import Empty
from graphsilo.testing.conformance import needs_only_sums
from kit.fedgl import overlapping, ready


@pytest.mark.parametrize(("weight_by", "label", "mean"), [("nodes", 0, 2.0), ("uniform", 1, 2.5), ("train", 0, 1.75)])
def test_of_shared_nodes_the_mean_is_taken_by_weight(kit, weight_by, label, mean):
    """Of node 4 client 0 says (0.6, 0) and 1, client 1 says (0, 0.9) and 4: by 6 and 3 nodes 3.6 against 2.7, and
    (6 + 12)/9; by 1 each 0.6 against 0.9, and 5/2; by 3 and 1 training nodes 1.8 against 0.9, and (3 + 4)/4. Of node 5
    nobody is sure."""
    server, federation, (one, other) = ready(kit, overlapping(kit), weight_by=weight_by)
    assert server.ids.tolist() == [4, 5]
    assert {client: ids.tolist() for client, ids in server.shared.items()} == {0: [4, 5], 1: [4, 5]}
    one.guesses, other.guesses = torch.zeros(6, 2), torch.zeros(3, 2)
    one.guesses[4, 0], other.guesses[1, 1], other.guesses[0, 0] = 0.6, 0.9, 1.0
    one.embedded, other.embedded = torch.zeros(6, 4), torch.zeros(3, 4)
    one.embedded[4], other.embedded[1], other.embedded[2] = 1.0, 4.0, -1.0
    server.average(federation, [0, 1])
    assert server.labels.tolist() == [label, -1]
    assert server.embeddings[0].tolist() == pytest.approx([mean] * 4)
    assert server.log["pseudo_labels"] == 0.5
    one.guesses[4], before = torch.tensor([0.0, 1.0]), server.embeddings.clone()
    server.average(federation, [0])  # the other took no part
    assert server.labels.tolist() == [1, -1]
    assert not torch.equal(server.embeddings, before)


def test_who_trains_nothing_has_no_say_and_what_nobody_says_stays(kit):
    server, federation, (_, other) = ready(kit, overlapping(kit, train=()))
    other.guesses, other.embedded, server.labels[0] = torch.ones(3, 2), torch.ones(3, 4), 1
    server.average(federation, [1])
    assert server.labels.tolist() == [1, -1]
    assert not server.embeddings.any()
    assert all(torch.isfinite(value).all() for value in kit.rounds(server, federation, 2).values())


def test_silos_that_share_no_node_send_models_alone(kit):
    own = [kit.tiny_silo(0), kit.tiny_silo(1)]  # by ids of their own, 0 to 5 in both
    assert [client.name_nodes(Empty()).ids.tolist() for client in ready(kit, own)[2]] == [[], []]
    apart = [replace(silo, shares_ids=True, graph=replace(silo.graph, node_ids=np.arange(6) + 6 * silo.client))
             for silo in own]  # fmt: skip
    for silos, settings in ((own, {}), (apart, {}), (overlapping(kit), {"shared": False})):
        server, federation, _ = ready(kit, silos, **settings)
        kit.rounds(server, federation, 2, start=2)
        sent = {row[4] for row in federation.ledger.rows() if row[8] and row[7] in ("logits", "embedding", "topology")}
        assert not server.shared
        assert sent <= {"name_nodes"}, sent
    assert needs_only_sums(registry.load("fedgl"), {"shared": False})


def test_a_server_goes_on_from_its_state(kit):
    settings = {"threshold": 0.0, "participation": 0.5, "min_clients": 1}
    server, federation, _ = ready(kit, overlapping(kit), **settings)
    kit.rounds(server, federation, 3, start=1)
    again, others, _ = ready(kit, overlapping(kit), **settings)
    again.load_state(decode_tree(encode_tree(server.state())))
    for client in (0, 1):
        others.client(client).load_state(decode_tree(encode_tree(federation.client(client).state())))
    assert again.labels.tolist() == server.labels.tolist() != [-1, -1]
    one, two = (kit.rounds(*each, 2, start=4) for each in ((server, federation), (again, others)))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("settings", [{"participation": 0.5, "threshold": 0.0}, {"renew_every": 2}])
def test_overlapping_clients_run(settings):
    """Five on one part, each with half of its nodes."""
    data = {"nodes": 60, "classes": 2, "features": 12}
    overrides = {"data.name": "citation-sbm", "data.generator": data, "partition.rule": "overlap",
                 "partition.clients": 5, "evaluation.models": False}  # fmt: skip
    config = load_config({"method": {"name": "fedgl", "rounds": 3, **settings}}, overrides=overrides)
    (seed,) = run(config).tree["seeds"]
    assert 0 <= seed["test"]["accuracy"] <= 1


def test_ids_are_common_where_one_graph_was_cut(tmp_path):
    """Not where every client has a data set of its own, whose nodes may have the same numbers."""
    sbm = {"name": "citation-sbm", "generator": {"nodes": 60, "classes": 2, "features": 12}}
    cut = prepare(load_config({"data": sbm, "partition": {"rule": "overlap", "clients": 5}}))
    files = [str(save_graph(tmp_path / f"{silo.client}.npz", silo.graph)) for silo in cut.silos[:2]]
    own = prepare(load_config({"data": {"name": files}}))
    assert [silo.shares_ids for silo in (*cut.silos, *own.silos)] == [True] * 5 + [False] * 2


def test_who_trains_for_the_first_time_renews_whatever_the_round(kit):
    """With ``renew_every=0`` client 1 comes in round 2: it predicts its own node 6, but of nodes 4 and 5 the labels of
    round 1 stay."""
    server, federation, (one, other) = ready(kit, overlapping(kit), renew_every=0, threshold=0.0, min_clients=1)

    def ask(number, client):
        federation.at("round", number)
        server.select = lambda *_: [client]
        server.round(federation, number)

    ask(1, 0)
    labels, guesses, means = server.labels.clone(), one.guesses.clone(), server.embeddings.clone()
    ask(2, 1)
    assert len(other.guesses) == 3
    assert torch.equal(server.labels, labels)
    assert torch.equal(server.embeddings, means)
    said = other.guesses.clone()
    ask(3, 0)
    ask(4, 1)
    assert torch.equal(one.guesses, guesses)  # those of its first round
    assert torch.equal(other.guesses, said)
