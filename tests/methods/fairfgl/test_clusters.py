"""How FairFGL groups updates and finds their opposites."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from graphsilo.methods.fairfgl import clusters as fairfgl_clusters
from graphsilo.methods.fairfgl.clusters import (
    cluster,
    cut,
    every_number,
    hierarchy_silhouettes,
    k_means,
    silhouettes,
)
from graphsilo.methods.fairfgl.updates import (
    gram,
    most_dissimilar,
)


def test_products_are_summed_block_by_block():
    updates = torch.randn(6, 200_000, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(gram(updates), updates.double().numpy() @ updates.double().numpy().T, rtol=1e-12)


@pytest.mark.parametrize("size", [3, 5, 10])
def test_every_number_of_clusters_is_as_by_scikit_learn(size):
    """The same draws of centres, hence the same clusters, but where rounding decides between equally good centres."""
    for seed in range(5):
        draw = np.random.default_rng(seed)
        rows = draw.normal(size=(size, 40)) + np.where(np.arange(size) < size // 3, 2.0, 0.0)[:, None]
        squared = np.square(rows[:, None] - rows[None]).sum(axis=2)
        labels = every_number(squared, size - 1, seed, 3)
        scores = silhouettes(np.sqrt(squared), labels)
        for mine, score, count in zip(labels, scores, range(2, size), strict=True):
            wanted = KMeans(count, n_init=3, random_state=seed).fit_predict(rows)
            assert len(set(zip(mine.tolist(), wanted.tolist(), strict=True))) == count
            assert score == pytest.approx(silhouette_score(rows, wanted), abs=1e-9)


def test_k_means_by_hand():
    # Points 0, 1, 9, 10 on a line. From the centres 0 and 1: {0} and {1, 9, 10}, mean 20 / 3, which loses 1.
    squared = np.square(np.subtract.outer([0.0, 1.0, 9.0, 10.0], [0.0, 1.0, 9.0, 10.0]))
    members = np.zeros((1, 4, 2))
    members[0, [0, 1], [0, 1]] = 1.0
    labels, inertia = k_means(squared, members)
    assert labels.tolist() == [[0, 0, 1, 1]]
    assert inertia == pytest.approx([4 * 0.25])


def test_a_cluster_that_loses_its_points_gets_the_farthest_one():
    # Means of {-3, 3}, {-2} and {2} are 0, -2 and 2: nobody is nearest to the first, which gets -3 (3 is as far off).
    place = np.array([-3.0, 3.0, -2.0, 2.0])
    labels, inertia = k_means(np.square(np.subtract.outer(place, place)), np.eye(3)[None, [0, 0, 1, 2]])
    assert labels.tolist() == [[0, 2, 1, 2]]
    assert inertia == pytest.approx([0.5])


def test_clusters_by_hand():
    # Two directions, two updates each: {0, 2} and {1, 3}. Silhouette: a = 0.1, b = distance to the others.
    updates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.1, 0.0], [0.0, 1.1]])
    found = cluster(gram(updates), seed=0)
    assert found.clusters == 2
    assert found.labels[0] == found.labels[2] != found.labels[1] == found.labels[3]
    # b of (1, 0) is the mean of sqrt(2) and sqrt(2.21); of (1.1, 0) that of sqrt(2.21) and sqrt(2.42).
    near, far = (2**0.5 + 2.21**0.5) / 2, (2.21**0.5 + 2.42**0.5) / 2
    assert found.silhouette == pytest.approx(((near - 0.1) / near + (far - 0.1) / far) / 2, abs=1e-6)


def test_the_best_silhouette_over_all_counts_wins():
    updates = torch.randn(9, 50, generator=torch.Generator().manual_seed(3))
    updates[:4] += 2
    updates[4:6, :25] -= 5
    updates[6:, 25:] -= 5
    found = cluster(gram(updates), seed=7, restarts=10)
    scores = {}
    for count in range(2, 9):
        labels = KMeans(count, n_init=10, random_state=7).fit_predict(updates.double().numpy())
        scores[count] = silhouette_score(updates.double().numpy(), labels)
    assert found.clusters == max(scores, key=scores.get) == 3
    assert found.silhouette == pytest.approx(scores[3])
    assert sorted(np.bincount(found.labels).tolist()) == [2, 3, 4]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_equal_updates_are_one_cluster(count):
    row = torch.randn(1, 333, generator=torch.Generator().manual_seed(0))
    assert cluster(gram(row.repeat(count, 1)), seed=0) == (pytest.approx(np.zeros(count)), 1, None)
    assert cluster(np.zeros((count, count)), seed=0).clusters == 1


def test_two_updates_are_one_cluster():
    assert cluster(gram(torch.eye(2)), seed=0).clusters == 1


def test_duplicates_ask_for_no_more_clusters_than_there_are_points(recwarn):
    updates = torch.randn(2, 5000, generator=torch.Generator().manual_seed(0)).repeat_interleave(3, dim=0)
    found = cluster(gram(updates), seed=0)
    assert (found.clusters, found.silhouette) == (2, pytest.approx(1.0, abs=1e-6))
    assert not [warning for warning in recwarn if "distinct" in str(warning.message)]


def test_the_opposite_has_the_smallest_cosine():
    # Cosines: 0-1 0.8, 0-2 -0.6, 0-3 -1, 1-2 0, 1-3 -0.8, 2-3 0.6. Lengths play no part.
    updates = torch.tensor([[1.0, 0.0], [8.0, 6.0], [-6.0, 8.0], [-0.01, 0.0]])
    assert most_dissimilar(gram(updates)).tolist() == [3, 3, 0, 0]


def test_an_update_of_zeros_is_nobodys_opposite():
    assert most_dissimilar(gram(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))).tolist() == [1, 0, 0]
    assert most_dissimilar(gram(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))).tolist() == [-1, 0]
    assert most_dissimilar(gram(torch.ones(1, 3))).tolist() == [-1]
    assert most_dissimilar(gram(torch.zeros(2, 3))).tolist() == [-1, -1]


def planted(groups: int, size: int, noise: float, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    draw = np.random.default_rng(seed)
    owners = draw.permutation(np.repeat(np.arange(groups), size))
    rows = 5.0 * draw.normal(size=(groups, 40))[owners] + noise * draw.normal(size=(len(owners), 40))
    return torch.from_numpy(rows).float(), owners


def test_silhouettes_of_a_hierarchy():
    from scipy.cluster.hierarchy import fcluster, ward
    from scipy.spatial.distance import pdist, squareform

    updates, _ = planted(5, 6, 2.0)
    condensed = pdist(updates.double().numpy())
    tree = ward(condensed)
    merges = tree[:, :2].astype(np.int64)
    scores = hierarchy_silhouettes(squareform(condensed), merges)
    assert np.isinf(scores[:2]).all()
    for count in range(2, 30):
        labels = cut(merges, count)
        same = fcluster(tree, count, "maxclust")
        assert len(set(zip(labels.tolist(), same.tolist(), strict=True))) == count
        wanted = silhouette_score(squareform(condensed), labels, metric="precomputed")
        assert scores[count] == pytest.approx(wanted)


def test_with_many_updates_a_hierarchy_says_which_numbers_are_worth_trying(monkeypatch):
    updates, owners = planted(7, 12, 1.0)
    found = cluster(gram(updates), seed=0)
    assert found.clusters == 7
    assert len(set(zip(found.labels.tolist(), owners.tolist(), strict=True))) == 7
    monkeypatch.setattr(fairfgl_clusters, "ALL_NUMBERS", 84)
    assert found.silhouette == pytest.approx(cluster(gram(updates), seed=0).silhouette)


def test_many_updates_of_two_kinds():
    updates = torch.eye(2).repeat(40, 1)
    found = cluster(gram(updates), seed=0)
    assert (found.clusters, found.silhouette) == (2, pytest.approx(1.0, abs=1e-6))
