"""Wall time: with worker processes, and between machines joined by lines of some bandwidth and latency."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import ConfigError
from graphsilo.planning.extrapolation import COUNT, CPU, DOWN, UP, Ask, Stretch

_LATENCY = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Line:
    """What joins a site with the coordinator.

    Attributes:
        bandwidth: Bytes per second, each way.
        latency: Seconds that a message is under way, one way.
    """

    bandwidth: float
    latency: float


def bandwidth(text: str) -> float:
    """``100Mbit/s`` (or kbit, Gbit; kB, MB, GB for bytes) in bytes per second.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> bandwidth("100Mbit/s")
        12500000.0
    """
    found = re.fullmatch(r"([\d.]+)\s*([kmg]?)(bit|B)(/s)?", re.sub("[KMG]", lambda one: one[0].lower(), text.strip()))
    value = None if found is None else _positive(found[1])
    if found is not None and value is not None:
        return value * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[found[2]] / (8 if found[3] == "bit" else 1)
    raise ConfigError(f"--bandwidth takes a rate such as 100Mbit/s, 1Gbit/s or 12.5MB/s; got '{text}'.")


def latency(text: str) -> float:
    """``20ms`` in seconds.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> latency("20ms")
        0.02
    """
    found = re.fullmatch(r"([\d.]+)\s*(us|ms|s)", text.strip())
    value = None if found is None else 0.0 if re.fullmatch(r"0*\.?0*", found[1]) else _positive(found[1])
    if found is None or value is None:
        raise ConfigError(f"--latency takes a time such as 20ms or 0.1s; got '{text}'.")
    return value * _LATENCY[found[2]]


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def with_workers(stretch: Stretch, places: Sequence[Sequence[int]]) -> float:
    """Seconds of a stretch when clients are spread over processes, each with a core of its own.

    Args:
        stretch: What it costs.
        places: For each process, its clients' rows; the first also does what the server has to do, while clients of
            others work, as far as it has the time.
    """
    homes = [list(rows) for rows in places]
    beside = stretch.server / max(len(stretch.asks), 1)

    def busy(ask: Ask) -> float:
        loads = np.array([float(ask.rows[rows, CPU].sum()) for rows in homes])
        loads[0] += beside
        return _abreast(loads, min(ask.abreast, len(homes)))

    return _over_asks(stretch, busy) if stretch.asks else stretch.server


def between_machines(stretch: Stretch, line: Line) -> float:
    """Seconds of a stretch when each client is a site: every ask waits for the last answer.

    The coordinator's own line is taken to be wide enough for all sites at once.
    """
    return stretch.server + _over_asks(stretch, lambda ask: _abreast(_at_sites(ask, line), ask.abreast))


def at_sites(stretch: Stretch, line: Line) -> NDArray[np.float64]:
    """[clients] seconds that each site works, sends and receives."""
    return np.sum([_at_sites(ask, line) for ask in stretch.asks.values()], axis=0) if stretch.asks else np.zeros(1)


def _at_sites(ask: Ask, line: Line) -> NDArray[np.float64]:
    moved = (ask.rows[:, UP] + ask.rows[:, DOWN]) / line.bandwidth
    found: NDArray[np.float64] = ask.rows[:, CPU] + moved + 2 * line.latency * ask.rows[:, COUNT]
    return found


def _abreast(loads: NDArray[np.float64], abreast: float) -> float:
    """No sooner than the fullest place, and no faster than as many at once as are asked at once."""
    return max(float(loads.max()), float(loads.sum()) / max(abreast, 1.0))


def _over_asks(stretch: Stretch, seconds: Callable[[Ask], float]) -> float:
    return sum(seconds(ask) for ask in stretch.asks.values())
