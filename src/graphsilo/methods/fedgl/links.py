"""Links between nodes with like embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphsilo.data.graph import Graph

_ENTRIES = 1 << 24
"""Similarities that are in memory at once."""
_TINY = 1e-30


def link_alike(embeddings: Tensor, neighbours: int, weight: float) -> dict[str, Tensor]:
    """Links between nodes with like embeddings, both directions of each: ``ends`` [2, e] and ``weights`` [e].

    z_uv = max(e_u · e_v, 0), of which each node keeps the largest; divided by their sum, the mean of both directions,
    then D^-1/2 (W + I) D^-1/2 off its diagonal. A block of rows at a time: no [n, n] is made.

    Args:
        embeddings: [n, p].
        neighbours: How many each node keeps.
        weight: γ, by which all are multiplied.
    """
    n, rows = len(embeddings), embeddings / embeddings.abs().max().clamp_min(_TINY)
    count, step = min(neighbours, n - 1), max(1, _ENTRIES // n)
    values, columns = torch.zeros(n, count), torch.zeros(n, count, dtype=torch.int64)
    for start in range(0, n, step):
        alike = (rows[start : start + step] @ rows.t()).clamp_min_(0.0)
        alike.diagonal(start).zero_()
        best = alike.topk(count, dim=1)
        values[start : start + step], columns[start : start + step] = best.values.cpu(), best.indices.cpu()
    values /= values.sum(1, keepdim=True).clamp_min(_TINY)
    kept = sp.csr_matrix((values.flatten().numpy(), columns.flatten().numpy(), np.arange(n + 1) * count), (n, n))
    both = (0.5 * (kept + kept.T)).tocoo()
    root = 1.0 / np.sqrt(1.0 + np.bincount(both.row, both.data, n))
    weights = (weight * root[both.row] * both.data * root[both.col]).astype(np.float32)
    ends = np.stack([both.col, both.row])[:, weights > 0].astype(np.int64)
    return {"ends": torch.from_numpy(ends), "weights": torch.from_numpy(weights[weights > 0])}


def add_links(graph: Graph, links: Mapping[str, Tensor]) -> Graph:
    """The graph with more links; its own weigh 1, unless they have weights."""
    own = graph.adjacency().tocoo()
    edges = np.concatenate([np.stack([own.col, own.row]).astype(np.int64), links["ends"].cpu().numpy()], axis=1)
    return replace(graph, edges=edges, edge_weights=np.concatenate([own.data, links["weights"].cpu().numpy()]))
