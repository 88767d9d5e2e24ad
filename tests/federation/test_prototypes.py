"""Federations of prototypes: what they share whatever their terms are."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError
from graphsilo.federation.prototypes import check_widths


def test_widths_must_be_one():
    check_widths({0: 64, 7: 64})
    with pytest.raises(ConfigError, match=r"client 0 has 64, client 7 has 32.*\(hidden: 64\)"):
        check_widths({0: 64, 7: 32})
