"""Secure sums: the coordinator learns the sum of the clients' answers, and of no answer more than its shape.

The protocol is that of Bonawitz et al. (2017) with its consistency check, over a k-regular graph of peers
(Bell et al. 2020) where there are many clients. The order is: train first, then mask. A client has its answer
before the four short exchanges begin, so that hardly anybody drops out between them.

- ``fixed``: numbers as integers modulo 2^64, so that a sum does not depend on its order
- ``shamir``: a secret in shares, of which some are enough
- ``masks``: keys and the masks that are made of them
- ``peers``: who masks with whom, and how many must come
- ``messages``: what is sent
- ``party``, ``coordinator``: what a client and the coordinator do, without input or output
- ``opened``: what a client has opened before, so that it never opens the same answer in two different sums
"""

MIN_PARTIES = 3
"""Of two clients each would know the other's answer from the sum."""
CALL = "secure call "
"""Before the name of a step of a method: its answer is kept for a sum."""
AGAIN, SHARE, MASK, CONFIRM, OPEN = (f"secure {step}" for step in ("again", "share", "mask", "confirm", "open"))
STEPS = frozenset({AGAIN, SHARE, MASK, CONFIRM, OPEN})
