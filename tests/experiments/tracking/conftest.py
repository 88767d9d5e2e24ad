"""A run with a tracker that a process of its own carries out, so that it can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys
from graphsilo.experiments import tracking
from graphsilo.experiments.observer import Observer, Several
from graphsilo.experiments.runner import run
from kit import small_run

out, workers, resume, pause, spec = sys.argv[1:]

class Slow(Observer):
    def on_progress(self, progress):
        import time
        print(progress.label, progress.seed, progress.round, flush=True)
        time.sleep(float(pause))

config = small_run(run__workers=int(workers), run__seeds=[0, 1], method__rounds=6, run__checkpoint_every=3,
                   run__references=["local"])
run(config, out=out, resume=resume == "yes", observer=Several(tracking.tracker(spec), Slow()))
"""


class Killed:
    """Carries out a run, and kills it after a round; a second time it resumes and comes to the end."""

    def __init__(self, folder, spec, *, workers=1):
        self.folder, self.spec, self.workers = folder, spec, workers

    def go(self, *, until=None, resume=False):
        arguments = [str(self.folder), str(self.workers), "yes" if resume else "no", "0.2" if until else "0", self.spec]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment.pop("WANDB_SERVICE", None)  # that of this process, which nobody kills
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
        seen = []
        for line in process.stdout:
            seen.append(line.strip())
            if until is not None and line.strip() == until:
                os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=120)
        assert process.returncode == (0 if until is None else -signal.SIGKILL)
        time.sleep(0.1)
        return seen


@pytest.fixture
def killed():
    return Killed
