"""Which of FairFGL's updates go together: k-means with the number of clusters that fits best.

Everything follows from the inner products of the updates, so that no cost depends on the model's size.

Source: Wu et al., "Towards Unbiased Federated Graph Learning: Label and Topology Perspectives" (FairFGL, arXiv 2025).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

ALL_NUMBERS = 50
"""Most updates for which every number of clusters is tried."""
SHORTLIST = 8
"""Numbers of clusters that are tried beyond."""


class Clustering(NamedTuple):
    """Which updates go together.

    Attributes:
        labels: [K] cluster of each update, from 0.
        clusters: How many there are.
        silhouette: Mean silhouette coefficient; None for one cluster.
    """

    labels: Labels
    clusters: int
    silhouette: float | None


def cluster(products: Floats, *, seed: int, restarts: int = 3) -> Clustering:
    """k-means with the number of clusters, 2 to K - 1, that has the best silhouette; the fewer of equals.

    One cluster where there are fewer than three updates, or all are equal.

    Args:
        products: [K, K] inner products of the updates. k-means needs their distances only, and these are the
            distances of K points in K dimensions, so that its cost does not depend on the model's size.
        seed: Of the starting centres.
        restarts: Runs of k-means per number of clusters; the tightest counts.

    Source: FairFGL, clustering-based aggregation. Deviation: with more than ``ALL_NUMBERS`` updates trying every number
    would take K⁴ operations. There Ward's hierarchy of the same points gives a partition for every number at once; the
    ``SHORTLIST`` numbers with the best silhouettes go to k-means, which starts from the hierarchy's means.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    size = len(products)
    one = Clustering(np.zeros(size, dtype=np.int64), 1, None)
    norms = products.diagonal()
    squared = norms[:, None] + norms[None, :] - 2 * products
    equal = squared <= 1e-12 * norms.max(initial=0.0)
    distinct = int((~np.tril(equal, -1).any(axis=1)).sum())
    if size < 3 or distinct == 1:
        return one
    points = points_of(products)
    distances = np.sqrt(np.clip(squared, 0.0, None))
    np.fill_diagonal(distances, 0.0)
    limit = min(size - 1, distinct)

    def tried() -> Iterator[Labels]:
        if size <= ALL_NUMBERS:
            for count in range(2, limit + 1):
                yield KMeans(count, n_init=restarts, random_state=seed).fit_predict(points)
            return
        for start in _shortlist(distances, limit):
            members = np.bincount(start).astype(np.float64)
            sums = [np.bincount(start, column) for column in points.T]
            means = np.stack(sums, axis=1) / members[:, None]
            yield KMeans(len(means), init=means, n_init=1, random_state=seed).fit_predict(points)

    best = one
    for labels in tried():
        found = len(np.unique(labels))
        if not 2 <= found <= size - 1:
            continue
        score = float(silhouette_score(distances, labels, metric="precomputed"))
        if best.silhouette is None or score > best.silhouette:
            best = Clustering(labels.astype(np.int64), found, score)
    return best


def points_of(products: Floats) -> Floats:
    """[K, K] points with these inner products, hence with the same distances as the vectors behind them."""
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    points: Floats = vectors * np.sqrt(np.clip(values, 0.0, None))
    return points


def _shortlist(distances: Floats, limit: int) -> Iterator[Labels]:
    """Partitions of Ward's hierarchy with the best silhouettes, the fewer clusters first."""
    from scipy.cluster.hierarchy import ward
    from scipy.spatial.distance import squareform

    merges = ward(squareform(distances, checks=False))[:, :2].astype(np.int64)
    scores = hierarchy_silhouettes(distances, merges)[: limit + 1]
    chosen = np.sort(np.argsort(-scores, kind="stable")[:SHORTLIST])
    for count in chosen[chosen >= 2].tolist():
        yield cut(merges, count)


def hierarchy_silhouettes(distances: Floats, merges: Labels) -> Floats:
    """[K] mean silhouette of the hierarchy's partition into 0, 1, …, K - 1 clusters; -inf below 2.

    Args:
        distances: [K, K].
        merges: [K - 1, 2] which two clusters each step joins; the one that step t makes is called K + t.

    Every step adds up two columns of the distances' sums by cluster: K² operations a step, K³ for all numbers.
    """
    size = len(distances)
    scores = np.full(size, -np.inf)
    sums = distances.copy()  # [updates, clusters]
    sizes = np.ones(size)
    slot = {item: item for item in range(size)}  # which column holds a cluster
    own = np.arange(size)
    rows = np.arange(size)
    means = sums.copy()  # of the distances from an update to a cluster's, infinite to the own one
    np.fill_diagonal(means, np.inf)
    for step, (left, right) in enumerate(merges[:-1].tolist()):
        into, gone = slot.pop(left), slot.pop(right)
        slot[size + step] = into
        sums[:, into] += sums[:, gone]
        sizes[into] += sizes[gone]
        own[own == gone] = into
        means[:, gone] = np.inf
        means[:, into] = np.where(own == into, np.inf, sums[:, into] / sizes[into])
        inside = sums[rows, own] / np.maximum(sizes[own] - 1.0, 1.0)
        outside = means.min(axis=1)
        widest = np.maximum(inside, outside)
        value = np.divide(outside - inside, widest, out=np.zeros(size), where=widest > 0)
        scores[size - 1 - step] = float(np.where(sizes[own] > 1, value, 0.0).mean())
    return scores


def cut(merges: Labels, count: int) -> Labels:
    """[K] labels from 0 of a hierarchy's partition into so many clusters."""
    size = len(merges) + 1
    labels = np.arange(2 * size - 1)
    for step in range(size - count - 1, -1, -1):
        labels[merges[step]] = labels[size + step]
    return np.asarray(np.unique(labels[:size], return_inverse=True)[1], dtype=np.int64)
