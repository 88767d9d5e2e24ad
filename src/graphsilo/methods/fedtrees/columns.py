"""FedTrees' columns: a node's features, those of its neighbourhood, its degree, and how its neighbours are labelled.

With N = D^-1 A: X, N X, N² X; the standard deviation of X over the neighbours, where X is narrow; log(1 + degree) and
its mean over the neighbours; FedRidge's label features. All sums run over the links of one node in their order, in
float64: a node's row does not depend on who else is in its silo, to the last bit.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.models.columns import projection, unit_rows
from graphsilo.models.view import GraphTensors

_ROUNDING = 1e-12
"""Share of a mean of squares below which a variance is rounding."""


def width_of(num_features: int, dim: int, labelled: int) -> int:
    """p, the columns of a node.

    Args:
        num_features: Of X.
        dim: Most columns of X that are taken as they are.
        labelled: Classes of the label features; 0 without.
    """
    return (4 * num_features if num_features <= dim else 3 * dim) + 2 + 2 * labelled


def node_columns(data: GraphTensors, dim: int, seed: int) -> NDArray[np.float32]:
    """[n, p] the columns of all nodes, without label features."""
    features = data.graph.features
    narrow = data.num_features <= dim
    if narrow:
        own = np.asarray(features.toarray() if sp.issparse(features) else features, dtype=np.float64)
    else:
        rows, thrown = unit_rows(features), projection(data.num_features, dim, seed)
        # A product of sparse with dense rows adds up each row by itself, whatever stands beside it.
        found = (rows @ thrown).toarray() if sp.issparse(rows) else (thrown.T.tocsr() @ rows.T).T
        own = np.asarray(found, dtype=np.float64)
    step = data.matrix("mean").astype(np.float64)
    one = step @ own
    parts = [own, one, step @ one]
    if narrow:
        squares = step @ (own * own)
        variance = squares - one * one
        parts.append(np.sqrt(np.where(variance > _ROUNDING * squares, variance, 0.0)))
    degree = np.log1p(np.asarray(data.matrix("sum").sum(axis=1), dtype=np.float64))
    return np.hstack([*parts, degree, step @ degree]).astype(np.float32)
