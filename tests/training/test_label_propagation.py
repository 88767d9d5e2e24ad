"""Label propagation and class homophily, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.training.label_propagation import (
    class_homophily,
    normalise_rows,
    one_hot_rows,
    propagate_labels,
    propagation_matrix,
)


def adjacency(pairs, n, loops=()):
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    both = np.concatenate([ends, ends[::-1], np.array([loops, loops], dtype=np.int64).reshape(2, -1)], axis=1)
    return sp.csr_matrix((np.ones(both.shape[1], dtype=np.float32), both), shape=(n, n))


PATH = adjacency([(0, 1), (1, 2)], 4)  # 0 - 1 - 2, and 3 alone
LABELS = np.array([0, 1, 1, 0])


def test_two_steps_by_hand():
    # S[0,1] = 1/√2. F⁰ = e0 in row 0. After one step: row 0 (1−α), row 1 α/√2; after two: row 0 α²/2 + (1−α),
    # row 1 α (1−α)/√2, row 2 α²/2.
    seeds, alpha = np.array([0]), 0.9
    start = one_hot_rows(LABELS, seeds, 2)
    found = propagate_labels(PATH, start, seed_rows=seeds, steps=2, alpha=alpha)
    assert found[:, 1].tolist() == [0, 0, 0, 0]
    assert found[:, 0] == pytest.approx([0.81 / 2 + 0.1, 0.09 / np.sqrt(2), 0.81 / 2, 0.0])


def test_without_steps_or_neighbours_the_seeds_stay():
    seeds = np.array([0, 2])
    start = one_hot_rows(LABELS, seeds, 2)
    for steps, alpha in ((0, 0.9), (7, 0.0)):
        found = propagate_labels(PATH, start, seed_rows=seeds, steps=steps, alpha=alpha)
        assert found.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]


def test_self_loops_and_their_degrees():
    # D̃ = (2, 3, 2, 1): after one step row 0 keeps 0.5/2 + 0.5, row 1 gets 0.5/√6, the isolated node nothing.
    seeds = np.array([0])
    found = propagate_labels(PATH, one_hot_rows(LABELS, seeds, 2), seed_rows=seeds, steps=1, alpha=0.5, self_loops=True)
    assert found[:, 0] == pytest.approx([0.75, 0.5 / np.sqrt(6), 0, 0])
    assert propagation_matrix(adjacency([(0, 1)], 2, loops=[0])).toarray().tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_labels_that_are_added_back_grow():
    # α 0.5 with A + I on an isolated labelled node: H ← 0.5 H + 0.5 + 1 = 2 after one step, 2.5 after two.
    seeds = np.array([3])
    start = np.where(one_hot_rows(LABELS, seeds, 2).any(axis=1, keepdims=True), [1.0, 0.0], 0.5)
    options = {"alpha": 0.5, "self_loops": True, "rest": "keep", "clamp": False, "add_back": True}
    for steps, value in ((1, 2.0), (2, 2.5)):
        found = propagate_labels(PATH, start, seed_rows=seeds, steps=steps, **options)
        assert found[3].tolist() == [value, 0.0]
    assert propagate_labels(PATH, start, seed_rows=seeds, steps=1, **{**options, "clamp": True})[3, 0] == 1.0


def test_rows_outside_the_seeds_are_not_read():
    seeds = np.array([0])
    shuffled = LABELS.copy()
    shuffled[1:] = LABELS[1:][::-1]
    assert (one_hot_rows(LABELS, seeds, 2) == one_hot_rows(shuffled, seeds, 2)).all()
    dirty = one_hot_rows(LABELS, seeds, 2)
    dirty[1:] = 9.0
    clean = propagate_labels(PATH, one_hot_rows(LABELS, seeds, 2), seed_rows=seeds, steps=3, alpha=0.9)
    assert (propagate_labels(PATH, dirty, seed_rows=seeds, steps=3, alpha=0.9) == clean).all()


def random_graph(n=12, seed=0):
    draw = np.random.default_rng(seed)
    pairs = np.array([(i, (i + 1) % n) for i in range(n)] + draw.integers(n, size=(n, 2)).tolist())
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return adjacency(pairs, n), draw


def test_the_limit_solves_the_linear_system():
    matrix, draw = random_graph()
    labels = draw.integers(3, size=12)
    seeds = np.array([0, 4, 7])
    start = one_hot_rows(labels, seeds, 3)
    found = propagate_labels(matrix, start, seed_rows=seeds, steps=400, alpha=0.9, clamp=False)
    exact = np.linalg.solve(np.eye(12) - 0.9 * propagation_matrix(matrix).toarray(), 0.1 * start)
    assert found == pytest.approx(exact, abs=1e-12)
    # α → 1 on a connected graph: proportional to √degree.
    slow = propagate_labels(matrix, start, seed_rows=seeds, steps=20000, alpha=0.9999, clamp=False)[:, labels[0]]
    ratio = slow / np.sqrt(np.diff(matrix.indptr))
    assert ratio == pytest.approx(np.full(12, ratio.mean()), rel=2e-2)


def test_numbering_of_nodes_does_not_matter():
    matrix, draw = random_graph()
    labels = draw.integers(3, size=12)
    order = draw.permutation(12)
    seeds = np.array([1, 5, 9])
    plain = propagate_labels(matrix, one_hot_rows(labels, seeds, 3), seed_rows=seeds, steps=3, alpha=0.9)
    moved = matrix[order][:, order].tocsr()
    places = np.argsort(order)[seeds]
    again = propagate_labels(moved, one_hot_rows(labels[order], places, 3), seed_rows=places, steps=3, alpha=0.9)
    assert again == pytest.approx(plain[order], abs=1e-15)


def test_rows_are_normalised_and_empty_ones_uniform():
    assert normalise_rows(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_unlabelled_rows_are_left_out():
    assert one_hot_rows(np.array([-1, 1]), np.array([0, 1]), 2).tolist() == [[0, 0], [0, 1]]


def test_homophily_by_hand():
    # Star around 0 (class 0) with leaves 1 (0), 2 (1), 3 (unlabelled), and 4 (class 1) alone.
    star = adjacency([(0, 1), (0, 2), (0, 3)], 5, loops=[0, 4])
    labels = np.array([0, 0, 1, 1, 1])
    # h(0) = 1/2 (node 3 does not count), h(1) = 1, h(2) = 0, h(4) = 0.
    assert class_homophily(star, labels, np.array([0, 1, 2, 4]), 3).tolist() == [1.5, 0.0, 0.0]
    # Unlabelled nodes and other labels outside the rows are not read.
    labels[3] = 0
    assert class_homophily(star, labels, np.array([0, 1, 2, 4]), 3).tolist() == [1.5, 0.0, 0.0]
    assert class_homophily(star, labels, np.zeros(0, dtype=np.int64), 3).tolist() == [0, 0, 0]
