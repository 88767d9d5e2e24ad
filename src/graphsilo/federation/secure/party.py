"""A client in a secure sum: it is asked step by step, and refuses what would let somebody see its answer.

    offer     keys, fresh and signed                          <- after the answer was made
    share     roster -> shares of both secrets, for each peer
    mask      shares of the others -> masked answer
    confirm   whose answers came -> signature
    open      signatures of enough -> a share of one secret of each peer

There is no input and no output here, but for the record of what was opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import DisclosureError, MessageError
from graphsilo.federation.message import Message
from graphsilo.federation.secure import MIN_PARTIES, masks, shamir
from graphsilo.federation.secure.fixed import MAX_PARTIES, Encoding, Layout, bits_of, describe_outweighing, headroom
from graphsilo.federation.secure.masks import KEY_BYTES, Masks, label
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
    row,
    rows,
)
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.peers import Peers, confirmations, count_honest
from graphsilo.types import ClientId

MAX_BITS = 40
"""Bits of a weight: beyond, nothing would be left of what it weighs."""


@dataclass(frozen=True)
class Purpose:
    """What a sum is for; part of everything that is signed.

    Attributes:
        run, seed, round, handler: Of the call.
    """

    run: str
    seed: int
    round: int
    handler: str

    def encode(self) -> bytes:
        return label("purpose", self.run.encode(), self.seed.to_bytes(16, "big", signed=True), self.round,
                     self.handler.encode())  # fmt: skip


class Directory(Protocol):
    """Who is who."""

    def key_of(self, client: ClientId, identity: bytes) -> Ed25519PublicKey:
        """The key by which a client signs: an identity's first 32 bytes, and after them what proves whose they are.

        Raises:
            DisclosureError: This is not the identity of that client.
        """


class Unproved:
    """Believes everybody to be who they say: within one machine, where there is nobody to deceive."""

    def key_of(self, client: ClientId, identity: bytes) -> Ed25519PublicKey:
        try:
            return Ed25519PublicKey.from_public_bytes(identity[:KEY_BYTES])
        except ValueError:
            raise DisclosureError(f"client {client} has no key to sign with.") from None


@dataclass(frozen=True)
class Identity:
    """By what a client signs; and its public key, followed by what proves that it is this client's."""

    key: Ed25519PrivateKey
    proof: bytes

    @classmethod
    def generate(cls) -> Identity:
        """One for ``Unproved``."""
        key = Ed25519PrivateKey.generate()
        return cls(key, key.public_key().public_bytes_raw())


def encode_offer(purpose: Purpose, layout: bytes, client: ClientId, bits: int, asked: bytes, keys: bytes) -> bytes:
    """What a client signs of its offer.

    Raises:
        MessageError: No weight has so many bits.
    """
    if bits < 0:
        raise MessageError(f"a weight of {bits} bits cannot be.")
    return label("offer", purpose.encode(), layout, client, bits, asked, keys)


def roster_of(purpose: Purpose, layout: bytes, members: Iterable[tuple[ClientId, int, bytes, bytes]]) -> bytes:
    """By what everybody knows who takes part in a sum, and with which keys.

    Args:
        purpose: What it is for.
        layout: Digest of the answers' layout.
        members: Number, bits of the largest weight, keys and identity of each, ascending.
    """
    return masks.digest("roster", purpose.encode(), layout, *(label("member", *member) for member in members))


def check_signature(key: Ed25519PublicKey, signature: bytes, signed: bytes, client: ClientId, what: str) -> None:
    """Refuse a signature that is none.

    Raises:
        DisclosureError: It is not.
    """
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        text = f"{what} of client {client} is not signed by it, or is of another sum."
        raise DisclosureError(text, peer=client) from None


