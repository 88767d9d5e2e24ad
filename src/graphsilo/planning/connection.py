"""The line between a site and its coordinator, as a person writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from graphsilo.errors import ConfigError

_LATENCY = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Connection:
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
    value = None if found is None else _number(found[1])
    if found is None or not value:
        raise ConfigError(f"--bandwidth takes a rate such as 100Mbit/s, 1Gbit/s or 12.5MB/s; got '{text}'.")
    return value * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[found[2]] / (8 if found[3] == "bit" else 1)


def latency(text: str) -> float:
    """``20ms`` in seconds.

    Raises:
        ConfigError: It is something else.

    Example:
        >>> latency("20ms")
        0.02
    """
    found = re.fullmatch(r"([\d.]+)\s*(us|ms|s)", text.strip())
    value = None if found is None else _number(found[1])
    if found is None or value is None:
        raise ConfigError(f"--latency takes a time such as 20ms or 0.1s; got '{text}'.")
    return value * _LATENCY[found[2]]


def connection_of(rate: str | None, delay: str | None) -> Connection | None:
    """The line of both texts; None of none.

    Raises:
        ConfigError: One is malformed, or there is a latency without a bandwidth.
    """
    if rate is None and delay is not None:
        raise ConfigError("a latency goes with a bandwidth: say how many bits per second a site's line carries, too.")
    return None if rate is None else Connection(bandwidth(rate), 0.0 if delay is None else latency(delay))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
