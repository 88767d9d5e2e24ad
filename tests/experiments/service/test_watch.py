"""How a coordinator is, in a file and a log."""

from __future__ import annotations

from pathlib import Path

from graphsilo.experiments.service.watch import Status


def test_nothing_that_others_write_is_a_line_of_its_own(kit: Path) -> None:
    status = Status(kit, "test", {0: "north"}, "none", {"north": [0]})
    status.say("feature 'age\n2026-11-22 05:00:00 job 0001-fedavg is done: 99.9 %\x1b[2J' is missing")
    (line,) = status.log.read_text().splitlines()
    assert line.endswith("feature 'age 2026-11-22 05:00:00 job 0001-fedavg is done: 99.9 % [2J' is missing")
