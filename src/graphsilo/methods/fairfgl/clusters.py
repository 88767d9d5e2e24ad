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
_STEPS = 300
"""Most steps of k-means."""


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
        products: [K, K] inner products of the updates. k-means needs their distances only, so that its cost does not
            depend on the model's size.
        seed: Of the starting centres.
        restarts: Runs of k-means per number of clusters; the tightest counts.

    Source: FairFGL, clustering-based aggregation. Deviation: with more than ``ALL_NUMBERS`` updates trying every number
    would take K⁴ operations. There Ward's hierarchy of the same points gives a partition for every number at once; the
    ``SHORTLIST`` numbers with the best silhouettes go to k-means, which starts from the hierarchy's means.
    """
    size = len(products)
    one = Clustering(np.zeros(size, dtype=np.int64), 1, None)
    norms = products.diagonal()
    squared = norms[:, None] + norms[None, :] - 2 * products
    equal = squared <= 1e-12 * norms.max(initial=0.0)
    distinct = int((~np.tril(equal, -1).any(axis=1)).sum())
    if size < 3 or distinct == 1:
        return one
    squared = np.clip(squared, 0.0, None)
    np.fill_diagonal(squared, 0.0)
    distances, limit = np.sqrt(squared), min(size - 1, distinct)
    if size <= ALL_NUMBERS:
        labels = every_number(squared, limit, seed, restarts)
    else:
        starts = [start[None, :, None] == np.arange(start.max() + 1) for start in _shortlist(distances, limit)]
        labels = np.concatenate([k_means(squared, start.astype(np.float64))[0] for start in starts])
    scores = silhouettes(distances, labels)
    best = int(scores.argmax())  # the first of equals
    if np.isneginf(scores[best]):
        return one
    return Clustering(labels[best], len(np.unique(labels[best])), float(scores[best]))


def every_number(squared: Floats, limit: int, seed: int, restarts: int) -> Labels:
    """[limit - 1, K] labels by k-means with 2, 3, …, ``limit`` clusters, the tightest of some runs each.

    All runs are made at once: for a few points one costs less than what is between two calls of numpy. They begin with
    k-means++ (Arthur and Vassilvitskii, SODA 2007), with the best of 2 + ⌊log k⌋ draws for each centre.

    Args:
        squared: [K, K] squared distances of the points.
        limit: Most clusters, at most as many as there are distinct points.
        seed: Of the starting centres.
        restarts: Runs for each number.
    """
    size, runs = len(squared), (limit - 1) * restarts
    counts = np.repeat(np.arange(2, limit + 1), restarts)
    trials = 2 + np.log(counts).astype(np.int64)
    most = int(trials.max())
    first, draws = np.empty(runs, dtype=np.int64), np.zeros((runs, limit, most))
    for run, (count, tried) in enumerate(zip(counts.tolist(), trials.tolist(), strict=True)):
        if run % restarts == 0:
            draw = np.random.RandomState(seed)
        first[run] = draw.choice(size, p=np.full(size, 1 / size))
        draws[run, 1:count, :tried] = draw.uniform(size=(count - 1, tried))
    members = np.zeros((runs, size, limit))
    rows = np.arange(runs)
    members[rows, first, 0] = 1.0
    near = squared[first]  # [runs, K] to the nearest centre so far
    unused = np.arange(most) >= trials[:, None]
    for place in range(1, limit):
        wanted = draws[:, place] * near.sum(axis=1, keepdims=True)
        drawn = (near.cumsum(axis=1)[:, None, :] < wanted[:, :, None]).sum(axis=2).clip(max=size - 1)
        left = np.minimum(near[:, None, :], squared[drawn])  # [runs, draws, K]
        chosen = np.where(unused, np.inf, left.sum(axis=2)).argmin(axis=1)
        active = counts > place
        near = np.where(active[:, None], left[rows, chosen], near)
        members[rows[active], drawn[rows, chosen][active], place] = 1.0
    labels, inertia = k_means(squared, members)
    tightest = inertia.reshape(-1, restarts).argmin(axis=1) + restarts * np.arange(limit - 1)
    found: Labels = labels[tightest]
    return found


def k_means(squared: Floats, members: Floats) -> tuple[Labels, Floats]:
    """Lloyd's steps until no point moves, for several runs at once.

    The squared distance of a point to the mean of some is its mean squared distance to them, less half of the mean
    between them. A cluster that loses all its points gets the one farthest from its own mean.

    Args:
        squared: [K, K] squared distances of the points.
        members: [runs, K, k] 1 where a point is one of those whose mean a cluster begins with, else 0; a cluster
            without any is none.

    Returns:
        [runs, K] the cluster of each point, and [runs] the sum of the squared distances to its mean.
    """
    alive, points = members.sum(axis=1) > 0, np.arange(len(squared))
    labels: Labels | None = None
    for _ in range(_STEPS):
        sizes = members.sum(axis=1)
        shares = members / np.maximum(sizes, 1.0)[:, None, :]
        far = squared @ shares
        far -= 0.5 * (shares * far).sum(axis=1, keepdims=True)
        far = np.where(sizes[:, None, :] > 0, far, np.inf)
        found = far.argmin(axis=2)
        own = np.take_along_axis(far, found[:, :, None], axis=2)[:, :, 0]
        if labels is not None and np.array_equal(found, labels):
            break
        labels = found
        members = (labels[:, :, None] == np.arange(members.shape[2])).astype(np.float64)
        empty = alive & (members.sum(axis=1) == 0)
        for run in np.flatnonzero(empty.any(axis=1)):
            places = np.flatnonzero(empty[run])
            farthest = points[np.argsort(-own[run], kind="stable")[: len(places)]]
            members[run, farthest] = 0.0
            members[run, farthest, places] = 1.0
    assert labels is not None
    return labels, own.sum(axis=1)


def silhouettes(distances: Floats, labels: Labels) -> Floats:
    """[runs] mean silhouette coefficients of partitions [runs, K]; -inf for one cluster, or one for every point."""
    runs, size = labels.shape
    members = (labels[:, :, None] == np.arange(labels.max() + 1)).astype(np.float64)
    sizes = members.sum(axis=1)
    sums, own = distances @ members, labels[:, :, None]
    mine = np.take_along_axis(sizes, labels, axis=1)
    inside = np.take_along_axis(sums, own, axis=2)[:, :, 0] / np.maximum(mine - 1.0, 1.0)
    means = np.where(sizes[:, None, :] > 0, sums / np.maximum(sizes, 1.0)[:, None, :], np.inf)
    np.put_along_axis(means, own, np.inf, axis=2)
    outside = means.min(axis=2)
    widest = np.maximum(inside, outside)
    value = np.divide(outside - inside, widest, out=np.zeros((runs, size)), where=(widest > 0) & np.isfinite(widest))
    found = (sizes > 0).sum(axis=1)
    return np.where((found > 1) & (found < size), np.where(mine > 1, value, 0.0).mean(axis=1), -np.inf)


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
