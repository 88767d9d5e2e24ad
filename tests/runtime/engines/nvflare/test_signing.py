"""A site listens to what the coordinator has signed for it, and to nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, KEY
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.engines.nvflare.signing import Signer, Verifier
from graphsilo.runtime.protocol import ProtocolError
from graphsilo.runtime.remote.federation_file import FederationSpec

BODY = b"GSR1 what the coordinator asks"


def make(folder: Path) -> Path:
    spec = {"name": "test", "coordinator": {"host": "127.0.0.1", "port": 9000}, "silos": ["north", "south"]}
    provision(FederationSpec.of(spec), folder)
    return folder


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("federation") / "kits")


def test_what_the_coordinator_signed_is_opened(kits: Path) -> None:
    signer, verifier = Signer(kits / "coordinator"), Verifier(kits / "north", "north")
    for body in (BODY, b"", bytes(10**6)):
        assert bytes(verifier.opened(signer.signed("north", body))) == body
    again = Signer(kits / "coordinator")  # a coordinator that was started again has another session key
    assert bytes(verifier.opened(again.signed("north", BODY))) == BODY
    assert bytes(verifier.opened(signer.signed("north", BODY))) == BODY


def test_a_site_cannot_speak_as_the_coordinator(kits: Path) -> None:
    """Not with its own certificate, and not by handing on what the coordinator asked it."""
    verifier = Verifier(kits / "north", "north")
    with pytest.raises(ProtocolError, match="not this federation's coordinator's"):
        verifier.opened(Signer(kits / "south").signed("north", BODY))
    with pytest.raises(ProtocolError, match="signature for site 'north'"):
        verifier.opened(Signer(kits / "coordinator").signed("south", BODY))
    with pytest.raises(ProtocolError, match="without the coordinator's signature"):
        verifier.opened(BODY)


def test_another_federations_coordinator_is_nobody_here(kits: Path, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="not this federation's coordinator's"):
        Verifier(kits / "north", "north").opened(Signer(make(tmp_path / "other") / "coordinator").signed("north", BODY))


def test_a_certificate_does_not_vouch_for_somebody_elses_key(kits: Path, tmp_path: Path) -> None:
    """The coordinator's certificate is public: with a session key signed by another key it proves nothing."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / CERTIFICATE).write_bytes((kits / "coordinator" / CERTIFICATE).read_bytes())
    (fake / KEY).write_bytes(certificates.key_pem(certificates.new_key()))
    with pytest.raises(ProtocolError, match="not the coordinator's"):
        Verifier(kits / "north", "north").opened(Signer(fake).signed("north", BODY))


def test_no_byte_can_be_changed(kits: Path) -> None:
    signed = Signer(kits / "coordinator").signed("north", BODY)
    for place in [*range(0, len(signed), 17), len(signed) - 1]:
        damaged = bytearray(signed)
        damaged[place] ^= 1
        with pytest.raises(ProtocolError):
            Verifier(kits / "north", "north").opened(damaged)
    for length in (0, 3, 7, 100, len(signed) - len(BODY) - 1):
        with pytest.raises(ProtocolError):
            Verifier(kits / "north", "north").opened(signed[:length])
