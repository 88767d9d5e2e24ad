"""Curves for TensorBoard: one of its runs for each seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo import documents
from graphsilo.errors import library
from graphsilo.experiments.observer import ClientRound, RunEnded, RunStarted, SeedEnded
from graphsilo.experiments.tracking.base import Tracker, numbers


class TensorBoard(Tracker):
    """Event files: ``seed-0`` and so on, below a folder with the name of each reference row.

    Args:
        folder: Where; None takes ``tensorboard`` in the run's folder.
        clients: Whether what each client did is kept with every round.
    """

    kind = "tensorboard"

    def __init__(self, folder: str | Path | None = None, *, clients: bool = False):
        super().__init__(clients=clients)
        library("tensorboard", "tracking")
        self._given = folder
        self._writers: dict[Path, Any] = {}

    def locate(self) -> None:
        self.folder = self.place(self._given, "tensorboard")

    def open(self, run: RunStarted) -> None:
        from torch.utils.tensorboard.summary import text

        if not run.resumed:
            settings = "    " + documents.write(dict(run.config)).replace("\n", "\n    ")
            self._write(self.folder / run.label, 0, text("settings", settings))

    def find_rounds(self, label: str, seed: int) -> Collection[int]:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        found = set()
        for path in sorted(self._seed(label, seed).glob("events.out.tfevents.*")):
            for event in EventFileLoader(str(path)).Load():
                if any(value.tag.endswith("upload_bytes") for value in event.summary.value):
                    found.add(int(event.step))
        return found

    def keep(self, label: str, seed: int, number: int, row: Mapping[str, Any], clients: Sequence[ClientRound]) -> None:
        found = numbers(row, clients, self.runs[label].names)
        prefix = "" if number else "setup/"
        self._scalars(self._seed(label, seed), number, {f"{prefix}{name}": value for name, value in found.items()})

    def note(self, text: str) -> None:
        from torch.utils.tensorboard import summary

        self._write(self.folder, 0, summary.text("warning", text))

    def close_seed(self, event: SeedEnded) -> None:
        writer = self._writers.pop(self._seed(event.label, event.seed), None)
        if writer is not None:
            writer.close()

    def close(self, run: RunStarted, event: RunEnded) -> None:
        from torch.utils.tensorboard.summary import text

        if event.result is not None:
            summary = "    " + json.dumps(event.result.summary, indent=2).replace("\n", "\n    ")
            self._write(self.folder / run.label, 0, text("summary", summary))
        if not run.label:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()

    def _seed(self, label: str, seed: int) -> Path:
        return self.folder / label / f"seed-{seed}"

    def _scalars(self, folder: Path, step: int, values: Mapping[str, float]) -> None:
        """All numbers of a round as one record of the file, which is there or is not."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._write(folder, step, summary)

    def _write(self, folder: Path, step: int, summary: Any) -> None:
        from torch.utils.tensorboard.writer import FileWriter

        writer = self._writers.get(folder)
        if writer is None:
            writer = self._writers[folder] = FileWriter(str(folder))
        writer.add_summary(summary, step)
        writer.flush()
