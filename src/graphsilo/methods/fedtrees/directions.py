"""The directions onto which FedTrees projects a wide X: the first principal ones of all silos' training rows.

They are found by subspace iteration over sums (Halko, Martinsson and Tropp, "Finding Structure with Randomness", SIAM
Review 2011). What is added over features or nodes lies on a grid that makes it exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphsilo.models.columns import projection
from graphsilo.models.node_columns import ROW, dense, round_rows
from graphsilo.models.view import Matrix

PASSES = 3
"""Sums from which the directions are found."""
WIDEST = 1 << 14
"""Features beyond which all directions are random: a sum has ``dim`` / 2 numbers for each."""
_DIRECTION, _PRODUCT = 2.0**20, 2.0**12
"""Steps of a direction, and of its product with a row in a sum: 2^26 rows add up without rounding."""
LARGEST_MOMENT = int(1.01 * ROW * _PRODUCT)
"""What one row adds to a sum of ``second_moments`` at most: its length may be rounded up."""


def principal_of(num_features: int, dim: int) -> int:
    """How many principal directions a wide X is projected onto; 0 where it is not, or has too many columns."""
    return dim // 2 if dim < num_features <= WIDEST else 0


def second_moments(features: Matrix, nodes: NDArray[np.int64], basis: NDArray[np.float32]) -> NDArray[np.int64]:
    """[d, k] Σ x (xᵀ Q) over some rows of length 1, in steps of 2^-26.

    Args:
        features: [n, d] X.
        nodes: Numbers of the rows.
        basis: [d, k] Q, as ``round_to_grid`` rounds it.
    """
    total = np.zeros(basis.shape, dtype=np.int64)
    for rows in round_rows(features[nodes]):
        products = np.rint((rows @ basis.astype(np.float64)) * _PRODUCT)
        total += np.asarray((rows * ROW).T @ products).astype(np.int64)
    return total


def first_basis(num_features: int, width: int, seed: int) -> NDArray[np.float32]:
    """[d, k] where the search for directions begins: random ones."""
    return _orthonormal(dense(projection(num_features, width, seed, block=1)))


def next_basis(sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """[d, k] closer to the first principal directions than those with which the sums were formed."""
    return _orthonormal(sums.astype(np.float64))


def directions_of(basis: NDArray[np.float32], sums: NDArray[np.int64]) -> NDArray[np.float32]:
    """[d, k] the principal directions within a basis, from the sums that were formed with it."""
    inner = basis.astype(np.float64).T @ sums
    _, turned = np.linalg.eigh(inner + inner.T)
    return round_to_grid(basis.astype(np.float64) @ turned[:, ::-1])


def round_to_grid(directions: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounded so that products with rows on their own grid are exact, in any order."""
    found: NDArray[np.float32] = (np.rint(directions * _DIRECTION) / _DIRECTION).astype(np.float32)
    return found


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float32]:
    return round_to_grid(np.linalg.qr(columns)[0])
