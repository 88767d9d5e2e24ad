"""Edges from counts on the grid of float32: in order, exact for few numbers, quantiles of many, sums over silos."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.methods.fedtrees.bins import (
    LARGEST,
    cells_to_refine,
    coarse_counts,
    codes_of,
    edges_of,
    fine_counts,
    keys,
)


def found(parts, bins):
    """Edges of the columns of several silos, from sums alone."""
    coarse = sum(coarse_counts(part) for part in parts)
    cells = cells_to_refine(coarse, bins)
    return edges_of(coarse, cells, sum(fine_counts(part, cells) for part in parts), bins)


def column(*values):
    return np.array(values, dtype=np.float32)[:, None]


def test_keys_are_in_the_order_of_numbers():
    values = np.array([-LARGEST, -2.0, -1e-40, -0.0, 0.0, 1e-40, 0.1, 2.0, LARGEST], dtype=np.float32)
    assert (np.diff(keys(values).astype(np.int64)) >= 0).all()
    assert keys(values)[3] == keys(values)[4]
    assert len(set(keys(values).tolist())) == 8


@pytest.mark.parametrize("bins", [4, 16])
def test_few_numbers_have_a_bin_each_with_edges_half_way(bins):
    (edges,) = found([column(0, 0, 1, 1, 1, -4, 0)], bins)
    kept = edges[edges < LARGEST]
    assert kept == pytest.approx([-2, 0.5], rel=0.01)
    assert codes_of(column(-4, -2.5, 0, 0.4, 0.6, 1, 9), edges[None])[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_a_constant_column_and_one_without_rows_have_no_edge():
    assert (found([column(3, 3, 3)], 8) == LARGEST).all()
    assert (found([np.zeros((0, 1), np.float32)], 8) == LARGEST).all()


def test_many_numbers_are_shared_out_evenly():
    draw = np.random.default_rng(0)
    rows = np.stack([draw.standard_normal(4000), np.exp(3 * draw.standard_normal(4000))], axis=1).astype(np.float32)
    edges = found([rows], 16)
    assert (edges < LARGEST).sum(axis=1).tolist() == [15, 15]
    codes = codes_of(rows, edges)
    for place in range(2):
        assert np.bincount(codes[:, place]) == pytest.approx(250, abs=15)


def test_edges_are_functions_of_sums():
    rows = np.random.default_rng(1).standard_normal((500, 3)).astype(np.float32)
    whole = found([rows], 32)
    assert np.array_equal(whole, found([rows[:7], rows[7:300], rows[300:300], rows[300:]], 32))


def test_a_number_equal_to_an_edge_is_above_it():
    edges = np.array([[1.0, 2.0, LARGEST]], dtype=np.float32)
    assert codes_of(column(0.9, 1.0, 2.0, 5.0), edges)[:, 0].tolist() == [0, 1, 2, 2]
