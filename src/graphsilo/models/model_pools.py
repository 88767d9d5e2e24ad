"""Pools of different models, as published experiments have them. Imports no torch."""

from __future__ import annotations

from typing import Any

from graphsilo.errors import ConfigError, nearest

_POOLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "opfgl": (
        ("gcn", {"hidden": 64}),
        ("gcn", {"hidden": 128}),
        ("gcn", {"hidden": 256}),
        ("gcn", {"hidden": 512}),
        ("gcn", {"hidden": 64, "layers": 3}),
        ("gcn", {"hidden": 512, "layers": 3}),
        ("appnp", {}),
        ("ssgc", {}),
        ("sgc", {"hops": 2}),
        ("sgc", {"hops": 4}),
    ),
    "fedpg": (
        ("gcn", {"hidden": 64}),
        ("gin", {"hidden": 64}),
        ("sage", {"hidden": 64}),
        ("sgc", {"hidden": 64, "layers": 2}),
        ("gcnii", {"hidden": 64, "layers": 2, "dropout": 0.5}),
    ),
}


def pools() -> tuple[str, ...]:
    """Names of the pools of different models."""
    return tuple(_POOLS)


def pool(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The models of a published experiment with different models, as (name, overrides); client k takes k mod length.

    ``opfgl``: the ten of O-pFGL. The papers' APPNP and SSGC are taken at their word; the release ran
    ``appnp_features`` for one and, by a mistake in a name test, SGC with K = 2 for the other.
    ``fedpg``: FedPG's five, all with embeddings of width 64; SGC gets a hidden layer for this, GCNII two convolutions.

    Raises:
        ConfigError: There is no such pool.
    """
    if name.lower() not in _POOLS:
        raise ConfigError(f"unknown pool of models '{name}'; {nearest(name, _POOLS)}")
    return [(model, dict(overrides)) for model, overrides in _POOLS[name.lower()]]
