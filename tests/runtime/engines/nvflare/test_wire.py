"""Who gets a connection: handshakes over the loopback address with the engine's own TLS settings, and what a site's
graphsilo says of those that it does not get."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from socketserver import BaseRequestHandler
from types import SimpleNamespace
from typing import Any

import pytest

from graphsilo.runtime import certificates
from graphsilo.runtime.engines.nvflare import engine
from graphsilo.runtime.engines.nvflare.keeper import trust_variables
from graphsilo.runtime.engines.nvflare.kit import CERTIFICATE, KEY, KIT, ROOT, read_kit
from graphsilo.runtime.engines.nvflare.provision import provision, renew
from graphsilo.runtime.engines.nvflare.site import probe
from kit.provisioned import spec

pytestmark = pytest.mark.skipif(find_spec("nvflare") is None, reason="needs graphsilo[nvflare]")


@dataclass
class Place:
    """Federations and what stands around them.

    Attributes:
        ours, other: Folders of two federations with the same names at the same address; of the first, ``old`` has kits
            whose certificates have run out.
    """

    ours: Path
    other: Path
    old: Path


@pytest.fixture(scope="module")
def place(keys: Iterator[Any], tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("wire")
    found = Place(folder / "ours", folder / "other", folder / "old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "new_key", lambda: next(keys))
        provision(spec(), found.ours)
        provision(spec(), found.other)
        (found.old / "coordinator").mkdir(parents=True)
        (found.old / "north").mkdir()
        patch.setattr(certificates, "PARTY_DAYS", 0)
        for party in ("coordinator", "north"):
            kept = (found.ours / party / CERTIFICATE).read_bytes()
            renew(found.ours, party)
            for name in (ROOT, CERTIFICATE, KEY):
                (found.old / party / name).write_bytes((found.ours / party / name).read_bytes())
            (found.ours / party / CERTIFICATE).write_bytes(kept)
    return found


def context(kit: Path, root: Path, *, serves: bool) -> ssl.SSLContext:
    """What FLARE makes of a kit in an engine's process."""
    side = "server" if serves else "client"
    from nvflare.fuel.f3.drivers import net_utils  # takes a second: not where tests are only collected

    made = net_utils.get_ssl_context(
        {"ca_cert": str(root), f"{side}_cert": str(kit / CERTIFICATE), f"{side}_key": str(kit / KEY),
         "connection_security": "mtls", "secure": True, "scheme": "stcp"},
        serves,
    )  # fmt: skip
    assert isinstance(made, ssl.SSLContext)
    return made


