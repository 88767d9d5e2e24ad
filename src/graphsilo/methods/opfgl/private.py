"""O-pFGL with differential privacy of nodes: class statistics leave once, with noise, of rows that no other node is in.

Propagated rows would move with every neighbour, so statistics are of training nodes' own features, given the length 1.
A node without links is the same at every level of propagation; the surrogate is fit to levels that are all alike, and
each client takes its features back to the length that its own rows have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.federation.release import Noisy
from graphsilo.models.view import Matrix
from graphsilo.training.condensation import ROWS, ClassStatistics

SENSITIVITY = math.sqrt(3.0) * (1 + 1e-5)
"""How far one row x of length 1 moves its class's count (by 1), Σ x (by x) and Σ x² (by x²), as one vector."""
SURE = 3.0
"""A class is taken to be there where its count is above so many deviations of the noise."""


def size(classes: int, features: int) -> int:
    """How many numbers are released."""
    return classes * (1 + 2 * features)


def class_totals(features: Matrix, items: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> Tensor:
    """What is released, before noise: counts, Σ x and Σ x² of every class, over rows of length 1, in one vector.

    Args:
        features: [n, d].
        items: Training nodes.
        labels: Of all nodes.
        classes: How many there are.
    """
    counts = np.bincount(labels[items], minlength=classes).astype(np.float64)
    totals, squares = np.zeros((2, classes, features.shape[1]))
    for part, rows in _blocks(features, items):
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        np.add.at(totals, labels[part], rows)
        np.add.at(squares, labels[part], rows**2)
    return torch.from_numpy(np.concatenate([counts, totals.ravel(), squares.ravel()]))


def statistics_of(noisy: Noisy, classes: int, features: int, levels: int) -> ClassStatistics:
    """Counts, means and variances, the same ones at every level of propagation.

    What noise alone adds to the square of a mean, (σ / N)², is taken off again. A class that may be nothing but noise
    has no statistics.

    Args:
        noisy: The sum of what clients released.
        classes, features: How many there are.
        levels: X, ÂX, …: how many the surrogate is fit to.
    """
    counts, totals, squares = noisy.numbers.split([classes, classes * features, classes * features])
    counts = torch.where(counts > SURE * noisy.sigma, counts.round(), 0.0)
    number = counts.clamp_min(1.0)[:, None]
    present = counts[:, None] > 0
    mean = torch.where(present, totals.view(classes, -1) / number, 0.0)
    variance = squares.view(classes, -1) / number - mean.square() + (noisy.sigma / number).square()
    variance = torch.where(present, variance.clamp_min(0.0), 0.0)
    return ClassStatistics(counts, mean.repeat(1, levels), variance.repeat(1, levels))


def usual_length(features: Matrix) -> float:
    """The mean length of rows that are not zero; 1 where all are."""
    every = np.arange(features.shape[0])
    lengths = np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in _blocks(features, every)] or [np.zeros(0)])
    lengths = lengths[lengths > 0]
    return float(lengths.mean()) if len(lengths) else 1.0


def _blocks(features: Matrix, items: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Some nodes and their rows, dense, until all were there."""
    for start in range(0, len(items), ROWS):
        part = items[start : start + ROWS]
        block = features[part]
        yield part, np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
