"""Updates of FairFGL: what is kept, how it is coded, and how updates are compared. Numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from graphsilo.errors import MessageError
from graphsilo.methods.fairfgl import clusters as fairfgl_clusters
from graphsilo.methods.fairfgl.clusters import cluster, cut, hierarchy_silhouettes, points_of
from graphsilo.methods.fairfgl.updates import (
    SparseUpdate,
    expand,
    gram,
    keep_largest,
    most_dissimilar,
)


def change(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def test_the_largest_are_kept_with_their_signs():
    # Sizes 1, 4, 2, 3: the median lies between 2 and 3, so -4 and 3 stay.
    kept = keep_largest(change(1, -4, 2, 3), 0.5)
    assert kept.values.tolist() == [-4, 3]
    assert expand(kept, 4).tolist() == [0, -4, 0, 3]


def test_at_the_quantile_counts_as_above():
    # Five sizes, share 0.5: the quantile is the third largest, 2, and it has an equal.
    assert expand(keep_largest(change(1, 2, -2, 5, 7), 0.5), 5).tolist() == [0, 2, -2, 5, 7]


@pytest.mark.parametrize("share", [0.2, 0.25, 0.3, 0.5, 0.6, 0.75, 1.0])
@pytest.mark.parametrize("total", [1, 2, 5, 10, 101, 4096])
def test_against_numpys_quantile(share, total):
    values = np.random.default_rng(total).standard_normal(total).astype(np.float32)
    mask = np.abs(values) >= np.quantile(np.abs(values.astype(np.float64)), 1 - share)
    got = expand(keep_largest(torch.from_numpy(values), share), total).numpy()
    np.testing.assert_array_equal(got, np.where(mask, values, 0))


def test_zeros_are_not_changes():
    kept = keep_largest(change(0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0), 1.0)
    assert kept.values.tolist() == [5]
    assert len(keep_largest(torch.zeros(100), 0.5).values) == 0
    assert expand(keep_largest(torch.zeros(100), 0.5), 100).count_nonzero() == 0


@pytest.mark.parametrize(
    ("total", "kept", "form", "size"),
    [
        # Pairs 8 m, bitmap 4 m + P/8, dense 4 P; the bitmap wins for P/32 < m < 31/32 P.
        (3200, 50, "positions", 400),
        (3200, 100, "bitmap", 800),  # a tie with pairs
        (3200, 1600, "bitmap", 6800),  # pairs at one half are as long as all of them
        (3200, 3099, "bitmap", 12796),
        (3200, 3100, "dense", 12800),  # a tie with the bitmap
        (3200, 3200, "dense", 12800),
        (1, 1, "dense", 4),
    ],
)
def test_the_shortest_coding_is_taken(total, kept, form, size):
    values = torch.zeros(total)
    values[torch.randperm(total, generator=torch.Generator().manual_seed(0))[:kept]] = 1.5
    update = keep_largest(values, 1.0)
    found = "positions" if update.positions is not None else "bitmap" if update.bitmap is not None else "dense"
    assert (found, update.num_bytes) == (form, size)
    assert torch.equal(expand(update, total), values)


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 300), st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.integers(0, 99))
def test_what_is_kept_comes_back(total, share, zeros, seed):
    draw = np.random.default_rng(seed)
    values = (np.round(draw.standard_normal(total), 1) * (draw.random(total) >= zeros)).astype(np.float32)
    update = keep_largest(torch.from_numpy(values), share)
    back = expand(update, total).numpy()
    threshold = np.sort(np.abs(values))[total - (int(share * (total - 1) + 1e-9) + 1)]
    np.testing.assert_array_equal(back, np.where(np.abs(values) >= threshold, values, 0))
    count = np.count_nonzero(back)
    assert update.num_bytes == min(8 * count, 4 * count + (total + 7) // 8, 4 * total)


@pytest.mark.parametrize(
    ("update", "match"),
    [
        (SparseUpdate(torch.ones(3)), "5 values"),
        (SparseUpdate(torch.ones(2), bitmap=torch.tensor([1, 0], dtype=torch.uint8)), "bytes of bitmap"),
        (SparseUpdate(torch.ones(2), bitmap=torch.tensor([1], dtype=torch.uint8)), "1 values"),
        (SparseUpdate(torch.ones(1), bitmap=torch.tensor([32], dtype=torch.uint8)), "entry 5"),
        (SparseUpdate(torch.ones(1), positions=torch.tensor([5], dtype=torch.int32)), "entry 5"),
        (SparseUpdate(torch.ones(2), positions=torch.tensor([3, 3], dtype=torch.int32)), "ascend"),
        (SparseUpdate(torch.ones(1), positions=torch.tensor([-1], dtype=torch.int32)), "ascend"),
        (SparseUpdate(torch.ones(2), positions=torch.tensor([3], dtype=torch.int32)), "1 values"),
        (SparseUpdate(torch.ones(5).double()), "float32"),
    ],
)
def test_malformed_updates_are_refused(update, match):
    with pytest.raises(MessageError, match=match):
        expand(update, 5)


def test_points_have_the_updates_distances():
    updates = torch.randn(6, 200_000, generator=torch.Generator().manual_seed(0))
    products = gram(updates)
    np.testing.assert_allclose(products, updates.double().numpy() @ updates.double().numpy().T, rtol=1e-12)
    points = points_of(products)
    assert points.shape == (6, 6)
    np.testing.assert_allclose(points @ points.T, products, atol=1e-9 * products.max())


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
