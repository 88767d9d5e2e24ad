"""SCAFFOLD and FedDC where rounds go on without some answers: server and clients keep agreeing, by hand."""

from __future__ import annotations

import pytest
import torch

from graphsilo.errors import FederationError, MessageError
from graphsilo.federation.codec import decode_tree, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure.messages import CALL, MASK
from graphsilo.methods import feddc, scaffold
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.secure import SecureSums

TWO = [(1.0, 0.0), (3.0, 4.0)]
"""f_1 = (x - 0)²/2 and f_2 = 3/2 (x - 4)²; their sum is least at 3."""
FEDDC = {"alpha": 0.5, "correction": "scaffold"}


class Losing(InProcess):
    """Loses answers on the way back, and requests on the way there.

    Attributes:
        lost, unasked: Of whom, as (round, client).
        step: At which step; None: at every one.
    """

    step: str | None = None
    lost: frozenset[tuple[int, int]] = frozenset()
    unasked: frozenset[tuple[int, int]] = frozenset()

    def deliver(self, handler, round, outgoing):
        reached = {client: what for client, what in outgoing.items() if (round, client) not in self.unasked}
        for client, answer in super().deliver(handler, round, reached):
            lost = (round, client) in self.lost and self.step in (None, handler)
            yield client, self.gone(client, handler) if lost else answer
        yield from ((client, self.gone(client, handler)) for client in outgoing.keys() - reached.keys())

    @staticmethod
    def gone(client, handler):
        return Failure(client, handler, "Gone", "it did not finish in time")


def losing(kit, name, problems=TWO, *, lost=(), unasked=(), **settings):
    server, federation = kit.quadratic(name, problems, min_clients=1, **settings)
    federation.__class__ = Losing
    federation.lost, federation.unasked = frozenset(lost), frozenset(unasked)
    return server, federation


def of(kit, federation, name):
    return [kit.value_of(getattr(federation.client(client), name)) for client in federation.clients]


def mean(values):
    return sum(values) / len(values)


