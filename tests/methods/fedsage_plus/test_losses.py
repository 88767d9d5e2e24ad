"""NeighGen's losses, their gradients and the mended graph, worked out by hand and by plain dense loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo.data.graph import Graph
from graphsilo.methods.fedsage_plus import Client
from graphsilo.methods.fedsage_plus.config import FedSagePlusConfig
from graphsilo.methods.fedsage_plus.messages import MendRequest, PretrainRequest
from graphsilo.random import generator
from graphsilo.training import impaired as impaired_graph
from graphsilo.training import neighgen
from graphsilo.training.impaired import AllNodes
from graphsilo.training.neighgen import NeighGen


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def graph_of(edges, features, labels):
    both = np.array([*edges, *((b, a) for a, b in edges)], dtype=np.int64).reshape(-1, 2).T
    return Graph(np.asarray(features, dtype=np.float32), both, np.asarray(labels), 2)


# -- by hand ---------------------------------------------------------------------------------------------------------


def path(dropout=0.0, losses=(1.0, 1.0, 1.0)):
    """0 - 1 - 2 - 3 with 2 hidden: B = {1, 3}, and both lack node 2 with the features (1, 1)."""
    graph = graph_of([(0, 1), (1, 2), (2, 3)], [(1, 0), (0, 1), (1, 1), (0, 0)], [0, 0, 0, 1])
    impaired = impaired_graph.impair(graph, np.array([2]), np.array([1, 3]), graph.labels)
    config = FedSagePlusConfig(
        encoder_widths=(1, 1), generator_hidden=(1,), generator_dropout=dropout, loss_counts="round", **weighing(losses)
    )
    own = NeighGen(impaired, graph.features, 2, config, lambda name: generator(0, name))
    own.begin(lambda name: True)
    for weight in own.weights.values():
        weight.zero_()
    own.weights["count.bias"].fill_(1.4)
    own.weights["slot.0.bias"].fill_(math.atanh(0.5))
    own.weights["classifier.0.weight"].copy_(torch.tensor([[2.0], [0.0]]))
    own.weights["classifier.1.weight"].copy_(torch.tensor([[1.0, -1.0]]))
    return own


def weighing(losses):
    """The settings of λ_d, λ_f and λ_c."""
    return dict(zip(("lambda_d", "lambda_f", "lambda_c"), losses, strict=True))


CROSS_ENTROPY = 0.5 * (math.log1p(math.exp(-5 / 3)) + math.log1p(math.exp(1)))
"""Everybody has one generated neighbour (½, ½). X W1 is 2, 0, 0 for nodes 0, 1, 3 and 1 for what was generated.
Node 1 averages itself, 0 and its own one: (0 + 2 + 1)/3 = 1, node 0 too, 3 with its own one ½, each generated one
beside 1 or 3 ½. Then node 1 has (1 + 1 + ½)/3 = 5/6 and 3 has ½: logits ±5/6 for class 0, ±½ for class 1."""


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        ((1.0, 0.0, 0.0), 0.08),  # 1.4 against 1, twice: ½ · 0.4²
        ((0.0, 1.0, 0.0), 0.5),  # (½, ½) against (1, 1), twice, over |B| = 2
        ((0.0, 0.0, 1.0), CROSS_ENTROPY),
        ((2.0, 3.0, 5.0), 2 * 0.08 + 3 * 0.5 + 5 * CROSS_ENTROPY),
    ],
    ids=["L_d", "L_f", "L_c", "all"],
)
def test_the_local_loss_by_hand(losses, wanted):
    own = path(losses=losses)
    leaves = own.trainable()
    loss = own.joint_loss(leaves, draw())
    assert loss.item() == pytest.approx(wanted, rel=1e-6)


def test_the_frozen_loss_is_the_same_without_the_counts():
    own = path(losses=(2.0, 3.0, 5.0))
    own.freeze()
    loss, _, generated = own.frozen_loss(draw())
    assert loss.item() == pytest.approx(3 * 0.5 + 5 * CROSS_ENTROPY, rel=1e-6)
    assert [part.tolist() for part in generated] == [[[pytest.approx(0.5)] * 2] * 3]


def test_a_frozen_classifier_has_no_dropout():
    """What is generated is ½ whatever is dropped: only the classifier's hidden layer is left to drop from."""
    own = path(dropout=0.5, losses=(0.0, 0.0, 1.0))
    leaves = own.trainable()
    trained = {own.joint_loss(leaves, draw(seed)).item() for seed in range(9)}
    own.freeze()
    frozen = [own.frozen_loss(draw(seed))[0].item() for seed in range(9)]
    assert frozen == pytest.approx([CROSS_ENTROPY] * 9)
    assert len(trained) > 1


