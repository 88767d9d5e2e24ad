"""What a run takes of this machine, from its first import to its report page."""

from __future__ import annotations

import time
from collections.abc import Iterable

from graphsilo.experiments.storage.records import Seed
from graphsilo.runtime import machine


class UsageMeter:
    """Processor time, wall time and memory since a moment.

    Args:
        begun: ``time.perf_counter()`` when the process started, to count from there; None counts from now.
    """

    def __init__(self, begun: float | None = None):
        self._wall = time.perf_counter() if begun is None else begun
        self._cpu = 0.0 if begun is not None else _cpu_seconds()

    def read(self, seeds: Iterable[Seed] = ()) -> dict[str, float]:
        """``cpu_seconds`` and ``wall_seconds`` so far, and ``peak_rss_bytes`` of the largest process since it started.

        Processes that were started on the way, such as workers, count once they have ended. The peak is no lower than
        that of any of the seeds: Linux sums what its processors counted, and may report a few pages less later.
        """
        return {
            "cpu_seconds": _cpu_seconds() - self._cpu,
            "wall_seconds": time.perf_counter() - self._wall,
            "peak_rss_bytes": max(
                machine.peak(), machine.measure_ended().peak, *(seed.peak_rss_bytes for seed in seeds)
            ),
        }


def _cpu_seconds() -> float:
    return time.process_time() + machine.measure_ended().cpu_seconds
