"""What a lying site can do to a coordinator, and a lying coordinator to a site: nothing but fail."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graphsilo.data.silos.cards import compare_cards
from graphsilo.errors import FederationError
from graphsilo.experiments.service.run_over import run_over
from graphsilo.federation import journal, registry
from graphsilo.federation.candidates import Candidates
from graphsilo.federation.client import EvaluateReply
from graphsilo.federation.interface import handlers_of
from graphsilo.federation.model_files import tensor_file
from graphsilo.federation.scaling import FeatureSquares, FeatureSums
from graphsilo.methods import fedavg
from graphsilo.methods.fairfgl import messages as fairfgl
from graphsilo.methods.fedridge import messages as fedridge
from graphsilo.methods.opfgl import messages as opfgl
from graphsilo.runtime.protocol import ProtocolError, pack, unpack
from graphsilo.runtime.remote.sites import Gone, RemoteSites
from graphsilo.runtime.site import supervisor
from graphsilo.runtime.site.supervisor import SiteSupervisor
from graphsilo.runtime.transport import Transport
from kit import questions
from kit.same_machine import SameMachine
from kit.site_meddling import Meddling, telling, training_call
from kit.site_tables import write_tables
from kit.sites import rounds

Change = Callable[[dict[str, Any]], dict[str, Any]]


def carry_out(sites: Any, transport: Transport, out: Path, **overrides: Any) -> Any:
    return sites.carry_out(transport, out, **{"method__rounds": 2, **overrides})


def test_a_run_that_began_before_the_worker_is_no_fault(sites: Any) -> None:
    """The site's terminal says what is going on, and that nobody has to do anything."""
    asked = {"id": "1", "do": "call", "run": "ward-9", "seed": 0, "handler": "train", "round": 4, "to": [[0, 0]]}
    answer = unpack(sites.supervisors["north"].answer(pack(asked))).header
    assert (answer["ok"], answer["kind"]) == (False, "NotOpen")
    assert sites.said == [
        "run ward-9 began before this site's worker was started: the coordinator opens it here again, and all go on "
        "from their last checkpoints"
    ]


def test_what_a_coordinator_names_steers_no_terminal(sites: Any) -> None:
    """Neither what the site says of a request, nor what its worker writes into its log."""
    evil = "x\x1b]52;c;Y3Vy\x07\x1b[2J\nrun this: " + "y" * 5000
    site = sites.supervisors["north"]
    for header in ({"do": "save", "mark": "m"}, {"do": f"save{evil}"}):
        unpack(site.answer(pack({"id": header["do"][:5], "run": evil, "seed": 0, **header})))
    site.say(evil)
    log = (site.folder / "run" / "worker.log").read_text()
    assert sites.said
    assert all(line.isprintable() and len(line) < 4100 for line in sites.said)
    assert "\x1b" not in log
    assert "y" * 100 not in log


# -- a site against the coordinator ------------------------------------------------------------------------------------


