"""FedDEP: clusters, what stands for missing neighbours, and what a mended node sees, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.errors import MessageError
from graphsilo.methods.feddep import (
    Others,
    Prototypes,
    cluster,
    count_targets,
    mean_embeddings,
    others_of,
    sample_neighbours,
)
from graphsilo.random import generator
from graphsilo.training.impaired import impair
from graphsilo.training.neighgen import Demand


def test_clusters_are_means_of_their_rows():
    rows = np.array([[0.0, 0.0], [0.0, 0.2], [1.0, 1.0], [1.0, 0.8], [1.0, 0.9]], dtype=np.float32)
    for seed in range(5):
        means, places = cluster(rows, 2, generator(seed))
        assert len(means) == len(set(places.tolist()))  # none is empty
        for place, mean in enumerate(means):
            np.testing.assert_allclose(mean, rows[places == place].mean(0), rtol=1e-6)
    assert cluster(rows, 9, generator(0))[0].shape == (5, 2)  # no more than there are rows
    assert cluster(np.ones((4, 2), np.float32), 3, generator(0))[0].shape == (1, 2)


def test_targets_are_counted_by_hand(kit):
    """On a line 0 – 1 – … – 5 node 2 is hidden: 1 and 3 lack it. Of five slots each, two are of its cluster."""
    edges = np.array([[0, 1, 2, 3, 4, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0, 1, 2, 3, 4]])
    graph = dataclasses.replace(kit.tiny_silo(0).graph, edges=edges)
    n = graph.num_nodes
    places = np.zeros(n, dtype=np.int64)
    places[2], places[1] = 1, 2
    impaired = impair(graph, np.array([2]), np.array([0]), np.zeros(n, dtype=np.int64))
    # Node 1's own cluster fills its four empty slots.
    assert count_targets(places, impaired, 3).tolist() == [5 * (n - 2) - 1, 2, 4]


def test_a_mean_is_over_five_slots():
    """Node 2 has two embeddings, (5, 0) and (0, 10), node 0 has one, node 1 none."""
    rows = Demand(np.array([2, 0]), np.array([2, 1]))
    made = [torch.tensor([[5.0, 0.0], [1.0, 1.0]]), torch.tensor([[0.0, 10.0]])]
    found = mean_embeddings(made, rows, 3, 2)
    torch.testing.assert_close(found, torch.tensor([[0.2, 0.2], [0.0, 0.0], [1.0, 2.0]]))


def test_at_most_so_many_neighbours_are_seen():
    links = sp.csr_matrix(np.ones((6, 6), np.float32) - np.eye(6, dtype=np.float32))
    found = sample_neighbours(links, 2, generator(0))
    assert np.diff(found.indptr).tolist() == [2] * 6
    assert (found.toarray() <= links.toarray()).all()
    assert (sample_neighbours(links, 2, generator(1)) != found).nnz  # drawn
    assert (sample_neighbours(links, 5, generator(0)) != links).nnz == 0
    assert sample_neighbours(links, 0, generator(0)) is links


def test_a_client_learns_from_the_others_only():
    request = Others(
        rows=torch.tensor([[0.1], [0.2], [0.3], [0.4]]), counts=torch.tensor([3, 1, 0, 7]),
        owners=torch.tensor([0, 1, 1, 2]), own=0,
    )  # fmt: skip
    found = others_of(request)
    assert [rows.ravel().tolist() for rows, _ in found] == [pytest.approx([0.2]), pytest.approx([0.4])]
    assert [chances.tolist() for _, chances in found] == [[1.0], [7.0]]


def test_embeddings_are_bounded():
    with pytest.raises(MessageError, match="at most 1"):
        Prototypes(rows=torch.full((1, 2), 1.1), counts=torch.tensor([1])).check()


@pytest.fixture
def described(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    server, federation = kit.build("feddep", silos, min_size=1, prototypes=3)
    return silos, server, federation


def test_nothing_but_prototypes_is_sent_and_once(described):
    """A setup has two calls a client, however many epochs; each row that is sent is a prototype of its sender."""
    from graphsilo.federation.message import Empty

    silos, _, federation = described
    client = federation.client(silos[0].client)
    sent = client.describe(Empty())
    assert len(sent.rows) <= 3
    for row in client.embedded:
        assert any(torch.equal(row, each) for each in sent.rows)
    assert int(sent.counts.sum()) == 5 * client.impaired().num_nodes


def test_small_clusters_are_not_sent(kit):
    from graphsilo.federation.message import Empty

    silo = kit.tiny_silo(0)
    _, federation = kit.build("feddep", [silo], min_size=silo.num_items + 1)
    assert len(federation.client(0).describe(Empty()).rows) == 0


def test_the_graph_is_as_before(described, kit):
    silos, server, federation = described
    before = [(silo.graph.num_nodes, silo.graph.edges.copy()) for silo in silos]
    kit.rounds(server, federation, 1)
    for silo, (nodes, edges) in zip(silos, before, strict=True):
        client = federation.client(silo.client)
        assert silo.graph.num_nodes == nodes
        assert np.array_equal(silo.graph.edges, edges)
        assert client.structure.shape == (nodes, 64)
        assert float(client.structure.abs().max()) <= 1
        hidden = np.setdiff1d(np.arange(nodes), client.impaired().kept)
        assert not client.structure[hidden].any()  # as in OpenFGL
        assert client.embedded is None
