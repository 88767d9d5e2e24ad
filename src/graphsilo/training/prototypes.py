"""Prototypes: one row per class that stands for its items, and what is computed from such rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphsilo.models.base import draw_uniform

_where_positive = torch.ops.aten.threshold_backward.default


def class_sums(rows: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The sum of the rows of each class [C, p], and how many rows it has [C] int64.

    Args:
        rows: [n, p].
        labels: [n] from 0 to C − 1.
        num_classes: C.
    """
    sums = rows.new_zeros(num_classes, rows.shape[1]).index_add_(0, labels, rows)
    return sums, torch.bincount(labels, minlength=num_classes)


def class_means(rows: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """As ``class_sums``, with the mean row of each class; 0 for a class without rows."""
    sums, counts = class_sums(rows, labels, num_classes)
    return sums / counts.clamp_min(1).to(rows.dtype).unsqueeze(1), counts


def pool_means(sums: Tensor, counts: Tensor, old: Tensor) -> Tensor:
    """The mean row of each class from everybody's sums and counts; a class that nobody has keeps its old row.

    Args:
        sums: [C, p].
        counts: [C] what the rows of each class count together.
        old: [C, p]; decides dtype and device.
    """
    sums, counts = sums.to(old.device), counts.to(old.device)
    means = (sums.double() / counts.masked_fill(counts == 0, 1).unsqueeze(1)).to(old.dtype)
    return torch.where((counts > 0).unsqueeze(1), means, old)


def unit_rows(values: Tensor) -> Tensor:
    """Rows divided by their length; rows of 0 stay."""
    return F.normalize(values, dim=-1)


def orthogonal_rows(count: int, width: int, draw: torch.Generator) -> Tensor:
    """[count, width] random unit vectors; orthogonal where there are at most ``width`` of them."""
    vectors = torch.randn(width, count, generator=draw)
    if count <= width:
        vectors, _ = torch.linalg.qr(vectors)
    return unit_rows(vectors.t())


def spread_rows(count: int, width: int, draw: torch.Generator) -> Tensor:
    """[count, width] unit vectors that are far apart: orthogonal ones, or where there are too many for that, those at
    which log Σ_{i≠j} exp(10 cos) ends after 500 steps of its gradient."""
    rows = orthogonal_rows(count, width, draw)
    if count <= width:
        return rows
    for _ in range(500):
        near = (10.0 * (rows @ rows.t())).fill_diagonal_(-torch.inf)
        rows = unit_rows(rows - 0.1 * count * torch.softmax(near.flatten(), 0).view_as(near) @ rows)
    return rows


class PrototypeGenerator:
    """Rows that a server learns: P = ReLU(V W₁ + b₁) W₂ + b₂ over trainable vectors V [R, p].

    Args:
        rows: R.
        width: p.
        draw: Source of V (standard normal) and of the weights.
        device: Where it is kept.
        initial: ``xavier`` draws weights Xavier-uniform and has biases of 0; ``torch`` draws both between ±1/√p, as
            ``torch.nn.Linear`` does.

    Attributes:
        parameters: V, W₁, b₁, W₂, b₂.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        draw: torch.Generator,
        device: torch.device | str = "cpu",
        *,
        initial: Literal["xavier", "torch"] = "xavier",
    ):
        vectors = torch.randn(rows, width, generator=draw)
        self.parameters: list[Tensor] = [vectors.to(device)]
        for _ in range(2):
            weight, bias = torch.empty(width, width), torch.zeros(width)
            draw_uniform(weight, (2 if initial == "xavier" else 6) * width, draw)
            if initial == "torch":
                draw_uniform(bias, 6 * width, draw)
            self.parameters += [weight.to(device), bias.to(device)]

    def __call__(self) -> Tensor:
        """P [R, p]."""
        return self.forward()[0]

    def forward(self) -> tuple[Tensor, Tensor]:
        """P [R, p], and the hidden layer [R, p]."""
        vectors, first, first_bias, second, second_bias = self.parameters
        hidden = torch.addmm(first_bias, vectors, first).relu_()
        return torch.addmm(second_bias, hidden, second), hidden

    def gradients(self, hidden: Tensor, gradient: Tensor) -> list[Tensor]:
        """From the gradient of P to those of the parameters, in their order."""
        vectors, first, _, second, _ = self.parameters
        inner = _where_positive(gradient @ second.t(), hidden, 0)
        return [inner @ first.t(), vectors.t() @ inner, inner.sum(0), hidden.t() @ gradient, gradient.sum(0)]

    def state(self) -> list[Tensor]:
        """The parameters, for a checkpoint."""
        return list(self.parameters)

    def load_state(self, state: Sequence[Tensor]) -> None:
        """Take them back."""
        for mine, saved in zip(self.parameters, state, strict=True):
            mine.copy_(saved)


def nearest_prototype(rows: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Log-probabilities [n, C] of a softmax over minus the squared distances to prototypes.

    Args:
        rows: [n, p].
        prototypes: [C, p].
        present: [C] booleans; a class without prototype has probability 0. At least one is there.
    """
    far = torch.cdist(rows, prototypes).square()
    return F.log_softmax(-far.masked_fill(~present, float("inf")), dim=1)


def finch(rows: Tensor) -> Tensor:
    """Clusters of rows by their first neighbours, without a number of clusters or a threshold.

    Two rows are linked where one is the other's most similar one (cosine), or both have the same; clusters are what is
    connected. The same again over the clusters' mean rows, until one cluster would be left or no two would join. Rows
    that are one cluster at once stay one.

    Args:
        rows: [n, p].

    Returns:
        [n] number of each row's cluster, from 0 in the order of first appearance.

    Source: Sarfraz, Sharma and Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor Relations", CVPR
    2019; the coarsest partition.
    """
    clusters = torch.arange(len(rows), device=rows.device)
    count = len(rows)
    while count > 1:
        means, _ = class_means(rows, clusters, count)
        cosine = unit_rows(means) @ unit_rows(means).t()
        first = cosine.fill_diagonal_(-torch.inf).argmax(1).cpu()
        # Two rows with the same first neighbour are connected through it.
        links = coo_matrix((np.ones(count), (np.arange(count), first.numpy())), shape=(count, count))
        found, joined = connected_components(links, directed=False)
        if found == count or (found == 1 and count < len(rows)):
            break
        clusters, count = torch.from_numpy(joined).long().to(rows.device)[clusters], found
    return clusters
