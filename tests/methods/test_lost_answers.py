"""SCAFFOLD and FedDC where rounds go on without some answers: server and clients keep agreeing, by hand."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphsilo.errors import DisclosureError, FederationError
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.codec import decode_tree, encode, encode_tree
from graphsilo.federation.interface import Failure
from graphsilo.federation.message import Empty
from graphsilo.federation.secure import CALL, MASK
from graphsilo.runtime import dispatch
from graphsilo.runtime.dispatch import Inbox
from graphsilo.runtime.local import clients
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.local.workers import Workers
from graphsilo.runtime.secure import SecureSums
from graphsilo.testing import conformance

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
    assert federation.uncounted == {}
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
    assert federation.uncounted == {1: 3, 4: 4}  # the first step is set-up's
    assert kit.value_of(server.control) != pytest.approx(mean(of(kit, federation, "control")), abs=1e-2)
    kit.rounds(server, federation, 2, start=4)
    assert federation.uncounted == {}
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


def test_who_is_told_what(kit):
    """The first step that was missed, until one is counted; the first step of all is set-up's."""
    lost = [(2, 1), (3, 1), (3, 2)]
    server, federation = losing(kit, "scaffold", [*TWO, (2.0, 1.0), (1.0, 1.0)], lost=lost)
    deliver, told = federation.deliver, []

    def watched(handler, round, outgoing):
        told.append((federation.turn, dict(federation.back)))
        return deliver(handler, round, outgoing)

    federation.deliver = watched
    kit.rounds(server, federation, 5)
    assert told == [(1, {}), (2, {}), (3, {}), (4, {1: 3}), (5, {1: 3, 2: 4}), (6, {})]


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_a_request_that_comes_after_a_later_one_is_refused(kit, name):
    """It would change what the server counts as answered."""
    server, federation = losing(kit, name)
    kit.rounds(server, federation, 3)
    before = of(kit, federation, "control")
    late = federation.cache.call(1, "train", 2, Inbox(encode(Empty()).data), (3, None))
    assert late.reason == "a request came after that of a later step: nobody waits for its answer any more."
    assert of(kit, federation, "control") == before


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_nothing_more_is_kept_where_every_answer_is_needed(kit, name):
    """And where not, one copy of what lasts, until the next step."""
    for settings in ({}, {"min_clients": 1}):
        server, federation = kit.quadratic(name, TWO, **settings)
        kit.rounds(server, federation, 3)
        before = federation.cache.get(0).state().get("before")
        assert (before and list(before[0])) == (list(federation.client(0).kept) if settings else None)
        assert "before" not in federation.client_states()[0]


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


def test_an_answer_that_the_silo_refuses_to_send_is_taken_back(kit, monkeypatch):
    """By its policy, after the step: as if it had never been asked for, bit for bit."""

    def check(step, reply):
        if (gate.round, gate.client) == (2, 1):
            raise DisclosureError("it holds too much.")

    gate = SimpleNamespace(
        admit=lambda number: None, check_single=lambda step, kind: None, check=check, singles=None,
        may_report=lambda error: True, only_sums=lambda step: False,
    )  # fmt: skip

    def guarded(held, name, number, inbox, _, turn):
        gate.round, gate.client = number, held.client.id
        return dispatch.call(held, name, number, inbox, gate, turn)

    found = []
    for unasked in ([], [(2, 1)]):
        if not unasked:
            monkeypatch.setattr(clients, "call", guarded)
        server, federation = losing(kit, "scaffold", unasked=unasked)
        kit.rounds(server, federation, 4)
        monkeypatch.undo()
        found.append([kit.value_of(server.weights), kit.value_of(server.control), *of(kit, federation, "control")])
    assert found[0] == found[1]


@pytest.mark.parametrize("lost", [[], [(2, 1)], [(1, 0), (2, 0), (4, 1)]], ids=str)
def test_a_method_that_only_names_what_lasts(kit, monkeypatch, lost):
    """FedDyn of the documentation: h is the mean of all g_k, whatever was lost. Without ``kept`` it is not: -0.119 for
    -0.298 (α = ½) where client 1's answer of round 2 is lost."""
    path = Path(__file__).parents[2] / "examples" / "feddyn.py"
    method = runpy.run_path(str(path))["METHOD"]
    monkeypatch.setitem(registry._REGISTERED, "feddyn", method)
    server, federation = losing(kit, "feddyn", lost=lost, alpha=0.5)
    kit.rounds(server, federation, 5)
    slopes = [float(federation.client(client).slopes[0].flatten()[0]) for client in (0, 1)]
    assert kit.value_of(server.shift) == pytest.approx(mean(slopes), abs=1e-5)


PLACES = {
    "workers": {"workers": 2}, "offloaded": {"resident_clients": 1},
    "offloaded at workers": {"workers": 2, "resident_clients": 2},
}  # fmt: skip


@pytest.fixture
def unheard(monkeypatch):
    """Of four clients some are not heard in training, one in an evaluation, and one is not asked in another."""
    gone = {("train", 1): {1}, ("train", 2): {1, 3}, ("evaluate", 3): {0}, ("train", 4): {0}}

    def wrap(deliver):
        def losing(self, handler, round, outgoing):
            away = {3} & outgoing.keys() if (handler, round) == ("evaluate", 2) else set()
            asked = {client: what for client, what in outgoing.items() if client not in away}
            for client, answer in deliver(self, handler, round, asked):
                yield client, Losing.gone(client, handler) if client in gone.get((handler, round), ()) else answer
            yield from ((client, Losing.gone(client, handler)) for client in away)

        return losing

    for kind in (InProcess, Workers):
        monkeypatch.setattr(kind, "deliver", wrap(kind.deliver))


def lossy(name, out=None, observer=None, resume=False, **how):
    settings = {**registry.load(name).quick, "min_clients": 1, "rounds": 5}
    how = {"checkpoint_every": 1, "compression": "topk" if name == "fedavg" else "none", **how}
    config = conformance.small_config(registry.load(name), settings, run=how)
    return conformance.numbers(run(config, out=out, resume=resume, observer=observer).tree)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaffold", "feddistill", "moon", "fedavg"])
def test_where_clients_are_changes_nothing(unheard, name, tmp_path):
    """FedAvg's answers are compressed."""
    whole = lossy(name)
    for place, how in PLACES.items():
        assert lossy(name, **how) == whole, place
    for round_, how in ((1, {}), (2, {"resident_clients": 1}), (4, {"workers": 2})):
        with pytest.raises(conformance._Stopped):
            lossy(name, tmp_path / str(round_), conformance._Stop(round_), **how)
        assert lossy(name, tmp_path / str(round_), resume=True, **how) == whole, f"stopped after round {round_}"
