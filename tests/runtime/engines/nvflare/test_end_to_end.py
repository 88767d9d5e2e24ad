"""The whole way over mutual TLS: `graphsilo join` at three sites, the runner of one process at the coordinator."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("nvflare")

from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.runner import run
from graphsilo.federation.secure import CALL, CONFIRM, MASK, OPEN, SHARE
from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
from kit.site_meddling import Meddling, once

pytestmark = pytest.mark.slow

from joined_sites import Federation, make, short_folder, tables  # noqa: E402


@pytest.fixture(scope="module")
def transport(federation: Federation) -> Iterator[NvflareTransport]:
    with contextlib.closing(NvflareTransport(federation.coordinator)) as leading:
        leading.start()
        yield leading


def same(tree: Any, config: RunConfig) -> None:
    """A run over sites gave what one process gives, bit for bit."""
    tables.assert_same(run(config).tree, tree)


@pytest.mark.parametrize("method", list(tables.METHODS))
def test_same_numbers_as_in_one_process(method: str, federation: Federation, transport: NvflareTransport) -> None:
    config = federation.config(**{"method.name": method, **tables.METHODS[method]})
    same(federation.carry_out(transport, config, f"out-{method}"), config)


def test_every_silo_keeps_its_own_model_and_log(federation: Federation, transport: NvflareTransport) -> None:
    config = federation.config()
    federation.carry_out(transport, config, "out-own")
    assert not (federation.folder / "out-own" / "models" / "seed0-client0-best.safetensors").exists()
    for number, name in enumerate(tables.NAMES):
        kit = federation.folder / "kits" / name
        own = next(kit.glob(f"results/out-own-fedavg-*/{name}"))
        assert (own / "models" / f"seed0-client{number}-best.safetensors").exists()
        done = subprocess.run(
            [sys.executable, "-m", "graphsilo", "predict", "--run", str(own), "--nodes", f"{name}1"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[1].startswith(f"{name}1,")
        told = subprocess.run(
            [sys.executable, "-m", "graphsilo", "silo", "log", str(kit / "sent" / f"{name}.jsonl")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "model weights" in told.stdout


class Struck(Observer):
    """Does something when a round has ended."""

    def __init__(self, round: int, action: Callable[[], Any]):
        self.round, self.action = round, action

    def on_progress(self, progress: Progress) -> None:
        if progress.round == self.round:
            self.round = -1
            self.action()


def test_site_killed_and_started_again(federation: Federation, transport: NvflareTransport) -> None:
    def strike() -> None:
        federation.kill("south")
        threading.Timer(1.0, federation.join, args=("south",)).start()

    config = federation.config(**{"method.rounds": 6})
    same(federation.carry_out(transport, config, "out-killed", observer=Struck(3, strike)), config)


def test_coordinators_engine_killed(federation: Federation, transport: NvflareTransport) -> None:
    config = federation.config(**{"method.rounds": 6})
    pid = transport.pid
    assert pid is not None
    strike = Struck(3, lambda: os.kill(pid, signal.SIGKILL))
    same(federation.carry_out(transport, config, "out-engine", observer=strike), config)


SECURE = {"run.secure_sums": True, "evaluation.report": "federation", "method.rounds": 6}
"""Over real kits, so that silos' keys are certified."""


def same_but_for_bytes(tree: Any, config: RunConfig) -> None:
    """As ``same``; silos' keys come with certificates, which one process has none of."""

    def without(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: without(value) for key, value in part.items() if "bytes" not in key}
        return [without(value) for value in part] if isinstance(part, list) else part

    tables.assert_same(without(run(config).tree), without(tree))


def test_site_killed_during_secure_sums(federation: Federation, transport: NvflareTransport) -> None:
    """It has forgotten its masks, and has its key and its record of what it opened on disk."""

    def strike() -> None:
        federation.kill("south")
        threading.Timer(1.0, federation.join, args=("south",)).start()

    config = federation.config(**SECURE)
    same_but_for_bytes(federation.carry_out(transport, config, "out-secure", observer=Struck(3, strike)), config)


@pytest.mark.parametrize(
    ("step", "whose"),
    [
        (f"{CALL}train", "a site's"),
        (SHARE, "the coordinator's"),
        (MASK, "a site's"),
        (CONFIRM, "the coordinator's"),
        (OPEN, "a site's"),
    ],
)
def test_engine_killed_at_each_step_of_a_secure_sum(
    step: str, whose: str, federation: Federation, transport: NvflareTransport
) -> None:
    """It holds no keys: what it carried is asked for again, and answered as before."""

    def strike() -> None:
        pid = transport.pid if whose == "the coordinator's" else engine_of(federation.joined["south"].pid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def meets(site: str, header: Any) -> bool:
        return site == "south" and header.get("handler") == step and header.get("round") == 2

    struck: list[bool] = []
    kill = once(meets, lambda: (struck.append(True), strike())[1])
    config = federation.config(**{**SECURE, "method.rounds": 3})
    out = f"out-engine-{step.split()[-1]}-{whose.startswith('a')}"
    same_but_for_bytes(federation.carry_out(Meddling(transport, kill), config, out), config)
    assert struck == [True]


def engine_of(pid: int) -> int:
    """The process of the engine that a site's process started."""
    import psutil

    (found,) = (one.pid for one in psutil.Process(pid).children(recursive=True) if "engine" in " ".join(one.cmdline()))
    return int(found)


def can_make_networks() -> bool:
    made = subprocess.run(["ip", "netns", "add", "graphsilo-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "graphsilo-probe"], capture_output=True, check=False)
    return made.returncode == 0


@pytest.fixture
def hosts() -> Iterator[Federation]:
    """The coordinator here, each site in a network of its own, joined by a cable that can be pulled."""
    if not can_make_networks():
        pytest.skip("network namespaces need root and iproute2")
    with short_folder() as folder:
        made = make(folder, host="10.213.7.1")

        def ip(*words: str, check: bool = True) -> None:
            subprocess.run(["ip", *words], check=check, capture_output=True)

        try:
            ip("link", "add", "gs-bridge", "type", "bridge")
            ip("addr", "add", "10.213.7.1/24", "dev", "gs-bridge")
            ip("link", "set", "gs-bridge", "up")
            for number, name in enumerate(tables.NAMES):
                space = f"gs-{name}"
                ip("netns", "add", space)
                ip("link", "add", f"gs-v{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
                ip("link", "set", f"gs-v{number}", "master", "gs-bridge", "up")
                ip("-n", space, "addr", "add", f"10.213.7.{number + 2}/24", "dev", "eth0")
                ip("-n", space, "link", "set", "eth0", "up")
                ip("-n", space, "link", "set", "lo", "up")
                made.prefix[name] = ["ip", "netns", "exec", space]
            for name in tables.NAMES:
                made.join(name)
            yield made
        finally:
            made.close()
            for name in tables.NAMES:
                ip("netns", "del", f"gs-{name}", check=False)
            ip("link", "del", "gs-bridge", check=False)


def test_site_out_of_reach_for_ten_seconds(hosts: Federation) -> None:
    def pull() -> None:
        subprocess.run(["ip", "link", "set", "gs-v1", "down"], check=True)
        threading.Timer(10.0, subprocess.run, args=(["ip", "link", "set", "gs-v1", "up"],)).start()

    config = hosts.config(**{"method.rounds": 6})
    with contextlib.closing(NvflareTransport(hosts.coordinator)) as leading:
        leading.start()
        begun = time.monotonic()
        same(hosts.carry_out(leading, config, "out-cable", observer=Struck(3, pull)), config)
    assert time.monotonic() - begun > 10
