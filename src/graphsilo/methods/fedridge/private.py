"""FedRidge with differential privacy of nodes: the sums leave once, with noise, over rows that no other node is in.

A node that joins or leaves a silo would change the rows of its whole neighbourhood if rows were propagated. So the
rows behind the sums are the training nodes' own features, and only predictions use the propagated ones, at the silo,
with a model that was fit to rows without neighbours (that this works for networks: Yang et al., "Graph Neural Networks
are Inherently Good Generalizers: Insights by Bridging GNNs and MLPs", ICLR 2023). One node is then one row of known
length, and the noise need not grow with anybody's number of links. What a silo fits beside that model stays there, and
may use all features there are.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.methods.fedridge.features import CONSTANT, Features
from graphsilo.methods.fedridge.solve import pack, unpack, upper_product

NOISY = "+noise"
"""What the name of features ends with whose model comes of sums with noise."""
_SQUARE = (1 + CONSTANT**2) * (1 + 1e-5)
"""Largest squared length of a row; rows that are longer, as float32 may make them, are shortened to it."""
_WEIGHT = 0.65
"""What φ φᵀ is multiplied by before noise: φ then has 0.7 of the promise, μ²."""
SENSITIVITY = math.sqrt((_WEIGHT * _SQUARE) ** 2 + _SQUARE)
"""How far one row moves the numbers that are released, as a vector: φ φᵀ, all its entries, weighted, and φ."""
_ROOT = math.sqrt(2.0)


def size(width: int, classes: int) -> int:
    """How many numbers are released of p columns and C classes."""
    return width * (width + 1) // 2 + width * classes


def weighted_sums(features: Features, items: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> Tensor:
    """What is released of a silo's own rows, before noise: weighted Σ φ φᵀ, its upper triangle, and Σ y φᵀ.

    An entry beside the diagonal stands for two of φ φᵀ: with √2 before it, lengths are those of the whole matrix.

    Args:
        features: Not propagated.
        items: Training nodes.
        labels: Of all nodes.
        classes: How many there are.
    """
    square = torch.zeros(features.width, features.width, dtype=torch.float64)
    cross = torch.zeros(classes, features.width, dtype=torch.float64)
    for part, rows in features.blocks(items, np.float64):
        rows *= (math.sqrt(_SQUARE) / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
        square = upper_product(rows, rows, square)
        cross.index_add_(0, torch.from_numpy(labels[part]), rows)
    return torch.cat([pack(square) * pack(_weights(features.width)), cross.flatten()])


def parts(numbers: Tensor, classes: int, width: int) -> tuple[Tensor, Tensor]:
    """The sums that were released: [p (p + 1) / 2] and [C, p]."""
    moments, products = numbers.split([numbers.numel() - classes * width, classes * width])
    return moments / pack(_weights(width)), products.view(classes, width)


def solution(moments: Tensor, products: Tensor, sigma: float) -> tuple[Tensor, float]:
    """The ridge of noisy sums, [p, C] float64, and its penalty, which nothing but the noise's deviation σ decides.

    With σ_M = σ / weight, the noise's own largest eigenvalue is √(2 p) σ_M; a penalty of a quarter of √p σ_M beside the
    usual 1 keeps directions out that noise alone fills, and eigenvalues below 0 count as 0.
    """
    right = products.double().t()
    penalty = 1.0 + sigma / _WEIGHT * math.sqrt(len(right)) / 4
    values, turned = torch.linalg.eigh(unpack(moments, len(right)), UPLO="U")
    return turned @ ((turned.t() @ right) / (values.clamp_min(0) + penalty)[:, None]), penalty


def _weights(size: int) -> Tensor:
    """[p, p] the weight on the diagonal, √2 times it above."""
    found = torch.full((size, size), _WEIGHT * _ROOT, dtype=torch.float64)
    found.diagonal().fill_(_WEIGHT)
    return found
