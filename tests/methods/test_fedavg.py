"""FedAvg: the invariants of its specification, through the real machinery."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError
from graphsilo.experiments.runner import run
from graphsilo.federation.averaging import step_to
from graphsilo.federation.codec import decode, encode
from graphsilo.methods import fedavg, local
from graphsilo.methods.fedavg import TrainReply, TrainRequest
from graphsilo.models.view import GraphTensors
from graphsilo.training.local import weights_of
from kit.messages import by_kind, check_sent

TWO = [(1.0, 0.0), (3.0, 4.0)]
"""f_1 = (x - 0)²/2 and f_2 = 3/2 (x - 4)²."""


def test_by_hand(kit):
    # x = 1, rate 0.1, two steps: 1 -> 0.9 -> 0.81 and 1 -> 1.9 -> 2.53; the mean is 1.67.
    server, federation = kit.quadratic("fedavg", TWO)
    weights = kit.rounds(server, federation)
    locals_ = [kit.value_of(weights_of(federation.client(client).model)) for client in (0, 1)]
    assert locals_ == pytest.approx([0.81, 2.53], abs=1e-6)
    assert kit.value_of(weights) == pytest.approx(1.67, abs=1e-6)


def test_one_item_in_all_is_enough(kit):
    # 1 -> 0.9 -> 0.81
    server, federation = kit.quadratic("fedavg", TWO[:1])
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(0.81, abs=1e-6)


def test_second_round_starts_from_the_mean(kit):
    # 1.67 · 0.81 = 1.3527 and 4 - 0.49 · 2.33 = 2.8583; the mean is 2.1055.
    server, federation = kit.quadratic("fedavg", TWO)
    assert kit.value_of(kit.rounds(server, federation, 2)) == pytest.approx(2.1055, abs=1e-6)


def test_weights_are_sample_counts(kit):
    # (3 · 0.81 + 1 · 2.53) / 4 = 1.24
    server, federation = kit.quadratic("fedavg", TWO, sizes=(3, 1))
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(1.24, abs=1e-6)


@pytest.mark.parametrize(
    ("weight_by", "expected"),
    [("train", (3 * 0.81 + 2.53) / 4), ("uniform", 1.67), ("nodes", (6 * 0.81 + 9 * 2.53) / 15)],
)
def test_weight_by(kit, weight_by, expected):
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "local_epochs": 2, "weight_by": weight_by}
    server, federation = kit.build("fedavg", [kit.tiny_silo(0), kit.tiny_silo(1, nodes=9)], **settings)
    server.weights = {key: torch.ones_like(value) for key, value in server.weights.items()}
    for client, ((curvature, optimum), samples) in enumerate(zip(TWO, (3, 1), strict=True)):
        federation.client(client).trainer.objective = kit.Quadratic(curvature, optimum, samples)
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("rate", "expected"), [(1.0, 1.67), (0.5, 1.335), (2.0, 2.34)])
def test_server_rate(kit, rate, expected):
    # w + rate (1.67 - 1)
    server, federation = kit.quadratic("fedavg", TWO, server_lr=rate)
    assert kit.value_of(kit.rounds(server, federation)) == pytest.approx(expected, abs=1e-6)


def test_normalised_over_participants(kit):
    server, federation = kit.quadratic("fedavg", [*TWO, (1.0, 1.0), (2.0, 3.0)], sizes=(2, 5, 7, 9), participation=0.5)
    expected = 1.0
    for number in (1, 2, 3):
        chosen = server.select(federation, number)
        kit.rounds(server, federation, start=number)
        assert tuple(sorted(federation.participants)) == chosen
        locals_ = [kit.value_of(weights_of(federation.client(client).model)) for client in chosen]
        sizes = [(2, 5, 7, 9)[client] for client in chosen]
        expected = float(np.average(locals_, weights=sizes))
        assert kit.value_of(server.weights) == pytest.approx(expected, abs=1e-6)


def test_selection(kit):
    server, federation = kit.build("fedavg", [kit.tiny_silo(client) for client in range(7)], participation=0.4)
    drawn = [server.select(federation, number) for number in range(1, 200)]
    assert {len(set(clients)) for clients in drawn} == {2}  # int(7 · 0.4): 2.8 rounds down
    assert all(list(clients) == sorted(clients) for clients in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=7)
    assert counts.min() > 30  # 57 on average
    assert drawn == [server.select(federation, number) for number in range(1, 200)]
    few, other = kit.build("fedavg", [kit.tiny_silo(client) for client in range(3)], participation=0.1)
    assert len(few.select(other, 1)) == 1


def test_a_share_that_is_not_a_binary_fraction_counts_right(kit):
    server, federation = kit.build("fedavg", [kit.tiny_silo(client) for client in range(10)], participation=0.7)
    assert len(server.select(federation, 1)) == 7  # 10 · 0.7 is 7.000000000000001 or 6.999999999999999


def test_one_round_of_descent_is_one_central_step(kit):
    """Full batch, one epoch, SGD, weights by training counts."""
    silos = [
        kit.tiny_silo(0, train=(0, 1, 2)),
        kit.tiny_silo(1, nodes=9, train=(0, 3, 4, 5, 8)),
        kit.tiny_silo(2, train=(1,)),
    ]
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.01, "local_epochs": 1}
    server, federation = kit.build("fedavg", silos, **settings)
    model = server.build_model()
    total = sum(len(silo.train) for silo in silos)
    losses = []
    for silo in silos:
        logits = model(GraphTensors(silo.graph).full)
        labels = torch.from_numpy(silo.labels[silo.train])
        losses.append(F.cross_entropy(logits[torch.from_numpy(silo.train)], labels) * len(silo.train) / total)
    torch.stack(losses).sum().backward()
    weights = kit.rounds(server, federation)
    for name, parameter in model.named_parameters():
        expected = parameter.detach() - 0.1 * (parameter.grad + 0.01 * parameter.detach())
        torch.testing.assert_close(weights[name], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "settings", [{}, {"batch_size": 2}, {"local_epochs": 5}, {"optimizer": "sgd", "lr": 0.1}], ids=str
)
def test_one_client_is_centralised_training_bit_for_bit(kit, settings):
    """Against a loop that knows of no federation, with dropout on."""
    silo = kit.tiny_silo(0, nodes=12, train=(0, 1, 2, 5, 7))
    server, federation = kit.build("fedavg", [silo], dropout=0.5, **settings)
    alone = kit.build("local", [silo], dropout=0.5, **settings)[1].client(0)
    for number in (1, 2, 3):
        kit.rounds(server, federation, start=number)
        alone.round = number
        alone.run_epochs()
        assert all(torch.equal(value, server.weights[name]) for name, value in weights_of(alone.model).items())


def test_equal_models_stay_exactly(kit):
    server, federation = kit.quadratic("fedavg", [(0.7, 0.3)] * 3, sizes=(3, 5, 11))
    weights = kit.rounds(server, federation, 3)
    mine = weights_of(federation.client(1).model)
    assert all(torch.equal(weights[name], mine[name]) for name in weights)


def test_clients_may_be_numbered_in_any_order(kit):
    problems, sizes = [(0.7, 0.3), (1.3, -2.0), (2.9, 0.1)], (3, 5, 11)
    first = kit.rounds(*kit.quadratic("fedavg", problems, sizes=sizes), 3)
    second = kit.rounds(*kit.quadratic("fedavg", problems[::-1], sizes=sizes[::-1]), 3)
    for name in first:
        torch.testing.assert_close(first[name], second[name], atol=1e-6, rtol=1e-6)


def test_a_client_without_training_items_is_left_out(kit):
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, train=()), kit.tiny_silo(2)]
    for weight_by in ("train", "nodes", "uniform"):
        with_it = kit.rounds(*kit.build("fedavg", silos, weight_by=weight_by), 2)
        without = kit.rounds(*kit.build("fedavg", [silos[0], silos[2]], weight_by=weight_by), 2)
        assert all(torch.equal(with_it[name], without[name]) for name in with_it)


def test_nobody_with_training_items_leaves_the_model(kit):
    server, federation = kit.build("fedavg", [kit.tiny_silo(0, train=()), kit.tiny_silo(1, train=())])
    before = {name: value.clone() for name, value in server.weights.items()}
    weights = kit.rounds(server, federation)
    assert all(torch.equal(weights[name], before[name]) for name in before)


def test_everybody_starts_from_the_same_weights(kit):
    server, federation = kit.build("fedavg", [kit.tiny_silo(0), kit.tiny_silo(1)])
    for client in (0, 1):
        mine = weights_of(federation.client(client).model)
        assert all(torch.equal(value, server.weights[name]) for name, value in mine.items())
    other, _ = kit.build("fedavg", [kit.tiny_silo(0)], seed=1)
    assert not torch.equal(other.weights["layers.0.weight"], server.weights["layers.0.weight"])


def test_moments_survive_rounds_unless_reset(kit):
    def steps(**settings):
        server, federation = kit.quadratic("fedavg", [(1.0, 0.0)], optimizer="adam", lr=0.01, **settings)
        kit.rounds(server, federation, 3)
        return federation.client(0).trainer.optimizer.state()["step"].item()

    assert steps() == 6.0
    assert steps(reset_optimizer=True) == 2.0


def test_batches_are_steps(kit):
    silo = kit.tiny_silo(0, nodes=12, train=range(7))
    _, federation = kit.build("fedavg", [silo], batch_size=3, local_epochs=2)
    client = federation.client(0)
    client.run_epochs()
    assert client.trainer.optimizer.state()["step"].item() == 2 * 3  # 7 items in batches of 3, 3 and 1


def test_the_servers_tensors_are_never_shared(kit):
    server, federation = kit.quadratic("fedavg", TWO)
    held = server.weights["layers.0.weight"]
    federation.at("round", 1)
    federation.ask(fedavg.Client.train, TrainRequest(weights=server.weights))
    assert held.eq(1.0).all()


def test_bytes_of_a_round_by_formula(kit):
    """Down 4P·m, up (4P + 8)·m; padding and headers counted out exactly."""
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, federation = kit.build("fedavg", silos, participation=0.5)
    kit.rounds(server, federation)
    # GCN 3-4-2: weights 12 and 8, biases 4 and 2; each padded to 64 bytes.
    parameters = sum(value.numel() for value in server.weights.values())
    assert parameters == 12 + 4 + 8 + 2
    padding = sum(-4 * value.numel() % 64 for value in server.weights.values())
    request = encode(TrainRequest(weights=server.weights))
    reply = encode(TrainReply(weights=server.weights, num_samples=3.0))
    down, up = request.num_bytes - 4 * parameters - padding, reply.num_bytes - 4 * parameters - padding
    assert 0 < down < 512
    assert up >= 8  # the count travels in the header, as a double
    assert federation.ledger.total("round", 1) == {
        "up": 2 * (4 * parameters + padding + up),
        "down": 2 * (4 * parameters + padding + down),
    }
    kinds = by_kind(federation.ledger, "up")
    assert kinds == {"model": 2 * (4 * parameters + padding), "counts": 0, "control": 2 * up}


def test_replies_say_what_they_weigh(kit):
    _, federation = kit.quadratic("fedavg", TWO, sizes=(3, 1))
    replies = federation.ask(fedavg.Client.train, TrainRequest(weights=weights_of(federation.client(0).model)))
    assert [reply.num_samples for _, reply in replies] == [3.0, 1.0]
    assert decode(encode(replies[0]).data, TrainReply).num_samples == 3.0


def test_step_to_keeps_the_precision():
    old = {"w": torch.zeros(1, dtype=torch.float32)}
    new = step_to(old, {"w": torch.tensor([0.3], dtype=torch.float64)}, 3.0, 1.0)
    assert new["w"].dtype is torch.float32
    assert new["w"].item() == torch.tensor(0.1).item()


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_float_buffers_are_averaged_and_counters_stay(kit, name):
    """BatchNorm's running statistics are part of the shared model, weighted by 3 and 1 training nodes."""
    silos = [kit.tiny_silo(0), kit.tiny_silo(1, nodes=9, train=(4,))]
    server, federation = kit.build(name, silos, model="gin", model_options={"norm": "batch"})
    before = dict(server.weights)
    weights = kit.rounds(server, federation)
    statistics = [key for key in weights if "running" in key]
    assert len(statistics) == 4
    assert not any("num_batches" in key for key in weights)
    for key in statistics:
        mine = [weights_of(federation.client(client).model)[key].double() for client in (0, 1)]
        torch.testing.assert_close(weights[key].double(), (3 * mine[0] + mine[1]) / 4, atol=1e-7, rtol=1e-6)
        assert not torch.equal(weights[key], before[key])


