"""Fixed columns of nodes that several methods learn from: rows of length 1, projections, labels of neighbours.

Sources: Kane and Nelson, "Sparser Johnson-Lindenstrauss Transforms", JACM 2014 (the projection); Wang et al., "Bag of
Tricks for Node Classification with Graph Neural Networks", 2021, and Shi et al., "Masked Label Prediction", IJCAI 2021
(labels of others as features); leaving out a node's own is done here by the diagonal.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.sources import scratch
from graphsilo.random import numpy_generator

if TYPE_CHECKING:
    from graphsilo.models.view import GraphTensors, Matrix

BLOCK = 4096
"""Rows that are dense at once."""
SCALE = 0.5
"""What label columns are multiplied by."""
_NO_LENGTH = 1e-60
"""Square of a length below which a row counts as zeros."""
_NO_LABEL = 1e-12
"""What of a node's own label is less than this is rounding."""
_SPREAD = 4
"""Entries of the projection that a raw feature has."""


def unit_rows(matrix: Matrix, inverse: NDArray[np.float32] | None = None, *, in_place: bool = False) -> Matrix:
    """A matrix with rows of length 1; a row of zeros stays. A dense one may be changed in place.

    Args:
        matrix: [n, d].
        inverse: [n] 1 / length of its rows, if known.
        in_place: Whether a dense one is changed.
    """
    inverse = inverse_lengths(matrix, np.float32) if inverse is None else inverse
    if sp.issparse(matrix):
        data = matrix.data * np.repeat(inverse, np.diff(matrix.indptr))
        return sp.csr_matrix((data, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)
    scaled = matrix if in_place else scratch.empty(matrix.shape)
    for start in range(0, len(matrix), BLOCK):
        rows = slice(start, start + BLOCK)
        np.multiply(matrix[rows], inverse[rows, None], out=scaled[rows])
    return scaled


def inverse_lengths(matrix: Matrix, precision: type[np.floating[Any]] = np.float64) -> NDArray[np.float32]:
    """[n] 1 / length of each row, 0 where there is none.

    Args:
        matrix: [n, d].
        precision: What squares of a dense one are added up in: those of a silo's own features may be of any size.
    """
    squares = np.zeros(matrix.shape[0])
    if sp.issparse(matrix):
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        squares += np.bincount(rows, weights=np.square(matrix.data, dtype=np.float64), minlength=len(squares))
    else:
        for start in range(0, len(matrix), BLOCK):
            part = matrix[start : start + BLOCK]
            squares[start : start + BLOCK] = np.einsum("ij,ij->i", part, part, dtype=precision)
    found = np.zeros(len(squares), dtype=np.float32)
    np.divide(1.0, np.sqrt(squares), out=found, where=squares > _NO_LENGTH, casting="same_kind")
    return found


@lru_cache(maxsize=8)  # all silos of a process use the same
def projection(num_features: int, width: int, seed: int, block: int = 0) -> sp.csr_matrix:
    """[num_features, width] random signs, a few in each row: rows keep their lengths and angles, roughly."""
    draw = numpy_generator(seed, "ridge", "projection", block)
    columns = draw.integers(0, width, size=(num_features, _SPREAD))
    signs = draw.integers(0, 2, size=(num_features, _SPREAD)) * 2.0 - 1.0
    rows = np.repeat(np.arange(num_features), _SPREAD)
    values = (signs / np.sqrt(_SPREAD)).ravel().astype(np.float32)
    return sp.csr_matrix((values, (rows, columns.ravel())), shape=(num_features, width))


def label_columns(
    data: GraphTensors,
    nodes: NDArray[np.int64],
    labels: NDArray[np.int64],
    classes: int,
    *,
    of: GraphTensors | None = None,
) -> sp.csr_matrix:
    """[n, 2C] the label features of all nodes.

    Args:
        data: The graph.
        nodes, labels: Numbers of the client's training nodes, and their classes.
        classes: C.
        of: The graph in which they have these numbers, which may be a part of the other; None: the same.
    """
    if of is not None and of.graph is not data.graph:
        nodes = data.graph.rows_of(of.graph.global_ids[nodes])
    step = data.matrix("mean").astype(np.float64)
    ones = np.ones(len(nodes))
    known = sp.csr_matrix((ones, (nodes, labels)), shape=(data.num_nodes, classes))
    one = step @ known
    two = step @ one
    # What comes back to a node after two steps is its own label.
    back = np.asarray(step[nodes].multiply(step.T.tocsr()[nodes]).sum(axis=1)).ravel()
    two = two - sp.csr_matrix((back, (nodes, labels)), shape=two.shape)
    two.data[two.data < _NO_LABEL] = 0.0
    found = sp.csr_matrix(SCALE * sp.hstack([one, two]), dtype=np.float32)
    found.eliminate_zeros()
    found.sort_indices()
    return found
