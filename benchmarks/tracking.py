"""What observers take of a run: FedAvg on Cora, ten clients, 200 rounds. Prints a table for docs/tracking.md.

All of them follow the same run, so that each is held against the very same rounds::

    mlflow server --port 5000 --backend-store-uri sqlite:///mlflow.db &
    python benchmarks/tracking.py http://127.0.0.1:5000
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, Progress, Several
from graphsilo.experiments.runner import run
from graphsilo.experiments.tracking import CSV, JSONLines, MLflow, TensorBoard, WandB


class Before(Observer):
    """Notes when the observer that comes next begins."""

    def __init__(self) -> None:
        self.now = (0.0, 0.0)

    def on_progress(self, progress: Progress) -> None:
        self.now = (time.process_time(), time.perf_counter())


class After(Observer):
    """Adds up what the observer in between took."""

    def __init__(self, before: Before):
        self.before, self.cpu, self.wall = before, 0.0, 0.0

    def on_progress(self, progress: Progress) -> None:
        self.cpu += time.process_time() - self.before.now[0]
        self.wall += time.perf_counter() - self.before.now[1]


def main(uri: str) -> None:
    config = load_config(None, overrides={"data.name": "Cora", "partition.clients": 10, "method.rounds": 200})
    observers = [Observer(), CSV(), JSONLines(), TensorBoard(), WandB(), MLflow(uri, experiment="cost")]
    befores = [Before() for _ in observers]
    afters = [After(before) for before in befores]
    chain = [one for triple in zip(befores, observers, afters, strict=True) for one in triple]
    with tempfile.TemporaryDirectory() as folder:
        rounds = run(config, out=Path(folder) / "run", observer=Several(*chain)).record.seeds[0].rounds
    cpu, wall = (sum(getattr(row, name) for row in rounds) for name in ("cpu_seconds", "wall_seconds"))
    print(f"a round: {1000 * cpu / len(rounds):.1f} ms CPU, {1000 * wall / len(rounds):.1f} ms by the clock")
    for observer, after in zip(observers, afters, strict=True):
        print(f"{type(observer).__name__}: {1000 * after.cpu / len(rounds):.2f} ms CPU ({after.cpu / cpu:.1%}), "
              f"{1000 * after.wall / len(rounds):.2f} ms by the clock ({after.wall / wall:.1%})")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
