"""Shares of a secret, by hand and by property."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsilo.federation.secure import shamir


def secret_of(number: int) -> bytes:
    return number.to_bytes(32)


def test_shares_by_hand():
    # 1234 + 166 x + 94 x^2 at 1 to 6: 1494, 1942, 2578, 3402, 4414, 5614 (the example of Wikipedia's article)
    drawn = iter([166, 94])
    shares = shamir.split(secret_of(1234), range(1, 7), 3, draw=lambda below: next(drawn))
    assert [int.from_bytes(share) for share in shares.values()] == [1494, 1942, 2578, 3402, 4414, 5614]
    # through (2, 1942), (4, 3402), (5, 4414) at 0: 1942 · 20/6 - 3402 · 10/2 + 4414 · 8/3 = 1234
    assert shamir.join({place: shares[place] for place in (2, 4, 5)}) == secret_of(1234)


def test_weights_by_hand():
    # at 1, 2, 3: 2·3/((2-1)(3-1)) = 3, 1·3/((1-2)(3-2)) = -3, 1·2/((1-3)(2-3)) = 1
    assert shamir.weights([1, 2, 3]) == {1: 3, 2: shamir.PRIME - 3, 3: 1}


@settings(deadline=None, max_examples=30)
@given(secret=st.binary(min_size=32, max_size=32), count=st.integers(1, 8), data=st.data())
def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not(secret, count, data):
    threshold = data.draw(st.integers(1, count))
    shares = shamir.split(secret, range(1, count + 1), threshold)
    for chosen in itertools.combinations(shares, threshold):
        assert shamir.join({place: shares[place] for place in chosen}) == secret
    for chosen in itertools.combinations(shares, threshold - 1):
        if chosen:
            assert shamir.join({place: shares[place] for place in chosen}) != secret


def test_fewer_shares_fit_every_secret():
    # Through one share of two, a line goes to any secret: (1, 19) and (0, s) for each s.
    share = shamir.split(secret_of(5), [1, 2], 2, draw=lambda below: 14)[1]
    for other in (0, 5, 7, 2**256 - 1):
        missing = (2 * int.from_bytes(share) - other) % shamir.PRIME
        assert shamir.join({1: share, 2: missing.to_bytes(shamir.SHARE_BYTES)}) == secret_of(other)


def test_a_wrong_share_gives_no_secret():
    shares = shamir.split(secret_of(5), [1, 2, 3], 2)
    shares[2] = bytes(shamir.SHARE_BYTES)
    assert shamir.join({1: shares[1], 2: shares[2]}) != secret_of(5)


def test_shares_that_cannot_be_made():
    for places, threshold in (([1, 2], 3), ([1, 1], 2), ([0, 1], 2), ([1, 2], 0)):
        with pytest.raises(ValueError, match="cannot be made"):
            shamir.split(secret_of(1), places, threshold)
    with pytest.raises(ValueError, match="32 bytes"):
        shamir.split(b"short", [1, 2], 2)
