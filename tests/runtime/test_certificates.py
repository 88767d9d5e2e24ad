"""Certificates: what they are for, and how long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import RunError
from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import read_kit
from graphsilo.runtime.engines.nvflare.provision import complete, provision, renew, request
from kit.provisioned import spec


@pytest.fixture(autouse=True)
def _quick_keys(monkeypatch: pytest.MonkeyPatch, keys: Iterator[Any]) -> None:
    monkeypatch.setattr(certificates, "new_key", lambda: next(keys))


def test_certificates_say_what_they_are_for(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

    provision(spec(), tmp_path / "fed")
    for party, purpose in (("coordinator", Purpose.SERVER_AUTH), ("north", Purpose.CLIENT_AUTH)):
        certificate = certificates.read_cert(tmp_path / "fed" / party / "certificate.pem")
        assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (basic.critical, basic.value.ca) == (True, False)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = names.get_values_for_type(x509.DNSName), [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]
        assert hosts == ((["coordinator", "localhost"], ["127.0.0.1"]) if party == "coordinator" else (["north"], []))


def test_only_the_roots_rsa_key_certifies(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    provision(spec(), tmp_path / "fed")
    root, party = (
        certificates.read_cert(tmp_path / "fed" / "north" / name) for name in ("root.pem", "certificate.pem")
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.CertificateBuilder(root.subject, root.subject, key.public_key(), 1)
    other = names.not_valid_before(root.not_valid_before_utc).not_valid_after(root.not_valid_after_utc)
    signers = (root, party, other.sign(key, hashes.SHA256()))
    assert [certificates.is_signed_by(party, each) for each in signers] == [True, False, False]


def test_a_key_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    request("north", tmp_path)
    request("other", tmp_path / "elsewhere")
    provision(spec(), tmp_path / "fed", requests=tmp_path)
    with pytest.raises(RunError, match="does not fit the certificate"):
        complete(tmp_path / "fed" / "north", tmp_path / "elsewhere" / "other.key")
    assert not (tmp_path / "fed" / "north" / "key.pem").exists()


def test_a_certificate_is_renewed_for_the_same_key(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "fed")
    before = certificates.read_cert(tmp_path / "fed" / "north" / "certificate.pem")
    path = renew(tmp_path / "fed", "north")
    after = certificates.read_cert(path)
    assert after.serial_number != before.serial_number
    assert after.public_key() == before.public_key()
    read_kit(path.parent).check()
    with pytest.raises(RunError, match="has no party 'west'"):
        renew(tmp_path / "fed", "west")


def test_an_expired_certificate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provision(spec(), tmp_path / "fed")
    monkeypatch.setattr(certificates, "PARTY_DAYS", 0)
    renew(tmp_path / "fed", "north")
    with pytest.raises(RunError, match="this machine's clock says"):
        read_kit(tmp_path / "fed" / "north").check()
