"""Keys and certificates of one federation: a root of its own, which signs one certificate per party.

RSA, because FLARE signs its registration with PSS padding. A certificate says what it is for (a coordinator's serves, a
site's connects), so that a site's certificate cannot pose as the coordinator.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from graphsilo.errors import RunError

ROOT_DAYS = 3650
PARTY_DAYS = 825
_BITS = 3072


def new_key() -> rsa.RSAPrivateKey:
    """A fresh private key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def key_pem(key: rsa.RSAPrivateKey) -> bytes:
    """The key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def cert_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_key(path: Path) -> rsa.RSAPrivateKey:
    """A private key from a PEM file.

    Raises:
        RunError: The file is missing or is no RSA key.
    """
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise RunError(f"the key {path} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError):
        raise RunError(f"{path} is no private key without a password, in PEM format.") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise RunError(f"{path} is no RSA key; make one with a signing request of graphsilo.")
    return key


def read_cert(path: Path) -> x509.Certificate:
    """A certificate from a PEM file.

    Raises:
        RunError: The file is missing or is no certificate.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise RunError(f"the certificate {path} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise RunError(f"{path} is no certificate in PEM format.") from None


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, as 'sha256:ab12…'; what two people compare over the telephone."""
    return "sha256:" + certificate.fingerprint(hashes.SHA256()).hex()


def common_name(subject: x509.Name) -> str:
    """The name a certificate or request is made out to; empty if it has none."""
    found = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def make_root(federation: str) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    """A new root for a federation."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, federation)])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=ROOT_DAYS)
    return key, _certificate(name, name, key.public_key(), key, end, root=True).sign(key, hashes.SHA256())


def sign_party(
    root_key: rsa.RSAPrivateKey,
    root: x509.Certificate,
    name: str,
    public_key: rsa.RSAPublicKey,
    *,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """A party's certificate.

    Args:
        root_key: Signs.
        root: Certificate of the root.
        name: Whom it is made out to.
        public_key: Of the party.
        hosts: Names and addresses of a coordinator; empty for a site.
    """
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=PARTY_DAYS)
    own = {NameOID.COMMON_NAME: name, NameOID.ORGANIZATION_NAME: "graphsilo"}
    subject = x509.Name([x509.NameAttribute(key, value) for key, value in own.items()])
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    names = [x509.DNSName(name), *(_alternative(host) for host in hosts)]
    return (
        _certificate(subject, root.subject, public_key, root_key, min(end, root.not_valid_after_utc), root=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(root_key, hashes.SHA256())
    )


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: rsa.RSAPublicKey,
    root_key: rsa.RSAPrivateKey,
    end: datetime.datetime,
    *,
    root: bool,
) -> x509.CertificateBuilder:
    """What the certificates of a root and of a party have in common."""
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)  # clocks of different machines differ
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=root, path_length=0 if root else None), critical=True)
        .add_extension(_usage(signs_certificates=root), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
    )


def make_request(name: str, key: rsa.RSAPrivateKey) -> bytes:
    """A signing request (PEM) for a key that stays where it was made."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(path: Path, name: str) -> rsa.RSAPublicKey:
    """The public key of a signing request.

    Raises:
        RunError: It is no request, is made out to somebody else, or is not signed by its own key.
    """
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
    except OSError as error:
        raise RunError(f"the signing request {path} cannot be read ({error.strerror}).") from None
    except ValueError:
        raise RunError(f"{path} is no signing request in PEM format.") from None
    if not request.is_signature_valid:
        raise RunError(f"the signing request {path} is not signed by the key it names: ask for a new one.")
    found = common_name(request.subject)
    if found != name:
        raise RunError(f"the signing request {path} is made out to '{found}', wanted is one for '{name}'.")
    key = request.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < 2048:
        raise RunError(f"the signing request {path} has no RSA key of 2048 bits or more, which the engine needs.")
    return key


def fits(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bool:
    """Whether the certificate is made out for this key."""
    return certificate.public_key() == key.public_key()


def is_signed_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    """Whether the root's key has signed the certificate."""
    public_key, algorithm = root.public_key(), certificate.signature_hash_algorithm
    if not isinstance(public_key, rsa.RSAPublicKey) or algorithm is None:
        return False
    try:
        public_key.verify(certificate.signature, certificate.tbs_certificate_bytes, padding.PKCS1v15(), algorithm)
    except InvalidSignature:
        return False
    return True


class Untrusted(Exception):
    """What is wrong with a certificate that another party sent; the words go on from what comes with it."""


def verify(certificate: bytes, root: x509.Certificate, name: str, purpose: x509.ObjectIdentifier) -> rsa.RSAPublicKey:
    """The key of a certificate that another party sent.

    Args:
        certificate: DER.
        root: Of the federation.
        name: Whom it must be made out to.
        purpose: What it must be for.

    Raises:
        Untrusted: It is not what it should be.
    """
    try:
        found = x509.load_der_x509_certificate(certificate)
        key = found.public_key()
        purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        rooted, whose = is_signed_by(found, root), common_name(found.subject)
    except Exception:  # whatever somebody else's bytes make of the parser
        raise Untrusted("comes with a certificate that cannot be read") from None
    if not rooted or not isinstance(key, rsa.RSAPublicKey):
        raise Untrusted("is certified by another federation's root")
    if whose != name or purpose not in purposes:
        raise Untrusted(f"is certified by '{whose[:63]}', and not by '{name}'")
    if not is_valid(found):
        raise Untrusted("is certified by a certificate that is not valid today")
    return key


def is_valid(certificate: x509.Certificate) -> bool:
    """Whether it is, by this machine's clock."""
    now = datetime.datetime.now(datetime.UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
