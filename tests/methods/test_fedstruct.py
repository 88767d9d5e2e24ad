"""FedStruct: what silos pass on adds up to a walk on the whole graph, and a model reads it beside its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.message import Empty
from graphsilo.methods.fedstruct import Border, Sums
from graphsilo.runtime.local.in_process import InProcess
from kit.cut_links import cut_of, set_up
from kit.messages import check_sent


class Forgetful(InProcess):
    """Loses what one client answers to one step, at its second turn."""

    lost = (-1, "")

    def deliver(self, handler, round, outgoing):
        self.turns = getattr(self, "turns", 0) + (handler == self.lost[1])
        for client, answer in super().deliver(handler, round, outgoing):
            if (client, handler) != self.lost or self.turns != 2:
                yield client, answer


def federation_of(silos=None, kind=InProcess, **settings):
    """A federation of four after set-up, and the graph that was cut."""
    named = {f"method.{name}": value for name, value in settings.items()}
    return set_up(cut_of("fedstruct", **{"method.width": 8, "method.steps": 3, **named}), silos, kind)


def walked(federation, whole, steps, keep=None):
    """Each node's signs averaged so often over the whole graph, as unit rows; only nodes in ``keep`` exist."""
    links = sp.csr_matrix((np.ones(whole.num_edges), whole.edges), (whole.num_nodes, whole.num_nodes))
    matrix = ((links + sp.eye(whole.num_nodes)) > 0).astype(float)
    there = np.ones(whole.num_nodes) if keep is None else np.isin(np.arange(whole.num_nodes), keep).astype(float)
    matrix = sp.diags(there) @ matrix @ sp.diags(there)
    rows = np.zeros((whole.num_nodes, 8))
    for number in federation.clients:
        client = federation.client(number)
        signs = torch.randint(2, (client.silo.num_items, 8), generator=client.generator("vectors")).numpy() * 2.0 - 1
        rows[client.silo.graph.global_ids] = signs
    rows *= there[:, None]
    degrees = np.maximum(np.asarray(matrix.sum(1)), 1)
    for _ in range(steps):
        rows = (matrix @ rows) / degrees
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_silos_walk_on_the_whole_graph(steps):
    _, federation, whole = federation_of(steps=steps)
    expected, cut = walked(federation, whole, steps), 0
    for number in federation.clients:
        client = federation.client(number)
        assert np.abs(client.structure.numpy() - expected[client.silo.graph.global_ids]).max() < 1e-4
        cut += len(client.silo.cut.node)
    assert cut > 100


def test_who_is_lost_on_the_way_is_no_part_of_it():
    """All begin again without the third: the others' vectors are of the graph without its nodes."""

    class Loses(Forgetful):
        lost = (2, "walk")

    server, federation, whole = federation_of(kind=Loses, min_clients=3)
    rest = np.concatenate([federation.client(number).silo.graph.global_ids for number in (0, 1, 3)])
    for number in (0, 1, 3):
        client = federation.client(number)
        client.repeat = 1  # signs were drawn again
    expected = walked(federation, whole, 3, rest)
    for number in (0, 1, 3):
        client = federation.client(number)
        assert np.abs(client.structure.numpy() - expected[client.silo.graph.global_ids]).max() < 1e-4
    assert federation.client(2).structure is None
    federation.at("round", 1)
    server.round(federation, 1)  # it trains the other half of the model


def test_a_client_comes_back_from_its_state_and_its_models():
    server, federation, _ = federation_of()
    federation.at("round", 1)
    server.round(federation, 1)
    client = federation.client(0)
    before = client.predict(client.data)
    for restore in (
        lambda other: other.load_state(client.state()),
        lambda other: other.load_final(client.final_models()),
    ):
        other = federation_of()[1].client(0)
        other.structure = None
        restore(other)
        assert torch.equal(other.predict(other.data), before)


def test_refusals():
    federation = federation_of()[1]
    silos = [federation.client(number).silo for number in range(4)]
    with pytest.raises(UnsupportedError, match=r"client 1: FedStruct passes vectors .*method.steps=0 does without"):
        federation_of([*silos[:1], replace(silos[1], cut=None), *silos[2:]])
    federation_of([replace(silo, cut=None) for silo in silos], steps=0)  # FedAvg
    with pytest.raises(MessageError, match="must ascend"):
        Border(own=torch.tensor([1, 1]), beyond=torch.tensor([0])).check()
    sums = Sums(ids=torch.tensor([1]), rows=torch.tensor([[3.0, -5.0]]))
    sums.check_size(Empty(), 5.0, 9.0)
    with pytest.raises(MessageError, match="sums over 4 nodes are at most that; 5 came"):
        sums.check_size(Empty(), 4.0, 9.0)


def test_what_leaves_a_silo():
    check_sent(
        "fedstruct",
        """
        border own: topology int64 [own]
        border beyond: topology int64 [beyond]
        begin ids: topology int64 [nodes]
        begin rows: statistic float32 [nodes, width] per_class=False
        walk ids: topology int64 [nodes]
        walk rows: statistic float32 [nodes, width] per_class=False
        arrive clients: counts
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        """,
    )
