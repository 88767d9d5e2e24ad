"""What is sent in a secure sum, beside the request and the masked answer. All of it is control: it says nothing of data
to anybody who has not got the keys."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.federation.message import Message, sends
from graphsilo.federation.secure import AGAIN, CONFIRM, MASK, OPEN, SHARE
from graphsilo.federation.secure.masks import KEY_BYTES, TAG_BYTES, digest
from graphsilo.federation.secure.shamir import SHARE_BYTES

ASKED = 32
KEYS = 3 * KEY_BYTES
"""Public key for masks, public key for letters, and the hash of the seed of the own mask."""
SIGNATURE = 64
LETTER = 2 * SHARE_BYTES + TAG_BYTES
MARK = 16
"""Bytes of a hash by which the coordinator knows a share again that it has never seen."""


class SecureMessage(Message):
    """Base of them."""

    @classmethod
    def wire_name(cls) -> str:
        return f"secure.{cls.__name__}"


class Again(SecureMessage):
    """Offer the answer that you have, once more."""


class Offer(SecureMessage):
    """A client has an answer, and these keys for its sum.

    Attributes:
        layout: Names and shapes, as a plain message has them in its header.
        bits: Bit length of the largest weight.
        asked: [32] hash of all that it was asked since the run was opened.
        keys: [96] public keys, fresh in each sum, and the hash of the seed of its own mask.
        identity: Who it is.
        signature: [64] over all of that and what the sum is for.
    """

    layout: str = sends("control")
    bits: int = sends("control")
    asked: Tensor = sends("control", dtype=torch.uint8, shape=(ASKED,))
    keys: Tensor = sends("control", dtype=torch.uint8, shape=(KEYS,))
    identity: Tensor = sends("control", dtype=torch.uint8, shape=("identity",))
    signature: Tensor = sends("control", dtype=torch.uint8, shape=(SIGNATURE,))


class Roster(SecureMessage):
    """Who takes part: the offers of all, whose layout is the same.

    Attributes:
        clients, bits: Number and bits of each.
        asked: [clients, 32] what each was asked.
        keys, signatures: Theirs.
        identities: Who they are.
    """

    clients: list[int] = sends("control")
    bits: list[int] = sends("control")
    asked: Tensor = sends("control", dtype=torch.uint8, shape=("clients", ASKED))
    keys: Tensor = sends("control", dtype=torch.uint8, shape=("clients", KEYS))
    signatures: Tensor = sends("control", dtype=torch.uint8, shape=("clients", SIGNATURE))
    identities: list[Tensor] = sends("control", dtype=torch.uint8)


class Letters(SecureMessage):
    """Shares of a client's secrets for its peers, each readable by one of them.

    Attributes:
        clients: For whom; on the way down, from whom.
        letters: [peers, 148].
        marks: [peers, 32] by which a share is known again: of the share of the key, and of that of the seed.
        mine: [32] of the client's own shares.
    """

    clients: list[int] = sends("control")
    letters: Tensor = sends("control", dtype=torch.uint8, shape=("clients", LETTER))
    marks: Tensor = sends("control", dtype=torch.uint8, shape=("clients", 2 * MARK))
    mine: Tensor = sends("control", dtype=torch.uint8, shape=(2 * MARK,))


class Post(SecureMessage):
    """The letters for one client.

    Attributes:
        present: Everybody who has sent letters.
        clients, letters, marks: From whom, and theirs.
    """

    present: list[int] = sends("control")
    clients: list[int] = sends("control")
    letters: Tensor = sends("control", dtype=torch.uint8, shape=("clients", LETTER))
    marks: Tensor = sends("control", dtype=torch.uint8, shape=("clients", 2 * MARK))


class Masked(SecureMessage):
    """A client's answer, masked.

    Attributes:
        words: [8 · words] its words in little-endian order.
    """

    words: Tensor = sends("control", dtype=torch.uint8, shape=("bytes",), allow_nan=True)


class Came(SecureMessage):
    """Whose masked answers have come."""

    clients: list[int] = sends("control")


class Confirmation(SecureMessage):
    """A client has seen this list and no other.

    Attributes:
        signature: [64].
    """

    signature: Tensor = sends("control", dtype=torch.uint8, shape=(SIGNATURE,))


class Confirmed(SecureMessage):
    """Who has confirmed.

    Attributes:
        clients: Their numbers.
        signatures: [clients, 64].
    """

    clients: list[int] = sends("control")
    signatures: Tensor = sends("control", dtype=torch.uint8, shape=("clients", SIGNATURE))


class Opening(SecureMessage):
    """What it takes to remove masks: of each client a share of one secret, never of both.

    Attributes:
        came, own: Of those whose answers are in the sum: shares of the seed of their own mask.
        missing, keys: Of the others: shares of their private keys for masks.
    """

    came: list[int] = sends("control")
    own: Tensor = sends("control", dtype=torch.uint8, shape=("came", SHARE_BYTES))
    missing: list[int] = sends("control")
    keys: Tensor = sends("control", dtype=torch.uint8, shape=("missing", SHARE_BYTES))


ANSWERS: dict[str, type[SecureMessage]] = {
    AGAIN: Offer, SHARE: Letters, MASK: Masked, CONFIRM: Confirmation, OPEN: Opening,
}  # fmt: skip
"""What answers each step."""


def mark(share: bytes) -> bytes:
    """[16] of a share. Whoever holds one share too few would have to guess 256 bits of the secret to make use of it."""
    return digest("share", share)[:MARK]


def rows(items: list[bytes], width: int) -> Tensor:
    """[items, width] bytes."""
    return torch.frombuffer(bytearray(b"".join(items)), dtype=torch.uint8).view(-1, width) if items else _none(width)


def _none(width: int) -> Tensor:
    return torch.zeros(0, width, dtype=torch.uint8)


def row(item: bytes) -> Tensor:
    """[bytes]."""
    return torch.frombuffer(bytearray(item), dtype=torch.uint8)


def raw(tensor: Tensor) -> bytes:
    """The bytes of such a tensor."""
    return bytes(tensor.contiguous().numpy().tobytes())
