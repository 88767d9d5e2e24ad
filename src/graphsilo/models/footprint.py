"""What decoupled backbones keep of a graph: dense matrices of propagated features, known before any is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from graphsilo.data.sizes import dense_bytes
from graphsilo.models.registry import resolve

_EVERY_LEVEL = ("sign", "gamlp")
_ONE_MATRIX = ("sgc", "ssgc", "ssgc_mlp", "appnp_features")
_DENSE_FROM = 0.25


def propagated_bytes(
    model: str,
    settings: Mapping[str, Any],
    *,
    nodes: int,
    edges: int,
    features: int,
    density: float = 1.0,
) -> int:
    """Bytes of the dense matrices [nodes, features] that a backbone precomputes and keeps for a graph.

    ``sign`` and ``gamlp`` keep one per hop, ``sgc``, ``ssgc``, ``ssgc_mlp`` and ``appnp_features`` one; all others
    none. Sparse features stay sparse until a quarter of a matrix is filled: after k hops a node's row has the words of
    about (1 + edges / nodes)^k nodes, taken to be independent.

    Args:
        model: Its name.
        settings: Those that differ from its defaults.
        nodes, edges, features: Of the graph; an undirected link counts as two edges.
        density: Share of the features that are not zero; 1 for dense features.

    Example:
        >>> propagated_bytes("gamlp", {"hops": 3}, nodes=2_400_000, edges=60_000_000, features=100)
        2880000000
    """
    chosen = resolve(model, settings)
    if chosen.model not in (*_EVERY_LEVEL, *_ONE_MATRIX) or not nodes:
        return 0
    hops: int = chosen.hops  # type: ignore[attr-defined]
    reached = [(1.0 + edges / nodes) ** hop for hop in range(1, hops + 1)]
    dense = sum(1.0 - math.exp(count * math.log1p(-min(density, 1 - 1e-12))) > _DENSE_FROM for count in reached)
    return dense_bytes(nodes, features, matrices=dense if chosen.model in _EVERY_LEVEL else min(dense, 1))