def test_the_steps_lower_each_loss():
    """Adam's first step moves every weight against its gradient."""
    for losses, name, sign in (
        ((1.0, 0.0, 0.0), "count.bias", -1),  # 1.4 predicted, 1 there
        ((0.0, 1.0, 0.0), "slot.0.bias", 1),  # ½ made, 1 there
        ((0.0, 0.0, 1.0), "classifier.1.bias", (-1, 1)),  # node 3 weighs more than node 1, which is right
    ):
        own = path(losses=losses)
        before = own.weights[name].clone()
        own.epoch(draw())
        assert torch.equal((own.weights[name] - before).sign(), torch.tensor(sign).float().expand_as(before)), name


# -- against dense loops ---------------------------------------------------------------------------------------------


class Plain:
    """The page's equations on dense matrices, node by node, in float64.

    Args:
        graph: The client's.
        hidden, train: Numbers of nodes.
        weights: NeighGen's, as leaves.
        seen: Whether the generator looks at the graph without the hidden nodes, or at all of it.
    """

    def __init__(self, graph, hidden, train, weights, *, whole=False):
        n = graph.num_nodes
        full = np.zeros((n, n))
        full[graph.edges[0], graph.edges[1]] = full[graph.edges[1], graph.edges[0]] = 1
        np.fill_diagonal(full, 0)
        self.x = torch.tensor(graph.features, dtype=torch.float64)
        self.w, self.labels = weights, graph.labels
        self.kept = [v for v in range(n) if whole or v not in set(hidden)]
        self.a = torch.tensor(full[np.ix_(self.kept, self.kept)])
        self.lost = [[u for u in hidden if full[v, u]] for v in self.kept]
        self.b = [place for place, v in enumerate(self.kept) if v in set(train) and v not in set(hidden)]
        ñ = self.average(self.a)
        inner = (ñ @ self.x[self.kept] @ self.w["encoder.0.weight"] + self.w["encoder.0.bias"]).relu()
        self.z = (ñ @ inner @ self.w["encoder.1.weight"] + self.w["encoder.1.bias"]).relu()
        self.predicted = (self.z @ self.w["count.weight"] + self.w["count.bias"]).relu()[:, 0]
        self.counts = [min(5, round(value)) for value in self.predicted.tolist()]

    @staticmethod
    def average(a):
        a = a + torch.eye(len(a), dtype=torch.float64)
        return a / a.sum(1, keepdim=True)

    def rows(self, among):
        """Nodes with a predicted neighbour: most of them first, then by number."""
        return sorted((v for v in among if self.counts[v]), key=lambda v: (-self.counts[v], v))

    def influential(self):
        return [v for v in range(len(self.kept)) if v in self.b or any(self.a[b, v] for b in self.b)]

    def made(self, rows, noise):
        """{(node, slot): features}, the noise being drawn row by row."""
        noise = torch.randn((len(rows), self.z.shape[1]), generator=noise).double()
        found = {}
        for v, more in zip(rows, noise, strict=True):
            hidden = self.z[v] + more
            for layer in range(2):
                hidden = (hidden @ self.w[f"body.{layer}.weight"] + self.w[f"body.{layer}.bias"]).relu()
            for slot in range(self.counts[v]):
                found[v, slot] = (self.w[f"slot.{slot}.weight"] @ hidden + self.w[f"slot.{slot}.bias"]).tanh()
        return found

    def losses(self, made):
        """L_d, L_f and L_c."""
        truth = torch.tensor([float(len(self.lost[v])) for v in self.b], dtype=torch.float64)
        counts = F.smooth_l1_loss(self.predicted[self.b], truth)
        features = torch.zeros((), dtype=torch.float64)
        for v in self.b:
            for slot in range(self.counts[v] if self.lost[v] else 0):
                features = features + min((made[v, slot] - self.x[u]).square().sum() for u in self.lost[v][:5])
        n, m = len(self.kept), len(made)
        a = torch.zeros((n + m, n + m), dtype=torch.float64)
        a[:n, :n] = self.a
        for place, (v, _) in enumerate(made, start=n):
            a[v, place] = a[place, v] = 1.0
        x = torch.cat([self.x[self.kept], *(each[None] for each in made.values())])
        inner = (self.average(a) @ x @ self.w["classifier.0.weight"] + self.w["classifier.0.bias"]).relu()
        logits = self.average(a) @ inner @ self.w["classifier.1.weight"] + self.w["classifier.1.bias"]
        classes = F.cross_entropy(logits[self.b], torch.tensor([int(self.labels[self.kept[v]]) for v in self.b]))
        return counts, features / len(self.b), classes


