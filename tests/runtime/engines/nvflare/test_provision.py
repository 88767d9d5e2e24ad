"""None"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import ConfigError, RunError
from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
from graphsilo.runtime.engines.nvflare.kit import read_kit
from graphsilo.runtime.engines.nvflare.provision import add_silo, complete, provision, request
from graphsilo.runtime.engines.nvflare.site import NvflareSite
from graphsilo.runtime.engines.nvflare.workspace import write_workspace
from kit.provisioned import spec


@pytest.fixture(autouse=True)
def _quick_keys(monkeypatch: pytest.MonkeyPatch, keys: Iterator[Any]) -> None:
    monkeypatch.setattr(certificates, "new_key", lambda: next(keys))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_party_gets_a_kit_that_fits_together(tmp_path: Path) -> None:
    kits = provision(spec(), tmp_path / "fed")
    assert [kit.name for kit in kits] == ["coordinator", "north", "south"]
    for kit in kits:
        read_kit(kit).check()
        assert sorted(path.name for path in kit.iterdir()) == ["certificate.pem", "key.pem", "kit.json", "root.pem"]
        assert mode(kit) == 0o700
        assert mode(kit / "key.pem") == 0o600
    assert mode(tmp_path / "fed" / "root" / "key.pem") == 0o600
    assert len({(kit / "key.pem").read_bytes() for kit in kits}) == 3


def test_a_kit_says_who_and_where_in_words(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "fed")
    south = json.loads((tmp_path / "fed" / "south" / "kit.json").read_text())
    assert south["party"] == "south"
    assert south["role"] == "site"
    assert south["coordinator"] == {"host": ["localhost", "127.0.0.1"], "port": 8102}
    assert [silo["client"] for silo in south["silos"]] == [0, 1, 2]
    assert south["here"] == [1, 2]
    assert south["root"].startswith("sha256:")
    assert read_kit(tmp_path / "fed" / "south").silos == {"south-a": 1, "south-b": 2}
    assert read_kit(tmp_path / "fed" / "coordinator").silos == {"north": 0, "south-a": 1, "south-b": 2}


def test_a_federation_is_not_overwritten(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "fed")
    with pytest.raises(RunError, match="holds a federation already"):
        provision(spec(), tmp_path / "fed")


def test_a_key_made_at_the_silo_never_travels(tmp_path: Path) -> None:
    asked = request("north", tmp_path / "at-north")
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "north.csr").write_bytes(asked.read_bytes())
    provision(spec(), tmp_path / "fed", requests=tmp_path / "mail")
    kit = tmp_path / "fed" / "north"
    assert not (kit / "key.pem").exists()
    assert (tmp_path / "fed" / "south" / "key.pem").exists()
    with pytest.raises(RunError, match="has no key yet"):
        read_kit(kit).check()
    complete(kit, tmp_path / "at-north" / "north.key")
    assert mode(kit / "key.pem") == 0o600
    read_kit(kit).check()


def test_requests_that_are_not_in_order(tmp_path: Path) -> None:
    request("east", tmp_path / "a")
    with pytest.raises(RunError, match="a signing request of 'east', who is none of"):
        provision(spec(), tmp_path / "fed", requests=tmp_path / "a")
    (tmp_path / "a" / "east.csr").rename(tmp_path / "a" / "north.csr")
    with pytest.raises(RunError, match="made out to 'east', wanted is one for 'north'"):
        provision(spec(), tmp_path / "fed", requests=tmp_path / "a")
    (tmp_path / "a" / "north.csr").write_text("hello")
    with pytest.raises(RunError, match="no signing request"):
        provision(spec(), tmp_path / "fed", requests=tmp_path / "a")
    assert not (tmp_path / "fed").exists()
    with pytest.raises(RunError, match="exists already"):
        request("east", tmp_path / "a")
    with pytest.raises(ConfigError, match=r"got '\.\./x'"):
        request("../x", tmp_path / "a")


def test_a_silo_added_later_gets_the_next_number(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "fed")
    (kit,) = add_silo(tmp_path / "fed", "east")
    assert read_kit(kit).silos == {"east": 3}
    read_kit(kit).check()
    assert read_kit(tmp_path / "fed" / "coordinator").federation.sites == ("north", "south", "east")
    assert add_silo(tmp_path / "fed", "north-b", site="north") == []
    assert read_kit(tmp_path / "fed" / "north").silos == {"north": 0, "north-b": 4}
    with pytest.raises(ConfigError, match="two silos are named 'east'"):
        add_silo(tmp_path / "fed", "east")
    with pytest.raises(RunError, match="no federation"):
        add_silo(tmp_path / "nowhere", "east")


def test_kits_put_together_from_two_federations_are_refused(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "one")
    provision(spec(), tmp_path / "two")
    kit, other = tmp_path / "one" / "north", tmp_path / "two" / "north"
    own = (kit / "certificate.pem").read_bytes()
    (kit / "certificate.pem").write_bytes((other / "certificate.pem").read_bytes())
    with pytest.raises(RunError, match="belongs to another federation"):
        read_kit(kit).check()
    (kit / "certificate.pem").write_bytes((tmp_path / "one" / "south" / "certificate.pem").read_bytes())
    with pytest.raises(RunError, match="made out to 'south', but the kit is that of 'north'"):
        read_kit(kit).check()
    (kit / "certificate.pem").write_bytes(own)
    (kit / "key.pem").write_bytes((other / "key.pem").read_bytes())
    with pytest.raises(RunError, match="does not fit the certificate"):
        read_kit(kit).check()
    (kit / "root.pem").write_bytes((other / "root.pem").read_bytes())
    with pytest.raises(RunError, match="put together from two federations"):
        read_kit(kit).check()


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "silos": [3]}'])
def test_a_damaged_kit_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "kit.json").write_text(text)
    with pytest.raises(RunError, match=r"kit\.json"):
        read_kit(tmp_path)


def test_a_kit_that_lies_too_deep_is_refused_at_once(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    provision(spec(), deep)
    for kind, party in ((NvflareTransport, "coordinator"), (NvflareSite, "north")):
        with pytest.raises(RunError, match="too long for a socket"):
            kind(deep / party)


def test_the_engine_is_configured_by_who_runs_it(tmp_path: Path) -> None:
    provision(spec(), tmp_path / "fed")
    kit = read_kit(tmp_path / "fed" / "north")
    folder = write_workspace(kit)
    resources = json.loads((folder / "local" / "resources.json").read_text())
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == ["graphsilo.runtime.engines.nvflare.relay."]
    assert [component["id"] for component in resources["components"]] == ["graphsilo_relay"]  # nothing launches jobs
    client = json.loads((folder / "startup" / "fed_client.json").read_text())
    assert client["client"]["connection_security"] == "mtls"
    assert client["servers"][0]["service"]["target"] == "localhost:8102"
    assert mode(folder / "startup" / "key.pem") == 0o600
