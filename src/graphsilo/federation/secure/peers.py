"""Who masks with whom, and how many must come.

Up to 32 clients mask with everybody. Of more, each masks with k others: its neighbours on a circle of all (a Harary
graph, as in Bell et al. 2020). There k grows with log n and secrecy fails with a small probability, for corrupt clients
that are a random part and a coordinator that does not choose who drops out. Here k is as large as it takes for
certainty, since we have hundreds of clients and not millions. With n clients, of whom c = ceil(n / 3) - 1 may collude
with the coordinator and d = floor(n / 10) may be missing:

- k is the even number from c + d + 1 on, and shares have the threshold c + 1
- those who collude are c among a client's k peers at most: one share too few, whoever they are
- of a client's peers at least k - d >= c + 1 are there: enough
- to divide a circle on which everybody has k / 2 peers to each side, k / 2 in a row must be gone at two places: k of
  them, but c + d < k collude or are missing. So the honest ones hang together by masks that nobody else knows, whoever
  drops out, even if the coordinator chooses that

Of everybody t = floor(2n / 3) + 1 must confirm who came, so that no two lists are confirmed: two such sets have more
than n / 3 clients in common, of which one is honest and confirms a single list.
"""

from __future__ import annotations

from dataclasses import dataclass

ALL_PEERS = 32
"""Most clients that all mask with each other."""


def confirmations(parties: int) -> int:
    """t: how many must confirm who came."""
    return max(2, 2 * parties // 3 + 1)


def count_colluding(parties: int) -> int:
    """c: how many clients may collude with the coordinator; fewer than a third."""
    return -(-parties // 3) - 1


def count_honest(parties: int) -> int:
    """How many clients that do not collude are in every opened sum of so many, whoever drops out.

    A client that looks at the sum knows what itself has added, so one counts as colluding in any case.

    Example:
        >>> [count_honest(parties) for parties in (3, 5, 10, 100)]  # of 10, 7 are in the sum and 3 may collude
        [2, 3, 4, 57]
    """
    return Peers.of(parties).least - max(1, count_colluding(parties))


@dataclass(frozen=True)
class Peers:
    """Clients by place, 0 to n - 1.

    Attributes:
        parties: n.
        degree: How many each masks with.
        threshold: Shares that give back a secret; holders are a client's peers and the client.
        least: Fewest clients that a sum is opened of.
    """

    parties: int
    degree: int
    threshold: int
    least: int

    @classmethod
    def of(cls, parties: int, *, all_peers: int = ALL_PEERS) -> Peers:
        """For so many clients.

        Args:
            parties: n.
            all_peers: Most clients that all mask with each other.

        Example:
            >>> Peers.of(10)
            Peers(parties=10, degree=9, threshold=7, least=7)
            >>> Peers.of(100)
            Peers(parties=100, degree=44, threshold=34, least=90)
        """
        needed, missing, bad = confirmations(parties), parties // 10, count_colluding(parties)
        degree = bad + missing + 1
        degree += degree % 2
        if parties <= all_peers or degree >= parties - 1:
            return cls(parties, parties - 1, needed, needed)
        return cls(parties, degree, bad + 1, max(needed, parties - missing))

    def of_place(self, place: int) -> tuple[int, ...]:
        """The peers of a client, ascending."""
        if self.degree == self.parties - 1:
            return tuple(other for other in range(self.parties) if other != place)
        half = self.degree // 2
        steps = (*range(-half, 0), *range(1, half + 1))
        return tuple(sorted((place + step) % self.parties for step in steps))
