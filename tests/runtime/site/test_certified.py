"""Silos' keys that kits stand behind: a made-up silo, one that uses another's certificate, one with a new key."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import DisclosureError
from graphsilo.runtime import certificates
from graphsilo.runtime.engines.choice import kits_of
from graphsilo.runtime.engines.nvflare.kit import read_kit
from graphsilo.runtime.engines.nvflare.provision import add_silo, provision
from graphsilo.runtime.site.certified import Kits
from graphsilo.runtime.site.identities import Pinned, load_identity
from kit.provisioned import spec

PUBLIC = bytes(range(32))
NORTH, SOUTH_A, SOUTH_B = 0, 1, 2


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: Iterator[Any]) -> Path:
    """Kits of three silos at two sites."""
    monkeypatch.setattr(certificates, "new_key", lambda: next(keys))
    provision(spec(), tmp_path / "fed")
    return tmp_path / "fed"


def kit(federation: Path, party: str) -> Kits:
    return kits_of(read_kit(federation / party))


def test_every_site_believes_what_another_sites_kit_says_of_its_silos(federation: Path) -> None:
    north, south = kit(federation, "north"), kit(federation, "south")
    assert south.sites == {NORTH: "north", SOUTH_A: "south", SOUTH_B: "south"}
    assert Kits.of(south.tree()) == south
    north.check(SOUTH_B, south.certify(SOUTH_B, PUBLIC))
    south.check(SOUTH_B, south.certify(SOUTH_B, PUBLIC))
    south.check(NORTH, north.certify(NORTH, PUBLIC))
    assert north.certify(NORTH, PUBLIC)[:32] == PUBLIC


def test_a_silo_that_is_made_up(federation: Path, tmp_path: Path) -> None:
    """A coordinator has its own certificate and, if it likes, a root of its own; neither makes a silo."""
    north = kit(federation, "north")
    provision(spec(), tmp_path / "other")
    with pytest.raises(DisclosureError, match="certified by 'coordinator'"):
        north.check(SOUTH_A, kit(federation, "coordinator").certify(SOUTH_A, PUBLIC))
    with pytest.raises(DisclosureError, match="certified by another federation's root"):
        north.check(SOUTH_A, kit(tmp_path / "other", "south").certify(SOUTH_A, PUBLIC))
    with pytest.raises(DisclosureError, match="is not certified by a kit"):
        north.check(SOUTH_A, PUBLIC)
    with pytest.raises(DisclosureError, match="certificate that cannot be read"):
        north.check(SOUTH_A, PUBLIC + b"\x10\x00" + bytes(40))
    with pytest.raises(DisclosureError, match=r"client 3 is no silo of this site's kit\.json"):
        north.check(3, kit(federation, "south").certify(3, PUBLIC))


def test_a_silo_that_came_later_is_known_by_a_newer_kit(federation: Path) -> None:
    before = kit(federation, "north")
    add_silo(federation, "west")
    identity = kit(federation, "west").certify(3, PUBLIC)
    with pytest.raises(DisclosureError, match=r"put the newer kit\.json"):
        before.check(3, identity)
    kit(federation, "north").check(3, identity)


def test_another_silos_certificate(federation: Path) -> None:
    """A certificate is public: neither its owner's silo elsewhere nor another's key comes with it."""
    north, south = kit(federation, "north"), kit(federation, "south")
    identity = south.certify(SOUTH_A, PUBLIC)
    with pytest.raises(DisclosureError, match="client 0 signs is certified by 'south', and not by 'north'"):
        north.check(NORTH, identity)
    for stolen in (bytes(32) + identity[32:], identity[:-1] + bytes([identity[-1] ^ 1])):
        with pytest.raises(DisclosureError, match="is another than the one that site 'south' has signed"):
            north.check(SOUTH_A, stolen)
    with pytest.raises(DisclosureError, match="is another than the one that site 'south' has signed"):
        north.check(SOUTH_B, identity)  # signed for the other silo of that site


def test_a_certificate_that_has_run_out(federation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    north, identity = kit(federation, "north"), kit(federation, "south").certify(SOUTH_A, PUBLIC)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return super().now(tz) + datetime.timedelta(days=certificates.PARTY_DAYS + 1)

    monkeypatch.setattr(certificates.datetime, "datetime", Later)
    with pytest.raises(DisclosureError, match="not valid today"):
        north.check(SOUTH_A, identity)


def test_a_certified_key_is_pinned_all_the_same(federation: Path, tmp_path: Path) -> None:
    """A site that makes its silo a new key is not believed without its peers' owners, and a new certificate is no new
    key."""
    north, south = kit(federation, "north"), kit(federation, "south")
    first = load_identity(tmp_path / "a.key", SOUTH_A, south)
    known = Pinned(tmp_path / "known", north)
    assert known.key_of(SOUTH_A, first.proof).public_bytes_raw() == first.proof[:32]
    again = Pinned(tmp_path / "known", north)
    again.key_of(SOUTH_A, load_identity(tmp_path / "a.key", SOUTH_A, south).proof)
    with pytest.raises(DisclosureError, match="client 1 signs with another key than before"):
        again.key_of(SOUTH_A, load_identity(tmp_path / "b.key", SOUTH_A, south).proof)
    with pytest.raises(DisclosureError, match="is not certified by a kit"):
        again.key_of(SOUTH_A, first.proof[:32])