@pytest.mark.parametrize(("weight_by", "expected"), [("train", [6.0, 9.0]), ("nodes", [10.0, 14.0])])
def test_graph_classification_counts_graphs(kit, weight_by, expected):
    # 24 paths of two nodes; 10 and 14 of them, of which 6 and 9 train.
    pointer = np.arange(0, 49, 2)
    pairs = np.stack([pointer[:-1], pointer[:-1] + 1])
    union = Graph(np.ones((48, 3), dtype=np.float32), np.concatenate([pairs, pairs[::-1]], axis=1), np.full(48, -1), 2)
    whole = GraphCollection(union, pointer, np.arange(24) % 2, 2)
    silos = []
    for client, (graphs, train) in enumerate([(np.arange(10), 6), (np.arange(10, 24), 9)]):
        held = whole.subset(graphs)
        items = {"train": np.arange(train), "test": np.arange(train, len(graphs))}
        silos.append(Silo(client, held, np.arange(train), (EvaluationSet("seen", held, items),), Schema("graph", 3, 2)))
    _, federation = kit.build("fedavg", silos, model="gin", weight_by=weight_by)
    assert [federation.client(client).weight for client in (0, 1)] == expected


def test_the_bytes_of_a_run_are_expected(kit):
    silos = [kit.tiny_silo(client) for client in range(4)]
    server, _ = kit.build("fedavg", silos, rounds=5, participation=0.5)
    # Five rounds of two clients, a model of 4 bytes per entry each way.
    entries = sum(weight.numel() for weight in server.weights.values())
    assert server.expected_bytes() == (5 * 2 * 4 * entries, 5 * 2 * 4 * entries)
    assert kit.build("local", silos)[0].expected_bytes() == (0, 0)