def random_silo(kit, client, *, nodes=40):
    """A random graph with random features, whose validation nodes are linked with its training nodes."""
    silo = kit.tiny_silo(client, nodes=nodes, train=range(0, nodes, 2))
    rng = np.random.default_rng(client)
    edges = rng.integers(0, nodes, (2, 3 * nodes))
    edges = edges[:, edges[0] != edges[1]]
    features = rng.standard_normal((nodes, 6)).astype(np.float32)
    graph = Graph(features, np.unique(np.concatenate([edges, edges[::-1]], 1), axis=1), silo.graph.labels, 2)
    evaluation = type(silo.evaluations[0])("seen", graph, silo.seen.items)
    return type(silo)(client, graph, silo.train, (evaluation,), type(silo.schema)("node", 6, 2))


def federation_of(kit, clients=1, **settings):
    settings = {
        "local_generator_epochs": 3, "generator_epochs": 2, "generator_hidden": (8, 16), "encoder_widths": (4, 8),
        "generator_dropout": 0.0, "count_bias": 1.4, "hidden_share": 0.5, "loss_counts": "round",
        "mend_counts": "round", **settings,
    }  # fmt: skip
    server, federation = kit.build(
        "fedsage_plus", [random_silo(kit, client) for client in range(clients)], model="sage", **settings
    )
    federation.at("setup", 0)
    federation.sum(Client.pretrain, PretrainRequest())
    return server, federation


def spread(own):
    """The same generator with counts that differ from node to node."""
    own.weights["count.weight"].mul_(40.0)
    return own


def leaves_of(weights):
    return {name: weight.detach().double().requires_grad_() for name, weight in weights.items()}


@pytest.mark.parametrize("weights", [(0.9, 0.6, 1.3), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)], ids=["all", "L_f", "L_c"])
def test_a_step_of_phase_a_follows_the_gradient_of_dense_loops(kit, weights):
    """Of the encoder too: what is generated depends on the embeddings, and so do L_f and L_c."""
    _, federation = federation_of(kit, **weighing(weights))
    client = federation.client(0)
    own = spread(client.neighgen)
    own.begin(lambda name: True)
    leaves = leaves_of(own.weights)
    plain = Plain(client.graph, client.hidden_nodes(), client.silo.train, leaves)
    made = plain.made(plain.rows(plain.influential()), draw(7))
    assert len(made) > 10
    assert len(set(plain.counts)) > 2
    losses = plain.losses(made)
    total = sum(weight * loss for weight, loss in zip(weights, losses, strict=True))
    wanted = neighgen.gradients_of(total, leaves)

    steps = []
    own.step = steps.append
    own.epoch(draw(7))
    loss = own.joint_loss(own.trainable(), draw(7))
    assert loss.item() == pytest.approx(total.item(), rel=1e-5)
    largest = {name: float(gradient.abs().max()) for name, gradient in wanted.items()}
    assert steps[0].keys() == {name for name in wanted if largest[name] or name in steps[0]}
    for name, gradient in steps[0].items():
        assert torch.allclose(gradient.double(), wanted[name], atol=1e-4 * largest[name] + 1e-9), name
    assert largest["encoder.0.weight"] > 0


@pytest.mark.parametrize("looks_at", ["impaired", "whole"])
def test_the_mended_graph_is_that_of_dense_loops(kit, looks_at):
    """Every generated neighbour hangs on the node whose embedding it was made from."""
    _, federation = federation_of(kit, mend_graph=looks_at, count_bias=1.7)
    client = federation.client(0)
    own = spread(client.neighgen)
    weights = own.weights
    plain = Plain(client.graph, client.hidden_nodes(), client.silo.train, leaves_of(weights), whole=looks_at == "whole")
    wanted = plain.made(plain.rows(range(len(plain.kept))), generator(0, "client", 0, "round", 0, "noise"))
    federation.ask(Client.mend, MendRequest(), to=(0,)).require()

    mended = client.mended
    assert len(mended) == len(wanted) > 10
    assert len(set(plain.counts)) > 1
    found: dict[int, list[torch.Tensor]] = {}
    for anchor, features in zip(mended.anchors.tolist(), mended.features, strict=True):
        found.setdefault(anchor, []).append(features)
    assert found.keys() == {plain.kept[v] for v, _ in wanted}
    if looks_at == "impaired":
        assert not found.keys() & set(client.hidden_nodes().tolist())
    for (v, slot), features in wanted.items():
        assert torch.allclose(found[plain.kept[v]][slot].double(), features, atol=1e-5)
    # and that is where they are in the graph that the classifier is trained on
    graph = client.mended_tensors(client.data).graph
    for place, anchor in enumerate(mended.anchors.tolist(), start=client.graph.num_nodes):
        assert graph.adjacency()[place].indices.tolist() == [anchor]
        assert graph.adjacency()[anchor, place] == 1
    predicted = np.zeros(client.graph.num_nodes)
    predicted[plain.kept] = plain.predicted.detach()
    assert np.allclose(mended.predicted.numpy(), predicted, atol=1e-5)


