"""Label propagation on a given graph, in the variants that federated graph methods use, and class homophily.

The graph stays a scipy matrix and the labels a small dense array: nothing here is trained, and nothing is of size
n × n.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.types import NodeIndex

Scores: TypeAlias = "NDArray[np.float64]"
"""[n, C] class scores of every node."""


def propagate_labels(
    adjacency: sp.csr_matrix,
    initial: Scores,
    *,
    seed_rows: NodeIndex,
    steps: int,
    alpha: float,
    self_loops: bool = False,
    rest: Literal["zero", "keep"] = "zero",
    clamp: bool = True,
    add_back: bool = False,
) -> Scores:
    """F ← α S F + (1−α) F⁰, ``steps`` times, with S = D^-½ A D^-½.

    Args:
        adjacency: [n, n] CSR, ``A[target, source]``; its diagonal is ignored.
        initial: [n, C] scores of the first step, e.g. from ``one_hot_rows``.
        seed_rows: Labelled rows L. Under ``rest="zero"`` the only rows of ``initial`` that are read, so that a label
            outside L cannot leak in.
        steps: Number of updates; 0 returns F⁰.
        alpha: Share of the neighbours; 0 returns F⁰.
        self_loops: Use A + I, with the degrees of it.
        rest: What F⁰ is outside L: ``zero``, or ``keep`` what ``initial`` says.
        clamp: Cut scores to [0, 1] after each update.
        add_back: After each update add F⁰ to the rows of L, which then grow beyond 1.

    Returns:
        [n, C] float64 scores; rows do not sum to 1. An isolated node gets nothing but its (1−α) F⁰.

    Source: Zhou et al., "Learning with Local and Global Consistency", NIPS 2003: ``clamp`` (O-pFGL, FedGTA's paper);
    with ``self_loops``, ``rest="keep"``, ``add_back`` and no clamp the "non-parametric" variant of the releases of
    AdaFGL and FedGTA.

    Example:
        >>> path = sp.csr_matrix(np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> start = one_hot_rows(np.array([0, 1]), np.array([0]), 2)
        >>> propagate_labels(path, start, seed_rows=np.array([0]), steps=1, alpha=0.9).round(6).tolist()
        [[0.1, 0.0], [0.9, 0.0]]
    """
    start = np.array(initial, dtype=np.float64)
    if rest == "zero":
        kept = np.zeros_like(start)
        kept[seed_rows] = start[seed_rows]
        start = kept
    matrix = propagation_matrix(adjacency, self_loops=self_loops)
    anchor = (1.0 - alpha) * start
    scores = start.copy()
    for _ in range(steps if alpha > 0.0 else 0):
        scores = alpha * (matrix @ scores) + anchor
        if add_back:
            scores[seed_rows] += start[seed_rows]
        if clamp:
            np.clip(scores, 0.0, 1.0, out=scores)
    return scores


def one_hot_rows(labels: NDArray[np.int64], rows: NodeIndex, num_classes: int) -> Scores:
    """[n, C] with the one-hot label in ``rows`` and zeros in every other row, whose labels are not read.

    Args:
        labels: [n] class numbers; only those of ``rows`` are read, and -1 there means an unlabelled row.
        rows: Labelled rows.
        num_classes: C.
    """
    scores = np.zeros((len(labels), num_classes))
    known = rows[labels[rows] >= 0]
    scores[known, labels[known]] = 1.0
    return scores


def normalise_rows(scores: Scores) -> Scores:
    """Rows divided by their sums; a row without any mass becomes uniform."""
    total = scores.sum(axis=1, keepdims=True)
    return np.where(total > 0, scores / np.where(total > 0, total, 1.0), 1.0 / scores.shape[1])


def propagation_matrix(adjacency: sp.csr_matrix, *, self_loops: bool = False) -> sp.csr_matrix:
    """S = D^-½ A D^-½ as float64 CSR; a node of degree 0 has an empty row and column."""
    matrix = without_loops(adjacency).astype(np.float64)
    if self_loops:
        matrix = sp.csr_matrix(matrix + sp.eye(matrix.shape[0], format="csr"))
    degree = np.asarray(matrix.sum(axis=1)).ravel()
    root = np.where(degree > 0, np.where(degree > 0, degree, 1.0) ** -0.5, 0.0)
    return sp.csr_matrix(sp.diags(root) @ matrix @ sp.diags(root))


def without_loops(adjacency: sp.csr_matrix) -> sp.csr_matrix:
    """The adjacency with an empty diagonal."""
    bare = sp.csr_matrix(adjacency - sp.diags(adjacency.diagonal(), format="csr"))
    bare.eliminate_zeros()
    return bare


def class_homophily(
    adjacency: sp.csr_matrix, labels: NDArray[np.int64], rows: NodeIndex, num_classes: int
) -> NDArray[np.float64]:
    """H(c) = Σ over labelled nodes v of class c of h(v), the share of v's labelled neighbours with v's label.

    Args:
        adjacency: [n, n] CSR, ``A[target, source]``; only the pattern off the diagonal counts.
        labels: [n]; only those of ``rows`` are read.
        rows: Labelled nodes.
        num_classes: C.

    Returns:
        [C] H; h(v) is 0 for a node without labelled neighbours.

    Source: O-pFGL (Yan et al., arXiv 2411.11304), homophily of a class.
    """
    pattern = without_loops(adjacency).astype(np.float64)
    pattern.data[:] = 1.0
    known = rows[labels[rows] >= 0]
    neighbours = pattern[known] @ one_hot_rows(labels, rows, num_classes)
    own = neighbours[np.arange(len(known)), labels[known]]
    total = neighbours.sum(axis=1)
    share = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
    return np.bincount(labels[known], weights=share, minlength=num_classes).astype(np.float64)
