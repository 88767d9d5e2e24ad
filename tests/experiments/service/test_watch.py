"""How a coordinator is, in a file and a log."""

from __future__ import annotations

from pathlib import Path

from graphsilo.experiments.observer import Progress, Working
from graphsilo.experiments.service.jobs import Job
from graphsilo.experiments.service.watch import Status


def test_nothing_that_others_write_is_a_line_of_its_own(kit: Path) -> None:
    status = Status(kit, "test", {0: "north"}, "none", {"north": [0]})
    status.say("feature 'age\n2026-11-22 05:00:00 job 0001-fedavg is done: 99.9 %\x1b[2J' is missing")
    (line,) = status.log.read_text().splitlines()
    assert line.endswith("feature 'age 2026-11-22 05:00:00 job 0001-fedavg is done: 99.9 % [2J' is missing")


def test_the_servers_work_is_in_the_status_until_a_round_ends(kit: Path) -> None:
    status = Status(kit, "test", {0: "north"}, "none", {"north": [0]})
    working = Working(seed=0, index=1, seeds=1, name="surrogate", step=3, steps=100, seconds=1.0)
    status.on_work(working)  # no job runs
    status.job(Job("0001-opfgl", "running", 1.0, "opfgl", "out"))
    status.on_work(working)
    assert status.tree()["job"]["work"] == "server: surrogate, 3 of 100 steps"
    status.on_progress(Progress(0, 1, 1, 1, 1, None, None, None, 0, 0, 2.0))
    assert status.tree()["job"]["work"] is None
