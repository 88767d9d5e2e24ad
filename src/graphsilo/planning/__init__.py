"""What a run will cost, before it is started: memory, bytes, CPU time, wall time.

The data is loaded and cut as the run does it; then the method's real set-up and a few rounds run in a process of their
own, watched; what was measured there is carried over to the rounds, seeds and clients that were not.

* ``meter``: watches one seed, ask by ask, in the process that tries it.
* ``probe``: that process.
* ``calibration``: starts it, decides what is tried and for how long.
* ``extrapolation``: the arithmetic that carries measurements over.
* ``costs``: from the calibration to the whole run.
* ``lines``: wall time with worker processes and between machines.
* ``machine``: what memory and disk there are.
"""

from __future__ import annotations

from pathlib import Path

from graphsilo.experiments.config import RunConfig
from graphsilo.planning.calibration import calibrate
from graphsilo.planning.costs import plan_of
from graphsilo.planning.lines import Line
from graphsilo.planning.plan import Plan

__all__ = ["Line", "Plan", "plan"]


def plan(
    config: RunConfig, *, seconds: float = 10.0, line: Line | None = None, out: Path | None = None, finish: str = ""
) -> Plan:
    """Estimate what a run will cost, by trying it for a little while.

    Args:
        config: The run.
        seconds: CPU seconds that a trial aims at, up to three times as many where set-up or two rounds take longer.
            Most plans need one trial, hard ones several.
        line: Joins the sites with the coordinator, for a run between machines.
        out: Where results will be written; None writes none.
        finish: ``module:function`` that the run calls with its folder at the end.

    Raises:
        GraphsiloError: As the run itself would.
    """
    return plan_of(config, calibrate(config, seconds=seconds, finish=finish), line=line, out=out)
