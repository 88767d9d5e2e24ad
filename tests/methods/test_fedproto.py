"""FedProto: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import ConfigError
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.server import ServerContext
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.training.local import weights_of
from graphsilo.training.objective import Step
from graphsilo.training.prototypes import class_means
from kit.messages import check_sent


def models(federation):
    return [weights_of(federation.client(client).model) for client in federation.clients]


def embedded(client):
    """Embeddings and labels of a client's training items."""
    with torch.no_grad():
        rows = client.model.embed(client.data.full)[torch.from_numpy(client.silo.train)]
    return rows, torch.from_numpy(client.silo.labels[client.silo.train])


def mixed(silos, specs, **settings):
    """A federation in which every client has a model of its own."""
    method = registry.load("fedproto")
    config = method.config(**settings)
    known = {silo.client: ModelSpec(*spec) for silo, spec in zip(silos, specs, strict=True)}
    federation = InProcess(
        list(known), lambda client: method.client(ClientContext(client, silos[client], config, known[client], 0))
    )
    return lambda: method.server(ServerContext(config, silos[0].schema, known, 0, federation.clients)), federation


def test_prototypes_of_equal_frozen_encoders_are_the_means_of_all_items(kit):
    silos = [kit.tiny_silo(client, train=range(2 + client)) for client in range(3)]
    server, federation = kit.build("fedproto", silos, initial="common", lr=1e-30, weight_decay=0.0)
    kit.rounds(server, federation)
    rows, labels = (torch.cat(parts) for parts in zip(*(embedded(federation.client(k)) for k in range(3)), strict=True))
    means, counts = class_means(rows, labels, 2)
    assert counts.tolist() == [5, 4]
    torch.testing.assert_close(server.prototypes, means)
    assert server.present.tolist() == [True, True]


@pytest.mark.parametrize("weight_by", ["count", "uniform"])
def test_weights_by_hand(kit, weight_by):
    """Client 0 has two items of class 0 and one of class 1, client 1 one item of class 0: counts 2 : 1, or equal."""
    silos = [kit.tiny_silo(0, train=(0, 1, 2)), kit.tiny_silo(1, train=(0,))]
    server, federation = kit.build("fedproto", silos, weight_by=weight_by)
    kit.rounds(server, federation)
    (first, labels), (second, _) = (embedded(federation.client(client)) for client in (0, 1))
    mine, theirs = first[labels == 0].mean(0), second[0]
    share = 2 / 3 if weight_by == "count" else 1 / 2
    torch.testing.assert_close(server.prototypes[0], share * mine + (1 - share) * theirs)
    torch.testing.assert_close(server.prototypes[1], first[1])  # one client alone has it: that client's


def test_a_class_that_nobody_describes_keeps_its_prototype(kit):
    silos = [kit.tiny_silo(0, train=(0, 2)), kit.tiny_silo(1, train=(1, 3))]
    server, federation = kit.build("fedproto", silos, participation=0.5)
    seen = []
    for number in range(1, 9):
        federation.at("round", number)
        (asked,) = server.select(federation, number)
        before = server.prototypes.clone()
        server.round(federation, number)
        other = 1 - asked  # client k has class k alone
        assert torch.equal(server.prototypes[other], before[other])
        seen.append(asked)
        assert server.present.tolist() == [0 in seen, 1 in seen]
    assert set(seen) == {0, 1}


def test_small_classes_are_not_described(kit):
    server, federation = kit.build("fedproto", [kit.tiny_silo(0, train=(0, 1, 2))], min_count=2)
    kit.rounds(server, federation)
    assert server.present.tolist() == [True, False]


def test_the_first_round_pulls_nothing_and_the_second_does(kit):
    silos = [kit.tiny_silo(client) for client in range(2)]
    strong = kit.build("fedproto", silos, strength=50.0)
    free = kit.build("fedproto", silos, strength=0.0)
    kit.rounds(*strong)
    kit.rounds(*free)
    assert all(torch.equal(a[n], b[n]) for a, b in zip(models(strong[1]), models(free[1]), strict=True) for n in a)

    def far(pair):
        parts = [embedded(pair[1].client(client)) for client in (0, 1)]
        return float(sum((rows - pair[0].prototypes[labels]).square().sum() for rows, labels in parts))

    for pair in (strong, free):
        for number in range(2, 30):
            kit.rounds(pair[0], pair[1], start=number)
    assert far(strong) < 0.2 * far(free)


