"""FedKD: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphsilo.errors import MessageError
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.federation.server import ServerContext
from graphsilo.methods import fedkd
from graphsilo.models.base import Outputs
from graphsilo.random import generator
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.training.local import load_weights, weights_of
from kit.messages import check_sent
from kit.silos import graphs_of

OFF = {"kl_weight": 0.0, "hidden_weight": 0.0}
LOSSLESS = {"energy_start": 1.0, "energy_end": 1.0}
CONFIG = registry.load("fedkd").config


def close(one, other, **more):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], **more)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd", "lr": 0.5}, {"batch_size": 2}], ids=str)
@pytest.mark.parametrize("task", ["node", "graph"])
def test_without_exchange_the_mentor_is_local_and_the_mentee_fedavg(kit, task, settings):
    """The mentor bit for bit where gradients are written out, as GCN's are; the mentee to rounding, for the mean of
    changes is added instead of the mean of models taken."""
    silo_of = graphs_of if task == "graph" else kit.tiny_silo
    silos, model = [silo_of(client) for client in range(3)], "gin" if task == "graph" else "gcn"
    more = {"model": model, "model_options": {"dropout": 0.0}, **settings}
    server, federation = kit.build("fedkd", silos, mentee_hidden=None, **OFF, **LOSSLESS, **more)
    plain = kit.build("fedavg", silos, weight_by="uniform", **more)
    alone = kit.build("local", silos, **more)
    for client in federation.clients:
        load_weights(alone[1].client(client).model, weights_of(federation.client(client).model))
    for pair in ((server, federation), plain, alone):
        kit.rounds(*pair, 3)
    close(server.weights, plain[0].weights, atol=1e-5, rtol=1e-4)
    for client in federation.clients:
        mine, theirs = (weights_of(each.client(client).model) for each in (federation, alone[1]))
        close(mine, theirs, **({"atol": 0, "rtol": 0} if task == "node" else {}))


def test_both_learn_from_the_exchange(kit):
    silos = [kit.tiny_silo(client) for client in range(2)]
    found = []
    for settings in (OFF, {"hidden_weight": 0.0}, {"kl_weight": 0.0}, {}, {"detach": False}):
        server, federation = kit.build("fedkd", silos, mentee_hidden=3, **settings)
        kit.rounds(server, federation, 2)
        found += [(weights_of(federation.client(0).model)["layers.0.weight"], server.weights["layers.0.weight"])]
    for place, (mentor, mentee) in enumerate(found):
        for other, another in found[:place]:
            assert not torch.equal(mentor, other)
            assert not torch.equal(mentee, another)


def test_the_exchange_by_hand():
    """Logits whose softmax is (3/4, 1/4) for the mentor and (1/2, 1/2) for the mentee, label 0; embeddings 1 and 2.

    D = log 4/3 + log 2; KL(p_s ‖ p_t) = 1/2 log 2/3 + 1/2 log 2, KL(p_t ‖ p_s) = 3/4 log 3/2 + 1/4 log 1/2; with A = 3
    the distance is (1 − 6)² = 25.
    """
    three, two = torch.tensor([0.75, 0.25]).log()[None], torch.tensor([0.5, 0.5]).log()[None]
    mentor, mentee = Outputs(three, torch.ones(1, 1)), Outputs(two, 2 * torch.ones(1, 1))
    log = torch.tensor([4 / 3, 2.0, 2 / 3, 1.5, 0.5]).log()
    doubt, first, second = log[0] + log[1], 0.5 * log[2] + 0.5 * log[1], 0.75 * log[3] + 0.25 * log[4]
    found = fedkd.mutual(mentor, mentee, torch.tensor([0]), 3 * torch.ones(1, 1), CONFIG())
    torch.testing.assert_close(found, (first + second + 25) / doubt)
    found = fedkd.mutual(mentor, mentee, torch.tensor([0]), None, CONFIG(kl_weight=2.0))
    torch.testing.assert_close(found, 2 * (first + second) / doubt)


@pytest.mark.parametrize("detach", [True, False])
def test_gradients_are_those_of_the_two_losses_as_they_are_written(detach):
    """Detached, each model has the gradient of its own loss, whose other side is constant; else that of both."""
    leaves = [drawn(5, 3), drawn(5, 3, seed=1), drawn(5, 4, seed=2), drawn(5, 2, seed=3), drawn(2, 4, seed=4)]
    labels = torch.tensor([0, 1, 2, 0, 1])

    def fresh():
        return [leaf.clone().requires_grad_() for leaf in leaves]

    def losses(z_t, z_s, h_t, h_s, adapter, fixed=lambda value: value):
        doubt = fixed(F.cross_entropy(z_t, labels) + F.cross_entropy(z_s, labels))
        p_t, p_s = z_t.softmax(1), z_s.softmax(1)
        kl_t = (fixed(p_s) * (fixed(p_s).log() - p_t.log())).sum(1).mean()
        kl_s = (fixed(p_t) * (fixed(p_t).log() - p_s.log())).sum(1).mean()
        far_t = (h_t - fixed(h_s @ adapter)).square().mean()
        far_s = (fixed(h_t) - h_s @ adapter).square().mean()
        return (kl_t + far_t) / doubt, (kl_s + far_s) / doubt

    mine, theirs = fresh(), fresh()
    value = fedkd.mutual(Outputs(mine[0], mine[2]), Outputs(mine[1], mine[3]), labels, mine[4], CONFIG(detach=detach))
    value.backward()
    sum(losses(*theirs, **({"fixed": torch.Tensor.detach} if detach else {}))).backward()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_a_step_is_descent_on_each_models_own_loss(kit, max_norm):
    """θ − η ∇L of mentor, mentee and adapter, with dropout from draws of their own; gradients of either are shortened
    together, the adapter's are not."""
    settings = {"optimizer": "sgd", "lr": 0.5, "weight_decay": 0.0, "local_epochs": 1, "max_norm": max_norm}
    server, federation = kit.build(
        "fedkd", [kit.tiny_silo(0)], mentee_hidden=3, kl_weight=2.0, hidden_weight=3.0, dropout=0.5, **settings
    )
    client = federation.client(0)
    view, labels, adapter = client.data.view(client.silo.train), torch.tensor([0, 1, 0]), client.adapter.clone()
    assert float(adapter.abs().max()) == pytest.approx(1 / 3**0.5, abs=0.1)  # ± 1 / √width
    mentor, mentee = (
        one.outputs(view, generator(0, "client", 0, "round", 1, name))
        for one, name in ((client.model, "train"), (client.common, "mentee"))
    )
    p_t, p_s, turned = mentor.logits.softmax(1), mentee.logits.softmax(1), mentee.embeddings @ adapter.requires_grad_()
    first, second = (-p[range(3), labels].log().mean() for p in (p_t, p_s))
    doubt = (first + second).detach()
    kl_t = (p_s.detach() * (p_s.detach().log() - p_t.log())).sum(1).mean()
    kl_s = (p_t.detach() * (p_t.detach().log() - p_s.log())).sum(1).mean()
    far_t = (mentor.embeddings - turned.detach()).square().mean()
    far_s = (mentor.embeddings.detach() - turned).square().mean()
    mine, theirs = list(client.model.parameters()), list(client.common.parameters())
    slopes = torch.autograd.grad(first + (2 * kl_t + 3 * far_t) / doubt, mine)
    others = torch.autograd.grad(second + (2 * kl_s + 3 * far_s) / doubt, [*theirs, adapter])
    lengths = [torch.stack([slope.norm() for slope in part]).norm() for part in (slopes, others[:-1])]
    assert min(lengths) > 0.1
    factors = [1.0 if max_norm is None else max_norm / float(length) for length in lengths]
    expected = [
        [(one - 0.5 * factor * slope).detach() for one, slope in zip(part, found, strict=True)]
        for part, found, factor in zip((mine, theirs), (slopes, others[:-1]), factors, strict=True)
    ]
    kit.rounds(server, federation)
    for part, wanted in zip((mine, theirs), expected, strict=True):
        torch.testing.assert_close([one.detach() for one in part], wanted, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(client.adapter, (adapter - 0.5 * others[-1]).detach(), atol=1e-6, rtol=1e-4)


def test_sure_models_learn_no_more_than_a_thousandfold_from_each_other():
    sure = Outputs(torch.tensor([[50.0, 0.0]]), torch.zeros(1, 1))
    other = Outputs(torch.tensor([[49.0, 0.0]]), torch.zeros(1, 1))
    plain = (F.mse_loss(torch.ones(1, 1), torch.zeros(1, 1))) * 1000
    found = fedkd.mutual(sure, Outputs(other.logits, torch.ones(1, 1)), torch.tensor([0]), torch.ones(1, 1), CONFIG())
    torch.testing.assert_close(found, plain)


def test_the_server_and_every_client_that_was_asked_have_one_mentee(kit):
    """Whoever missed a change is sent the whole mentee, whoever missed more than one as well; in round 1 nothing is."""
    silos = [kit.tiny_silo(client) for client in range(3)]
    server, federation = kit.build("fedkd", silos, mentee_hidden=3)
    asked = [(0, 1, 2), (0, 1), (0, 2), (0, 1, 2)]
    server.select = lambda federation, number: asked[number - 1]
    seen = []
    exchange = federation.exchange

    def spied(handler, request, to=None, check=None):
        sent = {
            client: ("change" if one.change else "") if one.weights is None else "weights"
            for client, one in request.items()
        }
        seen.append(sent)
        return exchange(handler, request, to, check)

    federation.exchange = spied
    for number in range(1, 5):
        before = {name: value.clone() for name, value in server.weights.items()}
        kit.rounds(server, federation, start=number)
        for client in asked[number - 1]:
            base = federation.client(client).base
            assert all(torch.equal(base[name], value) for name, value in before.items())
    assert seen == [
        {0: "", 1: "", 2: ""}, {0: "change", 1: "change"}, {0: "change", 2: "weights"},
        {0: "change", 1: "weights", 2: "change"},
    ]  # fmt: skip


def test_a_client_that_failed_is_sent_the_whole_mentee(kit):
    server, federation = kit.build("fedkd", [kit.tiny_silo(0), kit.tiny_silo(1)], min_clients=1)
    kit.rounds(server, federation)
    assert server.held == {0: 0, 1: 0}
    client = federation.client(1)
    wrong = fedkd.TrainReply(update={"layers.0.weight": torch.ones(1)}, num_samples=1.0)
    with pytest.raises(MessageError, match=r"of the change of 'layers\.0\.weight'"):
        server.check(1, wrong)
    server.held[1] = -1
    before = {name: value.clone() for name, value in server.weights.items()}
    kit.rounds(server, federation, start=2)
    assert all(torch.equal(client.base[name], value) for name, value in before.items())
    assert server.held == {0: 1, 1: 1}


def test_without_loss_of_the_factors_the_mentee_is_that_of_whole_changes(kit):
    silos = [kit.tiny_silo(client) for client in range(3)]
    settings = {"mentee_hidden": 8, "optimizer": "sgd", "lr": 0.1}
    exact, rough = (kit.build("fedkd", silos, **settings, **more) for more in (LOSSLESS, {"energy_start": 0.5}))
    kit.rounds(*exact)
    kit.rounds(*rough)
    wholes = []
    for client in exact[1].clients:
        one = exact[1].client(client)
        wholes.append({name: one.common_weights[name].detach() - one.base[name] for name in one.base})
    start = exact[1].client(0).base
    close(exact[0].weights, {n: start[n] + sum(w[n] for w in wholes) / 3 for n in start}, atol=1e-6, rtol=1e-5)
    assert any(not torch.allclose(exact[0].weights[n], rough[0].weights[n], atol=1e-4) for n in start)


def test_factors_keep_as_much_as_the_rounds_threshold_says(kit):
    """Half of the squared singular values in the first of two rounds, all in the second: a change of rank 3 whole."""
    silos = [kit.tiny_silo(client) for client in range(2)]
    server, federation = kit.build("fedkd", silos, mentee_hidden=8, rounds=2, energy_start=1e-9, energy_end=1.0)
    seen, gather = [], server.gather
    server.gather = lambda *asked: seen.append(gather(*asked)) or seen[-1]
    name, sides = "layers.0.weight", ["layers.0.weight/left", "layers.0.weight/right"]
    for number in (1, 2):
        kit.rounds(server, federation, start=number)
        for client, reply in seen[-1]:
            one = federation.client(client)
            change = one.common_weights[name].detach() - one.base[name]
            if number == 2:
                assert torch.equal(reply.update[name], change)
                continue
            values = torch.linalg.svdvals(change).square()
            rank = 1 + int((values.cumsum(0) < 0.5 * values.sum()).sum())
            left, right = (reply.update[side] for side in sides)
            assert left.shape == (3, rank)
            rest = (change - left @ right).square().sum()
            torch.testing.assert_close(rest, values[rank:].sum(), atol=1e-6, rtol=1e-4)
        assert ({name} if number == 2 else set(sides)) <= server.change.keys()


def test_weights_of_the_mean(kit):
    """Two items against one: with ``train`` the first client's change counts twice."""
    silos = [kit.tiny_silo(0, train=(0, 1)), kit.tiny_silo(1, train=(2,)), kit.tiny_silo(2, train=())]
    for weight_by, share, rate in (("uniform", 1 / 2, 1.0), ("train", 2 / 3, 1.0), ("train", 2 / 3, 0.5)):
        server, federation = kit.build("fedkd", silos, weight_by=weight_by, server_lr=rate, **LOSSLESS)
        start = {name: value.clone() for name, value in server.weights.items()}
        kit.rounds(server, federation)
        one, two = (federation.client(client) for client in (0, 1))
        for name, value in server.weights.items():
            moved = [each.common_weights[name].detach() - start[name] for each in (one, two)]
            torch.testing.assert_close(value, start[name] + rate * (share * moved[0] + (1 - share) * moved[1]))


def test_the_threshold_rises_evenly():
    config = CONFIG(rounds=4, energy_start=0.8, energy_end=1.0)
    assert [config.energy(number) for number in (1, 2, 3, 4)] == pytest.approx([0.85, 0.9, 0.95, 1.0])


def test_the_mentees_widths():
    config = CONFIG(mentee_hidden=5)
    specs = [("gcn", {}), ("gcn", {"hidden": [9, 8]}), ("gcnii", {"hidden": 9, "layers": 2}), ("sgc", {})]
    assert [config.mentee(ModelSpec(*spec)).settings.get("hidden") for spec in specs] == [5, [5, 5], 5, 5]
    assert config.mentee(ModelSpec("gcn", {}, "bfloat16")).precision == "bfloat16"
    assert CONFIG(mentee_hidden=None).mentee(ModelSpec("gcn", {"hidden": 9})).settings == {"hidden": 9}


def test_the_common_model_is_the_mentee_and_the_own_one_the_mentor(kit):
    server, federation = kit.build("fedkd", [kit.tiny_silo(0), kit.tiny_silo(1)], mentee_hidden=3)
    kit.rounds(server, federation)
    client = federation.client(1)
    client.install_aggregate(server.aggregate())
    with torch.no_grad():
        own = client.predict(client.data, "own")
        assert torch.equal(own, client.model(client.data.full))
        load_weights(client.common, server.weights)
        assert torch.equal(client.predict(client.data, "aggregate"), client.common(client.data.full))
    assert client.model.embedding_dim == 4
    assert client.common.embedding_dim == 3
    other = federation.client(0)
    assert not torch.equal(client.adapter, other.adapter)


@pytest.mark.parametrize(("mentors", "mentees"), [(3, 2), (2, 3)])
def test_neighbours_are_sampled_for_the_deeper_of_both(kit, mentors, mentees):
    """Layers of the clients' mentors and of the mentee; the shallower model has draws for its layers alone."""
    silos, config = [kit.tiny_silo(client) for client in range(2)], CONFIG(fan_out=2)
    mentor, common = (ModelSpec("gcn", {"layers": depth, "hidden": 4}) for depth in (mentors, mentees))
    federation = InProcess(
        [0, 1],
        lambda client: fedkd.Client(ClientContext(client, silos[client], config, mentor, 0, server_model=common)),
    )
    server = fedkd.Server(ServerContext(config, silos[0].schema, dict.fromkeys((0, 1), common), 0, (0, 1)))
    assert federation.client(0).fan_out == (2, 2, 2)
    kit.rounds(server, federation, 2)
    assert all(bool(weight.isfinite().all()) for weight in server.weights.values())


def test_what_leaves_a_silo():
    check_sent(
        "fedkd",
        """
        train update: model float32
        train num_samples: counts
        """,
    )
