"""How nodes of two graphs go with each other: by their features, and by who is linked to whom."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

_CONVERGED = 1e-3
"""Where the slope promises to lower the value by a smaller share, the search ends."""


def couple(
    cost: NDArray[np.float64], links: sp.csr_matrix, others: sp.csr_matrix, *, alpha: float, steps: int
) -> NDArray[np.float64]:
    """The coupling of a fused Gromov-Wasserstein distance, [n, n] float64 with rows and columns that add up to 1/n.

    It lowers (1 − α) Σ_ij M_ij Π_ij + α Σ_ijkl (A_ik − B_jl)² Π_ij Π_kl by conditional gradients, from the plan in
    which all go with all alike: each step goes towards the permutation that the gradient points to, as far as is best.
    The value is not convex in Π, so that what is found may be a local minimum. A step takes O(n³) at most.

    Args:
        cost: [n, n] M, between node i of the one graph and node j of the other.
        links: [n, n] A of the one graph, symmetric.
        others: [n, n] B of the other, symmetric.
        alpha: α, from 0 to 1; with 0 the coupling is a best assignment.
        steps: At most so many.

    Source: Vayer, Chapel, Flamary, Tavenard, Courty. "Optimal Transport for Structured Data with Application on
    Graphs". ICML 2019, with uniform weights and squared differences.
    """
    count = len(cost)
    apart = (1 - alpha) * cost
    # With both marginals 1/n the squares A² and B² add a constant, which no step changes.
    least = alpha * float(links.multiply(links).sum() + others.multiply(others).sum()) / count**2
    plan = np.full((count, count), 1.0 / count**2)
    product = _between(links, plan, others)
    for _ in range(steps):
        slope = apart - 4 * alpha * product
        rows, columns = linear_sum_assignment(slope)
        way = -plan
        way[rows, columns] += 1.0 / count
        falls = float((slope * way).sum())
        value = least + float(((apart - 2 * alpha * product) * plan).sum())
        if falls >= -_CONVERGED * max(value, 1e-12):
            break
        moved = _between(links, way, others)
        bend = -2 * alpha * float((moved * way).sum())
        size = 1.0 if bend <= 0 else min(1.0, -falls / (2 * bend))
        plan += size * way
        product += size * moved
    return plan


def _between(links: sp.csr_matrix, plan: NDArray[np.float64], others: sp.csr_matrix) -> NDArray[np.float64]:
    """A Π B."""
    return np.asarray((others @ (links @ plan).T).T)