def lying(sites: Any, operation: str, change: Change, handler: str | None = None) -> Meddling:
    """The site 'south' (client 1) changes the header of its answers to one operation."""

    def after(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if site != "south" or header.get("do") != operation or header.get("handler") != handler:
            return answer
        packet = unpack(answer)
        return pack(change(dict(packet.header)), packet.payloads)

    return Meddling(sites.transport, after=after)


def answering(**values: Any) -> Change:
    """Other values in the answer of the one client that was asked."""
    return lambda header: {**header, "answers": [{**header["answers"][0], **values}]}


LIES: dict[str, tuple[str, str | None, Change, str]] = {
    "hello-clients": ("hello", None, lambda h: {**h, "clients": [None, "x"]}, "should hold the clients"),
    "no-cards": ("cards", None, lambda h: {**h, "cards": []}, r"asked for the cards of the clients \[1\]"),
    "others-card": ("cards", None, lambda h: {**h, "cards": [[0, h["cards"][0][1]]]}, "gave those of"),
    "malformed-card": ("cards", None, lambda h: {**h, "cards": [[1, {"counts": {"nodes": "many"}}]]}, "malformed"),
    "refuses-for-others": ("open", None, lambda h: {**h, "refused": [[0, "no"]]}, "speaks for client 0"),
    "malformed-refusal": ("open", None, lambda h: {**h, "refused": [7]}, "malformed answer"),
    "nan-seconds": ("call", "train", answering(cpu=float("nan")), "malformed answer"),
    "endless-field": ("call", "train", answering(fields=[["weights", "model", float("inf")]]), "malformed answer"),
    "other-fields": ("call", "train", answering(fields=[["nothing", "control", 0]]), "fields are not those"),
    "answers-of-nobody": ("call", "train", answering(client="x"), "malformed answer"),
    "two-lines": (
        "call", "train", lambda h: {"id": h["id"], "ok": False, "kind": "X", "text": "a\n2026 b\x1b[2J"}, "a 2026 b "
    ),
    "a-book": (
        "call", "train", lambda h: {"id": h["id"], "ok": False, "kind": "X", "text": "z" * 10**5}, r"site 'south': z"
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", list(LIES))
def test_lying_site_is_named(lie: str, sites: Any, tmp_path: Path) -> None:
    operation, handler, change, words = LIES[lie]
    with pytest.raises(FederationError, match=words) as caught:
        carry_out(sites, lying(sites, operation, change, handler), tmp_path / "out")
    assert "south" in str(caught.value)
    assert len(str(caught.value)) < 5000
    assert not (tmp_path / "out" / "result.json").exists()


def test_lying_about_memory_does_not_end_a_run(sites: Any, tmp_path: Path) -> None:
    tree = carry_out(sites, lying(sites, "memory", lambda h: {**h, "bytes": "all of it"}), tmp_path / "out")
    assert tree["seeds"][0]["last_round"] == 2


EVALUATIONS: dict[str, Callable[[EvaluateReply], EvaluateReply]] = {
    "no-kinds": lambda reply: replace(reply, kinds={}),
    "too-many-parts": lambda reply: replace(reply, parts=[1, 1, 1]),
    "other-kinds": lambda reply: replace(reply, kinds={name: ["test", "val"] for name in reply.kinds}),
    "other-view": lambda reply: replace(reply, kinds={"mine": ["val", "test"]}),
    "wrong-shape": lambda reply: replace(reply, counts=reply.counts[:, :, :2, :2].contiguous()),
    "too-many": lambda reply: replace(reply, counts=reply.counts + 10**6),
    "fewer-than-none": lambda reply: replace(reply, counts=reply.counts - 1),
    "heavy": lambda reply: replace(reply, sizes=torch.full_like(reply.sizes, 10**12)),
    "strange-score": lambda reply: replace(reply, scores={"a": [1.0]}),
    "endless-weight": lambda reply: replace(reply, scores={"own/seen/val/auc": [0.5, float("inf")]}),
}


@pytest.mark.parametrize("lie", list(EVALUATIONS))
def test_impossible_evaluation_is_left_out(lie: str, sites: Any, tmp_path: Path) -> None:
    meddling = Meddling(sites.transport, after=telling("evaluate", EvaluateReply, EVALUATIONS[lie]))
    with pytest.raises(FederationError, match="client 1 failed in 'evaluate'"):
        carry_out(sites, meddling, tmp_path / "all")
    tree = carry_out(sites, meddling, tmp_path / "two", method__min_clients=2)
    assert [row["client"] for row in tree["seeds"][0]["clients"] if row["test"]] == [0, 2]
    (failure,) = tree["seeds"][0]["rounds"][0]["failures"]
    assert re.match(
        r"client 1 failed in 'evaluate' \(MessageError: (its evaluation cannot be|client 1 claims)", failure
    )


@pytest.mark.parametrize("links", [None, 10**9])
def test_weight_is_bounded_where_the_method_weighs_by_itself(links: int | None, sites: Any, tmp_path: Path) -> None:
    """By the nodes of its card, whatever that says of links."""
    heavy = telling("train", fairfgl.TrainReply, lambda reply: replace(reply, num_samples=1e9))

    def after(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if site != "south" or header["do"] != "cards" or links is None:
            return heavy(site, header, answer)
        packet = unpack(answer)
        for _, card in packet.header["cards"]:
            card["counts"]["links"] = links
        return pack(packet.header, [])

    with pytest.raises(FederationError, match=r"claims to stand for 1e\+09 items"):
        carry_out(sites, Meddling(sites.transport, after=after), tmp_path / "out", method__name="fairfgl")


RIDGES: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "sums-of-more-rows": (
        "statistics",
        lambda reply: replace(reply, products={name: 50 * value for name, value in reply.products.items()}),
        "are sums of no rows: the constant column tells of",
    ),
    "more-rows-than-its-card": (
        "statistics", lambda reply: replace(reply, num_samples=10**9), r"claims to stand for 1e\+09 items"
    ),
    "more-rows-by-class": (
        "count", lambda reply: replace(reply, classes=reply.classes + 10**9), "training items among|claims to stand for"
    ),
    "fewer-than-none": ("score", lambda reply: replace(reply, counts=reply.counts - 1), "Candidates has -1 items"),
}  # fmt: skip


@pytest.mark.parametrize("lie", list(RIDGES))
def test_sums_of_no_rows_are_left_out(lie: str, sites: Any, tmp_path: Path) -> None:
    handler, change, words = RIDGES[lie]
    kind = {"statistics": fedridge.Statistics, "count": fedridge.Counts, "score": Candidates}[handler]
    meddling = Meddling(sites.transport, after=telling(handler, kind, change))
    with pytest.raises(FederationError, match=f"client 1 failed in '{handler}'.*({words})"):
        carry_out(sites, meddling, tmp_path / "out", method__name="fedridge")


ANSWERS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor], str, str]] = {
    "too-wide": (
        "south",
        lambda w: torch.full(w.shape, 1.7e308, dtype=torch.float64),
        "",
        "must hold float32; float64",
    ),
    "too-large": ("south", lambda w: torch.full(w.shape, 3e38), "", r"holds 3e\+38; at most 1e\+06 is taken"),
    "other-names": ("north", lambda w: w, "evil.", r"has the shape evil\.layers"),
    "whole-numbers": ("north", lambda w: torch.ones(w.shape, dtype=torch.int8), "", "must hold float32; int8"),
}
"""Who lies, with what in place of each tensor and before its name, and what is said of it."""


