from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.data.partition.pairs import PairKind, PairSpace, sample_unlinked
from graphsilo.errors import PartitionError

NONE = np.zeros((2, 0), dtype=np.int64)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("any", {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}),
        ("same", {(0, 2), (0, 3), (2, 3)}),
        ("different", {(0, 1), (1, 2), (1, 3)}),
    ],
)
def test_every_ordered_pair_has_one_number(kind: PairKind, wanted: set[tuple[int, int]]) -> None:
    space = PairSpace(4, kind, np.array([5, 2, 5, 5]))
    pairs = space.pairs(np.arange(space.ordered)).T.tolist()
    assert sorted(map(tuple, pairs)) == sorted(wanted | {(b, a) for a, b in wanted})
    assert space.contains(np.array(pairs).T).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 12),
    labels=st.lists(st.integers(0, 2), min_size=8, max_size=20),
    kind=st.sampled_from(["any", "same", "different"]),
)
def test_drawn_pairs_are_new_distinct_and_of_the_kind(seed: int, count: int, labels: list[int], kind: PairKind) -> None:
    n = len(labels)
    generator = np.random.default_rng(seed)
    links = generator.integers(n, size=(2, n))
    space = PairSpace(n, kind, np.array(labels))
    found = sample_unlinked(space, links, count, generator, at_most=True)
    pairs = set(map(tuple, found.T.tolist()))
    assert len(pairs) == found.shape[1] <= count
    assert all(low < high for low, high in pairs)
    assert not pairs & {(min(a, b), max(a, b)) for a, b in links.T.tolist()}
    assert space.contains(found).all()


def test_all_free_pairs_can_be_asked_for() -> None:
    links = np.array([[0, 1], [1, 2]])
    found = sample_unlinked(PairSpace(4), links, 4, np.random.default_rng(0))
    assert sorted(map(tuple, found.T.tolist())) == [(0, 2), (0, 3), (1, 3), (2, 3)]


def test_draws_are_uniform() -> None:
    generator = np.random.default_rng(0)
    drawn = np.concatenate([sample_unlinked(PairSpace(5), NONE, 2, generator) for _ in range(2000)], axis=1)
    counts = np.bincount(drawn[0] * 5 + drawn[1], minlength=25)
    # 4000 draws over 10 pairs: 400 each, standard deviation below 20.
    assert (np.abs(counts[counts > 0] - 400) < 80).all()
    assert (counts > 0).sum() == 10


def test_asking_for_more_than_there_are_is_refused() -> None:
    with pytest.raises(PartitionError, match="7 unlinked node pairs were wanted, but 4 nodes leave only 6"):
        sample_unlinked(PairSpace(4), NONE, 7, np.random.default_rng(0))
