"""What a node's place in its graph looks like, whatever its features: chances to return, and the degree."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.errors import UnsupportedError
from graphsilo.models.hops import dense_if_filled
from graphsilo.models.view import GraphTensors, Matrix

_ROWS = 1 << 12
"""Nodes whose walks are followed at once."""
_ENTRIES = 1 << 26
"""As many as that have at most so many places to be at: half a gigabyte."""


def structure_of(data: GraphTensors, walks: int, degrees: int) -> NDArray[np.float32]:
    """[n, walks + degrees]: return probabilities, then the one-hot degree.

    Args:
        data: A graph, or a collection; a link counts in both directions.
        walks: Steps of the random walk.
        degrees: Columns for degrees 1, 2, …; 0 is in the first, and what is larger in the last.

    Raises:
        UnsupportedError: Nodes have times, so that links do not lead back.

    Source: Tan et al., "Federated Learning on Non-IID Graphs via Structural Knowledge Sharing", AAAI 2023.
    """
    if data.graph.time is not None:
        raise UnsupportedError(
            f"encodings of structure count links in both directions, and nodes of {data.graph.name} have times: each "
            f"would be told of later ones. Use another model, such as --model gin, or leave out the times."
        )
    adjacency = data.graph.adjacency()
    both = sp.csr_matrix(adjacency.maximum(adjacency.T), dtype=np.float64)
    degree = np.diff(both.indptr)
    one_hot = np.clip(degree, 1, max(degrees, 1))[:, None] == np.arange(1, degrees + 1)
    return np.concatenate([return_probabilities(both, walks), one_hot.astype(np.float32)], axis=1)


def return_probabilities(adjacency: sp.csr_matrix, steps: int) -> NDArray[np.float32]:
    """[n, steps] the chance of a random walk to be where it started after 1, 2, … steps; 0 for a node without links.

    With S = D^-½ A D^-½, whose powers have the diagonal of those of A D⁻¹, and R_k the rows of S^k, it is ⟨R_k, R_k⟩
    after 2k steps and ⟨R_k, R_k+1⟩ after 2k + 1: half as many products, which fill half as much.

    Args:
        adjacency: [n, n] symmetric.
        steps: How many.
    """
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    root = sp.diags(np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0))
    walk = sp.csr_matrix(root @ adjacency @ root)
    found = np.zeros((len(degree), steps), dtype=np.float32)
    block = min(_ROWS, max(_ENTRIES // max(len(degree), 1), 1))
    for first in range(0, len(degree), block):
        rows = slice(first, first + block)
        now: Matrix = sp.eye(len(degree), format="csr")[rows]
        after = now
        for step in range(steps):
            if step % 2:
                now = after
            else:
                after = dense_if_filled(now @ walk) if sp.issparse(now) else now @ walk
            found[rows, step] = row_products(now, after)
    found[degree == 0] = 0.0
    return found


def row_products(left: Matrix, right: Matrix) -> NDArray[np.float64]:
    """[n] the inner product of each row with the same row of the other."""
    if sp.issparse(left):
        return np.asarray(left.multiply(right).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", np.asarray(left), np.asarray(right)))
