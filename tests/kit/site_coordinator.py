"""A coordinator in a process of its own, to be killed: ``python site_coordinator.py OUT RESUME SOCKETS CONFIG``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from same_machine import SameMachine

from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.observer import Observer, Progress
from graphsilo.experiments.service.run_over import run_over


class Loud(Observer):
    """Prints every round, so that whoever watches knows when to strike."""

    def progressed(self, progress: Progress) -> None:
        print(f"round {progress.round}", flush=True)


if __name__ == "__main__":
    out, resume, sockets, overrides = sys.argv[1:]
    paths = {site: Path(path) for site, path in json.loads(sockets).items()}
    try:
        run_over(
            SameMachine(paths),
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
