"""What a plan says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something a person should know of a plan; ``refused`` when the run cannot be made as it is."""

    level: Level
    text: str


@dataclass(frozen=True)
class Cpu:
    """CPU seconds.

    Attributes:
        start: Starting Python and importing what a run needs.
        prepare: Loading and cutting the data.
        setup: Before round 1, one seed.
        first_round, round: The first round, and a later one, without evaluation.
        evaluation: One evaluation.
        checkpoint: Writing one checkpoint.
        finish: Results and report.
        seed: Set-up, rounds and evaluations of a seed: ``cpu_seconds`` of result.json.
        run: Everything, all seeds.
    """

    start: float
    prepare: float
    setup: float
    first_round: float
    round: float
    evaluation: float
    checkpoint: float
    finish: float
    seed: float
    run: float


@dataclass(frozen=True)
class Traffic:
    """Bytes of one stretch, over all clients, and of the client that moves most.

    Attributes:
        up, down: To the server, to the clients.
        most_up, most_down: Of one client.
        exact: Whether it is what will be sent, to the byte.
    """

    up: float
    down: float
    most_up: float
    most_down: float
    exact: bool


@dataclass(frozen=True)
class Bytes:
    """Bytes that cross silos' boundaries. ``seed`` is set-up and rounds, as result.json counts them; ``evaluation`` is
    one; ``run`` is everything, all seeds."""

    setup: Traffic
    first_round: Traffic
    round: Traffic
    evaluation: Traffic
    seed: Traffic
    run: Traffic


@dataclass(frozen=True)
class Wall:
    """Wall seconds on this machine, a core to each process and nobody else on it.

    Attributes:
        workers: Processes that share the clients.
        loads: Share of the clients' work per process.
        setup, round, evaluation: Of a seed.
        run: Of everything.
    """

    workers: int
    loads: tuple[float, ...]
    setup: float
    round: float
    evaluation: float
    run: float


@dataclass(frozen=True)
class Distributed:
    """Wall seconds when each client is a machine of its own.

    Attributes:
        bandwidth: Bytes per second of a site's line, each way.
        latency: Seconds one way.
        setup, round, evaluation: Of a seed; every ask waits for the last answer.
        run: All seeds, without starting the machines.
        slowest: Site that a round waits for, and its seconds: work, sending, receiving.
        coordinator: Seconds per round that the coordinator's line is busy if it is no wider than a site's.
    """

    bandwidth: float
    latency: float
    setup: float
    round: float
    evaluation: float
    run: float
    slowest: dict[str, float]
    coordinator: float


@dataclass(frozen=True)
class Process:
    """Memory of one kind of process, in bytes at its peak.

    Attributes:
        name: ``the run``, ``coordinator``, ``worker``, ``site``.
        count: How many there are.
        bytes: What the largest of them takes.
        parts: What this is made of; ``working memory`` is the rest: constants made of the graphs, and what steps need
            while they go on.
    """

    name: str
    count: int
    bytes: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes:
        about: Data, method, numbers of clients, rounds, seeds, workers.
        basis: What was measured, in a sentence.
        is_whole: Whether everything was seen; else all costs are at least so much, and 0 is unknown.
        cpu, bytes, wall: See there.
        processes: Memory, process by process.
        memory: Bytes all processes take together, and what the machine has.
        gpu: Bytes of the device's memory; 0 without one.
        disk: Bytes written, by what they are.
        distributed: None unless a bandwidth was given.
        findings: What to know, the gravest first.
    """

    about: dict[str, Any]
    basis: str
    is_whole: bool
    cpu: Cpu
    bytes: Bytes
    wall: Wall
    processes: tuple[Process, ...]
    memory: dict[str, int | None]
    gpu: int
    disk: dict[str, float]
    distributed: Distributed | None
    findings: tuple[Finding, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the run does not fit this machine."""
        return any(finding.level == "refused" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)
