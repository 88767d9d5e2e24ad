"""The status of a made-up federation."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from graphsilo.experiments.service.jobs import Job
from graphsilo.experiments.service.watch import Status
from graphsilo.runtime.remote.sites import RemoteSites

NOW = time.time()


RUNNING = Job("0002-fedavg", "running", NOW - 400, "fedavg", "/srv/kit/jobs/0002-fedavg/out", started=NOW - 390.0)


FAILED = Job(
    "0001-local", "failed", NOW - 900, "local", "/srv/kit/jobs/0001-local/out", started=NOW - 800,
    finished=NOW - 700, error="3 clients have to take part, 2 do.",
)  # fmt: skip


def site(name: str, state: str, *silos: str, note: str = "") -> dict[str, Any]:
    return {
        "site": name, "clients": [0], "silos": list(silos or [name]), "state": state, "since": NOW - 125.5,
        "seconds": 3.21, "sent": 13_000_000, "received": 6_500_000, "losses": 0, "note": note,
    }  # fmt: skip


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def text_of(part: Any, width: int) -> list[str]:
    """What a terminal of this width shows, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, height=30, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(part)
    return [line.rstrip() for line in captured.get().splitlines()]


def kit(folder: Path) -> Status:
    return Status(folder, "hospitals", {0: "north", 1: "south"}, "nvflare", {"north": [0], "south": [1]})


class NoTransport:
    """Nobody is asked in these tests."""


def sites_of(*names: str) -> RemoteSites:
    return RemoteSites(NoTransport(), {name: [number] for number, name in enumerate(names)}, "run")  # type: ignore[arg-type]
