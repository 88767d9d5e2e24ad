"""Who masks with whom: thresholds, and that nobody can be cut off."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.federation.secure.peers import Peers, confirmations, count_colluding, count_honest


@pytest.mark.parametrize(
    ("parties", "needed"), [(2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (9, 7), (10, 7), (12, 9), (100, 67)]
)
def test_confirmations(parties, needed):
    assert confirmations(parties) == needed


@given(st.integers(3, 3000))
def test_two_lists_cannot_both_be_confirmed(parties):
    # Two sets of t share 2t - n clients; more than can lie.
    assert 2 * confirmations(parties) - parties > count_colluding(parties)
    assert count_colluding(parties) < parties / 3


@given(st.integers(3, 3000))
def test_shares_are_too_few_for_those_who_collude_and_enough_for_the_rest(parties):
    peers = Peers.of(parties)
    assert peers.threshold > count_colluding(parties)
    missing = parties - peers.least
    assert peers.degree + 1 - missing >= peers.threshold
    assert missing == (parties - confirmations(parties) if peers.degree == parties - 1 else parties // 10)


@pytest.mark.parametrize(
    ("parties", "sure"), [(3, 2), (4, 2), (5, 3), (6, 4), (7, 3), (8, 4), (9, 5), (10, 4), (12, 6), (32, 12), (100, 57)]
)
def test_honest_clients_that_every_sum_is_sure_of(parties, sure):
    # Of 10: 7 are in the sum at least and 3 may collude. Of 3 and 4 one may be looking. Of 100: 90 and 33.
    assert count_honest(parties) == sure


@given(st.integers(3, 3000))
def test_somebody_honest_is_in_every_sum(parties):
    assert 2 <= count_honest(parties) <= Peers.of(parties).least - count_colluding(parties)


def test_degrees():
    # ceil(n / 3) - 1 + floor(n / 10) + 1, rounded up to an even number
    assert [Peers.of(parties).degree for parties in (3, 32, 33, 50, 64, 100, 200, 1000)] == [
        2, 31, 14, 22, 28, 44, 88, 434,
    ]  # fmt: skip


@given(st.integers(33, 400), st.data())
def test_peers_are_mutual_and_as_many_as_said(parties, data):
    peers = Peers.of(parties)
    place = data.draw(st.integers(0, parties - 1))
    mine = peers.of_place(place)
    assert len(set(mine)) == peers.degree
    assert place not in mine
    assert all(place in peers.of_place(other) for other in mine)


def together(peers: Peers, left: set[int]) -> bool:
    """Whether those who are left hang together."""
    reached, todo = set(), [min(left)]
    while todo:
        place = todo.pop()
        if place not in reached:
            reached.add(place)
            todo += left.intersection(peers.of_place(place)) - reached
    return reached == left


@pytest.mark.parametrize("parties", [10, 13])
def test_nobody_can_be_cut_off_whoever_colludes_and_is_missing(parties):
    peers = Peers.of(parties, all_peers=3)  # the sparse graph of few, so that all sets can be tried
    assert peers.degree < parties - 1
    gone = count_colluding(parties) + parties // 10
    for chosen in itertools.combinations(range(parties), gone):
        left = set(range(parties)) - set(chosen)
        assert together(peers, left)
    # With k of them in two rows of k / 2 it would be otherwise: the bound is sharp.
    half = peers.degree // 2
    rows = {*range(half), *range(half + 2, 2 * half + 2)}
    assert not together(peers, set(range(parties)) - rows)


@settings(deadline=None)
@given(st.integers(33, 120), st.data())
def test_nobody_can_be_cut_off_among_many(parties, data):
    peers = Peers.of(parties)
    gone = count_colluding(parties) + parties // 10
    start, gap = data.draw(st.integers(0, parties - 1)), data.draw(st.integers(1, parties))
    first = data.draw(st.integers(0, gone))
    chosen = {(start + step) % parties for step in range(first)}
    chosen |= {(start + first + gap + step) % parties for step in range(gone - first)}
    assert together(peers, set(range(parties)) - chosen)
    anybody = set(data.draw(st.permutations(range(parties)))[:gone])
    assert together(peers, set(range(parties)) - anybody)
