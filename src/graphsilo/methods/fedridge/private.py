"""FedRidge with differential privacy of nodes: the sums leave once, with noise, over rows that no other node is in.

A node that joins or leaves a silo would change the rows of its whole neighbourhood if rows were propagated. So the
rows behind the sums are the training nodes' own features, and only predictions use the propagated ones, at the silo,
with a model that was fit to rows without neighbours (that this works for networks: Yang et al., "Graph Neural Networks
are Inherently Good Generalizers: Insights by Bridging GNNs and MLPs", ICLR 2023). One node is then one row of known
length, and the noise need not grow with anybody's number of links.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation import noise
from graphsilo.federation.message import Message, sends
from graphsilo.methods.fedridge.features import CONSTANT, Features
from graphsilo.methods.fedridge.solve import pack, unpack, upper_product

_SQUARE = (1 + CONSTANT**2) * (1 + 1e-5)
"""Largest squared length of a row, of numbers in float32."""
SENSITIVITY = math.sqrt(_SQUARE**2 + _SQUARE)
"""How far one row moves the numbers that are released, as a vector: φ φᵀ, all its entries, and φ."""
_ROOT = math.sqrt(2.0)


class ReleaseRequest(Message):
    """Ask for the sums with noise. Which ones, a client's own settings say.

    Attributes:
        size: p, the columns that their answer must have.
    """

    size: int = sends("control")


class Release(Message):
    """Σ φ φᵀ and Σ y φᵀ over one client's training nodes' own features, with noise on every number.

    Attributes:
        moments: [p (p + 1) / 2] the upper triangle of the first.
        products: [C, p] the second.
        clients: 1; of a sum, how many have added noise.
        mu: How well it tells whether a node is there (``federation.noise``), for the silo's own account.
    """

    moments: Tensor = sends("statistic", per_class=False)
    products: Tensor = sends("statistic", per_class=False, shape=("classes", "columns"))
    clients: int = sends("counts")
    mu: float = sends("control")

    def check_answer(self, request: Message) -> None:
        """As many numbers as were asked for, of one client; noise leaves no more to look at."""
        assert isinstance(request, ReleaseRequest)
        size, found = request.size, (tuple(self.moments.shape), self.products.shape[1], self.clients)
        if found != ((size * (size + 1) // 2,), size, 1):
            raise MessageError(
                f"Release holds {found[0]} moments and products of {found[1]} columns from {found[2]} clients; those "
                f"of one client and {size} columns were asked for."
            )


class SharedReleaseRequest(Message):
    """Ask for the sums with a share of the noise, for a secure sum.

    Attributes:
        size: p, the columns that their answer must have.
        honest: h, how many silos that do not collude every sum of these answers is sure to hold.
    """

    size: int = sends("control")
    honest: int = sends("control")


class SharedRelease(Message):
    """``Release`` in whole steps of the grid that noise is on, with 1/h of the noise's variance.

    Attributes:
        moments: [p (p + 1) / 2] the upper triangle of Σ φ φᵀ, entries beside the diagonal times √2.
        products: [C, p].
        clients: 1; of a sum, how many have added their share.
        mu: How well the sum tells whether a node is there, for the silo's own account.
        honest: h.
    """

    moments: Tensor = sends("statistic", dtype=torch.int64, per_class=False)
    products: Tensor = sends("statistic", dtype=torch.int64, per_class=False, shape=("classes", "columns"))
    clients: int = sends("counts")
    mu: float = sends("control")
    honest: int = sends("control")

    def honest_silos(self) -> int:
        return self.honest

    def numbers(self) -> tuple[Tensor, Tensor]:
        """The sums that these are the steps of: [p (p + 1) / 2] and [C, p], float64."""
        step = noise.grid(SENSITIVITY, self.moments.numel() + self.products.numel())
        return self.moments * step / pack(_twice(self.products.shape[1])), self.products * step


def released(
    features: Features, items: NDArray[np.int64], labels: NDArray[np.int64], classes: int, mu: float
) -> Release:
    """The sums of a silo's own rows, with noise.

    Args:
        features: Not propagated.
        items: Training nodes.
        labels: Of all nodes.
        classes: How many there are.
        mu: As :func:`graphsilo.federation.noise.mu_of` says.
    """
    sums, weights = _weighted_sums(features, items, labels, classes)
    every = noise.noisy(sums, SENSITIVITY, mu)
    moments, products = every.split([len(weights), classes * features.width])
    products = products.view(classes, -1)
    return Release(moments=(moments / weights).float(), products=products.float(), clients=1, mu=mu)


def shared(
    features: Features, items: NDArray[np.int64], labels: NDArray[np.int64], classes: int, mu: float, honest: int
) -> SharedRelease:
    """The same with a share of the noise, for a sum that is sure to hold the shares of ``honest`` silos."""
    sums, weights = _weighted_sums(features, items, labels, classes)
    every = noise.noisy_steps(sums, SENSITIVITY, mu, honest).long()
    moments, products = every.split([len(weights), classes * features.width])
    return SharedRelease(moments=moments, products=products.view(classes, -1), clients=1, mu=mu, honest=honest)


def _weighted_sums(
    features: Features, items: NDArray[np.int64], labels: NDArray[np.int64], classes: int
) -> tuple[Tensor, Tensor]:
    """Σ φ φᵀ, its upper triangle weighted, and Σ y φᵀ in one vector; and the weights of the first part."""
    square = torch.zeros(features.width, features.width, dtype=torch.float64)
    cross = torch.zeros(classes, features.width, dtype=torch.float64)
    for part, rows in features.blocks(items, np.float64):
        square = upper_product(rows, rows, square)
        cross.index_add_(0, torch.from_numpy(labels[part]), rows)
    # An entry off the diagonal stands for two of φ φᵀ: with √2 before it, lengths are those of the whole matrix.
    weights = pack(_twice(features.width))
    return torch.cat([pack(square) * weights, cross.flatten()]), weights


def solution(moments: Tensor, products: Tensor, mu: float, releases: float) -> tuple[Tensor, float]:
    """The ridge of noisy sums, [p, C] float64, and its penalty, which nothing but the noise decides.

    ``releases`` says how many times the variance that one release needs is in them.

    The noise's own largest eigenvalue is √(2 p) σ √releases; a penalty of half of √p σ √releases beside the usual 1
    keeps directions out that noise alone fills, and eigenvalues below 0 count as 0.
    """
    right = products.double().t()
    sigma = noise.deviation(SENSITIVITY, mu) * math.sqrt(releases)
    penalty = 1.0 + sigma * math.sqrt(len(right)) / 2
    values, turned = torch.linalg.eigh(unpack(moments, len(right)), UPLO="U")
    return turned @ ((turned.t() @ right) / (values.clamp_min(0) + penalty)[:, None]), penalty


def _twice(size: int) -> Tensor:
    """[p, p] 1 on the diagonal, √2 above it."""
    found = torch.full((size, size), _ROOT, dtype=torch.float64)
    found.diagonal().fill_(1.0)
    return found
