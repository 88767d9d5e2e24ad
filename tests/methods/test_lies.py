"""Whatever one silo elsewhere answers: the run ends in words that name it, or goes on without it; nobody else fails."""

from __future__ import annotations

import pytest

from graphsilo.federation import registry
from kit.lies import faults

NAMES = [name for name in registry.names() if not registry.load(name).pooled]


@pytest.mark.parametrize("name", NAMES)
def test_random_lies(name: str) -> None:
    assert faults(registry.load(name), 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_random_lies(name: str) -> None:
    assert [found for seed in range(1, 30) for found in faults(registry.load(name), seed)] == []
