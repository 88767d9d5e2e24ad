"""Secure sums over the runtimes: the same numbers as in plain and in every runtime; what is refused, noted, seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partialmethod
from typing import Any

import pytest
import torch

from graphsilo.errors import ConfigError, DisclosureError, FederationError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.interface import Failure
from graphsilo.federation.secure import AGAIN, CALL, CONFIRM, MASK, OPEN, SHARE
from graphsilo.federation.secure.messages import Opening
from graphsilo.federation.secure.party import Party, Sum
from graphsilo.federation.server import ServerContext
from graphsilo.federation.wire import Encoded
from graphsilo.methods import fedavg
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.secure import SecureSums
from graphsilo.runtime.setup import ClientSetup
from graphsilo.testing import conformance
from graphsilo.testing.conformance import _Stop, _Stopped, small_config
from kit.broad import broadly
from kit.secure import garbling, lying

SECURE = {"secure_sums": True}
TRAIN = CALL + "train"


class Losing(InProcess):
    """Clients drop out at a step, and stay away.

    Attributes:
        gone: By step, who drops out.
        steps: What was asked, with how many clients it was asked of.
    """

    def __init__(self, gone: Mapping[str, set[int]], *arguments: Any):
        super().__init__(*arguments)
        self.gone, self.away, self.steps = gone, set[int](), list[tuple[str, int]]()
        self.secure = SecureSums(0)

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[int, Encoded]
    ) -> Iterator[tuple[int, Encoded | Failure]]:
        self.steps.append((handler, len(outgoing)))
        self.away |= self.gone.get(handler, set())
        for client, answer in super().deliver(handler, round, outgoing):
            yield client, Failure(client, handler, "Gone", "it went away") if client in self.away else answer


def total_of(gone: Mapping[str, set[int]], clients: int = 7, kind: type[Losing] = Losing) -> tuple[Any, Losing]:
    """The first sum of a FedAvg run over seven clients, of whom some drop out."""
    config = small_config(fedavg.METHOD, {}, clients=clients)
    simulation = prepare(config, fedavg.METHOD)
    silos = {silo.client: silo for silo in simulation.silos}
    setup = ClientSetup(fedavg.METHOD, config.method_config(), simulation.models, 0)
    federation = kind(gone, list(silos), lambda client: setup.client(silos[client]))
    context = ServerContext(config.method_config(), simulation.schema, simulation.models, 0, federation.clients)
    server = fedavg.Server(context)
    federation.at("round", 1)
    request = fedavg.TrainRequest(weights=server.weights)
    return federation.sum(fedavg.Client.train, request), federation


def same_mean(one: Any, other: Any) -> bool:
    """Whether two sums have the same mean, in float32, up to the last bit of some."""
    assert one.num_samples == other.num_samples
    apart = [
        (
            (one.weights[name] / one.num_samples).float().view(torch.int32)
            - (other.weights[name] / other.num_samples).float().view(torch.int32)
        ).abs()
        for name in one.weights
    ]
    entries = torch.cat([part.flatten() for part in apart])
    return int(entries.max()) <= 1 and float((entries == 0).double().mean()) > 0.999


# -- clients that drop out ---------------------------------------------------------------------------------------------


def test_nobody_drops_out():
    total, federation = total_of({})
    assert total.clients == tuple(range(7))
    assert not total.failures
    assert not federation.failures
    assert federation.participants == set(range(7))
    assert federation.steps == [(TRAIN, 7), (SHARE, 7), (MASK, 7), (CONFIRM, 7), (OPEN, 7)]


@pytest.mark.parametrize("step", [TRAIN, SHARE, MASK])
def test_a_sum_that_the_run_does_not_go_on_with_is_not_opened(step):
    """Silos would keep to those who were left, and the next run of all be refused."""

    class Demanding(Losing):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.secure = SecureSums(0, minimum=None)

    total, federation = total_of({step: {2}}, kind=Demanding)
    assert total.message is None
    assert len(total.failures) == 7
    wanted = "needs the answers of 7 (method.min_clients)" if step == TRAIN else "the sum takes 7 (method.min_clients)"
    assert wanted in total.failures[0].reason
    assert {CONFIRM, OPEN}.isdisjoint(name for name, _ in federation.steps)
    assert total_of({}, kind=Demanding)[0].clients == tuple(range(7))


@pytest.mark.parametrize("step", [TRAIN, SHARE, MASK])
def test_who_drops_out_before_its_answer_has_come_has_failed(step):
    total, federation = total_of({step: {2, 5}})
    assert total.clients == (0, 1, 3, 4, 6)
    assert {client: failure.reason for client, failure in total.failures.items()} == dict.fromkeys(
        (2, 5), "it went away"
    )
    assert {failure.handler for failure in federation.failures} == {"train"}
    whole, _ = total_of({})
    assert total.message.num_samples < whole.message.num_samples
    again, _ = total_of({TRAIN: {2, 5}})
    assert same_mean(total.message, again.message)


@pytest.mark.parametrize("step", [CONFIRM, OPEN])
def test_who_drops_out_later_is_in_the_sum(step):
    total, _ = total_of({step: {2, 5}})
    whole, _ = total_of({})
    assert total.clients == tuple(range(7))
    assert not total.failures
    assert all(torch.equal(total.message.weights[name], whole.message.weights[name]) for name in whole.message.weights)


@pytest.mark.parametrize("step", [SHARE, MASK, CONFIRM])
def test_where_too_many_drop_out_the_others_begin_again_without_training_again(step):
    total, federation = total_of({step: {1, 2, 5}})
    assert total.clients == (0, 3, 4, 6)
    assert sorted(total.failures) == [1, 2, 5]
    assert [name for name, _ in federation.steps].count(TRAIN) == 1
    assert (AGAIN, 4) in federation.steps
    again, _ = total_of({TRAIN: {1, 2, 5}})
    assert same_mean(total.message, again.message)


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ({MASK: {1, 2, 3, 4, 5}}, "2 of 7 clients sent their masked answers; the sum takes 5"),
        ({CONFIRM: {1, 2, 3, 4, 5}}, "2 of 7 clients confirmed whose answers came; it takes 5"),
        ({OPEN: {1, 2, 5}}, "4 shares of client 0's secret came; it takes 5"),
        ({TRAIN: {0, 1, 2, 3, 4}}, "needs the answers of 3 clients or more"),
    ],
)
def test_a_sum_that_cannot_be_opened_fails_whole(gone, reason):
    total, _ = total_of(gone)
    assert total.message is None
    assert total.clients == ()
    assert sorted(total.failures) == list(range(7))
    kinds = {failure.kind for failure in total.failures.values()}
    assert "SecureSumFailed" in kinds
    assert any(reason in failure.reason for failure in total.failures.values())
    with pytest.raises(FederationError, match="7 clients had to answer, 0 did") as caught:
        total.require()
    (named,) = re.findall(r"did\. First failure: client (\d)", str(caught.value))
    assert int(named) in set().union(*gone.values())  # not who only has no sum now


def test_who_dropped_out_is_named_and_not_who_refuses_a_sum_without_it(monkeypatch):
    """Once a sum over seven silos was opened, the six others do not open one by themselves."""
    monkeypatch.setattr(Party, "__init__", partialmethod(Party.__init__, data="d"))
    total, federation = total_of({})
    assert total.clients == tuple(range(7))
    federation.gone = {MASK: {4}}
    request = fedavg.TrainRequest(weights={name: value.float() for name, value in total.message.weights.items()})
    with pytest.raises(FederationError) as caught:
        federation.sum(fedavg.Client.train, request).require(3)
    words = (
        r"First failure: client 4 failed in 'train' \(Gone: it went away; others refuse a sum without it: these data"
    )
    assert re.search(words, str(caught.value))


class Lying(Losing):
    """Client 2 opens with a wrong share."""

    def deliver(self, handler: str, round: int, outgoing: Mapping[int, Encoded]) -> Iterator[tuple[int, Any]]:
        for client, answer in super().deliver(handler, round, outgoing):
            if handler == OPEN and client == 2 and isinstance(answer, Encoded):
                opening = decode(answer.data, Opening)
                answer = encode(Opening(came=opening.came, own=opening.own ^ 1, missing=[], keys=opening.keys))
            yield client, answer


def test_who_opens_with_wrong_shares_is_named_and_the_sum_opened_without_them():
    honest, _ = total_of({})
    total, federation = total_of({}, kind=Lying)
    assert total.clients == tuple(range(7))
    assert torch.equal(total.message.weights["layers.0.weight"], honest.message.weights["layers.0.weight"])
    (failure,) = federation.failures
    assert (failure.client, failure.handler) == (2, "train")
    assert "client 2 has sent a wrong share" in failure.reason


def test_who_claims_numbers_that_leave_nothing_of_the_others_is_left_out(monkeypatch):
    """Up to 2^30: the sum of the others is as if it had never been there."""
    begin = Party.begin

    def boast(self: Party, *given: Any) -> Any:
        begin(self, *given)
        if self.client == 2:
            self._kept = replace(self.kept, bits=30)
        return self.offer_again()

    without, _ = total_of({TRAIN: {2}})
    monkeypatch.setattr(Party, "begin", boast)
    total, federation = total_of({})
    assert total.clients == (0, 1, 3, 4, 5, 6)
    assert torch.equal(total.message.weights["layers.0.weight"], without.message.weights["layers.0.weight"])
    (failure,) = federation.failures
    assert (failure.client, failure.handler) == (2, "train")
    assert "client 2 says that its weight is up to 2^30" in failure.reason


# -- silos that contradict each other ----------------------------------------------------------------------------------

BOTH = "clients 4 and 0 contradict each other, and nobody can say which is right: what client 0 sent cannot be read"


@pytest.mark.parametrize("part", ["letters", "marks"])
@pytest.mark.parametrize("victims", [[4], [4, 5, 6]])
def test_of_two_that_contradict_each_other_both_are_left_out(victims, part, monkeypatch):
    """Who sends peers what they cannot take goes with one of them, and the others stay; nobody trains again."""
    garbling(monkeypatch, {0: victims}, part)
    total, federation = total_of({})
    assert total.clients == (1, 2, 3, 5, 6)
    assert sorted(failure.client for failure in federation.failures) == [0, 4]
    words = BOTH if part == "letters" else BOTH.partition(":")[0]
    assert all(failure.reason.startswith(words) for failure in total.failures.values())
    assert federation.steps[:3] == [(TRAIN, 7), (SHARE, 7), (MASK, 7)]
    assert federation.steps[3:] == [(AGAIN, 5), (SHARE, 5), (MASK, 5), (CONFIRM, 5), (OPEN, 5)]
    monkeypatch.undo()
    without, _ = total_of({TRAIN: {0, 4}})
    assert same_mean(total.message, without.message)


def test_whom_half_of_all_contradict_is_left_out_alone(monkeypatch):
    garbling(monkeypatch, {0: [3, 4, 5, 6]})
    total, _ = total_of({})
    assert total.clients == (1, 2, 3, 4, 5, 6)
    assert list(total.failures) == [0]
    assert "4 of 7 silos contradict it: what client 0 sent cannot be read" in total.failures[0].reason


def test_each_liar_takes_one_other_at_most(monkeypatch):
    """0 and 1 both send 4 what it cannot read: it names the first. 2 says so of 6, whose letter is as it should be."""
    garbling(monkeypatch, {0: [4], 1: [4]})
    mask = Sum.mask

    def blaming(self: Sum, post: Any) -> Any:
        if self.party.client == 2:
            raise DisclosureError("what client 6 sent cannot be read.", peer=6)
        return mask(self, post)

    monkeypatch.setattr(Sum, "mask", blaming)
    total, _ = total_of({}, clients=9)
    assert total.clients == (1, 3, 5, 7, 8)
    assert sorted(total.failures) == [0, 2, 4, 6]


@pytest.mark.parametrize("peer", [2, 99, None])
def test_who_contradicts_nobody_of_the_sum_fails_alone(peer, monkeypatch):
    mask = Sum.mask

    def blaming(self: Sum, post: Any) -> Any:
        if self.party.client == 2:
            raise DisclosureError("it cannot be read.", peer=peer)
        return mask(self, post)

    monkeypatch.setattr(Sum, "mask", blaming)
    total, federation = total_of({})
    assert total.clients == (0, 1, 3, 4, 5, 6)
    assert list(total.failures) == [2]
    assert AGAIN not in dict(federation.steps)


def test_whose_offer_all_others_refuse_is_left_out_by_name(monkeypatch):
    """It says that it was asked something else: they mask in no sum with it, and it is no fault of theirs."""
    begin = Party.begin

    def strange(self: Party, purpose: Any, answer: Any, encoded: Any, asked: bytes) -> Any:
        return begin(self, purpose, answer, encoded, bytes(32) if self.client == 2 else asked)

    monkeypatch.setattr(Party, "begin", strange)
    total, _ = total_of({})
    assert total.clients == (0, 1, 3, 4, 5, 6)
    assert list(total.failures) == [2]
    assert "6 of 7 silos contradict it: client 2 was asked something else" in total.failures[2].reason


# -- totals that cannot be ---------------------------------------------------------------------------------------------


TOTALS: dict[str, tuple[Callable[[str, int], int], str]] = {
    "fewer-than-none": (lambda kind, behind: -(1000 << behind) if kind == "counts" else 0, "it stands for -"),
    "too-large": (
        lambda kind, behind: 2**62,
        "larger numbers than 5 clients can add up to|it stands for|contributors is more than 5",
    ),
    "larger-than-a-weight": (
        lambda kind, behind: (1 << 61) if kind in ("model", "statistic", "prototype") else 0,
        "comes to .* with weights of|are sums of no rows|larger than their squares|no longer than",
    ),
}


@pytest.mark.parametrize("lie", list(TOTALS))
@pytest.mark.parametrize("name", broadly(["fedavg", "fedridge", "fedlog", "opfgl", "fednh"]))
def test_a_total_that_cannot_be_ends_the_run_and_names_nobody(name, lie, monkeypatch):
    """One of five moves what it masks: nobody has seen its answer, and no honest client is blamed."""
    method, (moves, words) = registry.load(name), TOTALS[lie]
    if (name, lie) == ("fedlog", "larger-than-a-weight"):
        words += "|silos have no answer"
    lying(monkeypatch, moves)
    with pytest.raises(FederationError, match=words) as caught:
        run(small_config(method, method.quick, clients=5, run=SECURE))
    assert "nobody is named" in str(caught.value)
    assert not re.search(r"client \d", str(caught.value))


def test_scores_of_the_federation_that_cannot_be(monkeypatch):
    """An AUC of -4440 %, say."""
    lying(monkeypatch, lambda kind, behind: -(444 << behind) if kind == "score" else 0)
    config = small_config(registry.load("majority"), {}, clients=5, run=SECURE)
    evaluation = config.evaluation.model_copy(update={"report": "federation", "auc": True})
    with pytest.raises(FederationError, match=r"EvaluateSums of '.*' are of no scores from 0 to 1"):
        run(config.model_copy(update={"evaluation": evaluation}))


class Sick(Losing):
    """What clients were sent makes the answers of most of them infinite."""

    def deliver(self, handler: str, round: int, outgoing: Mapping[int, Encoded]) -> Iterator[tuple[int, Any]]:
        for client, answer in super().deliver(handler, round, outgoing):
            reason = "TrainReply.weights contains NaN or infinity, of which there is no sum."
            yield client, Failure(client, handler, "MessageError", reason) if client != 2 else answer


def test_where_most_have_no_answer_nobody_is_named():
    with pytest.raises(
        FederationError, match=r"6 of 7 silos have no answer \(TrainReply\.weights contains NaN"
    ) as caught:
        total_of({}, kind=Sick)
    assert not re.search(r"client \d", str(caught.value))


# -- whole runs --------------------------------------------------------------------------------------------------------


def scores(tree: Mapping[str, Any]) -> Any:
    """What a run came to: everything but times, bytes and warnings."""
    seed = tree["seeds"][0]
    return [seed[key] for key in ("best_round", "validation", "test", "clients", "confusion")]


@pytest.mark.parametrize("name", broadly(registry.names()))
def test_every_method_runs_on_sums_or_is_refused_before_the_run(name):
    method = registry.load(name)
    config = small_config(method, method.quick, clients=3, run=SECURE)
    alone = method.config.of(method.quick, owner=name).single_answers
    if method.pooled or method.alone or alone:
        apart = "run.secure_sums would have no effect" if method.pooled or method.alone else "sees nothing but sums"
        with pytest.raises((ConfigError, UnsupportedError), match=apart):
            run(config)
        return
    assert conformance.needs_only_sums(method, method.quick)
    assert run(config).record.seeds[0].last_round >= 1


def test_sums_are_enough_for_one_common_generator():
    method = registry.load("fedsage_plus")
    shared = {**method.quick, "neighgen": "shared"}
    assert run(small_config(method, shared, clients=3, run=SECURE)).record.seeds[0].last_round >= 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavg", {}), ("fedavg", {"participation": 0.7, "weight_by": "uniform"}), ("fedprox", {}), ("scaffold", {}),
        *(pytest.param(name, {}, marks=pytest.mark.slow) for name in ("fedlog", "opfgl", "fedtrees", "fedproto")),
        ("fedridge", {}),
    ],
)  # fmt: skip
def test_runs_come_to_the_same_as_in_plain(name, settings):
    """Within what a float32 is rounded by; of one or three rounds on small data that moves no prediction."""
    method = registry.load(name)
    settings = {**method.quick, **settings}
    settings = {key: value for key, value in settings.items() if key in method.config.model_fields}
    plain = run(small_config(method, settings, clients=5)).tree
    secure = run(small_config(method, settings, clients=5, run=SECURE)).tree
    assert scores(secure) == scores(plain)


@pytest.mark.slow
def test_runs_are_the_same_in_every_runtime(tmp_path):
    """Messages differ from run to run, as keys do; the sums are integers and do not."""
    trees = []
    for more in ({}, {"workers": 2}, {"resident_clients": 1}, {}):
        config = small_config(fedavg.METHOD, {"participation": 0.8}, clients=5, run={**SECURE, **more})
        trees.append(conformance.numbers(run(config).tree))
    assert len(set(trees)) == 1


def assert_resumes(config, folder):
    """Stopped after a round and gone on with, it has the scores of one go."""
    whole = run(config, out=folder / "whole")
    with pytest.raises(_Stopped):
        run(config, out=folder / "stopped", observer=_Stop(1))
    resumed = run(config, out=folder / "stopped", resume=True)
    assert scores(resumed.tree) == scores(whole.tree)


def test_a_run_that_is_resumed_comes_to_the_same(tmp_path):
    config = small_config(fedavg.METHOD, {}, clients=4, run={**SECURE, "checkpoint_every": 1})
    assert_resumes(config, tmp_path)


# -- what is noted -----------------------------------------------------------------------------------------------------


def test_the_ledger_has_masked_fields_by_their_own_kind():
    _, federation = total_of({})
    columns = ("phase", "round", "client", "way", "handler", "message", "field", "kind", "bytes", "messages")
    rows = [dict(zip(columns, row, strict=True)) for row in federation.ledger.rows()]
    up = [row for row in rows if row["way"] == "up" and row["client"] == 0]
    entries = sum(weight.numel() for weight in federation.client(0).model.parameters())
    masked = {row["field"]: (row["kind"], row["bytes"]) for row in up if row["message"] == "fedavg.TrainReply (masked)"}
    assert masked["weights"] == ("model", 8 * entries)
    assert masked["num_samples"] == ("counts", 16)
    assert masked["(header)"][0] == "control"
    others = {row["message"]: row["kind"] for row in up if row["message"] != "fedavg.TrainReply (masked)"}
    assert others == dict.fromkeys(
        ("secure.Offer", "secure.Letters", "secure.Confirmation", "secure.Opening"), "control"
    )
    assert {row["handler"] for row in rows} == {"train"}
    down = {row["message"] for row in rows if row["way"] == "down"}
    assert down == {"fedavg.TrainRequest", "secure.Roster", "secure.Post", "secure.Came", "secure.Confirmed"}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_single_answers_are_refused_whoever_asks():
    _, federation = total_of({})
    for ask in (federation.ask, lambda *given: federation.sum_rows(*given, width=3)):
        with pytest.raises(UnsupportedError, match="'train' asks for each client's own answer"):
            ask(fedavg.Client.train, fedavg.TrainRequest(weights={}))


@pytest.mark.parametrize(
    ("clients", "settings", "more", "text"),
    [
        (2, {}, {}, "needs 3 clients or more: of two, each would know the other's answer from it. Here 2 are asked"),
        (5, {"participation": 0.4}, {}, "Here 2 are asked"),
        (4, {}, {"evaluation": {"report": "federation", "share": 0.5}}, "Here 2 are asked"),
        (
            4,
            {},
            {"evaluation": {"report": "federation", "modes": ["own_global"]}},
            "a score on the pooled graph is one",
        ),
    ],
)
def test_sums_of_too_few(clients, settings, more, text):
    config = small_config(fedavg.METHOD, settings, clients=clients, run=SECURE)
    for section, values in more.items():
        config = config.model_copy(update={section: getattr(config, section).model_copy(update=values)})
    with pytest.raises(ConfigError, match=text):
        run(config)


def test_scored_are_a_share_of_all_clients_not_of_those_of_a_round():
    """Of six, three train in a round, and three are scored: enough for both sums."""
    config = small_config(fedavg.METHOD, {"participation": 0.5}, clients=6, run=SECURE)
    evaluation = config.evaluation.model_copy(update={"report": "federation", "share": 0.5})
    assert run(config.model_copy(update={"evaluation": evaluation})).record.seeds[0].last_round >= 1


def test_what_would_be_refused_between_machines_is_warned_of():
    for settings, warned in (({"participation": 0.8}, True), ({}, False)):
        found = run(small_config(fedavg.METHOD, settings, clients=5, run=SECURE)).record.warnings
        assert any("There it would be refused to sum over some silos at a time" in text for text in found) is warned


def test_three_clients_are_warned_of():
    found = run(small_config(fedavg.METHOD, {}, clients=3, run=SECURE)).record.warnings
    assert any("a secure sum of 3 silos cannot be opened where one of them drops out" in text for text in found)
    assert any("this protects nobody" in text for text in found)
    assert any("every silo's own counts and scores are seen" in text for text in found)
    assert not any("secure" in text for text in run(small_config(fedavg.METHOD, {}, clients=3)).record.warnings)


# -- scores of the federation as a whole -------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
def test_scores_of_the_federation_are_those_of_all_items_together(secure):
    """With all its digits a mean over clients would have one solution in whole hits of each."""
    apart = small_config(fedavg.METHOD, {}, clients=4)
    together = small_config(fedavg.METHOD, {}, clients=4, run={"secure_sums": secure})
    evaluation = together.evaluation.model_copy(update={"report": "federation", "auc": True})
    apart = apart.model_copy(update={"evaluation": apart.evaluation.model_copy(update={"auc": True})})
    single, whole = (run(one).tree for one in (apart, together.model_copy(update={"evaluation": evaluation})))
    before, after = (tree["seeds"][0] for tree in (single, whole))
    assert after["best_round"] == before["best_round"]
    assert after["confusion"] == before["confusion"]
    for part in ("validation", "test"):
        assert after[part]["pooled"] == before[part]["pooled"]
        for name, value in before[part]["pooled"].items():
            assert after[part][name] == pytest.approx(value, abs=1e-12), name
        assert after[part]["auc"] == pytest.approx(before[part]["auc"], abs=1e-3)
        assert after[part]["worst_client"] == {"client": None, "accuracy": None}
        assert after[part]["spread"] == {"std": None, "min": None, "max": None}


def test_scores_of_links_from_sums():
    method = registry.load("fedavg")
    config = small_config(method, {}, clients=3)
    config = config.model_copy(update={"task": "link"})
    summed = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"report": "federation"})})
    single, whole = (run(one).tree["seeds"][0]["test"] for one in (config, summed))
    assert whole["auc"] == pytest.approx(single["auc"], abs=1e-3)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_scores_of_the_federation(tmp_path):
    config = small_config(fedavg.METHOD, {}, clients=4, run={**SECURE, "checkpoint_every": 1})
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"report": "federation"})})
    assert_resumes(config, tmp_path)


@pytest.mark.slow
def test_references_in_one_place_are_not_summed():
    config = small_config(fedavg.METHOD, {}, clients=3, run={**SECURE, "references": ["global", "local", "majority"]})
    config = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"report": "federation"})})
    assert run(config).tree["references"]["global"]
