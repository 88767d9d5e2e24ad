"""Tasks of a small batch, and what their folders hold."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphsilo.experiments.batch import Task

BASE = {
    "data": {"name": "citation-sbm", "nodes": 200},
    "partition": {"rule": "random", "clients": 2},
    "evaluation.models": False,
}


@pytest.fixture
def tasks(tmp_path):
    """Makes a task for each learning rate, of so many rounds."""

    def make(*rates, rounds=5, to=tmp_path / "runs"):
        return [
            Task(f"lr{rate}", {**BASE, "method.rounds": rounds, "method.lr": rate}, to / f"lr{rate}") for rate in rates
        ]

    return make


@pytest.fixture
def numbers():
    """The rounds of a finished run's only seed: their scores and bytes, without times."""

    def read(folder: Path):
        (seed,) = json.loads((folder / "result.json").read_text())["seeds"]
        return [{key: row[key] for key in ("round", "validation", "test", "upload_bytes")} for row in seed["rounds"]]

    return read


@pytest.fixture
def notes():
    """How often each round of a run that is followed was made."""

    def read(folder: Path):
        path = folder / "validation.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        made = [json.loads(line)["round"] for line in lines if line.endswith("}")]
        return {number: made.count(number) for number in made}

    return read


@pytest.fixture
def until():
    """Waits for something to become true."""

    def wait(condition, seconds=180.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.05)

    return wait


@pytest.fixture
def cluster(tmp_path, until):
    """Starts a Dask scheduler, and workers as they are asked for; ends them all."""
    pytest.importorskip("distributed")
    dask = shutil.which("dask", path=str(Path(sys.executable).parent)) or "dask"
    started = []

    def start(*arguments, **more):
        log = (tmp_path / f"{arguments[0]}{len(started)}.log").open("w")
        process = subprocess.Popen([dask, *arguments], stdout=log, stderr=log, **more)
        started.append(process)
        return process

    class Cluster:
        def __init__(self):
            self.process = start(
                "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)
            )
            until(lambda: self.file.exists() and self.file.read_text())
            self.address = json.loads(self.file.read_text())["address"].removeprefix("tcp://")
            self.name = f"dask://{self.address}"

        file = tmp_path / "scheduler.json"

        def worker(self, *, threads=1, **more):
            folder, log = tmp_path / f"local{len(started)}", tmp_path / f"worker{len(started)}.log"
            process = start(
                "worker", self.address, "--nthreads", str(threads), "--no-nanny", "--no-dashboard",
                "--local-directory", str(folder), **more,
            )  # fmt: skip
            until(lambda: "Registered to" in log.read_text())
            return process

    yield Cluster()
    for process in reversed(started):
        process.kill()
        process.wait()
