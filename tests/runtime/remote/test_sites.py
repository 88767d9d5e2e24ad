"""Each fault ends in its documented outcome: no hang, no half-written result, the same numbers where it is survived."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphsilo.__about__ import __version__
from graphsilo.errors import ConfigError, FederationError, RunError
from graphsilo.federation.codec import decode, encode
from graphsilo.federation.compression import Compression
from graphsilo.federation.interface import Failure
from graphsilo.methods.fedavg import TrainReply, TrainRequest
from graphsilo.runtime.local.in_process import InProcess
from graphsilo.runtime.protocol import pack, pack_error, unpack
from graphsilo.runtime.transport import Unreachable
from kit import check_result
from kit.site_meddling import Before, Meddling, changed, once, training_call
from kit.sites import coordinator, rounds, to_be_killed


@contextlib.contextmanager
def stopped(sites: Any, site: str, round: int, *, seconds: float) -> Iterator[Before]:
    """A site's worker stops when it is asked to train in a round, and goes on so many seconds from now."""
    worker = sites.supervisors[site].worker_pid
    wake = threading.Timer(seconds, lambda: os.kill(worker, signal.SIGCONT))
    wake.start()
    try:
        yield once(training_call(site, round), lambda: os.kill(worker, signal.SIGSTOP))
    finally:
        wake.join()


# -- processes that die --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_killed_in_the_middle_of_a_round(sites: Any, tmp_path: Path) -> None:
    victim = sites.supervisors["south"]
    before = victim.restarts
    kill = once(training_call("south", 3), lambda: os.kill(victim.worker_pid, signal.SIGKILL))
    tree = sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())
    assert victim.restarts == before + 1
    assert any("goes back to its last checkpoint" in line for line in sites.said)


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["cards", "open", "memory", "result"])
def test_worker_killed_while_idle(operation: str, sites: Any, tmp_path: Path) -> None:
    """As by a machine that runs out of memory at night: the first job of the morning must not fail for it."""
    victim = sites.supervisors["south"]
    before = victim.restarts

    def meets(site: str, header: Mapping[str, Any]) -> bool:
        return site == "south" and header.get("do") == operation

    def kill() -> None:
        os.kill(victim.worker_pid, signal.SIGKILL)
        while victim.worker_pid is not None:
            time.sleep(0.01)

    tree = sites.carry_out(Meddling(sites.transport, once(meets, kill)), tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())
    assert victim.restarts == before + 1
    # Only after `memory`, which comes while a run is open, was anything lost.
    assert any("goes back" in line for line in sites.said) == (operation == "memory")


@pytest.mark.slow
def test_worker_that_dies_every_time_is_given_up(sites: Any, tmp_path: Path) -> None:
    victim = sites.supervisors["south"]
    meets = training_call("south", 2)

    def kill(site: str, header: Mapping[str, Any]) -> None:
        if meets(site, header) and victim.worker_pid:
            os.kill(victim.worker_pid, signal.SIGKILL)

    with pytest.raises(FederationError, match="lost its state 3 times in a row"):
        sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.slow
def test_worker_that_dies_every_time_is_left_out_where_the_method_allows_it(sites: Any, tmp_path: Path) -> None:
    victim = sites.supervisors["south"]
    meets = training_call("south", 2)

    def kill(site: str, header: Mapping[str, Any]) -> None:
        if meets(site, header) and victim.worker_pid:
            os.kill(victim.worker_pid, signal.SIGKILL)

    tree = sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out", method__min_clients=2)
    last = tree["seeds"][0]["rounds"][-1]
    assert last["round"] == 4
    assert "client 1" in last["failures"][0]
    assert check_result(tmp_path / "out") == tree


@pytest.mark.slow
def test_worker_killed_while_generators_are_trained(sites: Any, tmp_path: Path) -> None:
    settings = {"method__name": "fedsage_plus", "method__rounds": 2, "method__generator_hidden": [16]}
    victim = sites.supervisors["west"]
    seen: list[str] = []

    def kill(site: str, header: Mapping[str, Any]) -> None:
        if header.get("do") == "call" and header.get("round") == 0 and site == "west":
            seen.append(header["handler"])
            if len(seen) == 4:
                os.kill(victim.worker_pid, signal.SIGKILL)

    tree = sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out", **settings)
    assert len(seen) > 8  # the whole generator phase began anew
    assert rounds(tree) == rounds(sites.alone(**settings))


