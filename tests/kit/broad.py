"""Which methods are tried in full by quick tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

BROAD = {"fedavg", "fedgta", "fedridge", "scaffold"}
"""A mean of models, mixtures of one's own, sums of one round and a state on both sides; of the others the longest
checks are slow tests."""


def broadly(names: Iterable[str]) -> list[Any]:
    """Methods as parameters of a test: a slow one but for those above."""
    return [pytest.param(name, marks=[] if name in BROAD else [pytest.mark.slow]) for name in names]
