"""AdaFGL: mended graphs, messages and confidence by hand; what is sent when, and what each client answers with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo.data.silos.silo import Schema
from graphsilo.errors import UnsupportedError
from graphsilo.federation.codec import encode
from graphsilo.federation.message import Done
from graphsilo.methods.adafgl import METHOD, PersonaliseRequest, propagation
from graphsilo.methods.adafgl.propagation import (
    Mended,
    Propagation,
    exchange_messages,
    homophily_confidence,
    like_pairs,
    mend,
)
from graphsilo.models.view import GraphTensors, normalise
from graphsilo.random import generator, numpy_generator
from graphsilo.training.local import weights_of
from kit.messages import check_sent

ONE = {"rounds": 4, "extractor_share": 0.25, "hidden": 5, "local_epochs": 1}
"""One round of the extractor, three of the clients' own."""


def messages_as_defined(rows, unit, slope, dissimilar):
    """Entry by entry, with matrices of all pairs."""
    likeness = (unit @ unit.t()).masked_fill(torch.eye(len(unit)) == 1, 0.0)
    mean, most = likeness.mean(), likeness.max()
    low = (likeness - mean) / mean if dissimilar == "ordered" else -likeness / mean
    signs = torch.where(likeness > mean, (likeness - mean) / (most - mean), low)
    signs = signs.masked_fill(torch.eye(len(unit)) == 1, 1.0)
    assert float(signs.detach().min()) >= -1
    assert float(signs.detach().max()) == 1
    near, far = (F.prelu(part, slope[None]) @ rows for part in (signs, -signs))
    return 0.5 * (near.softmax(1) - far.softmax(1) + rows)


@pytest.mark.parametrize("dissimilar", ["ordered", "released"])
@pytest.mark.parametrize("pairs", [1 << 24, 20])
def test_messages_and_their_gradients_are_those_of_all_pairs(monkeypatch, dissimilar, pairs):
    """At once, and in blocks of two rows."""
    monkeypatch.setattr(propagation, "PAIRS", pairs)
    draw = generator(0)
    rows = torch.randn(9, 3, generator=draw, dtype=torch.float64).requires_grad_()
    slope = torch.tensor(0.3, dtype=torch.float64).requires_grad_()
    other = F.normalize(torch.rand(9, 3, generator=draw, dtype=torch.float64), dim=1)
    unit = torch.cat([0.8**0.5 * F.normalize(rows.softmax(1), dim=1), 0.2**0.5 * other], 1)
    found = exchange_messages(rows, unit, slope, dissimilar)
    wanted = messages_as_defined(rows, unit, slope, dissimilar)
    torch.testing.assert_close(found, wanted)
    for one, two in zip(*(torch.autograd.grad(z.square().sum(), [rows, slope], retain_graph=True)
                          for z in (found, wanted)), strict=True):  # fmt: skip
        torch.testing.assert_close(one, two)


def test_messages_by_hand():
    """Two nodes with cosine ½: m = ¼ and M = ½, so that all signs are 1 and PReLU(−w) is −a.

    Both rows become E_1 + E_2 = (2, 1) and −a (2, 1) before the softmax.
    """
    rows, unit = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.75**0.5]])
    found = exchange_messages(rows, unit, torch.tensor(0.5), "ordered")
    both = torch.tensor([2.0, 1.0])
    torch.testing.assert_close(found, 0.5 * (both.softmax(0) - (-0.5 * both).softmax(0) + rows))
    alone = exchange_messages(rows[:1], unit[:1], torch.tensor(0.5), "released")  # nobody else: itself
    torch.testing.assert_close(alone, 0.5 * (rows[:1].softmax(1) - (-0.5 * rows[:1]).softmax(1) + rows[:1]))


PREDICTED = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
"""Rows of length 1, whose cosine is 0.6."""


@pytest.mark.parametrize(
    ("alpha", "threshold", "between"),
    [(0.5, None, 0.5 + 0.5 * 0.6), (0.25, None, 0.25 + 0.75 * 0.6), (0.25, 0.5, 1.0), (0.25, 0.7, 0.25)],
)
def test_a_mended_graph_by_hand(kit, alpha, threshold, between):
    """Two nodes and their link: A' + I has ones and α A + (1 − α) R, hence degrees 1 + that."""
    data = GraphTensors(kit.tiny_silo(0, nodes=2, train=[0]).graph)
    found = mend(data, PREDICTED, alpha=alpha, threshold=threshold).step(torch.eye(2))
    torch.testing.assert_close(found, torch.tensor([[1.0, between], [between, 1.0]]) / (1 + between))


