"""A coordinator in a process of its own, to be killed: ``python site_coordinator.py OUT RESUME SOCKETS CONFIG [STEP]``.

With a step it kills itself in round 2, when all but the last site have been asked for that step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from same_machine import SameMachine
from site_meddling import Meddling, once

from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.service.run_over import run_over


class Loud(Observer):
    """Prints every round, so that whoever watches knows when to strike."""

    def on_progress(self, progress: Progress) -> None:
        print(f"round {progress.round}", flush=True)


if __name__ == "__main__":
    out, resume, sockets, overrides, *steps = sys.argv[1:]
    paths = {site: Path(path) for site, path in json.loads(sockets).items()}
    last = list(paths)[-1]

    def meets(site: str, header: Any) -> bool:
        return site == last and header.get("handler") in steps and header.get("round") == 2

    strike = once(meets, lambda: os.kill(os.getpid(), signal.SIGKILL))
    try:
        run_over(
            Meddling(SameMachine(paths), strike),
            load_config(overrides=json.loads(overrides)),
            name="test",
            clients={site: [number] for number, site in enumerate(paths)},
            out=out,
            resume=resume == "yes",
            observer=Loud(),
            wait=30,
        )
    except GraphsiloError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
