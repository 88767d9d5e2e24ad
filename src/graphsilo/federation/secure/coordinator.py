"""The coordinator of a secure sum: it passes on keys and shares, adds masked answers, and removes the masks of the sum.

What it gets to know are the sum, who takes part, and the names and shapes of answers. It has no secret of its own, and
is not trusted with anything: each client checks what it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Generic, TypeVar

import numpy as np

from graphsilo.errors import FederationError, GraphsiloError, MessageError
from graphsilo.federation.message import Message
from graphsilo.federation.secure import MIN_PARTIES, masks, shamir
from graphsilo.federation.secure.fixed import BLOCK, Layout, Words, decode
from graphsilo.federation.secure.masks import KEY_BYTES, Masks
from graphsilo.federation.secure.messages import (
    ASKED,
    LETTER,
    MARK,
    Came,
    Confirmation,
    Confirmed,
    Letters,
    Masked,
    Offer,
    Opening,
    Post,
    Roster,
    mark,
    raw,
    rows,
)
from graphsilo.federation.secure.party import (
    Directory,
    Purpose,
    check_signature,
    encode_confirmation,
    encode_offer,
    roster_of,
    unlike_weights,
)
from graphsilo.federation.secure.peers import Peers, confirmations
from graphsilo.types import ClientId

Reply = TypeVar("Reply", bound=Message)


class SecureSumFailed(FederationError):
    """A sum that cannot be opened: nothing of it is known."""


class SecureSum(Generic[Reply]):
    """One sum.

    Args:
        kind: Type of the answers.
        purpose: What it is for.
        offers: Of the clients that have an answer.
        directory: Who is who.
        least: With how many answers the run goes on; a sum of fewer is not opened.

    Attributes:
        unlike: Who offers an answer of another shape than most, or keys that are not its own, and why it is left out.
        clients: The others, ascending.
    """

    def __init__(
        self,
        kind: type[Reply],
        purpose: Purpose,
        offers: Mapping[ClientId, Offer],
        directory: Directory,
        least: int = MIN_PARTIES,
    ):
        self.kind, self._directory, self._least = kind, directory, least
        self.unlike: dict[ClientId, str] = {}
        groups: dict[str, list[ClientId]] = {}
        layouts: dict[str, Layout] = {}
        bits: dict[ClientId, int] = {}
        public: dict[ClientId, tuple[bytes, bytes, bytes]] = {}
        # What all others would refuse the roster for is found here, where it is known whose it is.
        for client, offer in sorted(offers.items()):
            try:
                if offer.layout not in layouts:
                    layouts[offer.layout] = Layout.read(kind, offer.layout)
                layout = layouts[offer.layout]
                bits[client] = offer.bits
                key = directory.key_of(client, raw(offer.identity))
                keys = raw(offer.keys)
                signed = encode_offer(purpose, layout.digest, client, offer.bits, raw(offer.asked), keys)
                check_signature(key, raw(offer.signature), signed, client, "the offer")
                fresh = keys[:KEY_BYTES], keys[KEY_BYTES : 2 * KEY_BYTES]
                for point in fresh:
                    masks.check_point(point)
                public[client] = *fresh, key.public_bytes_raw()
            except GraphsiloError as error:
                self.unlike[client] = str(error)
        # Everybody has seen the keys that sign: who offers one as a point of its own is at fault, and not whose it is.
        points = Counter(point for *both, _ in public.values() for point in both)
        signers = Counter(signer for *_, signer in public.values())
        for client, (*both, signer) in public.items():
            if signers[signer] > 1 or any(points[point] + signers[point] > 1 for point in both):
                self.unlike[client] = f"client {client} has a key that is offered twice: one is a copy of the other."
            else:
                groups.setdefault(offers[client].layout, []).append(client)
        ranked = sorted(groups.values(), key=lambda group: -len(group))
        tie = len(ranked) > 1 and len(ranked[0]) == len(ranked[1])
        for group in ranked[0 if tie else 1 :]:
            for client in group:
                self.unlike[client] = (
                    f"client {client}: the names and shapes of its {kind.__name__} are not those of most others. All "
                    f"clients must run the same model and settings to be summed."
                )
        stated = {client: bits[client] for client in ([] if tie or not ranked else ranked[0])}
        while stated and (found := unlike_weights(stated)):
            self.unlike.update(found)
            stated = {client: each for client, each in stated.items() if client not in found}
        self.clients: list[ClientId] = list(stated)
        if not self.clients:
            return
        self._offers = {client: offers[client] for client in self.clients}
        self._keys = {client: raw(offer.keys) for client, offer in self._offers.items()}
        self.layout = layouts[self._offers[self.clients[0]].layout]
        self.peers = Peers.of(len(self.clients))
        self._place = {client: place for place, client in enumerate(self.clients)}
        self.bits = max(stated.values())
        self._roster = roster_of(
            purpose,
            self.layout.digest,
            ((client, offer.bits, raw(offer.keys), raw(offer.identity)) for client, offer in self._offers.items()),
        )
        self._letters: dict[ClientId, dict[ClientId, bytes]] = {}
        self._marks: dict[ClientId, dict[ClientId, bytes]] = {}
        self._total: Words = np.zeros(0, dtype=np.uint64)
        self._came: list[ClientId] = []
        self._signatures: dict[ClientId, bytes] = {}
        self._openings: dict[ClientId, Opening] = {}

    def require(self) -> None:
        """Refuse a sum of too few.

        Raises:
            SecureSumFailed: There are.
        """
        if len(self.clients) < self._least:
            raise SecureSumFailed(
                f"a secure sum needs the answers of {self._say_least(MIN_PARTIES)} clients or more, of the same names "
                f"and shapes; {len(self.clients)} came."
            )

    def peers_of(self, client: ClientId) -> list[ClientId]:
        """Who masks with a client, ascending."""
        return [self.clients[place] for place in self.peers.of_place(self._place[client])]

    # -- keys and shares ----------------------------------------------------------------------------------------------

    def roster(self) -> Roster:
        """For all clients."""
        offers = list(self._offers.values())
        return Roster(
            clients=self.clients,
            bits=[offer.bits for offer in offers],
            asked=rows([raw(offer.asked) for offer in offers], ASKED),
            keys=rows([raw(offer.keys) for offer in offers], 3 * KEY_BYTES),
            signatures=rows([raw(offer.signature) for offer in offers], 64),
            identities=[offer.identity for offer in offers],
        )

    def take_letters(self, client: ClientId, letters: Letters) -> None:
        """Take a client's shares for its peers.

        Raises:
            MessageError: They are for others.
        """
        peers = self.peers_of(client)
        if list(letters.clients) != peers or {len(letters.letters), len(letters.marks)} != {len(peers)}:
            raise MessageError(f"client {client} has sent shares for others than its peers.")
        self._letters[client] = {
            peer: raw(letter) for peer, letter in zip(letters.clients, letters.letters, strict=True)
        }
        marks = zip([*letters.clients, client], [*letters.marks, letters.mine], strict=True)
        self._marks[client] = {holder: raw(marked) for holder, marked in marks}

    def make_posts(self) -> dict[ClientId, Post]:
        """What each client gets of the others' shares.

        Raises:
            SecureSumFailed: Too few have sent theirs.
        """
        present = sorted(self._letters)
        self._require(len(present), "sent their shares")
        found = {}
        for client in present:
            peers = [peer for peer in self.peers_of(client) if peer in self._letters]
            letters = rows([self._letters[peer][client] for peer in peers], LETTER)
            marks = rows([self._marks[peer][client] for peer in peers], 2 * MARK)
            found[client] = Post(present=present, clients=peers, letters=letters, marks=marks)
        self._total = np.zeros(self.layout.words, dtype=np.uint64)
        return found

    # -- the sum ------------------------------------------------------------------------------------------------------

    def add(self, client: ClientId, masked: Masked) -> None:
        """Add a client's masked answer.

        Raises:
            MessageError: It has another length than it offered.
        """
        if masked.words.numel() != 8 * self.layout.words or client in self._came or client not in self._letters:
            raise MessageError(f"client {client} has sent a masked answer of another length than it offered.")
        words = masked.words.contiguous().numpy().view("<u8")
        for start in range(0, len(words), BLOCK):
            block = self._total[start : start + BLOCK]
            np.add(block, words[start : start + BLOCK], out=block)
        self._came.append(client)

    def close_answers(self) -> Came:
        """Whose answers are in the sum; no other comes any more.

        Raises:
            SecureSumFailed: They are too few.
        """
        self._came.sort()
        self._require(len(self._came), "sent their masked answers")
        return Came(clients=self._came)

    def confirm(self, client: ClientId, confirmation: Confirmation) -> None:
        """Take a client's word that it has seen the same list.

        Raises:
            DisclosureError: It is not signed by it.
        """
        key = self._directory.key_of(client, raw(self._offers[client].identity))
        signed = encode_confirmation(self._roster, set(self._letters), set(self._came))
        signature = raw(confirmation.signature)
        check_signature(key, signature, signed, client, "the confirmation")
        self._signatures[client] = signature

    @property
    def confirming(self) -> list[ClientId]:
        """Who has, ascending."""
        return sorted(self._signatures)

    def close_confirmations(self) -> Confirmed:
        """As many of their signatures as it takes.

        Raises:
            SecureSumFailed: Too few have.
        """
        wanted = confirmations(len(self.clients))
        chosen = sorted(self._signatures)[:wanted]
        if len(chosen) < wanted:
            raise SecureSumFailed(
                f"{len(chosen)} of {len(self.clients)} clients confirmed whose answers came; it takes {wanted}."
            )
        return Confirmed(clients=chosen, signatures=rows([self._signatures[client] for client in chosen], 64))

    # -- opening ------------------------------------------------------------------------------------------------------

    def take_opening(self, client: ClientId, opening: Opening) -> None:
        """Take a client's shares.

        Raises:
            MessageError: They are of others, or not those that it was given: the others' may still be enough.
        """
        holds = sorted([*(peer for peer in self.peers_of(client) if peer in self._letters), client])
        counted = set(self._came)
        came, missing = [one for one in holds if one in counted], [one for one in holds if one not in counted]
        found = [*opening.came], len(opening.own), [*opening.missing], len(opening.keys)
        if found != (came, len(came), missing, len(missing)):
            raise MessageError(f"client {client} has opened other shares than those that it holds.")
        halves = zip(opening.missing, opening.keys, strict=True)
        seeds = zip(opening.came, opening.own, strict=True)
        for start, shares in ((0, halves), (MARK, seeds)):
            for other, share in shares:
                if mark(raw(share)) != self._marks[other][client][start : start + MARK]:
                    raise MessageError(
                        f"client {client} has sent a wrong share: it is not the one that client {other} gave it, which "
                        f"it would have refused."
                    )
        self._openings[client] = opening

    def result(self) -> Reply:
        """The sum.

        Raises:
            SecureSumFailed: Too few shares came, or some are not what they should be.
        """
        own: dict[ClientId, dict[int, bytes]] = {}
        keys: dict[ClientId, dict[int, bytes]] = {}
        for holder, opening in self._openings.items():
            place = self._place[holder] + 1
            for client, share in zip(opening.came, opening.own, strict=True):
                own.setdefault(client, {})[place] = raw(share)
            for client, share in zip(opening.missing, opening.keys, strict=True):
                keys.setdefault(client, {})[place] = raw(share)
        counted: dict[tuple[int, ...], dict[int, int]] = {}
        streams: list[tuple[bytes, bool]] = []
        for client in self._came:
            seed = self._secret(client, own.get(client, {}), counted)
            if masks.digest("seed", seed) != self._keys[client][2 * KEY_BYTES :]:
                raise SecureSumFailed(f"client {client} has given out shares of its own mask that do not fit together.")
            streams.append((masks.own_key(seed, self._roster, client), False))
        came = set(self._came)
        for client in sorted(set(self._letters) - came):
            peers = [peer for peer in self.peers_of(client) if peer in came]
            if not peers:
                continue
            private = self._secret(client, keys.get(client, {}), counted)
            if masks.public_key(private) != self._keys[client][:KEY_BYTES]:
                raise SecureSumFailed(f"client {client} has given out shares of its key that do not fit together.")
            for peer in peers:
                key = masks.pair_key(private, self._keys[peer][:KEY_BYTES], self._roster, client, peer)
                streams.append((key, not masks.adds(peer, client)))
        masking = Masks(streams)
        for start in range(0, len(self._total), BLOCK):
            masking.apply(self._total[start : start + BLOCK])
        fields = decode(self.layout, self._total, bits=self.bits, parties=len(self.clients))
        return self.kind(**fields)

    def _secret(
        self, client: ClientId, shares: Mapping[int, bytes], counted: dict[tuple[int, ...], dict[int, int]]
    ) -> bytes:
        wanted = self.peers.threshold
        if len(shares) < wanted:
            raise SecureSumFailed(f"{len(shares)} shares of client {client}'s secret came; it takes {wanted}.")
        chosen = tuple(sorted(shares))[:wanted]
        if chosen not in counted:
            counted[chosen] = shamir.weights(chosen)
        secret = shamir.join({place: shares[place] for place in chosen}, counted[chosen])
        if secret is None:
            raise SecureSumFailed(f"client {client} has given out shares of its secret that do not fit together.")
        return secret

    def _require(self, count: int, what: str) -> None:
        if count < max(self.peers.least, self._least):
            raise SecureSumFailed(
                f"{count} of {len(self.clients)} clients {what}; the sum takes {self._say_least(self.peers.least)}. "
                f"Nothing of it was opened."
            )

    def _say_least(self, needed: int) -> str:
        """How many it takes, where so many are needed in any case, and why."""
        return f"{self._least} (method.min_clients)" if self._least > needed else str(needed)
