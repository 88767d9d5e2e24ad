"""Runs in Weights & Biases: one for each seed, grouped by run; offline unless somebody says otherwise."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo.errors import library
from graphsilo.experiments.observer import ClientRound, RunEnded, RunStarted, SeedEnded
from graphsilo.experiments.tracking.base import Tracker, artefacts, numbers

BLOCK = 32768
_HEAD = b":W&B\xe1\xbe\x00"
_PART = struct.Struct("<IHB")


class WandB(Tracker):
    """One run of a group for each seed, with its curves, and one for the means over seeds and the files. Their job type
    is "run", or the name of a reference row.

    Nothing is sent: files go into ``wandb`` in the run's folder, and ``wandb sync`` sends them. ``WANDB_MODE=online``
    sends at once.

    Args:
        project: Name; None takes ``WANDB_PROJECT``, else "graphsilo".
        folder: Where files go; None takes the run's folder.
        clients: Whether what each client did is kept with every round.
    """

    kind = "wandb"

    def __init__(self, project: str | None = None, *, folder: str | Path | None = None, clients: bool = False):
        super().__init__(clients=clients)
        self._wandb = library("wandb", "tracking")
        self._project = project or os.environ.get("WANDB_PROJECT") or "graphsilo"
        self._given = folder
        self._open: dict[tuple[str, int | None], Any] = {}

    def locate(self) -> None:
        self.folder = self.place(self._given, ".")

    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        run = self._begin(label, seed)
        before = range(run.step) if run.resumed else ()  # what a server has; offline, what lies here
        return {*before, *steps(self.folder, run.id)}

    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        found = numbers(row, clients, self.runs[label].names)
        prefix = "" if number else "setup/"
        self._open[label, seed].log({f"{prefix}{name}": value for name, value in found.items()}, step=number)

    def note(self, text: str) -> None:
        for run in self._open.values():
            run.summary["warning"] = text

    def close_seed(self, event: SeedEnded) -> None:
        run = self._open.pop((event.label, event.seed))
        run.summary.update({f"best/{name}": value for name, value in numbers(event.result.test.metrics).items()})
        run.summary["best/round"] = event.result.best_round
        run.finish()

    def close(self, run: RunStarted, event: RunEnded) -> None:
        for place in [place for place in self._open if place[0] == run.label]:
            self._open.pop(place).finish(exit_code=1)
        if event.result is None:
            return
        whole = self._begin(run.label, None)
        for name, value in event.result.record.summary.test.metrics.items():
            whole.summary.update({f"test/{name}": value.mean, f"test/{name}/std": value.std})
        whole.summary["warnings"] = event.result.record.warnings
        files = artefacts(run)
        if files:
            artefact = self._wandb.Artifact(f"graphsilo-{self.ids[run.label]}", type="result")
            for path in files:
                artefact.add_file(str(path))
            whole.log_artifact(artefact)
        self._open.pop((run.label, None)).finish()

    def _begin(self, label: str, seed: int | None) -> Any:
        if (label, seed) in self._open:
            return self._open[label, seed]
        run, group = self.runs[label], self.ids[""] if "" in self.ids else self.ids[label]
        name = f"{label or run.title} on {run.data['name']}, {'all seeds' if seed is None else f'seed {seed}'}"
        made = self._open[label, seed] = self._wandb.init(
            project=self._project,
            dir=str(self.folder),
            id=f"{self.ids[label]}-{'all' if seed is None else seed}",
            resume="allow",
            reinit="create_new",
            mode=os.environ.get("WANDB_MODE") or "offline",
            group=group,
            job_type=label or "run",
            name=name,
            config={**run.config, "seed": seed, "fingerprint": run.fingerprint},
            settings=self._wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )
        return made


def steps(folder: Path, run: str) -> Iterator[int]:
    """Steps of a run that lie in a folder's offline files."""
    for path in sorted(folder.glob(f"wandb/*-{run}/run-{run}.wandb")):
        for record in records(path):
            if record.WhichOneof("record_type") == "history":
                yield int(record.history.step.num)


def records(path: Path) -> Iterator[Any]:
    """The records of an offline file, up to where a process was killed while it wrote.

    The file is a log of blocks: a head of seven bytes, then parts, each with a checksum, its length, and whether it is
    a whole record (1), or the first (2), a middle (3) or the last part (4) of one. No part crosses a block's end.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data = path.read_bytes()
    place, parts = len(_HEAD), b""
    while place + _PART.size <= len(data):
        if BLOCK - place % BLOCK < _PART.size:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = _PART.unpack_from(data, place)
        place += _PART.size
        if kind == 0 or place + length > len(data):
            return
        parts = (parts if kind in (3, 4) else b"") + data[place : place + length]
        place += length
        if kind in (1, 4):
            found = Record()
            found.ParseFromString(parts)
            yield found
