"""What a plan says."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass
from typing import Any, Literal

from graphsilo.errors import ConfigError
from graphsilo.notebook import table

Level = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Connection:
    """The line between a site and its coordinator.

    Attributes:
        bandwidth: Mbit per second, each way.
        latency: Milliseconds that a message is under way, one way.
    """

    bandwidth: float
    latency: float = 0.0

    @classmethod
    def of(cls, bandwidth: float | None, latency: float | None) -> Connection | None:
        """What a person says of the line; None where nothing is said.

        Raises:
            ConfigError: There is no bandwidth, or one of them cannot be.
        """
        if bandwidth is None and latency is None:
            return None
        if bandwidth is None:
            raise ConfigError(f"latency is given as {latency:g} without a bandwidth: give the rate of the line, too.")
        if not 0 < bandwidth < math.inf:
            raise ConfigError(f"bandwidth must be a finite number above 0, in Mbit/s; got {bandwidth:g}.")
        latency = latency or 0.0
        if not 0 <= latency < math.inf:
            raise ConfigError(f"latency must be a finite number at least 0, in ms; got {latency:g}.")
        return cls(bandwidth, latency)

    def seconds(self, size: int) -> float:
        """For so many bytes, there and back."""
        return 8e-6 * size / self.bandwidth + 2e-3 * self.latency


@dataclass(frozen=True)
class PlanFinding:
    """Something a person should know of a plan; ``refused`` when the run cannot be made as it is."""

    level: Level
    text: str


@dataclass(frozen=True)
class Cost:
    """What one step of a run costs, or all of them together.

    Attributes:
        cpu: CPU seconds of all processes.
        server: Of these, outside of the clients' work.
        wall: Wall seconds on this machine, a core to each process and nobody else on it.
        sites: Wall seconds where each client is a machine of its own; 0 where no bandwidth was given.
        up, down: Bytes of all clients to the server, and from it.
        max_up, max_down: Bytes of the client that moves most.
    """

    cpu: float = 0.0
    server: float = 0.0
    wall: float = 0.0
    sites: float = 0.0
    up: float = 0.0
    down: float = 0.0
    max_up: float = 0.0
    max_down: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Cost:
        return Cost(*(value * times for value in astuple(self)))


@dataclass(frozen=True)
class Process:
    """Memory of one kind of process.

    Attributes:
        name: ``the run``, ``coordinator``, ``worker``, ``site``.
        count: How many there are.
        bytes: What the largest of them takes at its peak.
    """

    name: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes:
        about: Data, method, numbers of clients, rounds, evaluations, seeds, workers; bandwidth and latency if given.
        basis: What was measured, in a sentence.
        is_whole: Whether everything was seen, and the bytes of set-up, the first round and an evaluation are those of
            the run, to the byte; else all costs are at least so much, and 0 is unknown.
        is_steady: Whether the bytes of later rounds are, too, and with them those of a seed.
        start: Starting Python, importing what a run needs, loading and cutting the data.
        setup, first_round, round, evaluation, checkpoint, finish: Steps of one seed; results and report.
        rows: Reference rows that the trial made: those of ``about["rows"]``, run once, whatever the seeds.
        seed: Set-up, rounds and their evaluations: bytes are those of set-up and rounds, as ``result.json`` has them.
        run: Everything, all seeds, evaluations included.
        processes: Memory, process by process.
        memory: Bytes all processes take together (``needed``), and what the machine has (``free``, ``machine``).
        gpu: Bytes of the device's memory; 0 without one.
        disk: Bytes written: ``models``, ``results``, both together (``kept``), a ``checkpoint``, and the most of all at
            once (``peak``).
        findings: What to know, the gravest first.
        exact: Which bytes are those of the run, to the byte: of all clients together (``seed``, ``run``), and of the
            client that moves most (``seed_max``, ``run_max``).
    """

    about: dict[str, Any]
    basis: str
    is_whole: bool
    is_steady: bool
    start: Cost
    setup: Cost
    first_round: Cost
    round: Cost
    evaluation: Cost
    checkpoint: Cost
    rows: Cost
    finish: Cost
    seed: Cost
    run: Cost
    processes: tuple[Process, ...]
    memory: dict[str, int | None]
    gpu: int
    disk: dict[str, float]
    findings: tuple[PlanFinding, ...] = ()
    exact: tuple[str, ...] = ()

    def __repr__(self) -> str:
        method, data = self.about["method"]["title"], self.about["data"]["name"]
        least = "" if self.is_whole else "at least "
        verdict = "does not fit this machine" if self.is_refused else "fits this machine"
        return (
            f"Plan({method} on {data}: {least}{self.run.wall:.3g} s, "
            f"{(self.memory.get('needed') or 0) / 1e6:.0f} MB of memory, {verdict})"
        )

    def _repr_html_(self) -> str:
        steps = ("start", "setup", "first_round", "round", "evaluation", "checkpoint", "rows", "finish", "seed", "run")
        costs = {step: getattr(self, step) for step in steps}
        rows = [
            [step.replace("_", " "), *(f"{value:.3g}" for value in (of.cpu, of.wall, of.up / 1e6, of.down / 1e6))]
            for step, of in costs.items()
        ]
        head = ["step", "CPU s", "wall s", "MB sent", "MB received"]
        return table(repr(self)[5:-1], head, rows, [self.basis, *(finding.text for finding in self.findings)])

    @property
    def is_refused(self) -> bool:
        """Whether the run does not fit this machine."""
        return any(finding.level == "refused" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)