# -- what others compare with ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_the_nearest_of_all_nodes_by_hand(sparse, monkeypatch):
    rows = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 0], [1, 0, 0]], dtype=np.float32)
    nodes = AllNodes(sp.csr_matrix(rows) if sparse else rows)
    made = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.0], [0.0, 1.4, 0.0]])
    # (0.4, 0.3, 0): 0.25 to the origin, 0.45 to e_1, 3.05 to 2 e_2
    wanted = rows[[0, 2, 1]]
    for at_once in (1 << 22, 4, 8):
        monkeypatch.setattr(impaired_graph, "COMPARED_AT_ONCE", at_once)
        found = nodes.nearest(made)
        assert np.array_equal(found.toarray() if sparse else found, wanted)
    loss = impaired_graph.feature_loss([made], [np.arange(3)], nodes)
    assert loss.item() == pytest.approx((0.01 + 0.01) + 0.25 + 0.36)
    assert nodes.nearest(torch.zeros(0, 3)).shape == (0, 3)


def test_all_nodes_of_the_other_client_are_compared_with(kit):
    """Σ_rows min_{u ∈ V_j} ‖x̂ − x_u‖², differentiated by plain autograd."""
    server, federation = federation_of(kit, 2, cross_targets="all", lambda_f=1.0)
    own, other = federation.client(0).neighgen, federation.client(1)
    rows, weights = own.make_offer()
    assert len(rows) > 2
    weights = leaves_of(weights)
    noise = torch.randn((len(rows), 8), generator=generator(0, "client", 1, "round", 0, "compare")).double()
    truth = torch.tensor(other.graph.features, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for row, node in enumerate(rows.nodes):
        hidden = own.embeddings[int(node)].double() + noise[row]
        for layer in range(2):
            hidden = (hidden @ weights[f"body.{layer}.weight"] + weights[f"body.{layer}.bias"]).relu()
        for slot in range(rows.counts[row]):
            made = (weights[f"slot.{slot}.weight"] @ hidden + weights[f"slot.{slot}.bias"]).tanh()
            total = total + (truth - made).square().sum(1).min()
    wanted = neighgen.gradients_of(total, weights)
    found = server._exchange(federation, 0, {0, 1}, 0)["weights"]
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        assert torch.allclose(found[name].double(), gradient, atol=1e-4 * float(gradient.abs().max()) + 1e-9), name


def test_a_few_others_stand_for_all(kit):
    """One of two others, drawn anew in every epoch, counts twice; their mean is what both say."""
    both = exchanged(kit, {0, 1, 2})
    alone = {client: exchanged(kit, {0, client}) for client in (1, 2)}
    name = "slot.0.weight"
    assert torch.allclose(both[name], alone[1][name] + alone[2][name], rtol=1e-5, atol=1e-8)
    asked = set()
    for epoch in range(8):
        server, federation = federation_of(kit, 3, helpers=1)
        (helper,) = server._helpers(0, epoch, (1, 2))
        found = server._exchange(federation, 0, {0, 1, 2}, epoch)["weights"]
        assert torch.allclose(found[name], 2 * alone[helper][name], rtol=1e-5)
        asked.add(helper)
    assert asked == {1, 2}
    assert server._helpers(0, 0, (1,)) == (1,)
    assert server.config.num_comparing(3) == 1
    assert server.config.num_comparing(1) == 0


def exchanged(kit, left):
    """What client 0 gets from the others that are left."""
    server, federation = federation_of(kit, 3)
    return server._exchange(federation, 0, left, 0)["weights"]


# -- counts ----------------------------------------------------------------------------------------------------------


def test_stochastic_counts_are_right_on_average():
    predicted = torch.tensor([0.0, 0.25, 1.0, 2.5]).repeat_interleave(4000)
    found = neighgen.whole(predicted, "stochastic", draw()).reshape(4, 4000)
    assert [sorted(set(row.tolist())) for row in found] == [[0], [0, 1], [1], [2, 3]]
    # ¼ and ½ of 4000, within five standard deviations (27 and 32)
    assert abs(found[1].sum() - 1000) < 137
    assert abs((found[3] - 2).sum() - 2000) < 158
    assert np.array_equal(found.ravel(), neighgen.whole(predicted, "stochastic", draw()))


def test_stochastic_counts_differ_between_clients(kit):
    _, federation = federation_of(kit, 2, count_bias=0.5, mend_counts="stochastic", local_generator_epochs=0)
    for client in range(2):
        assert float(federation.client(client).neighgen.predicted.min()) > 0
    reply = federation.sum(Client.mend, MendRequest()).require()
    anchors = [set(federation.client(client).mended.anchors.tolist()) for client in range(2)]
    assert anchors[0] != anchors[1]
    assert 0 < reply.generated < reply.nodes
