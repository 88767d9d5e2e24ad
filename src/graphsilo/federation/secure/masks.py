"""Keys of a sum, what two clients agree on by them, and the masks that are made of that.

All primitives are those of the package ``cryptography``: X25519 (RFC 7748), HKDF with SHA-256 (RFC 5869), AES-256 in
counter mode for masks and in Galois counter mode for what the coordinator passes on, Ed25519 for signatures. Every key
that is derived is bound to what it is for, to the sum (the roster, with the fresh keys of all) and to whom it is
between, so that no key serves twice.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from graphsilo.errors import DisclosureError
from graphsilo.federation.secure.fixed import BLOCK, Words
from graphsilo.types import ClientId

KEY_BYTES = 32
TAG_BYTES = 16
_LABEL = b"graphsilo secure sum 1"
_NO_NONCE = bytes(12)
"""A key encrypts one letter in its life."""


def label(purpose: str, *parts: bytes | int) -> bytes:
    """What something is for, as bytes that are those of nothing else."""
    pieces = [purpose.encode(), *(part if isinstance(part, bytes) else part.to_bytes(8, "big") for part in parts)]
    return b"".join([_LABEL, *(len(piece).to_bytes(4, "big") + piece for piece in pieces)])


def digest(purpose: str, *parts: bytes | int) -> bytes:
    """[32] SHA-256 of a label."""
    return hashlib.sha256(label(purpose, *parts)).digest()


def derive_key(secret: bytes, info: bytes) -> bytes:
    """[32] a key for one purpose."""
    return HKDF(SHA256(), KEY_BYTES, None, info).derive(secret)


def draw_secret() -> bytes:
    """[32] a secret from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """[32] the public key of an X25519 private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree_key(private: bytes, other: bytes, info: bytes) -> bytes:
    """[32] what two clients agree on, for one purpose.

    Raises:
        DisclosureError: The other's public key is none that anybody can agree by: what came of it would be known to
            all.
    """
    try:
        common = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise DisclosureError(
            "a client's public key is a point of small order, with which nothing is secret."
        ) from None
    return derive_key(common, info)


def check_point(point: bytes) -> None:
    """Refuse a public key that nobody can agree by.

    Raises:
        DisclosureError: As ``agree_key``.
    """
    agree_key(draw_secret(), point, b"")


def pair_key(private: bytes, other: bytes, roster: bytes, mine: ClientId, theirs: ClientId) -> bytes:
    """[32] of the mask that one of two clients adds and the other subtracts."""
    return agree_key(private, other, label("mask", roster, min(mine, theirs), max(mine, theirs)))


def own_key(seed: bytes, roster: bytes, client: ClientId) -> bytes:
    """[32] of the mask that a client adds by itself."""
    return derive_key(seed, label("own mask", roster, client))


def letter_key(private: bytes, other: bytes, roster: bytes, sender: ClientId, receiver: ClientId) -> bytes:
    """[32] of what one client has for another."""
    return agree_key(private, other, label("letter", roster, sender, receiver))


def seal(key: bytes, letter: bytes, roster: bytes, sender: ClientId, receiver: ClientId) -> bytes:
    """A letter that only its receiver can read."""
    return AESGCM(key).encrypt(_NO_NONCE, letter, label("letter", roster, sender, receiver))


def unseal(key: bytes, sealed: bytes, roster: bytes, sender: ClientId, receiver: ClientId) -> bytes:
    """A letter.

    Raises:
        DisclosureError: It was changed, or is not for this receiver in this sum.
    """
    try:
        return AESGCM(key).decrypt(_NO_NONCE, sealed, label("letter", roster, sender, receiver))
    except InvalidTag:
        raise DisclosureError(
            f"what client {sender} sent cannot be read: it was changed on its way, or is of another sum.", peer=sender
        ) from None


def adds(client: ClientId, other: ClientId) -> bool:
    """Whether the client adds the mask that it has in common with the other; the other subtracts it then."""
    return client < other


class Masks:
    """Masks that are added to blocks of words, or subtracted from them, one block after the other.

    Args:
        keys: [32] key of each, and whether it is added.
    """

    def __init__(self, keys: Iterable[tuple[bytes, bool]]):
        self._streams = [(Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor(), add) for key, add in keys]
        self._zeros = bytes(8 * BLOCK)
        self._room = bytearray(8 * BLOCK + 15)

    def apply(self, block: Words) -> None:
        """Add the next words of every mask, modulo 2^64, in place."""
        size = 8 * len(block)
        zeros = self._zeros if size == len(self._zeros) else memoryview(self._zeros)[:size]
        mask = np.frombuffer(self._room, dtype="<u8", count=len(block))
        for stream, add in self._streams:
            stream.update_into(zeros, self._room)
            (np.add if add else np.subtract)(block, mask, out=block)