@pytest.mark.parametrize("lie", list(ANSWERS))
def test_impossible_share_fails_who_sent_it(lie: str, sites: Any, tmp_path: Path) -> None:
    liar, change, prefix, words = ANSWERS[lie]

    def lied(reply: fedavg.TrainReply) -> fedavg.TrainReply:
        return replace(reply, weights={prefix + name: change(tensor) for name, tensor in reply.weights.items()})

    meddling = Meddling(sites.transport, after=telling("train", fedavg.TrainReply, lied, site=liar, rounds=(2,)))
    (client,) = sites.clients[liar]
    said = rf"client {client} failed in 'train' \(MessageError: TrainReply\.weights {words}"
    with pytest.raises(FederationError, match=rf"3 clients had to answer, 2 did\. First failure: {said}"):
        carry_out(sites, meddling, tmp_path / "all")
    overrides = {"method__min_clients": 2, "method__rounds": 3}
    tree = carry_out(sites, meddling, tmp_path / "two", **overrides)
    failures = [row.get("failures", []) for row in tree["seeds"][0]["rounds"]]
    assert [len(rows) for rows in failures] == [0, 1, 0]
    assert re.match(said, failures[1][0])


@pytest.mark.parametrize("samples", [2.5, -0.0])
def test_half_an_item_fails_who_counts_it(samples: float, sites: Any, tmp_path: Path) -> None:
    after = telling("train", fedavg.TrainReply, lambda reply: replace(reply, num_samples=samples))
    with pytest.raises(
        FederationError, match=rf"client 1 failed in 'train' .*num_samples holds {samples:g}, and counts"
    ):
        carry_out(sites, Meddling(sites.transport, after=after), tmp_path / "out")