def test_with_links_alone_it_is_the_matrix_of_a_gcn(kit):
    data = GraphTensors(kit.tiny_silo(0).graph)
    found = mend(data, torch.rand(6, 2), alpha=1.0, threshold=None).step(torch.eye(6))
    torch.testing.assert_close(found, torch.from_numpy(normalise(data.graph.adjacency(), "gcn").toarray()))


def test_pairs_of_too_many_nodes_are_refused_with_what_they_would_take():
    with pytest.raises(UnsupportedError, match=r"20001 nodes in a silo these can take 4\.8 GB.*mending=soft"):
        like_pairs(torch.zeros(20_001, 1), 0.5)
    unit = F.normalize(torch.rand(7, 3, generator=generator(1)), dim=1)
    wanted = ((unit @ unit.t() > 0.9) & (torch.eye(7) == 0)).double()
    assert torch.equal(torch.from_numpy(like_pairs(unit, 0.9).toarray()), wanted)


def test_what_is_propagated_is_the_features(kit):
    """A first layer on [X ‖ SX ‖ S²X] gives the same, in which the rows of one weight stand below each other."""
    data = GraphTensors(kit.tiny_silo(0).graph)
    graph = mend(data, torch.rand(6, 2, generator=generator(2)).softmax(1), alpha=0.3, threshold=None)
    modules = Propagation(3, 2, 4, 2)
    modules.reset(generator(3))
    with torch.no_grad():
        modules.slopes.copy_(torch.tensor([0.1, 0.2, 0.3]))
        alike, of_features, smooth, _ = modules(graph, 0.0, "ordered")
        x = torch.from_numpy(data.graph.features)
        whole = torch.cat([x, graph.step(x), graph.step(graph.step(x))], 1)
        of_x, *levels = modules.first.split([4, 12, 12, 12], 1)
        firsts = [torch.cat([level[:, 4 * place : 4 * place + 4] for level in levels]) for place in range(2)]
        slopes = modules.slopes[:, None]

        def go_on(values, place, slope):
            return modules.last[place](F.prelu(modules.middle[max(0, place - 1)](values), slope))

        torch.testing.assert_close(alike, modules.last[1](F.prelu(whole @ firsts[0], slopes[0])))
        torch.testing.assert_close(of_features, go_on(F.prelu(x @ of_x, slopes[1]), 0, slopes[1]))
        torch.testing.assert_close(smooth, go_on(F.prelu(whole @ firsts[1], slopes[1]), 2, slopes[1]))


def test_confidence_by_hand():
    """Pairs of linked nodes: where both have one class the hidden half is found, where they differ it is not, and a
    node without links is not found either."""
    pairs = sp.csr_matrix(np.kron(np.eye(4), [[0, 1], [1, 0]]))
    draw = numpy_generator(0)
    for labels, wanted in (([0, 0, 1, 1, 0, 0, 1, 1], 1.0), ([0, 1, 1, 0, 0, 1, 1, 0], 0.0)):
        for train in ([0, 1], [2, 3], [6, 7]):
            found = homophily_confidence(pairs, np.array(labels), np.array(train), 2, draw)
            assert found == wanted
    assert homophily_confidence(sp.csr_matrix((8, 8)), np.array(labels), np.arange(8), 2, draw) == 0.0
    assert homophily_confidence(pairs, np.array(labels), np.array([3]), 2, draw) == 0.5


