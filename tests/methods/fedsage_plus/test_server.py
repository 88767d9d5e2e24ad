"""What the server of FedSage+ makes of the answers."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import FederationError, UnsupportedError
from graphsilo.federation import registry
from graphsilo.methods.fedsage_plus import Client, FedSagePlusConfig
from graphsilo.methods.fedsage_plus.server import check_volume
from graphsilo.random import generator
from graphsilo.testing import conformance
from graphsilo.training import neighgen
from kit.fedsage_plus import SMALL


def test_the_server_sees_only_sums_of_gradients():
    server, _, spy = conformance.assemble(registry.load("fedsage_plus"), SMALL)
    server.set_up(spy)
    assert spy.asked == {"offer", "improve", "mend"}
    assert {"pretrain", "compare"} <= spy.summed


def triple(kit, **settings):
    silos = [kit.tiny_silo(client, nodes=24, train=range(0, 24, 2)) for client in range(3)]
    return kit.build("fedsage_plus", silos, model="sage", **{**SMALL, "count_bias": 2.6, **settings})


def break_down(monkeypatch, *clients):
    """These clients answer nothing after local training; returns what they were asked."""
    asked = []

    def broken(handler):
        function = handler.function

        def run(self, request):
            if self.id in clients:
                asked.append((self.id, handler.name))
                raise RuntimeError("gone")
            return function(self, request)

        monkeypatch.setattr(handler, "function", run)

    for handler in (Client.offer, Client.offer_outputs, Client.compare, Client.compare_outputs, Client.improve):
        broken(handler)
    broken(Client.mend)
    return asked


@pytest.mark.parametrize("exchange", ["weights", "outputs"])
def test_whoever_is_helped_is_one_of_those_that_must_be_there(kit, exchange):
    mended = []
    for minimum in (None, 3):
        server, federation = triple(kit, exchange=exchange, min_clients=minimum)
        server.set_up(federation)
        mended.append([federation.client(client).mended for client in range(3)])
    assert all(torch.equal(one.features, other.features) for one, other in zip(*mended, strict=True))


@pytest.mark.parametrize("exchange", ["weights", "outputs"])
@pytest.mark.parametrize(("minimum", "gone"), [(2, (2,)), (1, (1, 2))])
def test_set_up_without_those_that_fail(kit, monkeypatch, exchange, minimum, gone):
    asked = break_down(monkeypatch, *gone)
    server, federation = triple(kit, exchange=exchange, min_clients=minimum, generator_epochs=3)
    server.set_up(federation)
    offer = "offer" if exchange == "weights" else "offer_outputs"
    for client in range(3):
        assert (federation.client(client).mended is None) == (client in gone)
    # Each is asked once to compare, and in its own turn once for an offer and once to mend.
    compare = offer.replace("offer", "compare")
    assert sorted(asked) == sorted((client, what) for client in gone for what in (compare, offer, "mend"))


def test_too_few_left_in_set_up(kit, monkeypatch):
    break_down(monkeypatch, 2)
    server, federation = triple(kit, min_clients=3)
    with pytest.raises(FederationError, match="2 clients had to answer, 1 did"):
        server.set_up(federation)


# -- variants, study, conformance ------------------------------------------------------------------------------------


def test_a_shared_generator_is_trained_on_the_mean_of_the_gradients(kit):
    silos = [kit.tiny_silo(client, nodes=24, train=range(0, 24, 2)) for client in range(2)]
    settings = {**SMALL, "neighgen": "shared", "local_generator_epochs": 1, "generator_epochs": 0}
    server, federation = kit.build("fedsage_plus", silos, model="sage", **settings)
    weights = server._train_shared(federation)
    # one step of Adam: every weight with a gradient moves by the learning rate, whatever the gradient's size
    start = neighgen.initial_weights(server.config, 3, 2, lambda part: generator(0, "server", "neighgen", part))
    moved = (weights["classifier.1.bias"] - start["classifier.1.bias"]).abs()
    assert moved.tolist() == pytest.approx([1e-3, 1e-3], rel=1e-2)
    assert weights.keys() == start.keys()


def test_an_exchange_that_would_not_end_is_refused_before_it_starts():
    check_volume(FedSagePlusConfig(), 1000, 1433)
    everybody = {"helpers": 0, "generator_hidden": (256, 2048)}
    check_volume(FedSagePlusConfig(**everybody), 10, 1433)
    # Body 128 · 256 + 256 + 256 · 2048 + 2048, one slot 2049 · 1433; there and back; 1000 · 999 · 20 times: 558.7 TB.
    with pytest.raises(UnsupportedError, match=r"2e\+07 comparisons that carry at least 559 TB.*neighgen=shared"):
        check_volume(FedSagePlusConfig(**everybody), 1000, 1433)
    with pytest.raises(UnsupportedError, match=r"2e\+07 comparisons\. Set"):
        check_volume(FedSagePlusConfig(exchange="outputs", helpers=0), 1000, 1433)
    check_volume(FedSagePlusConfig(alpha=0.0, **everybody), 1000, 1433)
    check_volume(FedSagePlusConfig(exchange="outputs", helpers=0, generator_epochs=5), 1000, 1433)


def bytes_beside_headers(federation, direction):
    """Of tensors, in set-up and evaluation left out."""
    return sum(
        row[8]
        for row in federation.ledger.rows()
        if row[3] == direction and row[7] in ("generator", "gradient", "model")
    )


@pytest.mark.parametrize("choice", ["own", "shared"])
@pytest.mark.parametrize("helpers", [0, 1])
def test_expected_bytes_are_those_that_are_sent(kit, choice, helpers):
    """With all five slots in use; d = 3, widths 8 and 16 after embeddings of 8: 72 + 144 + 5 · 17 · 3 = 471 weights."""
    server, federation = triple(kit, neighgen=choice, helpers=helpers, count_bias=9.0, generator_lr=1e-9)
    sent, received = server.expected_bytes()
    classifier = 4 * server.rounds * 3 * sum(weight.numel() for weight in server.weights.values())
    if choice == "own":  # an offer, and 1 or 2 comparisons; a sum in place of the offer
        assert sent == received == 3 * 2 * (1 + (helpers or 2)) * 4 * 471 + classifier
    else:  # 4 epochs; encoder and classifier 2 · 16 + 5 · (8 + 2), count 9, 91 more; once more for mending
        assert sent == 4 * 3 * 4 * (471 + 91) + classifier
        assert received == 5 * 3 * 4 * (471 + 91) + classifier
    federation.at("setup", 0)
    server.set_up(federation)
    setup = {"up": sent - classifier, "down": received - classifier}
    for direction, wanted in setup.items():
        padding = 1.25 if choice == "own" else 1.5  # small tensors are rounded up to 64 bytes
        assert wanted <= bytes_beside_headers(federation, direction) < padding * wanted
