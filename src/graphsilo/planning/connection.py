"""The line between a site and its coordinator, as a person writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from graphsilo.errors import ConfigError

_BYTES = {
    f"{prefix}{unit}": number * size
    for prefix, number in (("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9))
    for unit, size in (("bit", 1 / 8), ("B", 1.0))
}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Connection:
    """What joins a site with the coordinator.

    Attributes:
        bandwidth: Bytes per second, each way.
        latency: Seconds that a message is under way, one way.
    """

    bandwidth: float
    latency: float


def connection_of(rate: str | None, delay: str | None) -> Connection | None:
    """The line of ``100Mbit/s`` (or kbit, Gbit; kB, MB, GB for bytes) and ``20ms``; None of no rate.

    Raises:
        ConfigError: One is malformed, or there is a latency without a bandwidth.

    Example:
        >>> connection_of("100Mbit/s", "20ms")
        Connection(bandwidth=12500000.0, latency=0.02)
    """
    if rate is None:
        if delay is not None:
            raise ConfigError(
                "a latency goes with a bandwidth: say how many bits per second a site's line carries, too."
            )
        return None
    text = re.sub("[KMG]", lambda one: one[0].lower(), rate.strip().removesuffix("/s"))
    bandwidth = _amount(text, _BYTES)
    if not bandwidth:
        raise ConfigError(f"--bandwidth takes a rate such as 100Mbit/s, 1Gbit/s or 12.5MB/s; got '{rate}'.")
    latency = _amount((delay or "0s").strip(), _SECONDS)
    if latency is None:
        raise ConfigError(f"--latency takes a time such as 20ms or 0.1s; got '{delay}'.")
    return Connection(bandwidth, latency)


def _amount(text: str, units: dict[str, float]) -> float | None:
    """A decimal number and its unit, multiplied; None for anything else."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(\w+)", text)
    return float(found[1]) * units[found[2]] if found and found[2] in units else None