@pytest.mark.parametrize(("reduction", "each"), [("sample_mean", [3, 3, 3]), ("class_sum", [2, 1, 2])])
def test_the_terms_gradient_by_hand(kit, reduction, each):
    """2 λ (z − P) / (b p) on the embeddings of the step, or over its class's items, here 2, 1, 2, instead of b."""
    server, federation = kit.build("fedproto", [kit.tiny_silo(0)], strength=3.0, reduction=reduction)
    kit.rounds(server, federation, 2)
    client = federation.client(0)
    rows, labels = embedded(client)
    leaf = rows.clone().requires_grad_()
    step = Step(client.silo.train, labels, torch.zeros(3, 2), leaf, client.data.full, None)
    client.term(step).backward()
    each = torch.tensor(each)[:, None] * rows.shape[1]
    torch.testing.assert_close(leaf.grad, 2 * 3.0 * (rows - client.prototypes[labels]) / each)


def test_different_models_of_one_width_run_together(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    specs = [("gcn", {"hidden": 4}), ("mlp", {"hidden": [6, 4]}), ("sage", {"hidden": 4, "layers": 3})]
    make, federation = mixed(silos, specs)
    server = make()
    kit.rounds(server, federation, 2)
    assert server.prototypes.shape == (2, 4)
    assert [len(model) for model in models(federation)] == [4, 6, 9]


def test_different_widths_are_refused_before_anything_is_trained(kit):
    silos = [kit.tiny_silo(client) for client in range(2)]
    make, _ = mixed(silos, [("gcn", {"hidden": 4}), ("gcn", {"hidden": 5})])
    with pytest.raises(ConfigError, match=r"client 0 has 4, client 1 has 5.*\(hidden: 4\)"):
        make()


def test_a_model_without_hidden_layer_is_refused(kit):
    with pytest.raises(ConfigError, match=r"gcn as it is set has no hidden layer.*Set model\.layers to 2"):
        kit.build("fedproto", [kit.tiny_silo(0)], model_options={"layers": 1})


def test_predicting_by_prototype(kit):
    """The nearest of those there are; the head before there is any."""
    silos = [kit.tiny_silo(0, train=(0, 2))]
    server, federation = kit.build("fedproto", silos, predict="prototype")
    client = federation.client(0)
    with torch.no_grad():
        assert torch.equal(client.predict(client.data), client.model(client.data.full))
        kit.rounds(server, federation, 2)
        found = client.predict(client.data)
    assert set(found.argmax(1).tolist()) == {0}
    kept = client.final_models()
    assert set(kept) == {"own", "prototypes"}
    _, other = kit.build("fedproto", silos, predict="prototype")
    other.client(0).load_final(kept)
    with torch.no_grad():
        assert torch.equal(other.client(0).predict(client.data), found)


def test_initial_weights(kit):
    silos = [kit.tiny_silo(client) for client in range(2)]
    for initial, same in (("own", False), ("common", True)):
        one, other = models(kit.build("fedproto", silos, initial=initial)[1])
        assert torch.equal(one["layers.0.weight"], other["layers.0.weight"]) is same


def test_bytes(kit):
    """Each way and client 4 C p and, up, 8 C, down C: 2 classes, 4 wide, 2 clients, 100 rounds."""
    server, _ = kit.build("fedproto", [kit.tiny_silo(client) for client in range(2)])
    assert server.expected_bytes() == (200 * (32 + 16), 200 * (32 + 2))


def test_what_leaves_a_silo():
    check_sent(
        "fedproto",
        """
        train sums: prototype float32 [classes, width] per_class=min_count
        train counts: counts int64 [classes] per_class=min_count
        """,
    )
