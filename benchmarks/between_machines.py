"""What machines in between cost: the same runs in one process and over sites with mutual TLS. Part of ``make bench``.

Sites are processes of this machine, each with its own kit, so that what is measured is the engine and the protocol,
not a network. Bytes are those of the TCP connections, as the kernel counts them. Results go to
``.benchmarks/between_machines.json``.

    python benchmarks/between_machines.py                  # all
    python benchmarks/between_machines.py --sites 3 --only rounds
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from graphsilo.cli.silo.commands import write_silos
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import run_over
from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.remote.federation_file import FederationSpec

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".benchmarks" / "between_machines.json"
FEATURES = 1433
MODELS = {"0.37 MB": 64, "50 MB": 8720}
"""Hidden units of a two-layer GCN over 1433 features."""


class Watch(Observer):
    """Notes when rounds end, and does something after one of them."""

    def __init__(
        self,
        strike: tuple[int, Callable[[], None]] | None = None,
        count: Callable[[], dict[str, float]] = dict,
    ):
        self.times: list[float] = []
        self.spent: list[dict[str, float]] = []
        self.strike, self.count = strike, count

    def on_progress(self, progress: Progress) -> None:
        self.times.append(time.monotonic())
        self.spent.append(self.count())
        if self.strike is not None and progress.round == self.strike[0]:
            _, action = self.strike
            self.strike = None
            action()

    def per_round(self) -> float:
        """Seconds of a round, the first two left out."""
        gaps = [later - sooner for sooner, later in zip(self.times, self.times[1:], strict=False)]
        return statistics.median(gaps[1:])

    def cpu_per_round(self) -> dict[str, float]:
        """CPU seconds of a round by kind of process, the first two left out."""
        first, last = self.spent[1], self.spent[-1]
        return {kind: (last[kind] - first[kind]) / (len(self.spent) - 2) for kind in last}


class Sites:
    """A federation of processes on this machine."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count
        config = settings(count, 64, 1)
        self.silos = [place for place, _ in write_silos(load_config(overrides=config), folder / "silos")]
        self.names = [place.name for place in self.silos]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        spec = {"name": "bench", "coordinator": {"host": "127.0.0.1", "port": self.port}, "silos": self.names}
        provision(FederationSpec.of(spec), folder / "kits")
        self.joined: dict[str, subprocess.Popen] = {}
        self.said: list[tuple[float, str]] = []

    def join(self, name: str) -> None:
        place = self.silos[self.names.index(name)]
        command = [sys.executable, "-m", "graphsilo", "join", str(self.folder / "kits" / name)]
        self.joined[name] = subprocess.Popen(
            [*command, "--silo", str(place / "silo.yaml"), "--quiet"], start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        os.killpg(self.joined[name].pid, signal.SIGKILL)
        self.joined[name].wait()

    def worker(self, name: str) -> int:
        """Process number of a site's worker."""
        return next(pid for pid, text in processes(self.joined[name].pid) if "site.worker" in text)

    def spent(self, transport: NvflareTransport) -> dict[str, float]:
        """CPU seconds of all processes so far, by kind."""
        found = {"coordinator": time.process_time(), "coordinator's engine": cpu_seconds(transport.pid or 0)}
        for process in self.joined.values():
            for pid, text in processes(process.pid):
                kind = kind_of(text)
                found[kind] = found.get(kind, 0.0) + cpu_seconds(pid)
        return found

    def carry_out(self, transport: NvflareTransport, config: dict[str, Any], out: str, watch: Watch) -> Any:
        clients = {name: [number] for number, name in enumerate(self.names)}
        return run_over(
            transport, load_config(overrides=config), name="bench", clients=clients, out=self.folder / out, wait=120,
            observer=watch, say=lambda text: self.said.append((time.monotonic(), text)),
        ).tree  # fmt: skip

    def close(self) -> None:
        for process in self.joined.values():
            process.terminate()
        for process in self.joined.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def settings(clients: int, hidden: int, rounds: int) -> dict[str, Any]:
    """FedAvg on a generated graph as wide as Cora."""
    return {
        "data.name": "citation-sbm",
        "data.options": {"nodes": 2700, "features": FEATURES, "classes": 7},
        "partition.rule": "louvain",
        "partition.clients": clients,
        "method.rounds": rounds,
        "method.local_epochs": 1,
        "model.hidden": [hidden],
        "evaluation.modes": ["own_local"],
        "evaluation.models": False,
        "run.checkpoint_every": 0,
    }


def processes(parent: int) -> list[tuple[int, str]]:
    """All processes below one: number and command line."""
    children: dict[int, list[int]] = {}
    text = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            stat = (place / "stat").read_text().rpartition(")")[2].split()
            text[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            children.setdefault(int(stat[1]), []).append(int(place.name))
        except OSError:
            continue
    found, todo = [], [parent]
    while todo:
        pid = todo.pop()
        found.append((pid, text.get(pid, "")))
        todo += children.get(pid, [])
    return found


def kind_of(text: str) -> str:
    """What a site's process does, by its command line."""
    kinds = {"graphsilo join": "supervisor", "site.worker": "worker", "nvflare.engine": "engine"}
    return next((word for key, word in kinds.items() if key in text), "other")


def memory(pid: int) -> float:
    """Resident MB of a process just now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def cpu_seconds(pid: int) -> float:
    """CPU seconds that a process has spent."""
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


def on_the_wire(port: int) -> int:
    """Bytes that the coordinator's connections have carried, both ways."""
    text = subprocess.run(["ss", "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return sum(int(number) for number in re.findall(r"bytes_(?:sent|received):(\d+)", text))


def rounds(
    sites: Sites, transport: NvflareTransport, models: Sequence[str], *, secure: bool = False
) -> list[dict[str, Any]]:
    """FedAvg's rounds; ``secure``: of the smaller model, training and scores in secure sums."""
    rows = []
    for label in models:
        hidden = MODELS[label]
        number = 20 if hidden == 64 else 6
        config = settings(sites.count, hidden, number)
        if secure:
            config |= {"run.secure_sums": True, "evaluation.report": "federation"}
            if hidden != 64:
                continue
        alone, apart = Watch(), Watch(count=lambda: sites.spent(transport))
        tree = run(load_config(overrides=config), observer=alone).tree
        before = on_the_wire(sites.port)
        there = sites.carry_out(transport, config, f"out-{hidden}{'-secure' * secure}", apart)
        carried = on_the_wire(sites.port) - before
        own = tree["summary"]["upload_bytes"] + tree["summary"]["download_bytes"]
        assert tree["summary"]["test"] == there["summary"]["test"]
        rows.append(
            {
                "sites": sites.count,
                "model": label,
                "secure_sums": secure,
                "seconds_in_process": alone.per_round(),
                "seconds_apart": apart.per_round(),
                "cpu_seconds": apart.cpu_per_round(),
                "message_bytes": own,
                "wire_bytes": carried,
                "overhead": carried / own - 1,
            }
        )
        print(rows[-1], flush=True)
    return rows


def one_round(sites: Sites, transport: NvflareTransport) -> list[dict[str, Any]]:
    """FedRidge's whole run, three times: seconds from its configuration to its result."""
    of_training = ("method.", "model.")
    config = {key: value for key, value in settings(sites.count, 64, 1).items() if not key.startswith(of_training)}
    config["method.name"] = "fedridge"
    rows = []
    for turn in range(3):
        begun = time.monotonic()
        tree = run(load_config(overrides=config)).tree
        middle, before = time.monotonic(), on_the_wire(sites.port)
        there = sites.carry_out(transport, config, f"out-ridge-{turn}", Watch())
        rows.append(
            {
                "sites": sites.count,
                "seconds_in_process": middle - begun,
                "seconds_apart": time.monotonic() - middle,
                "message_bytes": tree["summary"]["upload_bytes"] + tree["summary"]["download_bytes"],
                "wire_bytes": on_the_wire(sites.port) - before,
            }
        )
        assert tree["summary"]["test"] == there["summary"]["test"]
        print(rows[-1], flush=True)
    return rows


def faults(sites: Sites, transport: NvflareTransport) -> list[dict[str, Any]]:
    """Seconds from a blow until it is noticed, and until the next new round ends."""
    name = sites.names[1]

    def kill_site() -> None:
        sites.kill(name)
        threading.Timer(0.5, sites.join, args=(name,)).start()

    def kill_engine() -> None:
        os.kill(transport.pid or 0, signal.SIGKILL)

    blows: dict[str, Callable[[], None]] = {
        "worker killed": lambda: os.kill(sites.worker(name), signal.SIGKILL),
        "site killed, started again after 0.5 s": kill_site,
        "coordinator's engine killed": kill_engine,
    }
    rows = []
    for label, blow in blows.items():
        struck: list[float] = []

        def strike(blow: Callable[[], None] = blow, struck: list[float] = struck) -> None:
            struck.append(time.monotonic())
            blow()

        watch = Watch((5, strike))
        sites.said.clear()
        config = {**settings(sites.count, 64, 12), "run.checkpoint_every": 1}
        sites.carry_out(transport, config, f"out-{len(rows)}", watch)
        noticed = [at for at, text in sites.said if at > struck[0] and "is up" not in text]
        after = [at for at in watch.times if at > struck[0]]
        rows.append(
            {
                "fault": label,
                "noticed": noticed[0] - struck[0] if noticed else None,
                "back": after[0] - struck[0],
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="*", default=[3, 10])
    parser.add_argument("--only", choices=["rounds", "secure", "one-round", "faults"])
    parser.add_argument("--model", nargs="*", choices=list(MODELS), default=list(MODELS))
    options = parser.parse_args()
    found: dict[str, Any] = {"rounds": [], "one_round": [], "faults": [], "start": [], "memory": []}
    for count in options.sites:
        with tempfile.TemporaryDirectory(prefix="gs-") as folder:
            begun = time.monotonic()
            sites = Sites(Path(folder), count)
            made = time.monotonic()
            for name in sites.names:
                sites.join(name)
            transport = NvflareTransport(Path(folder) / "kits" / "coordinator")
            try:
                transport.start()
                sites.carry_out(transport, settings(count, 64, 1), "out-first", Watch())
                ready = time.monotonic()
                found["start"].append({"sites": count, "provision": made - begun, "first_round": ready - made})
                print(found["start"][-1], flush=True)
                if options.only in (None, "one-round"):
                    found["one_round"] += one_round(sites, transport)
                if options.only in (None, "rounds"):
                    found["rounds"] += rounds(sites, transport, options.model)
                if options.only in (None, "secure"):
                    found["rounds"] += rounds(sites, transport, options.model, secure=True)
                for pid, text in processes(sites.joined[sites.names[0]].pid):
                    found["memory"].append({"sites": count, "process": kind_of(text), "mb": memory(pid)})
                if transport.pid is not None:
                    found["memory"].append(
                        {"sites": count, "process": "coordinator's engine", "mb": memory(transport.pid)}
                    )
                print(found["memory"], flush=True)
                if options.only in (None, "faults") and count == options.sites[0]:
                    found["faults"] = faults(sites, transport)
            finally:
                transport.close()
                sites.close()
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
