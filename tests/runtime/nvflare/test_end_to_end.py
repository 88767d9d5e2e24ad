"""The whole way over mutual TLS: `graphsilo join` at three sites, the runner of one process at the coordinator."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.observer import Progress, Silent
from graphsilo.experiments.remote import run_over
from graphsilo.experiments.runner import run
from graphsilo.runtime.federation_file import parse_federation
from graphsilo.runtime.nvflare.coordinator import NvflareTransport
from graphsilo.runtime.nvflare.provision import provision

pytestmark = pytest.mark.slow
sys.path.insert(0, str(Path(__file__).parents[1] / "site"))
tables = importlib.import_module("site_tables")


@dataclass
class Federation:
    """A provisioned federation with a process at each site."""

    folder: Path
    port: int
    joined: dict[str, subprocess.Popen] = field(default_factory=dict)
    prefix: dict[str, list[str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def join(self, site: str) -> None:
        """Start a site's process, as a person there would."""
        command = [sys.executable, "-m", "graphsilo", "join", str(self.folder / "kits" / site)]
        command += ["--silo", str(self.folder / site / "silo.yaml")]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.joined[site] = subprocess.Popen(
                [*self.prefix.get(site, []), *command], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, site: str) -> None:
        """Kill it with everything that hangs on it, as a power cut does."""
        os.killpg(self.joined[site].pid, signal.SIGKILL)
        self.joined[site].wait()

    def close(self) -> None:
        for process in self.joined.values():
            process.terminate()
        for process in self.joined.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def coordinator(self) -> Path:
        return self.folder / "kits" / "coordinator"

    def config(self, **overrides: Any) -> RunConfig:
        names = [str(self.folder / name / "tables.yaml") for name in tables.NAMES]
        short = {"data.name": names, "method.rounds": 4, "run.checkpoint_every": 1, "model.hidden": [8]}
        return load_config(overrides={**short, **overrides})

    def carry_out(self, transport: NvflareTransport, config: RunConfig, out: str, **options: Any) -> Any:
        clients = {name: [number] for number, name in enumerate(tables.NAMES)}
        return run_over(
            transport, config, name="test", clients=clients, out=self.folder / out, wait=90, say=self.said.append,
            **options,
        ).tree  # fmt: skip


def make(folder: Path, host: str = "127.0.0.1") -> Federation:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for number, name in enumerate(tables.NAMES):
        tables.write_tables(folder / name, name, number)
    spec = {"name": "test", "coordinator": {"host": host, "port": port}, "silos": list(tables.NAMES)}
    provision(parse_federation(spec), folder / "kits")
    return Federation(folder, port)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = make(tmp_path_factory.mktemp("flare"))
    try:
        for site in tables.NAMES:
            made.join(site)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def transport(federation: Federation) -> Iterator[NvflareTransport]:
    with NvflareTransport(federation.coordinator) as leading:
        leading.start()
        yield leading


def same(tree: Any, config: RunConfig) -> None:
    """A run over sites gave what one process gives, bit for bit."""
    alone = run(config).tree
    for mine, theirs in zip(alone["seeds"], tree["seeds"], strict=True):
        for key in ("best_round", "validation", "test", "test_last", "modes", "confusion", "setup", "rounds"):
            assert tables.numbers(mine[key]) == tables.numbers(theirs[key]), key
    assert alone["summary"] == tree["summary"]


METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"run.seeds": [0, 1]},
    "opfgl": {},
    "fedpg": {},
    "fairfgl": {},
    "fedlog": {"method.rounds": 2},
    "fedsage_plus": {"method.rounds": 2, "method.generator_hidden": [16]},
}


@pytest.mark.parametrize("method", list(METHODS))
def test_same_numbers_as_in_one_process(method: str, federation: Federation, transport: NvflareTransport) -> None:
    config = federation.config(**{"method.name": method, **METHODS[method]})
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


class Struck(Silent):
    """Does something when a round has ended."""

    def __init__(self, round: int, action: Callable[[], Any]):
        self.round, self.action = round, action

    def progressed(self, progress: Progress) -> None:
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


def can_make_networks() -> bool:
    made = subprocess.run(["ip", "netns", "add", "graphsilo-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "graphsilo-probe"], capture_output=True, check=False)
    return made.returncode == 0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Federation]:
    """The coordinator here, each site in a network of its own, joined by a cable that can be pulled."""
    if not can_make_networks():
        pytest.skip("network namespaces need root and iproute2")
    made = make(tmp_path, host="10.213.7.1")

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
    with NvflareTransport(hosts.coordinator) as leading:
        leading.start()
        begun = time.monotonic()
        same(hosts.carry_out(leading, config, "out-cable", observer=Struck(3, pull)), config)
    assert time.monotonic() - begun > 10
