"""Couplings of two graphs, worked out by hand and held against the definition of what they lower."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.training.transport import couple


def graph_of(nodes, *pairs):
    matrix = np.zeros((nodes, nodes))
    for one, other in pairs:
        matrix[one, other] = matrix[other, one] = 1.0
    return sp.csr_matrix(matrix)


def drawn(nodes=7, seed=0):
    draw = np.random.default_rng(seed)
    matrix = np.triu(draw.random((nodes, nodes)) < 0.4, 1)
    return sp.csr_matrix((matrix | matrix.T).astype(float)), draw.random((nodes, 3))


def value_of(plan, cost, one, other, alpha):
    """(1 − α) Σ M Π + α Σ (A_ik − B_jl)² Π_ij Π_kl, sum by sum."""
    squares = (one.toarray()[:, None, :, None] - other.toarray()[None, :, None, :]) ** 2
    return (1 - alpha) * (cost * plan).sum() + alpha * np.einsum("ijkl,ij,kl->", squares, plan, plan)


def test_features_alone_are_assigned():
    """Costs 1, 2, 3 on the way 0-2, 1-0, 2-1, and 9 elsewhere."""
    cost = np.full((3, 3), 9.0)
    cost[[0, 1, 2], [2, 0, 1]] = 1.0, 2.0, 3.0
    nothing = graph_of(3)
    plan = couple(cost, nothing, nothing, alpha=0.0, steps=5)
    np.testing.assert_allclose(plan, np.eye(3)[[2, 0, 1]] / 3, atol=1e-12)


def test_links_alone_find_the_centre():
    """A path with its centre at 1 and one with its centre at 0: from 1/9 everywhere the gradient is −4/9 d_i d_j, which
    pairs the nodes with two links; then no link is left over, and the value is 0."""
    one, other, cost = graph_of(3, (0, 1), (1, 2)), graph_of(3, (1, 0), (0, 2)), np.zeros((3, 3))
    plan = couple(cost, one, other, alpha=1.0, steps=5)
    assert plan[1].tolist() == pytest.approx([1 / 3, 0, 0])
    assert value_of(plan, cost, one, other, 1.0) == pytest.approx(0.0, abs=1e-12)


def test_the_first_step_goes_as_far_as_is_best():
    """One link of two nodes against none, costs 0 and 4 on and off the diagonal, α = 1/2: Π goes to the identity, where
    ½ · 0 + ½ · 2 · (½)² · 1 = ¼ is left; with links at both, at Π = ½ I, nothing."""
    cost, link, none = np.array([[0.0, 4.0], [4.0, 0.0]]), graph_of(2, (0, 1)), graph_of(2)
    for other, left in ((none, 0.25), (link, 0.0)):
        plan = couple(cost, link, other, alpha=0.5, steps=5)
        np.testing.assert_allclose(plan, np.eye(2) / 2, atol=1e-12)
        assert value_of(plan, cost, link, other, 0.5) == pytest.approx(left)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_each_step_lowers_the_value_and_keeps_the_marginals(alpha):
    (one, x), (other, y) = drawn(seed=1), drawn(seed=2)
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    values = []
    for steps in range(6):
        plan = couple(cost, one, other, alpha=alpha, steps=steps)
        values.append(value_of(plan, cost, one, other, alpha))
        assert plan.min() >= 0
        np.testing.assert_allclose([*plan.sum(0), *plan.sum(1)], 1 / 7)
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < 0.9 * values[0]
    # No size of the first step is better than the one that it takes.
    start, first = (couple(cost, one, other, alpha=alpha, steps=steps) for steps in (0, 1))
    for plan in (start + size * (first - start) for size in (0.9, 1.1)):
        assert plan.min() < 0 or value_of(plan, cost, one, other, alpha) >= values[1] - 1e-12


def test_a_graph_is_found_again_under_other_numbers():
    one, x = drawn(nodes=12, seed=3)
    order = np.random.default_rng(4).permutation(12)
    other, y = sp.csr_matrix(one.toarray()[np.ix_(order, order)]), x[order]
    plan = couple(((x[:, None] - y[None]) ** 2).sum(2), one, other, alpha=0.5, steps=50)
    np.testing.assert_allclose(plan, np.eye(12)[:, order] / 12, atol=1e-9)