def test_who_trains_nothing_is_told_and_not_blamed(sites: Any, tmp_path: Path) -> None:
    def nothing(reply: fedavg.TrainReply) -> fedavg.TrainReply:
        return replace(reply, weights={name: 0 * weight for name, weight in reply.weights.items()})

    zeros = telling("train", fedavg.TrainReply, nothing)
    tree = carry_out(sites, Meddling(sites.transport, after=zeros), tmp_path / "out")
    assert not any("failures" in row for row in tree["seeds"][0]["rounds"])
    assert any(
        "client 'south' in 2 of 2 rounds ('train' (TrainReply.weights: zeros" in text for text in tree["warnings"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("state", ["running", "unknown"])
def test_site_that_never_finishes_is_not_asked_without_a_pause(state: str, sites: Any, tmp_path: Path) -> None:
    meets, asked = training_call("south", 2), []

    def after(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if meets(site, header) or (site == "south" and header.get("do") == "poll"):
            asked.append(header["id"])
            return pack({"id": header["id"], "ok": True, "state": state})
        return answer

    with pytest.raises(FederationError, match="within the deadline of 2 seconds"):
        carry_out(sites, Meddling(sites.transport, after=after), tmp_path / "out", run__deadline=2.0)
    assert len(asked) < 20


def test_nobody_waits_for_sites_that_were_let_go(sites: Any) -> None:
    class Silent(Transport):
        sites = ("north",)

        def request(self, site: str, body: Any, *, timeout: float) -> bytearray:
            asked.set()
            time.sleep(0.01)
            return pack({"id": "?", "ok": True, "state": "running"})

    asked = threading.Event()
    remote = RemoteSites(Silent(), {"north": [0]}, "run")
    waiting = remote.submit("north", {"do": "cards"})
    assert asked.wait(10)
    remote.close()
    with pytest.raises(Gone, match="not waited for any more"):
        waiting.result(timeout=10)


# -- a coordinator against a site --------------------------------------------------------------------------------------


def ask(
    site: SiteSupervisor, header: dict[str, Any], identity: str | None = None, payloads: Sequence[Any] = ()
) -> Mapping[str, Any]:
    return unpack(site.answer(pack({**header, "id": identity or uuid.uuid4().hex}, payloads))).header


def opening(site: SiteSupervisor, run: str) -> dict[str, Any]:
    """What opens the one client of 'north'."""
    return questions.opening(compare_cards([ask(site, {"do": "cards"})["cards"][0][1]]), run=run)


def finish(run: str, view: str | None = None) -> dict[str, Any]:
    """What ends a seed of the one client of 'north'."""
    return {"do": "finish", "run": run, "seed": 0, "client": 0, "embeddings": False, "view": view}


@pytest.mark.parametrize("operation", ["answer", "__init__", "\x1b[2Jgone", 7, None, ["open"], {"a": 1}])
def test_strange_operation_is_refused_unseen(operation: Any, sites: Any) -> None:
    answer = ask(sites.supervisors["north"], {"do": operation})
    assert answer["text"] == "a site cannot do what was asked of it."
    assert sites.said == []


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "../../results"}, {"run": "/tmp/x"}, {"run": ""}, {"run": None}, {"seed": "x"}, {"seed": None},
        {"method": "../../../../etc/passwd"}, {"method": None}, {"device": "meta"}, {"device": "cuda:9"},
        {"models": [[1, ["gcn", {}, "float32"]]]}, {"models": [[[0], ["gcn", {}, "float32"]]]}, {"models": 5},
        {"models": [[0, ["gcn", {"hidden": ["x"]}, "float32"]]]}, {"models": [[0, ["../gcn", {}, "float32"]]]},
        {"models": [[0, ["gcn", {"num_features": 3}, "float32"]]]}, {"models": [[0, ["gcn", {}, "float16"]]]},
        {"models": [[0, ["gcn", {}, ["float32"]]]]}, {"models": [[0, ["gcn", {}]]]}, {"schema": {}},
        {"config": {"rounds": -1}}, {"select_by": "ap_of"}, {"select_by": 7}, {"task": ["node"]}, {"task": "graph"},
        {"sparse": []}, {"secure_sums": "off"}, {"report": 7}, {"mark": "../x"}, {"scaling": None},
        {"scaling": {"scale": "huge", "scale_by": "silo"}},
    ],
)  # fmt: skip
def test_strange_opening_is_refused_and_nothing_is_written(changes: dict[str, Any], sites: Any) -> None:
    site = sites.supervisors["north"]
    packet = {**opening(site, "strange"), **changes}
    pid, before = site.worker_pid, sorted(path for path in site.folder.rglob("*") if path.name != "worker.log")
    answer = ask(site, packet)
    assert not answer["ok"]
    assert not ask(site, {"do": "save", "run": "strange", "seed": 0, "mark": "seed0-round1"})["ok"]
    assert sorted(path for path in site.folder.rglob("*") if path.name != "worker.log") == before
    assert site.worker_pid == pid


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ({"do": "open", "run": "a", "seed": 0}, "Object missing required field `method`"),
        ({"do": "call", "run": "a", "seed": "x"}, r"Expected `int`, got `str` - at `\$\.seed`"),
        ({"do": "call", "run": "a", "seed": 0, "handler": "x", "round": 1, "to": [[0]]}, r"got 1 - at `\$\.to\[0\]`"),
        ({"do": "save", "run": "a", "seed": 0, "mark": 7}, r"got `int` - at `\$\.mark`"),
        ({"do": "result", "run": "a", "results": {}}, r"at `\$\.results`"),
    ],
)
def test_a_malformed_request_is_one_sentence_in_the_log(header: dict[str, Any], what: str, sites: Any) -> None:
    site = sites.supervisors["north"]
    log = site.folder / "run" / "worker.log"
    before = len(log.read_text())
    answer = ask(site, header)
    assert re.fullmatch(f"what '{header['do']}' was asked with cannot be read: .*{what}.*\\.", answer["text"])
    assert log.read_text()[before:] == f"{header['do']}: ProtocolError: {answer['text']}\n"


