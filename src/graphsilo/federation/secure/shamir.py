"""A secret in shares: any ``threshold`` of them give it back, fewer say nothing (Shamir, 1979).

Shares are values of a random polynomial over the integers modulo the prime 2^521 - 1, whose value at 0 is the secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

PRIME = 2**521 - 1
SHARE_BYTES = 66
SECRET_BYTES = 32


def split(
    secret: bytes, places: Sequence[int], threshold: int, draw: Callable[[int], int] = secrets.randbelow
) -> dict[int, bytes]:
    """Shares of a secret.

    Args:
        secret: [32] bytes.
        places: At which the polynomial is taken: distinct and above 0.
        threshold: How many shares give the secret back.
        draw: Gives a random number below another; from the operating system, but for tests.

    Example:
        >>> shares = split(bytes(31) + b"\\x05", [1, 2, 3], 2, draw=lambda below: 7)  # 5 + 7 x
        >>> [int.from_bytes(share) for share in shares.values()]
        [12, 19, 26]
    """
    if not 1 <= threshold <= len(places) or len(set(places)) < len(places) or min(places) < 1:
        raise ValueError(f"{threshold} of {len(places)} shares at {list(places)[:9]} cannot be made.")
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes; {len(secret)} came.")
    coefficients = [int.from_bytes(secret), *(draw(PRIME) for _ in range(threshold - 1))]
    shares = {}
    for place in places:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        shares[place] = value.to_bytes(SHARE_BYTES)
    return shares


def weights(places: Sequence[int]) -> dict[int, int]:
    """What each share counts in the secret, by its place; the same for all secrets with shares at these places.

    Example:
        >>> weights([1, 2])[1]  # 2 / (2 - 1)
        2
    """
    found = {}
    for place in places:
        above = below = 1
        for other in places:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        found[place] = above * pow(below, -1, PRIME) % PRIME
    return found


def join(shares: Mapping[int, bytes], counted: Mapping[int, int] | None = None) -> bytes | None:
    """The secret of which these are as many shares as it takes; None where the numbers are shares of none.

    Args:
        shares: By place.
        counted: ``weights`` of these places, where they are known.
    """
    counted = weights(list(shares)) if counted is None else counted
    total = sum(int.from_bytes(share) * counted[place] for place, share in shares.items()) % PRIME
    return None if total >> (8 * SECRET_BYTES) else total.to_bytes(SECRET_BYTES)
