"""Silos' keys that a federation's kits stand behind.

A silo makes the key by which it signs in secure sums itself. The key of its site's kit signs once which silo's it is:

    silo's key | size of the certificate | certificate of the site | its signature over root, silo and key

The others check with the root certificate of their own kit that the federation's root has certified the site, and with
their ``kit.json`` that the silo lives there. So nobody can make up a silo but whoever holds the root's key, and no site
can speak for another one's silo.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.x509.oid import ExtendedKeyUsageOID

from graphsilo.errors import DisclosureError
from graphsilo.runtime import certificates
from graphsilo.types import ClientId

KEY_BYTES = 32
_SIZE = struct.Struct("<H")
_MAX_BYTES = 8192


@dataclass(frozen=True)
class Kits:
    """What a site's kit says of a federation.

    Attributes:
        root, certificate, key: Files of the kit.
        sites: At which site each silo lives, by its client number.
    """

    root: Path
    certificate: Path
    key: Path
    sites: Mapping[ClientId, str]

    def tree(self) -> dict[str, Any]:
        """As plain values, for another process."""
        files = {"root": str(self.root), "certificate": str(self.certificate), "key": str(self.key)}
        return {**files, "sites": [[client, site] for client, site in self.sites.items()]}

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Kits:
        """What ``tree`` gave."""
        sites = {int(client): str(site) for client, site in tree["sites"]}
        return cls(Path(tree["root"]), Path(tree["certificate"]), Path(tree["key"]), sites)

    def certify(self, client: ClientId, public: bytes) -> bytes:
        """A silo's public key, and the proof that it is this silo's.

        Raises:
            RunError: A file of the kit cannot be read.
        """
        certificate = certificates.read_cert(self.certificate).public_bytes(serialization.Encoding.DER)
        said = _bytes_to_sign(certificates.read_cert(self.root), client, public)
        signature = certificates.read_key(self.key).sign(said, padding.PKCS1v15(), hashes.SHA256())
        return public + _SIZE.pack(len(certificate)) + certificate + signature

    def check(self, client: ClientId, identity: bytes) -> None:
        """Refuse a key that is not proved to be this silo's.

        Raises:
            DisclosureError: It is not; says what is wrong with it.
        """
        site = self.sites.get(client)
        if site is None:
            raise DisclosureError(
                f"client {client} is no silo of this site's kit.json: it is made up, or came after the kit was made. "
                f"If its owner says so, put the newer kit.json that the coordinator has into the kit."
            )
        wrong = _wrong(certificates.read_cert(self.root), client, site, identity)
        if wrong:
            raise DisclosureError(
                f"the key by which client {client} signs {wrong}. Every site joins with the kit that was made for it; "
                f"a silo that nobody's kit stands behind may be made up to see the others' answers.",
                peer=client,
            )


def _wrong(root: x509.Certificate, client: ClientId, site: str, identity: bytes) -> str:
    """What is wrong with a proof, in words; empty if nothing is."""
    start = KEY_BYTES + _SIZE.size
    if not start < len(identity) <= _MAX_BYTES:
        return "is not certified by a kit"
    (size,) = _SIZE.unpack_from(identity, KEY_BYTES)
    try:
        certificate = identity[start : start + size]
        key = certificates.verify(certificate, root, site, ExtendedKeyUsageOID.CLIENT_AUTH)
    except certificates.Untrusted as error:
        return str(error)
    try:
        signature = identity[start + size :]
        key.verify(signature, _bytes_to_sign(root, client, identity[:KEY_BYTES]), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return f"is another than the one that site '{site}' has signed for it"
    return ""


def _bytes_to_sign(root: x509.Certificate, client: ClientId, public: bytes) -> bytes:
    """What a site's key signs."""
    return b"graphsilo silo key\0" + root.fingerprint(hashes.SHA256()) + client.to_bytes(8, "big") + public
