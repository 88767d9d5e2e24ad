"""How clients compress, on the wire."""

from __future__ import annotations

import pytest

from graphsilo.errors import UnsupportedError
from graphsilo.federation.compression import Compression

INT8, HALF = Compression("int8"), Compression("topk", 0.5)


def test_settings_on_the_wire() -> None:
    assert Compression.of(INT8.wire()) == INT8
    assert Compression.of(Compression("topk", 0.25).wire()) == Compression("topk", 0.25)
    for strange in (["zip", 0.1], ["topk", 0.0], ["topk", 2], ["topk", "many"], [], None):
        with pytest.raises(UnsupportedError, match="in a way that this release"):
            Compression.of(strange)