def unlike_weights(bits: Mapping[ClientId, int]) -> dict[ClientId, str]:
    """Clients of whose numbers nothing would be left, or that would leave nothing of the others', and why."""
    found = {}
    for client, mine in bits.items():
        if mine + headroom(len(bits)) > MAX_BITS:
            found[client] = (
                f"client {client}'s weights of {mine} bits are too large for a secure sum of {len(bits)} clients."
            )
        elif trouble := describe_outweighing(mine, [other for one, other in bits.items() if one != client]):
            found[client] = (
                f"client {client} {trouble}. Numbers of a secure sum are scaled by the largest, and too little would "
                f"be left of the others'. Leave that client out, or add up in plain (run.secure_sums=false)."
            )
    return found


class Sum:
    """One sum at one client, from its offer to its opening.

    Args:
        party: Whose.
        kept: The answer.

    Attributes:
        count: How many take part, once they are known.
    """

    def __init__(self, party: Party, kept: Kept):
        self.party, self._kept = party, kept
        self._masking, self._letters, self._seed = masks.draw_secret(), masks.draw_secret(), masks.draw_secret()
        keys = (masks.public_key(self._masking), masks.public_key(self._letters), masks.digest("seed", self._seed))
        self._keys = b"".join(keys)
        self._done = "offer"
        self._clients: list[ClientId] = []
        self._present: set[ClientId] = set()
        self._came: set[ClientId] = set()
        self._near: list[ClientId] = []
        self._public: dict[ClientId, Ed25519PublicKey] = {}
        self._keys_of: dict[ClientId, bytes] = {}
        self._shares: dict[ClientId, tuple[bytes, bytes]] = {}
        self._silos: dict[ClientId, bytes] = {}
        self._roster = b""
        self._bits, self.count = kept.bits, 0
        self._alike = True
        signed = encode_offer(kept.purpose, kept.layout.digest, party.client, kept.bits, kept.asked, self._keys)
        self._signature = party.identity.key.sign(signed)
        self.offer = Offer(
            layout=kept.layout.text, bits=kept.bits, asked=row(kept.asked), keys=row(self._keys),
            identity=row(party.identity.proof), signature=row(self._signature),
        )  # fmt: skip

    def _step(self, name: str, after: str) -> None:
        if self._done != after:
            raise DisclosureError(
                f"client {self.party.client} was asked to '{name}' where '{self._done}' was the last step of this sum; "
                f"every step is taken once, in order."
            )

    def share(self, roster: Roster) -> Letters:
        """Check who takes part, and share the secrets with the peers.

        Raises:
            DisclosureError: Too few take part, or somebody is not who it says.
        """
        self._step("share", "offer")
        kept, me = self._kept, self.party.client
        self._clients = _ascending(roster.clients)
        count = len(self._clients)
        least = max(MIN_PARTIES, self.party.least)
        if not least <= count <= MAX_PARTIES:
            raise DisclosureError(
                f"a secure sum of {count} silos was asked for; this one takes part in sums of {least} to {MAX_PARTIES}."
            )
        wanted = kept.answer.honest_silos()
        if wanted > 1 and count_honest(count) < wanted:
            raise DisclosureError(
                f"noise was shared between {wanted} silos that do not collude, and a sum of {count} is sure of "
                f"{count_honest(count)} only. Begin again with as many silos as there are, or with method.noise=silo."
            )
        stated = roster.bits, roster.asked, roster.keys, roster.identities, roster.signatures
        if {len(each) for each in stated} != {count}:
            raise MessageError("a roster must say the same of every client.")
        proofs: dict[ClientId, bytes] = {}
        bits: dict[ClientId, int] = {}
        self._public, self._keys_of, self._alike = {}, {}, True  # nothing of a roster that was refused is left
        for place, client in enumerate(self._clients):
            keys, proof, signature, asked = (
                raw(each[place]) for each in (roster.keys, roster.identities, roster.signatures, roster.asked)
            )
            stated_bits = bits[client] = roster.bits[place]
            if client == me and (keys, signature, stated_bits) != (self._keys, self._signature, kept.bits):
                raise DisclosureError(f"the roster has other keys of client {me} than those that it made for this sum.")
            key = self.party.directory.key_of(client, proof)
            signed = encode_offer(kept.purpose, kept.layout.digest, client, stated_bits, asked, keys)
            check_signature(key, signature, signed, client, "the offer")
            self._alike = self._alike and asked == kept.asked
            if asked != kept.asked and not _is_known(kept.answer):
                raise DisclosureError(
                    f"client {client} was asked something else than this one in the run, or runs it with other "
                    f"settings: the difference to a sum of those that were asked the same would say what it sent.",
                    peer=client,
                )
            self._public[client], self._keys_of[client] = key, keys
            proofs[client] = proof
        if me not in self._public:
            raise DisclosureError(f"the roster lacks client {me}, which was sent it.")
        points = [keys[start : start + KEY_BYTES] for keys in self._keys_of.values() for start in (0, KEY_BYTES)]
        signing = {client: key.public_bytes_raw() for client, key in self._public.items()}
        if len(set(points)) < len(points) or len(set(signing.values())) < count:
            raise DisclosureError("two clients of the roster have the same key: one of them is a copy of the other.")
        for text in unlike_weights(bits).values():
            raise DisclosureError(text)
        self._bits, self.count = max(bits.values()), count
        self._silos = {client: hashlib.sha256(public).digest() for client, public in signing.items()}
        self._roster = roster_of(
            kept.purpose,
            kept.layout.digest,
            ((client, each, self._keys_of[client], proofs[client]) for client, each in bits.items()),
        )
        self._peers = Peers.of(count)
        place = self._clients.index(me)
        self._near = [self._clients[other] for other in self._peers.of_place(place)]
        places = {client: self._clients.index(client) + 1 for client in (*self._near, me)}
        halves = shamir.split(self._masking, list(places.values()), self._peers.threshold)
        seeds = shamir.split(self._seed, list(places.values()), self._peers.threshold)
        self._shares = {me: (halves[places[me]], seeds[places[me]])}
        sealed = []
        for peer in self._near:
            secret = masks.letter_key(self._letters, self._keys_of[peer][KEY_BYTES : 2 * KEY_BYTES], self._roster, me,
                                      peer)  # fmt: skip
            letter = halves[places[peer]] + seeds[places[peer]]
            sealed.append(masks.seal(secret, letter, self._roster, me, peer))
        marks = {client: mark(halves[place]) + mark(seeds[place]) for client, place in places.items()}
        self._done = "share"
        return Letters(
            clients=self._near, letters=rows(sealed, LETTER),
            marks=rows([marks[peer] for peer in self._near], 2 * MARK), mine=row(marks[me]),
        )  # fmt: skip

    def mask(self, post: Post) -> Masked:
        """Take the shares of the peers, and mask the answer.

        Raises:
            DisclosureError: Too few have shared, a letter is missing, or was changed.
            MessageError: The answer has no place in a sum.
        """
        self._step("mask", "share")
        me = self.party.client
        present = _ascending(post.present)
        self._present = set(present)
        if not self._present <= set(self._clients) or me not in self._present:
            raise DisclosureError("letters came of clients that are not in the roster, or none of this one.")
        self._require(len(self._present), "have shared their secrets")
        near = [peer for peer in self._near if peer in self._present]
        if me in post.clients:
            raise DisclosureError(f"client {me} was sent a letter as if it were its own.")
        if list(post.clients) != near or {len(post.letters), len(post.marks)} != {len(near)}:
            raise DisclosureError("not every peer's letter came, or others did.")
        for peer, sealed, marked in zip(near, post.letters, post.marks, strict=True):
            public = self._keys_of[peer][KEY_BYTES : 2 * KEY_BYTES]
            secret = masks.letter_key(self._letters, public, self._roster, peer, me)
            letter = masks.unseal(secret, raw(sealed), self._roster, peer, me)
            half, seed = letter[: shamir.SHARE_BYTES], letter[shamir.SHARE_BYTES :]
            if mark(half) + mark(seed) != raw(marked):  # with such a share this client would be taken for a liar
                text = f"the shares that client {peer} sent are others than those that it marked."
                raise DisclosureError(text, peer=peer)
            self._shares[peer] = half, seed
        self._check_opened(self._present, note=False)
        encoding = Encoding(self._kept.layout, self._kept.answer, bits=self._bits, parties=self.count)
        keys = [(masks.own_key(self._seed, self._roster, me), True)]
        for peer in near:
            key = masks.pair_key(self._masking, self._keys_of[peer][:KEY_BYTES], self._roster, me, peer)
            keys.append((key, masks.adds(me, peer)))
        self._done = "mask"
        return Masked(words=_as_bytes(encoding, Masks(keys)))

    def confirm(self, came: Came) -> Confirmation:
        """Say that this is the list of those whose answers came.

        Raises:
            DisclosureError: They are too few; or another list was confirmed before.
        """
        listed = set(_ascending(came.clients))
        if self._done in ("confirm", "open") and listed != self._came:
            raise DisclosureError(
                f"client {self.party.client} was shown two lists of those whose answers came: with a share for each of "
                f"them, single answers could be seen."
            )
        if self._done != "confirm":
            self._step("confirm", "mask")
        if not listed <= self._present or self.party.client not in listed:
            raise DisclosureError("answers came of clients that shared no secrets, or none of this one.")
        self._require(len(listed), "are in the sum")
        self._came = listed
        self._done = "confirm"
        return Confirmation(signature=row(self.party.identity.key.sign(self._encode_confirmation())))

    def open(self, confirmed: Confirmed) -> Opening:
        """Give a share of one secret of each peer, once enough have confirmed whose.

        Raises:
            DisclosureError: Too few have, or the data were summed with others before.
        """
        self._step("open", "confirm")
        signed = self._encode_confirmation()
        clients = _ascending(confirmed.clients)
        if not set(clients) <= self._came or len(clients) != len(confirmed.signatures):
            raise DisclosureError("the list was confirmed by clients that are not on it.")
        for client, signature in zip(clients, confirmed.signatures, strict=True):
            check_signature(self._public[client], raw(signature), signed, client, "the confirmation")
        self._require(len(clients), "have confirmed who is in the sum", least=confirmations(self.count))
        self._check_opened(self._came, note=True)
        came = [client for client in sorted(self._shares) if client in self._came]
        missing = [client for client in sorted(self._shares) if client not in self._came]
        opening = Opening(
            came=came,
            own=rows([self._shares[client][1] for client in came], shamir.SHARE_BYTES),
            missing=missing,
            keys=rows([self._shares[client][0] for client in missing], shamir.SHARE_BYTES),
        )
        self._done = "open"
        self._shares = {}
        self._masking = self._letters = self._seed = b""
        return opening

    def _encode_confirmation(self) -> bytes:
        return encode_confirmation(self._roster, self._present, self._came)

    def _require(self, count: int, what: str, least: int | None = None) -> None:
        wanted = max(self._peers.least, self.party.least) if least is None else least
        if count < wanted:
            raise DisclosureError(
                f"{count} of {self.count} clients {what}; this silo goes on with {wanted} or more, so that no answer "
                f"can be seen."
            )

    def _check_opened(self, clients: set[ClientId], *, note: bool) -> None:
        kept, record = self._kept, self.party.record
        if _is_known(kept.answer):
            # Where others were asked something else, that there is an answer says something of this silo alone.
            if note and self._alike:
                record.free(kept.digest, kept.asked)
            return
        silos = [self._silos[client] for client in clients]
        if note:
            record.note(kept.digest, self.party.data, silos, kept.asked)
        else:
            record.check(kept.digest, self.party.data, silos)