class Served:
    """Somebody at a port, who says a word to who gets a connection."""

    def __init__(self, served: ssl.SSLContext | None):
        self.served, self.heard = served, list[bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with contextlib.suppress(OSError), plain:
                    plain.settimeout(10)
                    with self.served.wrap_socket(plain, server_side=True) if self.served else plain as connection:
                        self.heard.append(connection.recv(4096))
                        connection.sendall(b"welcome")

    def close(self) -> None:
        self._listener.close()


def greeted(served: ssl.SSLContext | None, connects: ssl.SSLContext | None) -> bool:
    """Whether who connects is answered by who serves, and neither is refused."""
    there = Served(served)
    try:
        with socket.create_connection(("127.0.0.1", there.port), timeout=10) as plain:
            plain.settimeout(10)
            with connects.wrap_socket(plain) if connects else plain as connection:
                connection.sendall(b"hello")
                return connection.recv(100) == b"welcome"
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        there.close()


@pytest.fixture
def root(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of our federation, in a process like an engine's."""
    found = place.ours / "north" / ROOT
    for name, value in trust_variables(found).items():
        monkeypatch.setenv(name, value)
    return found


def anybody(kit: Path, root: Path) -> ssl.SSLContext:
    """Of somebody who poses as the coordinator, and lets everybody in."""
    made = context(kit, root, serves=True)
    made.verify_mode = ssl.CERT_NONE
    return made


@pytest.mark.slow
@pytest.mark.parametrize("who", ["ours/north", "other/north", "old/north", "ours/coordinator", ""])
def test_only_sites_with_a_certificate_of_today_are_let_in(who: str, place: Place, root: Path) -> None:
    served = context(place.ours / "coordinator", root, serves=True)
    connects = context(place.ours.parent / who, root, serves=False) if who else None  # none: without encryption
    assert greeted(served, connects) is (who == "ours/north")


@pytest.mark.parametrize("who", ["ours/coordinator", "other/coordinator", "old/coordinator", "ours/north", ""])
def test_a_site_speaks_to_its_coordinator_only(who: str, place: Place, root: Path) -> None:
    """And not to somebody in the middle: with certificates of its own, with a site's, without encryption."""
    served = anybody(place.ours.parent / who, root) if who else None
    assert greeted(served, context(place.ours / "north", root, serves=False)) is (who == "ours/coordinator")


def test_an_authority_that_the_machine_trusts_certifies_no_coordinator(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FLARE adds those to the root of the kit; an engine's process knows none."""
    ours, authority = place.ours / "north", place.other / "north" / ROOT
    served = anybody(place.other / "coordinator", authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert greeted(served, context(ours, ours / ROOT, serves=False))
    for name, value in trust_variables(ours / ROOT).items():
        monkeypatch.setenv(name, value)
    assert not greeted(served, context(ours, ours / ROOT, serves=False))


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("other/coordinator", "was not certified by the root of federation 'demo'"),
        ("old/coordinator", "is not valid by this machine's clock"),
        ("ours/north", "was not certified by the root of federation 'demo'"),
        ("", "refuses this kit's certificate|was broken off"),
    ],
)
def test_what_a_site_says_of_who_is_no_coordinator(
    who: str, words: str, place: Place, root: Path, tmp_path: Path
) -> None:
    there = Served(anybody(place.ours.parent / who, root) if who else None)
    for name in (ROOT, CERTIFICATE, KEY, KIT):
        (tmp_path / name).write_bytes((place.ours / "north" / name).read_bytes())
    tree = json.loads((tmp_path / KIT).read_text())
    (tmp_path / KIT).write_text(json.dumps({**tree, "coordinator": {"host": ["127.0.0.1"], "port": there.port}}))
    assert re.search(words, probe(read_kit(tmp_path)))
    there.close()
    assert not there.heard or not who


def test_who_says_nothing_keeps_nobody_out(place: Place, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection of anybody's, such as a port scanner's, shut the port to all sites for as long as it lasted."""
    tcp_driver = pytest.importorskip("nvflare.fuel.f3.drivers.tcp_driver")
    monkeypatch.setattr(tcp_driver, "TcpStreamServer", tcp_driver.TcpStreamServer)
    monkeypatch.setattr(engine, "_HANDSHAKE_SECONDS", 1)
    monkeypatch.setattr(engine, "_HANDSHAKES", 2)
    engine._shake_hands_apart()
    kit = place.ours / "coordinator"
    params = {
        "ca_cert": str(root), "server_cert": str(kit / CERTIFICATE), "server_key": str(kit / KEY),
        "connection_security": "mtls", "secure": True, "scheme": "stcp", "host": "127.0.0.1", "port": "0",
    }  # fmt: skip
    server = tcp_driver.TcpStreamServer(None, SimpleNamespace(params=params))
    server.RequestHandlerClass = Greeting
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = server.server_address

    def greeting(federation: Path = place.ours) -> bytes:
        site = context(federation / "north", root, serves=False)
        with socket.create_connection(address, timeout=10) as plain, site.wrap_socket(plain) as connection:
            return connection.recv(100)

    try:
        with socket.create_connection(address, timeout=10) as silent:
            assert greeting() == b"welcome"
            with socket.create_connection(address, timeout=10), pytest.raises(OSError):
                greeting()  # as many as may are shaking hands
            assert silent.recv(100) == b""  # its time is over
        assert greeting() == b"welcome"
        with pytest.raises(OSError):
            greeting(place.other)
    finally:
        server.shutdown()
        server.server_close()


class Greeting(BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"welcome")
