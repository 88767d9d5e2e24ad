"""Bandwidth and latency as a person writes them."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.planning.connection import Connection, connection_of


@pytest.mark.parametrize(
    ("text", "value"),
    [("100Mbit/s", 12.5e6), ("1 Gbit", 1.25e8), ("12.5MB/s", 12.5e6), ("8kbps", None), ("8bit", 1.0), ("0bit", None)],
)
def test_bandwidth(text, value):
    if value is None:
        with pytest.raises(ConfigError, match="100Mbit/s"):
            connection_of(text, None)
    else:
        assert connection_of(text, None) == Connection(value, 0.0)


def test_latency():
    assert [connection_of("8bit/s", text).latency for text in ("20ms", "0.1s", "0ms")] == [0.02, 0.1, 0.0]
    for wrong in ("20", "ms", "-3ms", "1.2.3s"):
        with pytest.raises(ConfigError, match="20ms"):
            connection_of("8bit/s", wrong)


def test_a_latency_needs_a_bandwidth():
    assert connection_of(None, None) is None
    with pytest.raises(ConfigError, match="a latency goes with a bandwidth"):
        connection_of(None, "5ms")