def test_each_client_is_sent_the_extractor_once_and_sends_nothing_of_its_own(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, federation = kit.build("adafgl", silos, participation=0.5, **ONE)
    kit.rounds(server, federation)
    shared, met = {name: value.clone() for name, value in server.weights.items()}, set()
    sent = (Done(clients=1), PersonaliseRequest(), PersonaliseRequest(weights=shared))
    answer, again, first = (encode(message).num_bytes for message in sent)
    for number in range(2, 8):
        asked = set(server.select(federation, number))
        kit.rounds(server, federation, start=number)
        moved = federation.ledger.total("round", number)
        assert moved["up"] == 2 * answer
        assert moved["down"] == 2 * again + len(asked - met) * (first - again)
        met |= asked
        assert server.holders == sorted(met)
    assert all(torch.equal(server.weights[name], value) for name, value in shared.items())
    for client in met:
        own = weights_of(federation.client(client).model)
        assert all(torch.equal(own[name], value) for name, value in shared.items())


def test_an_answer_is_the_mean_of_its_parts_by_confidence(kit):
    server, federation = kit.build("adafgl", [kit.tiny_silo(0)], **ONE)
    kit.rounds(server, federation, 3)
    client = federation.client(0)
    with torch.no_grad():
        alike, *unlike = (logits.softmax(1) for logits in client.propagate(client.data))
        extracted = client.model(client.data.full).softmax(1)
    for confidence in (0.0, 0.3, 1.0):
        client.confidence = confidence
        wanted = confidence * (alike + extracted) / 2 + (1 - confidence) * torch.stack(unlike).mean(0)
        found = client.predict(client.data)
        torch.testing.assert_close(found.exp(), wanted)
        torch.testing.assert_close(found.exp().sum(1), torch.ones(6))
    assert torch.equal(client.predict(client.data, "aggregate").softmax(1), extracted)


def test_own_modules_learn(kit):
    """Labels of training nodes, and of all nodes what the extractor predicts."""
    server, federation = kit.build("adafgl", [kit.tiny_silo(0)], **{**ONE, "personal_epochs": 60, "hidden": 32})
    kit.rounds(server, federation, 2)
    client = federation.client(0)
    labels = torch.from_numpy(client.silo.labels[:3])

    def losses():
        with torch.no_grad():
            each = client.propagate(client.data)
            apart = (each[0] - client.mended(client.data).predicted).square().mean()
            return torch.stack([apart, *(F.cross_entropy(logits[:3], labels) for logits in each)])

    trained = losses()
    client.personal, _ = client.make_personal()
    assert bool((trained < 0.75 * losses()).all())


def test_who_has_nothing_to_train_on_keeps_the_extractor(kit):
    server, federation = kit.build("adafgl", [kit.tiny_silo(0), kit.tiny_silo(1, train=[])], **ONE)
    kit.rounds(server, federation, 3)
    client = federation.client(1)
    assert client.confidence is None
    assert client.personal is None
    assert torch.equal(client.predict(client.data), client.predict(client.data, "aggregate"))


def test_nodes_with_times_are_refused_before_anything_is_trained(kit):
    """Answers pass between all pairs of nodes: one that is looked at in March would be told of June."""
    silo = kit.tiny_silo(0)
    times = np.arange(silo.graph.num_nodes, dtype=np.float64)
    dated = replace(silo, graph=replace(silo.graph, time=times))
    with pytest.raises(UnsupportedError, match=r"AdaFGL passes .* between all pairs of nodes, .* have times"):
        kit.build("adafgl", [dated], **ONE)[1].client(0)


@pytest.mark.parametrize("mending", ["soft", "threshold"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_small_silos_without_links_have_finite_answers(kit, mending, nodes):
    silo = kit.tiny_silo(0, nodes=nodes, train=[0])
    silo = replace(silo, graph=silo.graph.with_edges(np.zeros((2, 0), dtype=np.int64)))
    settings = {**ONE, "mending": mending, "alpha": 0.0, "personal_epochs": 20, "steps": 0, "threshold": -1.0}
    for dissimilar in ("ordered", "released"):
        server, federation = kit.build("adafgl", [silo], **settings, dissimilar=dissimilar)
        kit.rounds(server, federation, 3)
        client = federation.client(0)
        assert client.confidence == 0.5
        assert bool(client.predict(client.data).isfinite().all())


def test_what_is_kept_of_a_client_answers_as_it_did(kit):
    """From its files, whether it had modules of its own or not yet."""
    server, federation = kit.build("adafgl", [kit.tiny_silo(0)], **ONE)
    kit.rounds(server, federation)
    client = federation.client(0)
    before, first = client.final_models(), client.predict(client.data)
    before = {view: {name: value.clone() for name, value in tensors.items()} for view, tensors in before.items()}
    kit.rounds(server, federation, 2, start=2)
    after, last = client.final_models(), client.predict(client.data)
    fresh = kit.build("adafgl", [kit.tiny_silo(0)], **ONE)[1].client(0)
    for models, wanted in ((after, last), (before, first), (after, last)):
        fresh.load_final(models)
        assert torch.equal(fresh.predict(fresh.data), wanted)
    assert not torch.equal(first, last)
    assert isinstance(fresh.mended(fresh.data), Mended)


def test_what_leaves_a_silo():
    check_sent(
        "adafgl",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        personalise clients: counts
        """,
    )


@pytest.mark.parametrize(
    ("settings", "said"), [({"rounds": 1}, True), ({"rounds": 2}, False), ({"extractor_share": 1.0}, True)]
)
def test_without_a_round_of_its_own_it_is_said_to_be_fedavg(settings, said):
    text = METHOD.config(**settings).explain_no_effect(Schema("node", 3, 4), 100, 10, "gcn")
    assert text.startswith("AdaFGL is FedAvg where all of its rounds") == said