def encode_confirmation(roster: bytes, present: set[ClientId], came: set[ClientId]) -> bytes:
    """What is signed of who came."""
    return label("came", roster, *(label("present", *sorted(present)), label("came", *sorted(came))))


@dataclass(frozen=True)
class Kept:
    """An answer that waits for its sum.

    Attributes:
        purpose: What it is an answer to.
        layout: What stands where in its words.
        bits: Of its largest weight.
        answer, digest: The answer, and the hash of its bytes.
        asked: Hash of all that the client was asked.
    """

    purpose: Purpose
    layout: Layout
    bits: int
    answer: Message
    digest: bytes
    asked: bytes


def _is_known(answer: Message) -> bool:
    """Whether an answer holds nothing but numbers that everybody knows: the same in every run, with whomever."""
    return all(spec.known for spec in answer.specs())


class Party:
    """A client in the sums of a run, one after the other.

    Args:
        client: Its number.
        identity: By what it signs.
        directory: Who the others are.
        record: What it has opened.
        least: Fewest silos that its owner lets into a sum.
        data: Hash of its data, over which it opens sums with one set of silos only; empty: with any, but for the same
            answer.

    Attributes:
        counted: Whether the answer that it keeps was counted as one that leaves; masked again, it says no more.
    """

    def __init__(
        self,
        client: ClientId,
        identity: Identity,
        directory: Directory,
        record: OpenedSums,
        *,
        least: int = MIN_PARTIES,
        data: str = "",
    ):
        self.client, self.identity, self.directory, self.record, self.least = client, identity, directory, record, least
        self.data = data
        self.counted = False
        self._kept: Kept | None = None
        self._sum: Sum | None = None

    def begin(
        self, purpose: Purpose, answer: Message, encoded: NDArray[np.uint8], asked: bytes = bytes(ASKED)
    ) -> Offer:
        """Keep an answer, and offer it.

        Args:
            purpose: What it is an answer to.
            answer: The answer.
            encoded: Its bytes, as they would be sent in plain.
            asked: [32] hash of all that the client was asked in the run: who was asked otherwise is in no sum with it.

        Raises:
            MessageError: It cannot be summed.
            DisclosureError: Too many were offered before, and never opened.
        """
        self.forget()
        layout = Layout.of(answer)
        digest = hashlib.sha256(encoded.data).digest()
        bits = bits_of(layout, answer)
        self.record.offer(digest, asked)
        self._kept = Kept(purpose, layout, bits, answer, digest, asked)
        return self.offer_again()

    def offer_again(self) -> Offer:
        """Offer the answer that is kept with new keys: the sum before could not be opened."""
        self._sum = Sum(self, self.kept)
        return self._sum.offer

    @property
    def current(self) -> Sum:
        """The sum that is being made.

        Raises:
            DisclosureError: There is none.
        """
        if self._sum is None:
            raise DisclosureError(f"client {self.client} takes part in no sum.")
        return self._sum

    @property
    def kept(self) -> Kept:
        """The answer that waits for its sum.

        Raises:
            DisclosureError: There is none.
        """
        if self._kept is None:
            raise DisclosureError(f"client {self.client} has no answer that waits for a sum.")
        return self._kept

    def forget(self) -> None:
        """Let go of the answer."""
        self._kept = self._sum = None
        self.counted = False


def _ascending(clients: Sequence[ClientId]) -> list[ClientId]:
    found = list(clients)
    if found != sorted(set(found)) or any(one < 0 for one in found):
        raise DisclosureError("clients of a sum are named once each, in ascending order.")
    return found


def _as_bytes(encoding: Encoding, masking: Masks) -> Tensor:
    """The masked words, block by block."""
    words = torch.empty(8 * encoding.layout.words, dtype=torch.uint8)
    into = words.numpy().view("<u8")
    start = 0
    for block in encoding.blocks():
        masking.apply(block)
        into[start : start + len(block)] = block
        start += len(block)
    return words
