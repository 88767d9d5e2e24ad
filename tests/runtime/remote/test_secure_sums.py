"""Secure sums over sites: the same as in one process; a worker that dies, a silo that wants them.

Each site is a process of its own, with its own keys and its own record of what it opened.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphsilo.data.silos.own import read_silo_file
from graphsilo.errors import FederationError
from graphsilo.federation.journal import read
from graphsilo.federation.secure import CALL, CONFIRM, MASK, OPEN, SHARE
from graphsilo.runtime.engines.choice import kits_of
from graphsilo.runtime.engines.nvflare.kit import read_kit
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.remote.federation_file import FederationSpec
from kit.site_meddling import Meddling, once
from kit.site_tables import NAMES, numbers
from kit.sites import coordinator, to_be_killed

SECURE = {"run__secure_sums": True, "evaluation__report": "federation"}


def carry_out(sites: Any, out: Path, transport: Any = None, **overrides: Any) -> Any:
    return sites.carry_out(transport or sites.transport, out, **overrides)


def rounds(tree: Any) -> Any:
    kept = [{key: value for key, value in row.items() if "bytes" not in key} for row in tree["seeds"][0]["rounds"]]
    return [numbers(row) for row in kept], tree["summary"]["test"]


@pytest.mark.slow
def test_sums_over_sites_are_those_of_one_process(sites: Any, tmp_path: Path) -> None:
    tree = carry_out(sites, tmp_path / "out", **SECURE)
    assert rounds(tree) == rounds(sites.alone(**SECURE))
    name = json.loads((tmp_path / "out" / "run.json").read_text())["run"]
    for site, supervisor in sites.supervisors.items():
        entries = [entry for entry in read(supervisor.folder / "sent" / f"{site}.jsonl") if entry.run == name]
        masked = [entry for entry in entries if entry.message == "fedavg.TrainReply"]
        assert masked
        assert "to the coordinator, masked, in a sum of 3 silos: model weights" in str(masked[0])
        plain = {note.kind for entry in entries if entry.way == "sent" for note in entry.fields
                 if not entry.reason.startswith("masked")}  # fmt: skip
        assert plain == {"control"}  # nothing but keys, shares, signatures, names and shapes
        key = read_silo_file(sites.files[site]).record("key")  # of the data, in whatever federation they are summed
        assert {path.suffix for path in key.parent.iterdir()} == {".key", ".secret", ".opened", ".evaluated", ".lock"}
        assert [path.name for path in (supervisor.folder / "sums").iterdir()] == [f"{site}.known"]
        assert key.stat().st_mode & 0o777 == 0o600
        assert holding(key.read_bytes(), supervisor.folder, tmp_path / "out") == [key.name]


def holding(secret: bytes, *folders: Path) -> list[str]:
    """Names of files that hold a secret, as it is or as text."""
    forms = (secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"="))
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


@pytest.mark.slow
def test_no_file_holds_a_silos_keys(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """Of signatures and of noise, but for its own: logs, checkpoints and results of all included."""
    sites = make_sites()
    for site, file in sites.files.items():
        file.write_text(file.read_text() + "features: {scale: none}\n")
        os.kill(sites.supervisors[site].worker_pid, signal.SIGKILL)
    private = {"method__name": "fedridge", "method__epsilon": 5.0, "method__own": False, "data__scale": "none"}
    carry_out(sites, tmp_path / "out", **SECURE, **private)
    for site in sites.supervisors:
        for kind in ("key", "secret"):
            secret = read_silo_file(sites.files[site]).record(kind)
            assert holding(secret.read_bytes(), sites.folder, tmp_path / "out") == [secret.name]


def at(step: str) -> Callable[[str, Any], bool]:
    """Whether a request asks the site in the middle for this step of round 2."""
    return lambda site, header: site == "south" and header.get("handler") == step and header.get("round") == 2


every_step = pytest.mark.parametrize("step", [f"{CALL}train", SHARE, MASK, CONFIRM, OPEN])
"""The five steps of a sum."""


@pytest.mark.slow
@every_step
def test_worker_killed_at_each_step(step: str, sites: Any, tmp_path: Path) -> None:
    """It has forgotten its keys: all go back to the last checkpoint, and the run comes to the same."""
    victim = sites.supervisors["south"]
    kill = once(at(step), lambda: os.kill(victim.worker_pid, signal.SIGKILL))
    tree = carry_out(sites, tmp_path / "out", Meddling(sites.transport, kill), **SECURE)
    assert rounds(tree) == rounds(sites.alone(**SECURE))
    assert any("goes back to its last checkpoint" in line for line in sites.said)


@pytest.mark.slow
@every_step
def test_site_killed_at_each_step(step: str, make_sites: Callable[..., Any], tmp_path: Path) -> None:
    sites = make_sites()
    with to_be_killed(sites, "south") as strike:
        tree = carry_out(sites, tmp_path / "out", Meddling(sites.transport, once(at(step), strike)), **SECURE)
        assert rounds(tree) == rounds(sites.alone(**SECURE))


@pytest.mark.slow
@every_step
def test_coordinator_killed_at_each_step(step: str, sites: Any, tmp_path: Path) -> None:
    """What was opened since its last checkpoint it asks for again: of the same silos, so that they open it."""
    overrides, out = sites.overrides(**SECURE, run__checkpoint_every=4), tmp_path / "out"
    first = coordinator(sites, out, "no", overrides, step)
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists()
    second = coordinator(sites, out, "yes", overrides)
    _, complaint = second.communicate(timeout=120)
    assert second.returncode == 0, complaint
    tree = json.loads((out / "result.json").read_text())
    assert rounds(tree) == rounds(sites.alone(**SECURE, run__checkpoint_every=4))


@pytest.mark.slow
def test_a_silo_that_wants_nothing_seen_but_sums(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    sites = make_sites({"south": {"require_secure_sums": True}})
    for number, (overrides, text) in enumerate((
        ({}, "this silo lets nothing be seen but sums"),
        ({"run__secure_sums": True}, "evaluation.report=silos shows its own counts"),
    )):  # fmt: skip
        with pytest.raises(FederationError, match=text):
            carry_out(sites, tmp_path / str(number), **overrides)
    assert carry_out(sites, tmp_path / "masked", **SECURE)["summary"]
    # More than there are: it takes part in no sum of three.
    wants = make_sites({"south": {"require_secure_sums": True, "min_silos": 4}})
    with pytest.raises(FederationError, match="this one takes part in sums of 4"):
        carry_out(wants, tmp_path / "more", **SECURE)


@pytest.mark.slow
def test_a_silo_does_not_open_the_same_answers_without_another(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """The same run again with one silo left out, from its very beginning: the sums that scale features are those of
    before, and the difference would be what the third one sent. Refused, by workers that were started anew."""
    sites = make_sites()
    carry_out(sites, tmp_path / "first", **SECURE)
    for supervisor in sites.supervisors.values():
        os.kill(supervisor.worker_pid, signal.SIGKILL)
    carry_out(sites, tmp_path / "again", **SECURE)  # with the same silos it runs as often as one likes
    for supervisor in sites.supervisors.values():
        path = read_silo_file(sites.files[supervisor.name]).record("opened")
        lines = [line for line in map(json.loads, path.read_text().splitlines()) if "silos" in line]
        assert {len(line["silos"]) for line in lines} == {3}
        # As if the sums had been opened with a fourth, which is not there this time.
        fourth = hashlib.sha256(b"west").hexdigest()
        path.write_text("".join(json.dumps({**line, "silos": [*line["silos"], fourth]}) + "\n" for line in lines))
        os.kill(supervisor.worker_pid, signal.SIGKILL)
    with pytest.raises(FederationError, match="was opened before in a sum with other silos"):
        carry_out(sites, tmp_path / "fewer", **SECURE)


@pytest.mark.slow
def test_silos_are_those_that_the_kits_name(make_sites: Callable[..., Any], tmp_path: Path) -> None:
    """Sums over certified silos are those of one process; one that comes without its kit is in none."""
    spec = {"name": "test", "coordinator": {"host": "127.0.0.1"}, "silos": list(NAMES)}
    provision(FederationSpec.of(spec), tmp_path / "kits")
    kits = {name: kits_of(read_kit(tmp_path / "kits" / name)) for name in NAMES}
    sites = make_sites(kits=kits)
    tree = carry_out(sites, tmp_path / "out", **SECURE, method__rounds=2)
    assert rounds(tree) == rounds(sites.alone(**SECURE, method__rounds=2))
    for name, supervisor in sites.supervisors.items():
        known = json.loads((supervisor.folder / "sums" / f"{name}.known").read_text())
        assert {len(key) for key in known.values()} == {64}  # the keys themselves: certificates are renewed
    stranger = sites.supervisors["south"]
    stranger._kits = None
    os.kill(stranger.worker_pid, signal.SIGKILL)
    with pytest.raises(FederationError, match="the key by which client 1 signs is not certified by a kit"):
        carry_out(sites, tmp_path / "stranger", **SECURE)