def test_scaffold_by_hand(kit):
    """Rate 0.1, two steps, from 1; round 1 as in the specification: w = 1.67, c = -3.35, c_k = 0.95 and -7.65.

    Round 2: client 1 makes c_1 = -6.5865 of it, and its answer is lost. w is client 0's alone, 2.1697, and
    c = -3.35 + (1.8015 - 0.95) / 2 = -2.92425, the mean of 1.8015 and -7.65.
    Round 3: client 1 is back at -7.65. Corrections -4.72575 and 4.72575, so 2.1697 -> 2.425305 -> 2.6553495 with
    c_0 = (2.1697 + 2.425305) / 2, and 2.1697 - 0.1 (-5.4909 + 4.72575) = 2.246215 -> 2.2997755 with
    c_1 = (-5.4909 - 5.261355) / 2.
    """
    server, federation = losing(kit, "scaffold", lost=[(2, 1)])
    kit.rounds(server, federation, 2)
    assert of(kit, federation, "control") == pytest.approx([1.8015, -6.5865], abs=1e-4)
    assert kit.value_of(server.weights) == pytest.approx(2.1697, abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(-2.92425, abs=1e-4)
    kit.rounds(server, federation, start=3)
    assert of(kit, federation, "control") == pytest.approx([2.2975025, -5.3761275], abs=1e-4)
    assert kit.value_of(server.weights) == pytest.approx(2.4775625, abs=1e-4)
    assert kit.value_of(server.control) == pytest.approx(-1.5393125, abs=1e-4)


def test_feddc_by_hand(kit):
    """Rate 0.1, two steps, α = ½, from 1; round 1 as in the specification: w = 2.3, c = -3.25, h_1 = 1.485.

    Round 2: client 1's answer is lost. Client 0: θ = 2.6639875, h_0 = 0.1789875, c_0 = 2.3550625; so
    H = (0.1789875 + 1.485) / 2 = 0.83199375, w = θ + H = 3.49598125, c = (2.3550625 - 7.425) / 2 = -2.53496875.
    Round 3, client 1 with h_1 = 1.485 and c_1 = -7.425 again, gradients 3 (x - 4) + 4.89003125 + ½ (x - w + 1.485):
    3.49598125 -> 3.08393375 -> 2.816102875; h_1 = 1.485 - 0.679878375. Client 0, x - 4.89003125 + ½ (x - w +
    0.1789875): 3.49598125 -> 3.626436875 -> 3.73732415625. H = (0.42033040625 + 0.805121625) / 2.
    """
    server, federation = losing(kit, "feddc", lost=[(2, 1)], **FEDDC)
    kit.rounds(server, federation, 2)
    assert kit.value_of(server.drift) == pytest.approx(0.83199375, abs=1e-5)
    assert kit.value_of(server.weights) == pytest.approx(3.49598125, abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(-2.53496875, abs=1e-4)
    kit.rounds(server, federation, start=3)
    assert of(kit, federation, "drift") == pytest.approx([0.42033040625, 0.805121625], abs=1e-5)
    assert of(kit, federation, "control") == pytest.approx([3.68331671875, -1.490639375], abs=1e-4)
    assert kit.value_of(server.drift) == pytest.approx(0.612726015625, abs=1e-5)
    assert kit.value_of(server.weights) == pytest.approx(3.88943953125, abs=1e-5)
    assert kit.value_of(server.control) == pytest.approx(1.096338671875, abs=1e-4)


WAYS = {
    "one answer": {"lost": [(2, 1)]},
    "three in a row": {"lost": [(2, 1), (3, 1), (4, 1)]},
    "one, and later another": {"lost": [(2, 1), (4, 1)]},
    "one, and a request after it": {"lost": [(2, 1)], "unasked": [(3, 1)]},
    "a request, and an answer after it": {"lost": [(3, 1)], "unasked": [(2, 1)]},
    "a request": {"unasked": [(2, 1)]},
    "the first": {"lost": [(1, 1)]},
    "who was away when all were counted": {"unasked": [(0, 1), (1, 1), (2, 1)]},
    "two who were, and come back in turn": {"unasked": [(0, 1), (0, 2), (1, 1), (2, 1), (1, 2)]},
    "of two clients": {"lost": [(2, 1), (2, 0), (3, 1), (4, 2)]},
}


@pytest.mark.parametrize("resumed", [False, True], ids=["", "resumed"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_the_server_has_the_means_of_what_clients_keep(kit, name, way, resumed):
    """Whatever was lost, and whether or not everybody was put away in between: after a round that all answered."""
    problems, more = [*TWO, (2.0, 1.0)], {"scaffold": {}, "feddc": FEDDC}[name]
    server, federation = losing(kit, name, problems, **WAYS[way], **more)
    for number in range(1, 7):
        kit.rounds(server, federation, start=number)
        if resumed:  # through the bytes of a checkpoint
            kept = decode_tree(encode_tree({"server": server.state(), "clients": federation.client_states()}).data)
            server, federation = losing(kit, name, problems, **WAYS[way], **more)
            server.load_state(kept["server"])
            federation.load_client_states(kept["clients"])
    assert server.missed == {}
    assert kit.value_of(server.control) == pytest.approx(mean(of(kit, federation, "control")), abs=1e-4)
    if name == "feddc":
        assert kit.value_of(server.drift) == pytest.approx(mean(of(kit, federation, "drift")), abs=1e-5)


@pytest.mark.parametrize("step", [CALL + "train", MASK])
@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_who_drops_out_of_a_secure_sum_steps_back(kit, name, step):
    """Before its answer was offered, or masked: all have trained, and the sum is opened without it."""
    problems, more = [*TWO, (2.0, 1.0), (1.0, 5.0), (1.0, 1.0)], {"scaffold": {}, "feddc": FEDDC}[name]
    server, federation = losing(kit, name, problems, lost=[(2, 1), (3, 1), (3, 4)], **more)
    federation.secure, federation.step = SecureSums(0), step
    kit.rounds(server, federation, 3)
    assert server.missed == {1: 2, 4: 3}
    assert kit.value_of(server.control) != pytest.approx(mean(of(kit, federation, "control")), abs=1e-2)
    kit.rounds(server, federation, 2, start=4)
    assert server.missed == {}
    assert kit.value_of(server.control) == pytest.approx(mean(of(kit, federation, "control")), abs=1e-4)
    if name == "feddc":
        assert kit.value_of(server.drift) == pytest.approx(mean(of(kit, federation, "drift")), abs=1e-5)


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_an_answer_that_is_lost_is_as_if_it_had_never_been_asked_for(kit, name):
    """Bit for bit; it may have come late, or not at all."""
    found = []
    for way in ("lost", "unasked"):
        server, federation = losing(kit, name, **{way: [(2, 1), (3, 1), (6, 0)]})
        kit.rounds(server, federation, 8)
        values = [kit.value_of(server.weights), kit.value_of(server.control), *of(kit, federation, "control")]
        found.append([*values, *(of(kit, federation, "drift") if name == "feddc" else [])])
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "settings"), [("scaffold", {}), ("feddc", FEDDC)], ids=["scaffold", "feddc"])
def test_it_still_ends_in_the_common_optimum(kit, name, settings):
    """Every third answer of client 1 is lost: 3, of (x - 0)²/2 and 3/2 (x - 4)²; drifts stay what optima are apart."""
    server, federation = losing(kit, name, lost=[(number, 1) for number in range(2, 149, 3)], **settings)
    assert kit.value_of(kit.rounds(server, federation, 150)) == pytest.approx(3.0, abs=1e-2)
    if name == "feddc":
        assert mean(of(kit, federation, "drift")) == pytest.approx(kit.value_of(server.drift), abs=1e-4)
        assert max(map(abs, of(kit, federation, "drift"))) < 10.0


def test_who_is_told_what(kit):
    """The round of the first answer that was missed, until one is counted; one message for all that missed the same."""
    lost = [(2, 1), (3, 1), (3, 2)]
    server, federation = losing(kit, "scaffold", [*TWO, (2.0, 1.0), (1.0, 1.0)], lost=lost)
    sums, told = federation.sum, []

    def watched(handler, request, *, to=None):
        if handler.name == "train":
            told.append(({client: one.missed for client, one in request.items()}, len(set(map(id, request.values())))))
        return sums(handler, request, to=to)

    federation.sum = watched
    kit.rounds(server, federation, 5)
    nobody = dict.fromkeys(range(4), 0)
    assert told == [(nobody, 1), (nobody, 1), ({**nobody, 1: 2}, 2), ({**nobody, 1: 2, 2: 3}, 3), (nobody, 1)]


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_a_request_that_comes_after_a_later_one_is_refused(kit, name):
    """It would change what the server counts as answered."""
    server, federation = losing(kit, name)
    kit.rounds(server, federation, 3)
    client, before = federation.client(1), of(kit, federation, "control")
    client.round = 2
    more = {"mean_weight": 1.0} if name == "feddc" else {}
    kind = feddc.TrainRequest if name == "feddc" else scaffold.TrainRequest
    with pytest.raises(MessageError, match="a request of round 2 came after that of round 3"):
        client.train(kind(weights=server.weights, control=server.control, **more))
    assert of(kit, federation, "control") == before


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_nothing_more_is_kept_where_every_answer_is_needed(kit, name):
    """And where not, one copy of what the server has the mean of."""
    for settings in ({}, {"min_clients": 1}):
        server, federation = kit.quadratic(name, TWO, **settings)
        kit.rounds(server, federation, 3)
        state = federation.client(0).state()
        kept = [values for values in state["before"].values() if isinstance(values["layers.0.weight"], torch.Tensor)]
        assert len(kept) == (len(federation.client(0).mirrored) if settings else 0)


@pytest.mark.parametrize("weighted", ["means", "objectives"])
def test_means_over_those_known_become_means_over_all(kit, weighted):
    """p = 1, 3 and 2, the last away when they are counted and in round 1: c and H are over 4 then, over 6 at last."""
    sizes, problems = [1, 3, 2], [*TWO, (2.0, 1.0)]
    server, federation = losing(
        kit, "feddc", problems, unasked=[(0, 2), (1, 2)], sizes=sizes, weighted=weighted, **FEDDC
    )
    for number, known in ((1, 2), (2, 3), (3, 3)):
        kit.rounds(server, federation, start=number)
        count = sum(sizes[:known])
        control = sum(p * c for p, c in zip(sizes, of(kit, federation, "control"), strict=True)) / count
        shares = sizes if weighted == "means" else [1, 1, 1]
        drift = sum(p * h for p, h in zip(shares, of(kit, federation, "drift"), strict=True)) / sum(shares[:known])
        assert kit.value_of(server.control) == pytest.approx(control, abs=1e-4)
        assert kit.value_of(server.drift) == pytest.approx(drift, abs=1e-5)
    assert server.known == [0, 1, 2]


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_means_over_nobody_are_refused(kit, name):
    """The only silo that says what it counts for has nothing to train on."""
    server, federation = losing(kit, name, unasked=[(0, 1)], sizes=[0, 1])
    with pytest.raises(FederationError, match="1 of 2 did not say it; the others have nothing to train on"):
        kit.rounds(server, federation)