@pytest.mark.slow
def test_site_killed_and_started_again(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    sites = make_sites()
    with to_be_killed(sites, "south") as strike:
        tree = sites.carry_out(Meddling(sites.transport, once(training_call("south", 3), strike)), tmp_path / "out")
        assert rounds(tree) == rounds(sites.alone())


@pytest.mark.slow
def test_coordinator_killed_and_started_again(sites: Any, tmp_path: Path) -> None:
    overrides, out = sites.overrides(method__rounds=8), tmp_path / "out"
    first = coordinator(sites, out, "no", overrides)
    assert first.stdout is not None
    for line in first.stdout:
        if line == "round 3\n":
            first.kill()
            break
    first.wait()
    assert not (out / "result.json").exists()
    second = coordinator(sites, out, "yes", overrides)
    printed, complaint = second.communicate(timeout=120)
    assert second.returncode == 0, complaint
    assert "round 1\n" not in printed
    tree = json.loads((out / "result.json").read_text())
    assert rounds(tree) == rounds(sites.alone(method__rounds=8))


@pytest.mark.slow
def test_coordinator_stopped_in_the_generator_phase(sites: Any, tmp_path: Path) -> None:
    settings = {"method__name": "fedsage_plus", "method__rounds": 2, "method__generator_hidden": [16]}
    calls: list[str] = []

    class Enough(Exception):
        pass

    def stop(site: str, header: Mapping[str, Any]) -> None:
        calls.append(str(header.get("handler")))
        if len([name for name in calls if name != "None"]) == 7:
            raise Enough

    with pytest.raises(Enough):
        sites.carry_out(Meddling(sites.transport, stop), tmp_path / "out", **settings)
    tree = sites.carry_out(sites.transport, tmp_path / "out", resume=True, **settings)
    assert rounds(tree) == rounds(sites.alone(**settings))


# -- networks that fail --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_site_out_of_reach_for_a_while(sites: Any, tmp_path: Path) -> None:
    until: list[float] = []
    meets = training_call("west", 2)

    def cut(site: str, header: Mapping[str, Any]) -> None:
        if meets(site, header) and not until:
            until.append(time.monotonic() + 4.0)
        if site == "west" and until and time.monotonic() < until[0]:
            raise Unreachable(site, "the cable is out")

    tree = sites.carry_out(Meddling(sites.transport, cut), tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())


def test_answers_lost_on_the_way_are_given_again(sites: Any, tmp_path: Path) -> None:
    lost: set[str] = set()

    def lose(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if header.get("do") == "call" and header["id"] not in lost and len(lost) < 6:
            lost.add(header["id"])
            raise Unreachable(site, "the answer was lost")
        return answer

    tree = sites.carry_out(Meddling(sites.transport, after=lose), tmp_path / "out")
    assert len(lost) == 6
    assert rounds(tree) == rounds(sites.alone())


def test_site_that_stays_away_fails_the_run_and_it_can_go_on(sites: Any, tmp_path: Path) -> None:
    meets, away = training_call("west", 3), []

    def cut(site: str, header: Mapping[str, Any]) -> None:
        if meets(site, header):
            away.append(True)
        if site == "west" and away:
            raise Unreachable(site, "the cable is out")

    with pytest.raises(FederationError, match=r"3 clients had to answer, 2 did.*silent for .*the cable is out"):
        sites.carry_out(Meddling(sites.transport, cut), tmp_path / "out", run__patience=1.0)
    assert not (tmp_path / "out" / "result.json").exists()
    tree = sites.carry_out(sites.transport, tmp_path / "out", resume=True, run__patience=1.0)
    assert rounds(tree) == rounds(sites.alone())


@pytest.mark.slow
def test_slow_site_beyond_the_deadline(sites: Any, tmp_path: Path) -> None:
    with stopped(sites, "north", 2, seconds=9.0) as stall:
        tree = sites.carry_out(
            Meddling(sites.transport, stall),
            tmp_path / "out",
            method__min_clients=2,
            method__rounds=6,
            run__deadline=2.0,
            run__checkpoint_every=0,
        )
    told = [row.get("failures", []) for row in tree["seeds"][0]["rounds"]]
    assert told[0] == []
    assert "did not finish within the deadline of 2 seconds" in told[1][0]
    assert tree["seeds"][0]["rounds"][1]["participants"] == 2
    assert tree["seeds"][0]["last_round"] == 6


def scored(tree: Any, first: int = 1) -> Any:
    rows = [row for row in tree["seeds"][0]["rounds"] if row["round"] >= first]
    return [[row["validation"], row["test"], row["modes"]] for row in rows]


def with_failures(sites: Any, monkeypatch: pytest.MonkeyPatch, who: int, when: set[int], **overrides: Any) -> Any:
    """One process in which a client never hears of some rounds."""
    deliver = InProcess.deliver

    def losing(self: InProcess, handler: str, round: int, outgoing: Mapping[int, Any]) -> Any:
        away = {who} & outgoing.keys() if handler == "train" and round in when else set()
        yield from ((client, Failure(client, handler, "Gone", "it went away")) for client in away)
        yield from deliver(self, handler, round, {key: value for key, value in outgoing.items() if key not in away})

    with monkeypatch.context() as patched:
        patched.setattr(InProcess, "deliver", losing)
        return sites.alone(**overrides)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scaffold", "feddc"])
def test_a_client_whose_answers_are_lost_steps_back(
    method: str, sites: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """South trains in round 2 and 3 and is not heard: from round 4 on it is as if it had not trained."""
    settings = {"method__name": method, "method__min_clients": 2, "method__rounds": 5}
    training = [training_call("south", number) for number in (2, 3)]
    asked: list[int] = []

    def cut(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if any(meets(site, header) for meets in training):
            asked.append(header["round"])
            raise Unreachable(site, "the cable is out")
        if site == "south" and header.get("do") == "poll":
            raise Unreachable(site, "the cable is out")
        return answer

    transport = Meddling(sites.transport, after=cut)
    tree = sites.carry_out(transport, tmp_path / "out", run__patience=0.5, **settings)
    assert asked == [2, 3]
    assert [len(row.get("failures", [])) for row in tree["seeds"][0]["rounds"]] == [0, 1, 1, 0, 0]
    one = with_failures(sites, monkeypatch, 1, {2, 3}, **settings)
    assert scored(tree, 4) == scored(one, 4)
    assert scored(tree, 4) != scored(sites.alone(**settings), 4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scaffold", "feddc"])
def test_a_client_that_answers_late_steps_back(
    method: str, sites: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """North stops in the middle of round 2 and goes on, late, with what it was asked then."""
    settings = {"method__name": method, "method__min_clients": 2, "method__rounds": 9}
    with stopped(sites, "north", 2, seconds=5.0) as stall:
        tree = sites.carry_out(
            Meddling(sites.transport, stall), tmp_path / "out", run__deadline=2.0, run__checkpoint_every=0, **settings
        )
    told = {row["round"]: row.get("failures", []) for row in tree["seeds"][0]["rounds"]}
    late = {number for number, lines in told.items() if any("'train'" in line for line in lines)}
    assert 2 in late
    assert 9 not in late
    one = with_failures(sites, monkeypatch, 0, late, **settings)
    assert scored(tree, max(late) + 1) == scored(one, max(late) + 1)


# -- sites that lie ------------------------------------------------------------------------------------------------


def lying(sites: Any, change: Callable[[bytearray], bytearray], *, always: bool = True) -> Meddling:
    """The site 'south' answers training in round 2 with something else."""
    meets, told = training_call("south", 2), []

    def after(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        concerned = meets(site, header) or (site == "south" and header.get("do") == "poll")
        if concerned and (always or not told):
            told.append(True)
            return change(answer)
        return answer

    return Meddling(sites.transport, after=after)


def with_reply(change: Callable[[TrainReply], TrainReply]) -> Callable[[bytearray], bytearray]:
    return lambda answer: changed(answer, TrainReply, change)


def spoiled(reply: TrainReply, value: float) -> TrainReply:
    first = next(iter(reply.weights))
    weights = {name: tensor.clone() for name, tensor in reply.weights.items()}
    weights[first].view(-1)[0] = value
    return replace(reply, weights=weights)


def reshaped(reply: TrainReply) -> TrainReply:
    return replace(reply, weights={name: tensor[..., :1].clone() for name, tensor in reply.weights.items()})


def set_float(answer: bytearray, value: float) -> bytearray:
    """NaN that our own encoder would refuse, written over the last number of the payload."""
    packet = unpack(answer)
    payload = torch.frombuffer(bytearray(packet.payloads[0]), dtype=torch.float32).clone()
    nonzero = torch.nonzero(payload).flatten()
    payload[nonzero[-1]] = value
    return pack(packet.header, [payload.numpy()])


LIES: dict[str, tuple[Callable[[bytearray], bytearray], str]] = {
    "corrupted": (lambda answer: answer[:-4] + bytes([answer[-4] ^ 255]) + answer[-3:], "damaged on its way"),
    "truncated": (lambda answer: answer[: len(answer) // 2], "cut"),
    "lengthened": (lambda answer: answer + b"\0" * 64, "cut or lengthened"),
    "garbage": (lambda answer: bytearray(b"<html>bad gateway</html>"), "no packet of graphsilo"),
    "empty": (lambda answer: bytearray(), "no packet"),
    "nan": (lambda answer: set_float(answer, float("nan")), "NaN or infinity"),
    "wrong-shape": (with_reply(reshaped), "has the shape"),
    "a-billion-samples": (
        with_reply(lambda reply: replace(reply, num_samples=1e9)), r"claims to stand for 1e\+09 items"
    ),
    "other-client": (
        lambda answer: pack(
            {**(tree := unpack(answer)).header, "answers": [{**tree.header["answers"][0], "client": 0}]}, tree.payloads
        ),
        r"asked for clients \[1\] and answered for \[0\]",
    ),
    "malformed": (
        lambda answer: pack({**unpack(answer).header, "answers": [{"client": 1}]}, []), "gave a malformed answer"
    ),
}  # fmt: skip


@pytest.mark.slow
def test_compressed_models_give_the_numbers_of_one_process(sites: Any, tmp_path: Path) -> None:
    """What a silo has left out is at the silo, and comes back with its checkpoint when its worker dies."""
    topk = {"run__compression": "topk", "run__top_share": 0.2}
    victim = sites.supervisors["south"]
    kill = once(training_call("south", 3), lambda: os.kill(victim.worker_pid, signal.SIGKILL))
    tree = sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out", **topk)
    assert any("goes back to its last checkpoint" in line for line in sites.said)
    once_more = sites.alone(**topk)
    assert rounds(tree) == rounds(once_more)
    assert tree["summary"]["upload_bytes"] == once_more["summary"]["upload_bytes"]
    assert tree["summary"]["upload_bytes"] < 0.7 * sites.alone()["summary"]["upload_bytes"]


@pytest.mark.slow
def test_silos_choose_by_the_metric_of_the_run(sites: Any, tmp_path: Path) -> None:
    ridge = {"method__name": "fedridge", "evaluation__select_by": "auc"}
    tree = sites.carry_out(sites.transport, tmp_path / "out", **ridge)
    assert rounds(tree) == rounds(sites.alone(**ridge))
    assert rounds(tree) != rounds(sites.alone(**ridge | {"evaluation__select_by": "accuracy"}))


def test_a_site_that_lies_in_its_levels_is_refused_and_named(sites: Any, tmp_path: Path) -> None:
    carrier = Compression("int8").find_carrier(TrainRequest, TrainReply)

    def changed(answer: bytearray) -> bytearray:
        packet = unpack(answer)
        reply = decode(bytes(packet.payloads[0]), carrier)
        said = {**reply.weights, "scales": -reply.weights["scales"]}  # type: ignore[attr-defined]
        return pack(packet.header, [encode(replace(reply, weights=said)).data])

    with pytest.raises(FederationError, match=r"client 1.*a scale below 0"):
        sites.carry_out(lying(sites, changed), tmp_path / "out", method__rounds=2, run__compression="int8")
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize("lie", list(LIES))
def test_lying_site_is_refused_and_named(lie: str, sites: Any, tmp_path: Path) -> None:
    change, words = LIES[lie]
    with pytest.raises(FederationError, match=words):
        sites.carry_out(lying(sites, change), tmp_path / "out", method__rounds=2)
    assert not (tmp_path / "out" / "result.json").exists()


def test_lying_site_is_left_out_where_the_method_allows_it(sites: Any, tmp_path: Path) -> None:
    transport = lying(sites, with_reply(lambda reply: replace(reply, num_samples=1e9)))
    tree = sites.carry_out(transport, tmp_path / "out", method__rounds=3, method__min_clients=2)
    told = [row.get("failures", []) for row in tree["seeds"][0]["rounds"]]
    assert [len(lines) for lines in told] == [0, 1, 0]
    assert "claims to stand for 1e+09 items" in told[1][0]


def test_damage_on_the_way_is_mended_by_asking_again(sites: Any, tmp_path: Path) -> None:
    transport = lying(sites, LIES["corrupted"][0], always=False)
    tree = sites.carry_out(transport, tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())


def test_old_answer_is_not_taken_for_a_new_one(sites: Any, tmp_path: Path) -> None:
    kept: list[bytearray] = []
    first, second = training_call("south", 1), training_call("south", 2)

    def replay(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if first(site, header):
            kept.append(answer)
        concerned = second(site, header) or (kept and site == "south" and header.get("do") == "poll")
        return kept[0] if concerned else answer

    with pytest.raises(FederationError, match="answers another request"):
        sites.carry_out(Meddling(sites.transport, after=replay), tmp_path / "out", method__rounds=2)


def test_oversized_answer_is_refused(sites: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphsilo.runtime.remote import sites as remote

    monkeypatch.setattr(remote, "MAX_BODY", 10_000)
    big = lying(sites, lambda answer: answer + bytes(20_000))
    with pytest.raises(FederationError, match="at most 10000 are taken"):
        sites.carry_out(big, tmp_path / "out", method__rounds=2)


# -- another release -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smallest", [None, 2])
def test_a_site_that_comes_back_with_another_release_trains_no_more(
    smallest: int | None, sites: Any, tmp_path: Path
) -> None:
    """It was started anew in round 2 and knows of no run; who opens there then is of another release."""
    forgotten: list[str] = []

    def changed(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        packet = unpack(answer)
        if training_call("south", 2)(site, header) and not forgotten:
            forgotten.append(site)
            return pack_error(packet.id, "NotOpen", "the run is not open at this site.")
        if site in forgotten and header["do"] == "call":
            raise AssertionError("it was asked to train")
        return pack({**packet.header, "graphsilo": "0.0.1"}) if site in forgotten and header["do"] == "open" else answer

    transport = Meddling(sites.transport, after=changed)
    words = rf"site 'south' runs graphsilo 0\.0\.1, the coordinator {__version__}: install the same release"
    if smallest is None:
        with pytest.raises(FederationError, match=words):
            sites.carry_out(transport, tmp_path / "out")
        return
    tree = sites.carry_out(transport, tmp_path / "out", method__min_clients=smallest)
    found = [row.get("failures", []) for row in tree["seeds"][0]["rounds"]]
    assert [len(lines) > 0 for lines in found] == [False, True, True, True]
    assert all(re.search(words, line) for lines in found for line in lines)
    assert [row["participants"] for row in tree["seeds"][0]["rounds"]] == [3, 2, 2, 2]


# -- policies ------------------------------------------------------------------------------------------------------


def test_who_refuses_counts_as_no_participant_and_costs_no_reference(sites: Any, tmp_path: Path) -> None:
    """South takes no part in anything, by its owner; the run and its reference go on as ``min_clients`` says."""

    def refusing(site: str, header: Mapping[str, Any], answer: bytearray) -> bytearray:
        if site != "south" or header["do"] != "open":
            return answer
        return pack({**unpack(answer).header, "refused": [[1, "its owner says no"]]})

    settings = {"method__min_clients": 2, "method__rounds": 2, "run__references": ["local"]}
    tree = sites.carry_out(Meddling(sites.transport, after=refusing), tmp_path / "out", **settings)
    row = json.loads((tmp_path / "out" / "references" / "local" / "result.json").read_text())
    for found in (tree, row):
        assert [each["participants"] for each in found["seeds"][0]["rounds"]] == [2, 2]
        assert [each["client"] for each in found["seeds"][0]["clients"] if each["test"]] == [0, 2]
    assert tree["references"]["local"]["accuracy"]["mean"] == row["summary"]["test"]["accuracy"]["mean"]
    (told,) = [text for text in tree["warnings"] if text.startswith("the reference 'local': client 'south' refused in")]
    assert told.endswith("its owner says no)")
    settings["method__min_clients"] = 3
    with pytest.raises(FederationError, match=r"3 clients have to take part, 2 do: .*, or lower method\.min_clients\."):
        sites.carry_out(Meddling(sites.transport, after=refusing), tmp_path / "more", **settings)


@pytest.mark.slow
def test_silo_that_refuses_a_method_is_named_or_left_out(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    sites = make_sites(policies={"south": {"methods": ["opfgl"]}})
    with pytest.raises(FederationError, match=r"client 1 refuses: this silo does not take part in FedAvg"):
        sites.carry_out(sites.transport, tmp_path / "all")
    tree = sites.carry_out(sites.transport, tmp_path / "two", method__min_clients=2)
    assert all("client 1" in row["failures"][0] for row in tree["seeds"][0]["rounds"])
    assert [row["client"] for row in tree["seeds"][0]["clients"] if row["test"]] == [0, 2]
    told = [text for text in sites.said if "takes no part in run" in text]
    assert len(told) == 2, "the site's own terminal says so, once for each of the two runs"
    assert all("client 1 takes" in text and "policy.methods allows opfgl" in text for text in told)
    assert sum(" begins" in text for text in sites.said) == 2, "the second run, at the two other sites"


# -- full disk -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_full_disk_at_the_coordinator(sites: Any, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    if not mounted or subprocess.run(command, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        with pytest.raises(RunError, match="No space left on device"):
            sites.carry_out(sites.transport, small / "out", method__rounds=30)
        assert not (small / "out" / "result.json").exists()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        tree = sites.carry_out(sites.transport, small / "out", resume=True, method__rounds=30)
        assert rounds(tree) == rounds(sites.alone(method__rounds=30))
    finally:
        subprocess.run(["umount", str(small)], check=True)


# -- sites that are away while others go on ----------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["remember", "save", "finish"])
def test_site_that_falls_silent_between_steps_is_left_out(operation: str, sites: Any, tmp_path: Path) -> None:
    def cut(site: str, header: Mapping[str, Any]) -> None:
        if site == "west" and (header.get("do") == operation or away):
            away.append(True)
            raise Unreachable(site, "the cable is out")

    away: list[bool] = []
    tree = sites.carry_out(Meddling(sites.transport, cut), tmp_path / "out", run__patience=0.5, method__min_clients=2)
    assert tree["seeds"][0]["last_round"] == 4
    assert any("site 'west' has been silent" in line for line in sites.said)


@pytest.mark.slow
def test_late_site_does_not_hold_up_checkpoints(sites: Any, tmp_path: Path) -> None:
    asked: list[str] = []

    def before(site: str, header: Mapping[str, Any]) -> None:
        stall(site, header)
        asked.append(f"{site} {header.get('do')} {header.get('mark', '')}")

    with stopped(sites, "north", 2, seconds=9.0) as stall:
        tree = sites.carry_out(
            Meddling(sites.transport, before),
            tmp_path / "out",
            method__min_clients=2,
            method__rounds=6,
            run__deadline=2.0,
        )
    assert "did not finish within the deadline of 2 seconds" in tree["seeds"][0]["rounds"][1]["failures"][0]
    assert tree["seeds"][0]["last_round"] == 6
    assert "south save seed0-round2" in asked
    assert "north save seed0-round2" not in asked


@pytest.mark.slow
def test_site_that_was_away_at_a_checkpoint_goes_back_to_its_own(sites: Any, tmp_path: Path) -> None:
    """North is away in round 2 and 3 and back in round 4, when south's worker dies: north has no checkpoint of 3."""
    victim, restored = sites.supervisors["south"], []
    kill = once(training_call("south", 5), lambda: os.kill(victim.worker_pid, signal.SIGKILL))
    away = [False]

    def before(site: str, header: Mapping[str, Any]) -> None:
        if header.get("do") == "call" and header.get("handler") != "evaluate":
            away[0] = header["round"] in (2, 3)
        if site == "north" and away[0]:
            raise Unreachable(site, "the cable is out")
        if header.get("do") == "restore":
            restored.append((site, header["mark"]))
        kill(site, header)

    tree = sites.carry_out(
        Meddling(sites.transport, before),
        tmp_path / "out",
        method__min_clients=2,
        method__rounds=6,
        run__patience=0.5,
        run__checkpoint_every=3,
    )
    assert tree["seeds"][0]["last_round"] == 6
    assert sorted(restored) == [("south", "seed0-round3"), ("west", "seed0-round3")]


@pytest.mark.slow
def test_site_that_joins_after_a_checkpoint_begins_anew(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    sites = make_sites()

    def before(site: str, header: Mapping[str, Any]) -> None:
        late = header.get("do") == "call" and header["round"] > 2
        if late:
            there.append(True)
        if site == "west" and header.get("do") not in ("hello", "cards") and not there:
            raise Unreachable(site, "the cable is out")

    there: list[bool] = []
    tree = sites.carry_out(
        Meddling(sites.transport, before), tmp_path / "out", method__min_clients=2, run__patience=0.5
    )
    assert [len(row.get("failures", [])) for row in tree["seeds"][0]["rounds"]] == [2, 2, 0, 0]


def test_new_run_in_a_used_folder_leaves_its_name(sites: Any, tmp_path: Path) -> None:
    meets = training_call("west", 3)

    def cut(site: str, header: Mapping[str, Any]) -> None:
        if meets(site, header):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sites.carry_out(Meddling(sites.transport, cut), tmp_path / "out")
    with pytest.raises(ConfigError, match="already holds a run"):
        sites.carry_out(sites.transport, tmp_path / "out")
    tree = sites.carry_out(sites.transport, tmp_path / "out", resume=True)
    assert rounds(tree) == rounds(sites.alone())


@pytest.mark.slow
@pytest.mark.parametrize("step", ["open", "evaluate", "remember", "save", "finish", "memory"])
def test_worker_killed_in_any_step(step: str, sites: Any, tmp_path: Path) -> None:
    victim = sites.supervisors["south"]

    def meets(site: str, header: Mapping[str, Any]) -> bool:
        return site == "south" and step in (header.get("do"), header.get("handler"))

    kill = once(meets, lambda: os.kill(victim.worker_pid, signal.SIGKILL))
    tree = sites.carry_out(Meddling(sites.transport, kill), tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())
    name = json.loads((tmp_path / "out" / "run.json").read_text())["run"]
    models = sites.folder / "south" / "results" / name / "south" / "models"
    assert sorted(path.name for path in models.iterdir()) == [
        "seed0-client1-best.safetensors", "seed0-client1-last.safetensors"
    ]  # fmt: skip


@pytest.mark.slow
def test_two_workers_killed_at_once_and_one_as_it_goes_back(sites: Any, tmp_path: Path) -> None:
    victims = [sites.supervisors[name] for name in ("south", "west")]

    def strike() -> None:
        for victim in victims:
            os.kill(victim.worker_pid, signal.SIGKILL)

    both = once(training_call("north", 3), strike)
    again = once(
        lambda site, header: site == "west" and header.get("do") == "restore",
        lambda: os.kill(victims[1].worker_pid, signal.SIGKILL),
    )

    def before(site: str, header: Mapping[str, Any]) -> None:
        both(site, header)
        again(site, header)

    tree = sites.carry_out(Meddling(sites.transport, before), tmp_path / "out")
    assert rounds(tree) == rounds(sites.alone())


@pytest.mark.slow
def test_releases_with_noise_are_counted_over_runs(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """At ε = 5 one is within 6, two come to 7.6; and nothing may be scaled by what other nodes have."""
    sites = make_sites(policies={"south": {"max_epsilon": 6.0}})
    private = {"method__name": "fedridge", "method__epsilon": 5.0}
    with pytest.raises(ConfigError, match=r"Use data\.scale=none"):
        sites.carry_out(sites.transport, tmp_path / "scaled", **private)
    for file in sites.files.values():
        file.write_text(file.read_text() + "features: {scale: none}\n")
    for site in sites.supervisors.values():
        os.kill(site.worker_pid, signal.SIGKILL)
    with pytest.raises(FederationError, match=r"client 1 refuses: this silo sends nothing in training without noise"):
        sites.carry_out(sites.transport, tmp_path / "plain", method__name="fedridge")
    tree = sites.carry_out(sites.transport, tmp_path / "first", **private)
    assert any(text.startswith("Differential privacy of nodes") for text in tree["warnings"])
    with pytest.raises(FederationError, match=r"would come to more than ε = 6"):
        sites.carry_out(sites.transport, tmp_path / "second", **private)
