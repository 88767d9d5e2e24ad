"""Updates of FairFGL: what is kept, how it is coded, and how updates are compared. Numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.errors import MessageError
from graphsilo.methods.fairfgl.updates import (
    SparseUpdate,
    expand,
    keep_largest,
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