@pytest.mark.parametrize(
    ("settings", "precision", "sparse", "refused"),
    [
        ({}, "bfloat16", True, True),
        ({"hidden": [8]}, "bfloat16", True, False),
        ({}, "bfloat16", False, False),
        ({}, "float32", True, False),
    ],
)
def test_precision_without_dense_products_is_refused(
    settings: dict[str, Any], precision: str, sparse: bool, refused: bool, sites: Any
) -> None:
    site = sites.supervisors["north"]
    model = ["sgc", {"hops": 0, **settings}, precision]
    answer = ask(site, {**opening(site, "lowered"), "models": [[0, model]], "sparse": sparse})
    assert answer["ok"] is not refused
    if refused:
        assert answer["kind"] == "UnsupportedError"
        assert answer["text"].startswith("run.precision bfloat16 is for dense matrix products, but 'sgc' without a ")
        assert not ask(site, {"do": "save", "run": "lowered", "seed": 0, "mark": "seed0-round1"})["ok"]  # none is open


def test_checkpoints_are_few_whatever_they_are_called(sites: Any) -> None:
    site = sites.supervisors["north"]
    assert ask(site, opening(site, "marks"))["ok"]
    for mark in ("seed1-round1", "a-b", "seed0-round", "../seed0-round1", "seed0-round1.b", "seed0-round" + "9" * 50):
        answer = ask(site, {"do": "save", "run": "marks", "seed": 0, "mark": mark})
        assert "named after the seed and a round" in answer["text"]
    for number in range(5):
        assert ask(site, {"do": "save", "run": "marks", "seed": 0, "mark": f"seed0-round{number}"})["ok"]
    kept = sorted(path.name for path in (site.folder / "state" / "marks").glob("*.ckpt"))
    assert kept == ["seed0-round3.ckpt", "seed0-round4.ckpt"]


