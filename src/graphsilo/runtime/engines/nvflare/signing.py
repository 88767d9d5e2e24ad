"""Requests that only the coordinator can have made: signed where it decides, checked where a site's silos are.

The engine says who sent a message, but it is a large program with a network connection, and has been seen to let a site
that registered twice speak as another. So every request carries a signature that the supervisor of a site checks with
the root certificate of its own kit, outside the engine.

    GSS1 | certificate | session key | certificate's signature over the key | signature over site and body | body

The certificate's RSA key signs once per start an Ed25519 key, which signs the requests: a thirtieth of the time. The
site's name is part of what is signed, so that a site cannot hand on to another what it was asked itself.
"""

from __future__ import annotations

import datetime
import hashlib
import struct
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, COORDINATOR, KEY, ROOT
from graphsilo.runtime.protocol import ProtocolError
from graphsilo.runtime.transport import Body

_MAGIC = b"GSS1"
_SIZES = struct.Struct("<HH")
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

    def signed(self, site: str, body: Body) -> bytearray:
        """A request, with the proof that it is the coordinator's and for this site."""
        signature = self._key.sign(_said(site, body))
        return bytearray().join((self._prefix, signature, body))


class Verifier:
    """Checks at a site that requests are the coordinator's.

    Raises:
        RunError: The root's certificate cannot be read.
    """

    def __init__(self, kit: Path, site: str):
        self._root, self._site = certificates.read_cert(kit / ROOT), site
        self._known: dict[bytes, Ed25519PublicKey] = {}

    def opened(self, body: Body) -> memoryview:
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
        if view.nbytes < end + _SIGNATURE:
            raise ProtocolError("a signed request was cut short.")
        prefix = bytes(view[:end])
        key = self._known.get(prefix)
        if key is None:
            key = self._vouched(prefix[start:], certificate_size)
            self._known = {prefix: key}  # the key of a coordinator that was started again takes the old one's place
        request = view[end + _SIGNATURE :]
        try:
            key.verify(bytes(view[end : end + _SIGNATURE]), _said(self._site, request))
        except InvalidSignature:
            raise ProtocolError(
                f"a request does not carry the coordinator's signature for site '{self._site}'; it was not looked at."
            ) from None
        return request

    def _vouched(self, parts: bytes, certificate_size: int) -> Ed25519PublicKey:
        """The session key, if the coordinator's certificate stands behind it."""
        try:
            certificate = x509.load_der_x509_certificate(parts[:certificate_size])
            public = parts[certificate_size : certificate_size + _PUBLIC]
            key = certificate.public_key()
            purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            now = datetime.datetime.now(datetime.UTC)
            trusted = (
                isinstance(key, rsa.RSAPublicKey)
                and certificates.signed_by(certificate, self._root)
                and certificates.common_name(certificate.subject) == COORDINATOR
                and ExtendedKeyUsageOID.SERVER_AUTH in purposes
                and certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
            )
            if not trusted or not isinstance(key, rsa.RSAPublicKey):
                raise ProtocolError("a request is signed by a certificate that is not this federation's coordinator's.")
            vouched = parts[certificate_size + _PUBLIC :]
            key.verify(vouched, _KEY_PURPOSE + public, padding.PKCS1v15(), hashes.SHA256())
            return Ed25519PublicKey.from_public_bytes(public)
        except ProtocolError:
            raise
        except Exception:  # whatever a certificate of somebody else's makes of the parser
            raise ProtocolError("a request's signature cannot be read, or is not the coordinator's.") from None


def _said(site: str, body: Body) -> bytes:
    """What is signed of a request."""
    return _REQUEST_PURPOSE + site.encode() + b"\0" + hashlib.sha256(body).digest()
