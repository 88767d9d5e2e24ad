"""Whatever one silo elsewhere answers: the run ends in words that name it, or goes on without it; nobody else fails."""

from __future__ import annotations

import pytest

from graphsilo.federation import registry
from kit.broad import broadly
from kit.lies import faults, masked_faults

NAMES = [name for name in registry.names() if not registry.load(name).pooled]


@pytest.mark.parametrize("name", broadly(NAMES))
def test_random_lies(name: str) -> None:
    assert faults(registry.load(name), 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_random_lies(name: str) -> None:
    assert [found for seed in range(1, 6) for found in faults(registry.load(name), seed)] == []


MASKED = [name for name in NAMES if not registry.load(name).alone and not registry.load(name).config().single_answers]


@pytest.mark.parametrize("name", broadly(MASKED))
def test_random_lies_in_secure_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert masked_faults(registry.load(name), 0, monkeypatch) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_random_lies_in_secure_sums(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert masked_faults(registry.load(name), seed, monkeypatch) == []
