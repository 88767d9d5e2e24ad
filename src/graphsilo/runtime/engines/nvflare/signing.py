"""Requests that only the coordinator can have made: signed where it decides, checked where a site's silos are.

The engine says who sent a message, but it is a large program with a network connection, and has been seen to let a site
that registered twice speak as another. So every request carries a signature that the supervisor of a site checks with
the root certificate of its own kit, outside the engine.

    GSS2 | certificate | session key | certificate's signature over the key | head's size | signature | head | rest

The certificate's RSA key signs once per start an Ed25519 key, which signs the requests: a thirtieth of the time. The
site's name is part of what is signed, so that a site cannot hand on to another what it was asked itself. Head and rest
of a request are hashed apart: the rest, often a model, is the same for many sites and is hashed once for all of them.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, COORDINATOR, KEY, ROOT
from graphsilo.runtime.protocol import ProtocolError
from graphsilo.runtime.transport import Body, Broadcast, Parts, size_of, views_of

_MAGIC = b"GSS2"
_SIZES = struct.Struct("<HH")
_HEAD = struct.Struct("<Q")
_PUBLIC, _SIGNATURE = 32, 64
_KEY_PURPOSE, _REQUEST_PURPOSE = b"graphsilo session key\0", b"graphsilo request\0"


class Signer:
    """Signs the requests of a coordinator.

    Raises:
        RunError: Its key or certificate cannot be read.
    """

    def __init__(self, kit: Path):
        certificate = certificates.read_cert(kit / CERTIFICATE).public_bytes(serialization.Encoding.DER)
        self._key = Ed25519PrivateKey.generate()
        public = self._key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        vouched = certificates.read_key(kit / KEY).sign(_KEY_PURPOSE + public, padding.PKCS1v15(), hashes.SHA256())
        self._prefix = _MAGIC + _SIZES.pack(len(certificate), len(vouched)) + certificate + public + vouched

    def sign(self, site: str, body: Body | Parts) -> Parts:
        """A request, with the proof that it is the coordinator's and for this site."""
        head, *rest = [body] if isinstance(body, bytes | bytearray | memoryview) else body
        digest = rest[0].digest if len(rest) == 1 and isinstance(rest[0], Broadcast) else _digest(*views_of(rest))
        size = size_of([head])
        signature = self._key.sign(_bytes_to_sign(site, size, _digest(*views_of([head])), digest))
        return [self._prefix + _HEAD.pack(size) + signature, head, *rest]


class Verifier:
    """Checks at a site that requests are the coordinator's.

    Raises:
        RunError: The root's certificate cannot be read.
    """

    def __init__(self, kit: Path, site: str):
        self._root, self._site = certificates.read_cert(kit / ROOT), site
        self._known: dict[bytes, Ed25519PublicKey] = {}

    def open(self, body: Body) -> memoryview:
        """The request in a signed one.

        Raises:
            ProtocolError: It is not signed by the coordinator of this federation, or is meant for another site.
        """
        view = memoryview(body).cast("B")
        start = len(_MAGIC) + _SIZES.size
        if view.nbytes < start or view[: len(_MAGIC)] != _MAGIC:
            raise ProtocolError("a request came without the coordinator's signature; it was not looked at.")
        certificate_size, vouched_size = _SIZES.unpack_from(view, len(_MAGIC))
        end = start + certificate_size + _PUBLIC + vouched_size
        begin = end + _HEAD.size + _SIGNATURE
        if view.nbytes < begin:
            raise ProtocolError("a signed request was cut short.")
        prefix = bytes(view[:end])
        key = self._known.get(prefix)
        if key is None:
            key = self._check_session_key(prefix[start:], certificate_size)
            self._known = {prefix: key}  # the key of a coordinator that was started again takes the old one's place
        request = view[begin:]
        (size,) = _HEAD.unpack_from(view, end)
        said = _bytes_to_sign(self._site, size, _digest(request[:size]), _digest(request[size:]))
        try:
            key.verify(bytes(view[begin - _SIGNATURE : begin]), said)
        except InvalidSignature:
            raise ProtocolError(
                f"a request does not carry the coordinator's signature for site '{self._site}'; it was not looked at."
            ) from None
        return request

    def _check_session_key(self, parts: bytes, certificate_size: int) -> Ed25519PublicKey:
        """The session key, if the coordinator's certificate stands behind it."""
        certificate, public = parts[:certificate_size], parts[certificate_size : certificate_size + _PUBLIC]
        try:
            key = certificates.verify(certificate, self._root, COORDINATOR, ExtendedKeyUsageOID.SERVER_AUTH)
        except certificates.Untrusted as error:
            raise ProtocolError(
                f"a request is signed by a certificate that is not this federation's coordinator's: the key {error}."
            ) from None
        try:
            vouched = parts[certificate_size + _PUBLIC :]
            key.verify(vouched, _KEY_PURPOSE + public, padding.PKCS1v15(), hashes.SHA256())
            return Ed25519PublicKey.from_public_bytes(public)
        except (InvalidSignature, ValueError):
            raise ProtocolError("a request's signature cannot be read, or is not the coordinator's.") from None


def _bytes_to_sign(site: str, size: int, head: bytes, rest: bytes) -> bytes:
    """What is signed of a request: for whom it is, where its head ends, and the digests of both parts."""
    return _REQUEST_PURPOSE + site.encode() + b"\0" + _HEAD.pack(size) + head + rest


def _digest(*pieces: memoryview) -> bytes:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.digest()