def test_complete_run_is_not_opened_or_written_again(sites: Any) -> None:
    site = sites.supervisors["north"]
    assert ask(site, opening(site, "complete"))["ok"]
    assert ask(site, finish("complete"))["ok"]
    result = {"do": "result", "run": "complete", "results": [[0, {"score": 1}]], "config": {}}
    assert ask(site, result)["ok"]
    folder = site.folder / "results" / "complete" / "north"
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(kept) == 3
    assert "is complete at this site" in ask(site, opening(site, "complete"))["text"]
    assert ask(site, {**result, "results": [[0, {"score": 2}]]})["ok"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


@pytest.mark.slow
def test_only_runs_that_took_place_here_leave_something_here(sites: Any) -> None:
    """A coordinator writes no other folder, no model, and nothing twice; what was opened outlasts the worker."""
    site = sites.supervisors["north"]
    weights = tensor_file({"weight": torch.ones(2)})
    result = {"do": "result", "run": "never", "results": [[0, {"score": 1}]], "config": {}}
    assert "is not open at this site" in ask(site, finish("never", "aggregate"), payloads=[weights])["text"]
    answer = ask(site, result)
    assert (answer["kind"], answer["ok"]) == ("RunError", False)
    assert "was not opened for client 0 at this site" in answer["text"]
    assert not (site.folder / "results" / "never").exists()
    assert ask(site, opening(site, "never"))["ok"]
    for asked in ({"view": "theirs"}, {"client": 7}):
        assert not ask(site, {**finish("never"), **asked})["ok"]
    assert not ask(site, finish("never"), payloads=[weights])["ok"]  # nobody asked for it
    assert not ask(site, finish("never", "aggregate"), payloads=[weights])["ok"]  # of another model
    assert not (site.folder / "results" / "never").exists()
    assert ask(site, opening(site, "never"))["ok"]
    assert ask(site, finish("never", "own"))["ok"]
    call = {"do": "call", "run": "never", "seed": 0, "handler": "evaluate", "round": 1, "to": [[0, 0]]}
    assert "does not take part in this run" in ask(site, call)["text"]  # nothing is asked of it any more
    assert ask(site, finish("never", "own"))["ok"]  # whose answer was lost
    os.kill(site.worker_pid, signal.SIGKILL)
    assert ask(site, result)["ok"]
    folder = site.folder / "results" / "never" / "north"
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert json.loads((folder / "result.json").read_text())["silo_data"]
    assert not ask(site, finish("never", "own"))["ok"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


def test_code_that_a_coordinator_names_is_not_kept(sites: Any) -> None:
    site = sites.supervisors["north"]
    assert ask(site, opening(site, "named"))["ok"]
    own = {"method": {"fedavg": {"place": "/tmp/evil.py:METHOD", "sha256": ""}}}
    config = {"method": {"name": "fedavg"}, "own": own}
    assert ask(site, {"do": "result", "run": "named", "results": [[0, {"score": 1}]], "config": config})["ok"]
    text = (site.folder / "results" / "named" / "north" / "config.yaml").read_text()
    assert yaml.safe_load(text) == {"method": {"name": "fedavg"}}


def test_request_that_nobody_waits_for_is_not_carried_out(sites: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = sites.supervisors["north"]
    answers: dict[str, Mapping[str, Any]] = {}

    def put(identity: str) -> threading.Thread:
        def target() -> None:
            answers[identity] = ask(site, {"do": "memory"}, identity)

        thread = threading.Thread(target=target)
        thread.start()
        while identity not in site._answers:
            time.sleep(0.01)
        return thread

    with site._turn:  # the worker is at work on something
        threads = [put(identity) for identity in ("first", "second", "third")]
    for thread in threads:
        thread.join(timeout=60)
    assert [answers[name].get("kind") for name in ("first", "second", "third")] == ["Superseded", "Superseded", None]
    assert supervisor.KEPT_ANSWERS >= 3


@pytest.mark.slow
def test_trouble_with_a_silo_file_stays_at_the_site(make_sites: Callable[..., Any]) -> None:
    sites = make_sites()
    site = sites.supervisors["north"]
    whole = sites.files["north"].read_text()
    os.kill(site.worker_pid, signal.SIGKILL)
    sites.files["north"].write_text(whole + "policy: {kinds: [my-secret]}\n")
    answer = ask(site, {"do": "memory"})
    assert "my-secret" not in str(answer)
    assert (
        answer["text"] == "the worker process of site 'north' cannot answer; the reason stands in the log at the site."
    )
    assert any("my-secret" in line for line in sites.said)
    sites.files["north"].write_text(whole)
    assert ask(site, {"do": "memory"})["ok"]


# -- several silos at one site -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_one_of_two_silos_of_a_site_refuses(refusing: int, tmp_path: Path, short_path: Path) -> None:
    from graphsilo.experiments.config import load_config

    files = []
    for number, name in enumerate(("icu", "er", "ward")):
        files.append(write_tables(tmp_path / name, name, number))
        if number == refusing:
            files[-1].write_text(files[-1].read_text() + "policy: {methods: [opfgl]}\n")
    places = {"south": [0, 1, 2]} if refusing == 1 else {"north": [0, 1], "south": [2]}
    if refusing == 2:
        places = {"north": [0], "south": [1, 2]}
    with ExitStack() as stack:
        sockets = {}
        for site, clients in places.items():
            one = SiteSupervisor(site, [(client, files[client]) for client in clients], short_path / site)
            stack.callback(one.close)
            one.start()
            sockets[site] = one.socket_path
        config = load_config(
            overrides={"method.rounds": 2, "method.min_clients": 2, "model.hidden": [8], "run.seeds": [0],
                       "run.checkpoint_every": 1}
        )  # fmt: skip
        tree = run_over(SameMachine(sockets), config, name="test", clients=places, out=tmp_path / "out", wait=30).tree
    for row in tree["seeds"][0]["rounds"]:
        assert {line.split(" failed")[0] for line in row["failures"]} == {f"client {refusing}"}
        assert row["participants"] == 2
    scored = [row["client"] for row in tree["seeds"][0]["clients"] if row["test"]]
    assert scored == [client for client in range(3) if client != refusing]
    assert json.loads((tmp_path / "out" / "result.json").read_text())["seeds"][0]["last_round"] == 2


# -- packets -----------------------------------------------------------------------------------------------------------


def test_any_damage_to_a_packet_is_a_protocol_error() -> None:
    whole = bytes(pack({"id": "a", "ok": True, "text": "äöü", "rows": [[1, 0.5, None]]}, [b"12345678"]))
    for place in range(len(whole)):
        for value in (0x00, 0x7F, 0x80, 0x91, 0xC3, 0xFF):
            damaged = bytearray(whole)
            damaged[place] = value
            with contextlib.suppress(ProtocolError):
                unpack(damaged)


# -- what leaves is in the log -----------------------------------------------------------------------------------------


def test_cards_and_failures_are_in_the_silos_log(sites: Any) -> None:
    """Whatever leaves a silo is in its log: what it says of itself before a run, and the words of a failure, too."""
    site = sites.supervisors["north"]
    card = ask(site, {"do": "cards"})["cards"][0][1]
    refused = ask(site, {"do": "restore", "run": "none", "seed": 0, "mark": "seed0-round1"})
    assert not refused["ok"]
    *_, first, second = journal.read(site.folder / "sent" / "north.jsonl")
    assert (first.way, first.message, first.run) == ("sent", "card", "")
    assert {note.name for note in first.fields} == set(card)
    assert str(first).startswith("before a run, the silo's card, to the coordinator: ")
    assert (second.way, second.handler, second.reason) == ("failed", "restore", refused["text"])
    assert ask(site, {"do": "cards"})["cpu"] == round(ask(site, {"do": "cards"})["cpu"], 2)


SUMS: dict[str, tuple[str, Any, Callable[[Any], Any], str]] = {
    "endless-sum": (
        "feature_sums", FeatureSums, lambda m: replace(
            m, num_samples=0, others=0 * m.others, sums=torch.full_like(m.sums, 1e30)
        ), r"sums holds 1e\+30, more than 0 rows",
    ),
    "more-than-rows": (
        "feature_sums", FeatureSums, lambda m: replace(m, others=m.others + 10**6), "others counts .* which cannot be",
    ),
    "fewer-than-none": (
        "feature_sums", FeatureSums, lambda m: replace(m, others=m.others - 10**6), "others counts .* which cannot be",
    ),
    "negative-squares": (
        "feature_squares", FeatureSquares, lambda m: replace(m, squares=m.squares - 1e9), "squares is at least 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", list(SUMS))
def test_impossible_sums_for_scaling_fail_who_sent_them(lie: str, sites: Any, tmp_path: Path) -> None:
    handler, kind, change, words = SUMS[lie]
    meddling = Meddling(sites.transport, after=telling(handler, kind, change))
    with pytest.raises(FederationError, match=rf"First failure: client 1 failed in '{handler}' \(.*{words}"):
        carry_out(sites, meddling, tmp_path / "all")
    tree = carry_out(sites, meddling, tmp_path / "two", method__min_clients=2)
    (failure,) = tree["seeds"][0]["setup"]["failures"]
    assert failure.startswith(f"client 1 failed in '{handler}'")
    (warning,) = [text for text in tree["warnings"] if "failed in" in text]
    assert warning.startswith(f"client 'south' failed in set-up, which went on without it; first in '{handler}'")


@pytest.mark.parametrize(
    ("method", "step", "field", "size"),
    [
        ("scaffold", "train", "control", 9e17), ("feddc", "train", "control", 1e5), ("fedavg", "train", "weights", 1e5),
        ("fpl", "describe", "sums", 1e5), ("fedproto", "train", "sums", 1e5), ("fedpg", "train", "prototypes", 9e17),
        ("fedgta", "train", "confidence", 9e17), ("gcfl_plus", "train", "norm", 9e17),
    ],
)  # fmt: skip
def test_numbers_far_above_the_others_fail_who_sent_them(
    method: str, step: str, field: str, size: float, sites: Any, tmp_path: Path
) -> None:
    """Each is within the bound that holds for any data; each ended a run or cost accuracy, and nobody was named."""
    kind = handlers_of(registry.load(method).client)[step].types()[1]

    def exaggerate(message: Any) -> Any:
        value = getattr(message, field)
        if isinstance(value, torch.Tensor):
            return replace(message, **{field: torch.full_like(value, size)})
        named = isinstance(value, Mapping)
        return replace(
            message, **{field: {name: torch.full_like(each, size) for name, each in value.items()} if named else size}
        )

    meddling = Meddling(sites.transport, after=telling(step, kind, exaggerate, rounds=(1, 2)))
    tree = carry_out(sites, meddling, tmp_path / "out", method__name=method, method__min_clients=2)
    failures = [text for row in tree["seeds"][0]["rounds"] for text in row.get("failures", ())]
    assert failures
    assert all(text.startswith(f"client 1 failed in '{step}'") for text in failures)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["trimmed_mean", "median"])
def test_what_no_bound_finds_is_outvoted(way: str, sites: Any, tmp_path: Path) -> None:
    """Up to a hundred times the others' weights are taken; of three answers the largest numbers count for nothing."""

    def told(factor: float) -> Any:
        def change(message: Any) -> Any:
            return replace(message, weights={name: factor * one for name, one in message.weights.items()})

        meddling = Meddling(sites.transport, after=telling("train", fedavg.TrainReply, change, rounds=(1, 2)))
        tree = carry_out(sites, meddling, tmp_path / str(factor), run__robust=way)
        return rounds(tree)

    assert told(1.0) == rounds(sites.alone(method__rounds=2, run__robust=way))
    assert told(40.0) == told(80.0)


def test_nobody_fails_for_the_largest_sums_of_another(sites: Any, tmp_path: Path) -> None:
    change = telling("feature_sums", FeatureSums, lambda m: replace(m, sums=torch.full_like(m.sums, 1e35)))
    tree = carry_out(sites, Meddling(sites.transport, after=change), tmp_path / "out", method__min_clients=2)
    assert "failures" not in tree["seeds"][0]["setup"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: replace(m, counts=m.counts + 1e9), r"claims to stand for 1e\+09 items \(Statistics\.counts\)"),
        (
            lambda m: replace(m, labelled=m.labelled - 1e9),
            r"claims to stand for -1e\+09 items \(Statistics\.labelled\)",
        ),
        (lambda m: replace(m, contributors=m.contributors + 1), "more than one client"),
        (lambda m: replace(m, squares=m.squares - 1e9), "at least 0"),
        (lambda m: replace(m, counts=torch.zeros_like(m.counts)), "counts no node of"),
    ],
    ids=["counts", "labelled", "contributors", "squares", "nothing"],
)
def test_impossible_class_statistics_fail_who_sent_them(
    change: Callable[[Any], Any], words: str, sites: Any, tmp_path: Path
) -> None:
    meddling = Meddling(sites.transport, after=telling("statistics", opfgl.Statistics, change))
    with pytest.raises(FederationError, match=rf"First failure: client 1 failed in 'statistics' \(.*{words}"):
        carry_out(sites, meddling, tmp_path / "out", method__name="opfgl", method__rounds=None)


@pytest.mark.slow
def test_numbers_of_the_server_that_are_endless_are_missing(sites: Any, tmp_path: Path) -> None:
    change = telling("statistics", opfgl.Statistics, lambda m: replace(m, totals=m.totals.sign() * 1e29))
    overrides = {"method__name": "opfgl", "method__rounds": None, "run__largest_ratio": 1e30}
    tree = carry_out(sites, Meddling(sites.transport, after=change), tmp_path / "out", **overrides)
    log = tree["seeds"][0]["setup"]["log"]
    assert None in log.values()


def test_who_was_left_out_is_told(sites: Any, tmp_path: Path) -> None:
    lie = telling("train", fedavg.TrainReply, lambda m: replace(m, num_samples=1e9), rounds=(2,))
    tree = carry_out(sites, Meddling(sites.transport, after=lie), tmp_path / "out", method__min_clients=2)
    (warning,) = [text for text in tree["warnings"] if "failed in" in text]
    assert warning.startswith("client 'south' failed in 1 of 2 rounds, which went on without it; first in 'train'")


def test_a_coordinators_words_are_short_lines_in_the_silos_log(sites: Any) -> None:
    site = sites.supervisors["south"]
    header = {
        "do": "save",
        "run": "x\n2026 all is well\x1b[2J" + "y" * 10**5,
        "seed": 0,
        "mark": "m",
        "id": uuid.uuid4().hex,
    }
    assert not unpack(site.answer(pack(header))).header["ok"]
    *_, last = journal.read(site.folder / "sent" / "south.jsonl")
    assert (last.way, last.handler) == ("failed", "save")
    assert last.run.startswith("x 2026 all is well [2Jyyy")
    assert last.run.isprintable()
    assert last.reason.isprintable()
    assert len(last.run) < 200
    assert len(last.reason) < 3000