def test_the_own_model_and_the_shared_one_answer_each_for_itself(kit):
    _, federation = kit.build("fedavg", [kit.tiny_silo(0)])
    client = federation.client(0)
    own = client.predict(client.data)
    assert torch.equal(client.predict(client.data, "aggregate"), own)  # nothing else has come yet
    client.install_aggregate({name: torch.zeros_like(weight) for name, weight in client.weights.items()})
    # Weights of 0 say that two classes are alike.
    assert client.predict(client.data, "aggregate").flatten().tolist() == [0.0] * 12
    assert torch.equal(client.predict(client.data, "own"), own)
    assert not torch.equal(client.predict(client.data, "aggregate"), own)


def test_local_counts_who_trained(kit):
    _, federation = kit.build("local", [kit.tiny_silo(client) for client in range(3)])
    federation.at("round", 1)
    assert federation.sum(local.Client.train_alone, local.TrainRequest(), to=(0, 2)).require(2).clients == 2


def test_local_never_mixes(kit):
    silos = [kit.tiny_silo(0), kit.tiny_silo(1)]
    server, federation = kit.build("local", silos)
    kit.rounds(server, federation)
    alone_server, alone = kit.build("local", silos[:1])
    kit.rounds(alone_server, alone)
    mine, his = weights_of(federation.client(0).model), weights_of(alone.client(0).model)
    assert all(torch.equal(mine[name], his[name]) for name in mine)
    assert by_kind(federation.ledger, "up") == {"counts": 0, "control": federation.ledger.total("round")["up"]}


@pytest.mark.parametrize(
    ("fan_out", "text"),
    [
        ([], "the model has 2 layers, a list of no numbers came"),
        ([5], r"a list of 1 number came\. One for all layers is said without brackets: fan_out=5"),
        ([5, 3, 1], "a list of 3 numbers came"),
        ([0, 0, 0], "a list of 3 numbers came"),
    ],
)
def test_a_list_of_neighbours_has_one_number_for_each_layer(small, fan_out, text):
    with pytest.raises(ConfigError, match=f"method.fan_out is one number for all layers.*{text}"):
        run(small(method__fan_out=fan_out))


def test_what_leaves_a_silo():
    check_sent(
        "fedavg",
        """
        train weights: model float32 weighted_by=num_samples
        train num_samples: counts
        """,
    )
