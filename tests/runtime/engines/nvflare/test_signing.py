"""A site listens to what the coordinator has signed for it, and to nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, KEY
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.engines.nvflare.signing import Signer, Verifier
from graphsilo.runtime.protocol import ProtocolError
from graphsilo.runtime.remote.federation_file import FederationSpec
from graphsilo.runtime.transport import Broadcast, views_of

BODY = b"GSR1 what the coordinator asks"


def signed(signer: Signer, site: str, *body: bytes | Broadcast) -> bytes:
    """What goes to the engine, in one piece."""
    return b"".join(views_of(signer.sign(site, body[0] if len(body) == 1 else body)))


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
        assert bytes(verifier.open(signed(signer, "north", body))) == body
    again = Signer(kits / "coordinator")  # a coordinator that was started again has another session key
    assert bytes(verifier.open(signed(again, "north", BODY))) == BODY
    assert bytes(verifier.open(signed(signer, "north", BODY))) == BODY


def test_a_site_cannot_speak_as_the_coordinator(kits: Path) -> None:
    """Not with its own certificate, and not by handing on what the coordinator asked it."""
    verifier = Verifier(kits / "north", "north")
    with pytest.raises(ProtocolError, match="not this federation's coordinator's"):
        verifier.open(signed(Signer(kits / "south"), "north", BODY))
    with pytest.raises(ProtocolError, match="signature for site 'north'"):
        verifier.open(signed(Signer(kits / "coordinator"), "south", BODY))
    with pytest.raises(ProtocolError, match="without the coordinator's signature"):
        verifier.open(BODY)


@pytest.mark.slow
def test_another_federations_coordinator_is_nobody_here(kits: Path, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match="not this federation's coordinator's"):
        Verifier(kits / "north", "north").open(signed(Signer(make(tmp_path / "other") / "coordinator"), "north", BODY))


def test_a_certificate_does_not_vouch_for_somebody_elses_key(kits: Path, tmp_path: Path) -> None:
    """The coordinator's certificate is public: with a session key signed by another key it proves nothing."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / CERTIFICATE).write_bytes((kits / "coordinator" / CERTIFICATE).read_bytes())
    (fake / KEY).write_bytes(certificates.key_pem(certificates.new_key()))
    with pytest.raises(ProtocolError, match="not the coordinator's"):
        Verifier(kits / "north", "north").open(signed(Signer(fake), "north", BODY))


def test_no_byte_can_be_changed(kits: Path) -> None:
    whole = signed(Signer(kits / "coordinator"), "north", BODY)
    for place in [*range(0, len(whole), 17), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[place] ^= 1
        with pytest.raises(ProtocolError):
            Verifier(kits / "north", "north").open(damaged)
    for length in (0, 3, 7, 100, len(whole) - len(BODY) - 1):
        with pytest.raises(ProtocolError):
            Verifier(kits / "north", "north").open(whole[:length])


def test_pieces_are_signed_and_a_broadcast_is_hashed_once(kits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signer, shared, hashed = Signer(kits / "coordinator"), Broadcast(b"model" * 1000), []
    sha256 = hashlib.sha256
    monkeypatch.setattr("hashlib.sha256", lambda data=b"": hashed.append(len(data)) or sha256(data))
    for site in ("north", "south"):
        whole = signed(signer, site, b"head of " + site.encode(), shared)
        assert bytes(Verifier(kits / site, site).open(whole)) == b"head of " + site.encode() + b"model" * 1000
    assert hashed.count(5000) == 1
    monkeypatch.undo()
    # Where the head ends is signed, too: the same bytes, divided elsewhere, are another request.
    whole = bytearray(signed(signer, "north", BODY, b"rest"))
    place = whole.index(BODY) - 64 - 8
    assert whole[place] == len(BODY)
    whole[place] += 1
    with pytest.raises(ProtocolError):
        Verifier(kits / "north", "north").open(whole)
