"""What decoupled backbones keep of a graph: dense matrices of propagated features, known before any is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from graphsilo.data.sources.sizes import dense_bytes
from graphsilo.models.operators import SPARSE_COST
from graphsilo.models.registry import listing, resolve

_DENSE_FROM = 0.25


def propagated_bytes(
    model: str,
    settings: Mapping[str, Any],
    *,
    nodes: int,
    edges: int,
    features: int,
    density: float = 1.0,
    views: Sequence[int] | None = None,
    relations: int = 0,
    fan_out: int | Sequence[int] = 0,
) -> int:
    """Bytes of the dense matrices [nodes, features] that a backbone precomputes and keeps for a graph.

    Its entry says what it ``keeps``: the last ``hop`` or a ``sum`` of several, which is one matrix, or one per hop,
    ``levels``, or per relation and direction, of one hop; most keep none. Sparse features stay sparse until a quarter
    of a matrix is filled: after k hops a node's row has the words of about (1 + edges / nodes)^k nodes, taken to be
    independent. All but sums and relations are not made where every view has them as factors, which is where a step is
    less work that way (``chained levels``: all of a view or none); factors are not counted.

    Args:
        model: Its name.
        settings: Those that differ from its defaults.
        nodes, edges, features: Of the graph; an undirected link counts as two edges.
        density: Share of the features that are not zero; 1 for dense features.
        views: How many rows each view has that is used again and again, e.g. training nodes and all nodes. None where
            rows are looked at in batches or by a method itself: that takes the matrices.
        relations: Tables of links. Each view has matrices of its own then, of what it reaches below its last layer;
            the last view is the whole graph.
        fan_out: Neighbours that views but the last sample per node, as ``method.fan_out``; 0 takes all.

    Example:
        >>> propagated_bytes("gamlp", {"hops": 3}, nodes=2_400_000, edges=60_000_000, features=100)
        2880000000
    """
    keeps = listing(model).keeps
    if not keeps or not nodes:
        return 0
    density = min(density, 1 - 1e-12)
    if keeps == "relations":
        each = edges / nodes / max(2 * relations, 1)  # links of a node by one relation and direction
        is_dense = 1.0 - math.exp(each * math.log1p(-density)) > _DENSE_FROM
        around, layers = edges / nodes, resolve(model, settings).layers  # type: ignore[attr-defined]
        asked = [fan_out] * layers if isinstance(fan_out, int) else fan_out
        rows = nodes
        for view in (views or ())[:-1]:
            seen = float(view)
            for count in asked[: layers - 1]:
                seen = min(float(nodes), seen * (1.0 + (min(count, around) if count else around)))
            rows += math.ceil(seen)
        return dense_bytes(rows, features, matrices=2 * relations * is_dense)
    hops: int = resolve(model, settings).hops  # type: ignore[attr-defined]
    each = 1.0 + edges / nodes
    kept = views if keeps != "sum" and SPARSE_COST * density <= 1 else None
    filled_by = {hop: 1.0 - math.exp(each**hop * math.log1p(-density)) for hop in range(1, hops + 1)}
    if kept is not None and keeps == "chained levels":

        def apart(view: int) -> float:
            """Work of ``times_levels`` with each level for itself."""
            return _factors(view, 0, nodes, each, density * features) + sum(
                min(_factors(view, hop, nodes, each, density * features), view * features * min(SPARSE_COST * part, 1))
                for hop, part in filled_by.items()
            )

        kept = [view for view in kept if _factors(view, hops, nodes, each, density * features) > apart(view)]
    dense = 0
    for hop, filled in filled_by.items():
        work = features * min(SPARSE_COST * filled, 1.0)  # of a row of the matrix in a step
        if filled <= _DENSE_FROM:
            continue
        if kept is None or any(_factors(view, hop, nodes, each, density * features) >= view * work for view in kept):
            dense += 1
    return dense_bytes(nodes, features, matrices=dense if "levels" in keeps else min(dense, 1))


def _factors(rows: int, hops: int, nodes: int, each: float, words: float) -> float:
    """Work of ``View.hop``'s factors in a step: blocks of Â from the rows' surroundings inwards, and X of all these."""
    reached = [min(float(nodes), rows * each**hop) for hop in range(hops + 1)]
    return SPARSE_COST * (each * sum(reached[:-1]) + words * reached[-1])
