"""Real processes, real mutual TLS, over the loopback address: one federation of three sites for all tests here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from graphsilo.errors import RunError
from graphsilo.runtime import pipe
from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
from graphsilo.runtime.engines.nvflare.keeper import Keeper
from graphsilo.runtime.engines.nvflare.kit import Kit, read_kit
from graphsilo.runtime.engines.nvflare.provision import provision
from graphsilo.runtime.engines.nvflare.site import NvflareSite
from graphsilo.runtime.remote.federation_file import FederationSpec
from graphsilo.runtime.transport import Unreachable

pytestmark = pytest.mark.slow
pytest.importorskip("nvflare", reason="needs graphsilo[nvflare]")

SITES = ("north", "south", "west")


class Supervisor:
    """Answers at a site's socket: with what it was sent; ``wait SECONDS`` takes its time, ``name`` gives its name."""

    def __init__(self, site: str, path: Path):
        self.site = site
        self.seen = 0
        self._listener = pipe.listen(path)
        self._stop = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while not self._stop.is_set():
                    body = bytes(pipe.receive(connection))
                    self.seen += 1
                    if body.startswith(b"wait "):
                        time.sleep(float(body[5:]))
                    pipe.send(connection, self.site.encode() if body == b"name" else body)
            except (EOFError, OSError):
                return

    def close(self) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spec(port: int) -> FederationSpec:
    return FederationSpec.of({"name": "demo", "coordinator": {"host": "127.0.0.1", "port": port}, "silos": list(SITES)})


class Federation:
    def __init__(self, folder: Path):
        self.folder = folder
        self.port = free_port()
        provision(spec(self.port), folder)
        self.transport = NvflareTransport(folder / "coordinator", signed=False)
        self.sites = {name: NvflareSite(folder / name) for name in SITES}
        self.supervisors = {name: Supervisor(name, site.socket_path) for name, site in self.sites.items()}
        for site in self.sites.values():
            site.start()
        self.transport.start()
        self.wait_for(SITES, 60)

    def wait_for(self, sites: Iterable[str], seconds: float) -> None:
        until(lambda: all(health(self.transport)[site]["state"] == "up" for site in sites), seconds)

    def close(self) -> None:
        self.transport.close()
        for site in self.sites.values():
            site.close()
        for supervisor in self.supervisors.values():
            supervisor.close()


@pytest.fixture(scope="module")
def federation() -> Iterator[Federation]:
    folder = Path(tempfile.mkdtemp(prefix="gs", dir="/tmp"))  # pytest's own are too long for a socket's path
    made = None
    try:
        made = Federation(folder / "f")
        yield made
    finally:
        pids = [made.transport.pid, *(site.pid for site in made.sites.values())] if made else []
        if made:
            made.close()
        shutil.rmtree(folder)
        assert not [pid for pid in pids if pid is not None and alive(pid)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def health(transport: NvflareTransport) -> dict[str, dict[str, Any]]:
    """State and problem of each site, as the coordinator's engine knows them; none while it is started."""
    try:
        return dict(transport._exchange({"do": "health"}, b"", timeout=5)[0]["health"])
    except (OSError, EOFError):
        return {site: {"state": "never seen"} for site in transport.sites}


def until(true: Callable[[], object], seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not happened in time"
        time.sleep(0.1)


@pytest.mark.parametrize("size", [0, 1_000, 60_000_000])
def test_an_answer_is_what_the_site_said(federation: Federation, size: int) -> None:
    body = os.urandom(size)
    answer = federation.transport.request("south", body, timeout=60)
    assert not memoryview(answer).readonly  # tensors are made of it where it lies
    assert answer == body
    assert not memoryview(answer).readonly  # tensors are made of it where it lies


def test_requests_of_many_threads_reach_their_sites(federation: Federation) -> None:
    def ask(number: int) -> bool:
        site = SITES[number % 3]
        if number % 2:
            return federation.transport.request(site, b"name", timeout=30) == site.encode()
        body = bytes([number]) * (1 + 20_000 * number)
        return federation.transport.request(site, body, timeout=30) == body

    with ThreadPoolExecutor(24) as threads:
        assert all(threads.map(ask, range(120)))


def test_a_slow_site_holds_up_nobody(federation: Federation) -> None:
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(federation.transport.request, "north", b"wait 5", timeout=30)
        time.sleep(0.2)
        assert federation.transport.request("north", b"quick", timeout=30) == b"quick"
        assert federation.transport.request("west", b"quick", timeout=30) == b"quick"
        assert not slow.done()
        assert slow.result() == b"wait 5"


def test_an_answer_that_comes_too_late_is_none(federation: Federation) -> None:
    with pytest.raises(Unreachable, match=r"site 'north' gave no answer: no answer within 0\.5 s"):
        federation.transport.request("north", b"wait 2", timeout=0.5)
    assert federation.transport.request("north", b"next", timeout=30) == b"next"


def test_a_site_that_nobody_knows(federation: Federation) -> None:
    with pytest.raises(Unreachable, match="no such site in federation 'demo'") as caught:
        federation.transport.request("atlantis", b"", timeout=1)
    assert caught.value.site == "atlantis"


def test_health_says_who_is_up(federation: Federation) -> None:
    found = health(federation.transport)
    assert {site: entry["state"] for site, entry in found.items()} == dict.fromkeys(SITES, "up")
    assert all(entry["since"] <= time.time() and not entry["problem"] for entry in found.values())
    until(lambda: federation.sites["north"]._state == "up")


def test_the_engine_loads_neither_torch_nor_data_libraries(federation: Federation) -> None:
    for pid in (federation.transport.pid, federation.sites["north"].pid):
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "libtorch" not in maps
        assert "pyarrow" not in maps


def test_a_kit_has_one_role(federation: Federation) -> None:
    with pytest.raises(RunError, match="is the kit of site 'north'"):
        NvflareTransport(federation.folder / "north")
    with pytest.raises(RunError, match="is the coordinator's kit"):
        NvflareSite(federation.folder / "coordinator")


def test_a_site_whose_engine_was_killed_comes_back(federation: Federation) -> None:
    transport, site = federation.transport, federation.sites["south"]
    before, coordinator = site.pid, transport.pid
    assert before is not None
    with site._keeper._change, ThreadPoolExecutor(1) as threads:  # the next engine waits until the loss was looked at
        pending = threads.submit(transport.request, "south", b"wait 60", timeout=120)
        until(lambda: federation.supervisors["south"].seen)
        time.sleep(0.3)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(Unreachable, match=r"site 'south' gave no answer: .*(lost|broken)"):
            pending.result(timeout=60)  # at once, not when 120 s have passed
        until(lambda: health(transport)["south"]["state"] == "lost")
        with pytest.raises(Unreachable, match="it is not connected"):
            transport.request("south", b"", timeout=5)
        assert transport.request("west", b"others go on", timeout=30) == b"others go on"
    federation.wait_for(["south"], 40)
    assert transport.request("south", b"name", timeout=30) == b"south"
    assert site.pid != before
    assert transport.pid == coordinator


def test_a_site_without_a_supervisor_is_no_site(federation: Federation) -> None:
    federation.supervisors["west"].close()
    until(lambda: health(federation.transport)["west"]["state"] == "lost")
    assert "nobody serves the silos there" in health(federation.transport)["west"]["problem"]
    federation.supervisors["west"] = Supervisor("west", federation.sites["west"].socket_path)
    federation.wait_for(SITES, 40)
    assert federation.transport.request("west", b"name", timeout=30) == b"west"


def test_the_coordinators_engine_is_started_again_when_it_is_killed(federation: Federation) -> None:
    transport = federation.transport
    assert transport.pid is not None
    os.kill(transport.pid, signal.SIGKILL)
    with pytest.raises(Unreachable, match="being started again"):
        transport.request("north", b"", timeout=5)
    until(lambda: all(entry["state"] == "up" for entry in health(transport).values()))
    assert transport.request("north", b"name", timeout=30) == b"north"


def test_sites_stay_while_the_coordinator_is_away(federation: Federation) -> None:
    pids = [site.pid for site in federation.sites.values()]
    federation.transport.close()
    federation.transport.close()
    with pytest.raises(Unreachable, match="closed"):
        federation.transport.request("north", b"", timeout=5)
    federation.transport = NvflareTransport(federation.folder / "coordinator", signed=False)
    federation.transport.start()
    federation.wait_for(SITES, 60)
    assert federation.transport.request("north", b"name", timeout=30) == b"north"
    assert [site.pid for site in federation.sites.values()] == pids


def test_another_federations_kit_is_refused(federation: Federation) -> None:
    other = federation.folder.parent / "other"
    provision(spec(federation.port), other)  # the same names, at the same address
    site = NvflareSite(other / "north")
    supervisor = Supervisor("impostor", site.socket_path)
    try:
        site.start()
        until(lambda: "was not certified by the root of federation 'demo'" in site._problem)
        assert site._state == "never seen"
        assert federation.transport.request("north", b"name", timeout=30) == b"north"
        assert supervisor.seen == 0
    finally:
        site.close()
        supervisor.close()


class Unchecked(Kit):
    """The kit of somebody whose graphsilo looks the other way."""

    def check(self) -> None:
        return


def test_a_site_cannot_pose_as_another(federation: Federation) -> None:
    """With a certificate of this very federation, made out to another site."""
    forged = federation.folder.parent / "forged"
    shutil.copytree(federation.folder / "west", forged, ignore=shutil.ignore_patterns("run"))
    shutil.copyfile(federation.folder / "north" / "kit.json", forged / "kit.json")
    with pytest.raises(RunError, match="made out to 'west', but the kit is that of 'north'"):
        NvflareSite(forged).start()
    kit = read_kit(forged)
    keeper = Keeper(Unchecked(kit.folder, kit.party, kit.role, kit.federation, kit.fingerprint))
    supervisor = Supervisor("impostor", kit.run / "site.sock")
    log = federation.folder / "coordinator" / "run" / "engine.log"
    try:
        keeper.start()
        until(lambda: "authenticated as 'west' but claimed endpoint 'north'" in log.read_text())
        assert federation.transport.request("north", b"name", timeout=30) == b"north"
        assert supervisor.seen == 0
    finally:
        keeper.close()
        supervisor.close()


def test_nobody_gets_in_without_a_certificate(federation: Federation) -> None:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", federation.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)certificate.required|handshake|reset"),
        context.wrap_socket(plain) as secure,
    ):
        secure.recv(1)


class Interceptor:
    """Stands between sites and their coordinator: keeps every byte, and changes one when told to."""

    def __init__(self, port: int):
        self.port, self.kept, self.spoils = port, bytearray(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            except OSError:
                here.close()
                continue
            there.settimeout(None)
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := bytearray(source.recv(1 << 16)):
                self.kept += data
                if len(data) > 5000 and self.spoils.is_set():
                    self.spoils.clear()
                    data[3000] ^= 1
                target.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def tapped() -> Iterator[tuple[NvflareTransport, Interceptor, Supervisor]]:
    """A federation of which one site has joined, through somebody in the middle."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gs", dir="/tmp"))) / "f"
        port = free_port()
        provision(spec(port), folder)
        middle = Interceptor(port)
        stack.callback(middle.close)
        path = folder / "north" / "kit.json"
        tree = json.loads(path.read_text())
        path.write_text(json.dumps({**tree, "coordinator": {**tree["coordinator"], "port": middle.place}}))
        transport, site = NvflareTransport(folder / "coordinator", signed=False), NvflareSite(folder / "north")
        supervisor = Supervisor("north", site.socket_path)
        stack.callback(supervisor.close)
        for each in (site, transport):
            stack.callback(each.close)
            each.start()
        until(lambda: health(transport)["north"]["state"] == "up", 60)
        yield transport, middle, supervisor


def test_somebody_in_the_middle_learns_nothing_and_changes_nothing(
    tapped: tuple[NvflareTransport, Interceptor, Supervisor],
) -> None:
    transport, middle, supervisor = tapped
    secret = b"a ward's numbers" * 1000
    assert transport.request("north", secret, timeout=30) == secret
    kept = bytes(middle.kept)
    assert len(kept) > 2 * len(secret)
    assert secret[:16] not in kept
    middle.spoils.set()
    seen = supervisor.seen
    with contextlib.suppress(Unreachable):  # the connection ends; what was changed arrives nowhere
        assert transport.request("north", secret, timeout=15) == secret
    assert not middle.spoils.is_set()
    until(lambda: health(transport)["north"]["state"] == "up", 60)
    assert transport.request("north", secret, timeout=30) == secret
    assert supervisor.seen - seen <= 2
    seen = supervisor.seen
    # What was said, once more:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", middle.port), timeout=10) as again:
        again.settimeout(3)
        again.sendall(kept)
        while again.recv(1 << 16):
            pass
    assert supervisor.seen == seen
    assert transport.request("north", b"name", timeout=30) == b"north"


def test_nothing_listens_beyond_this_machine_but_the_one_port(federation: Federation) -> None:
    import psutil

    for pid, allowed in ((federation.transport.pid, {federation.port}), (federation.sites["north"].pid, set())):
        for connection in psutil.Process(pid).net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port not in allowed:
                assert connection.laddr.ip == "127.0.0.1"
            if connection.status == psutil.CONN_ESTABLISHED:
                assert federation.port in (connection.laddr.port, connection.raddr.port)


@pytest.mark.parametrize(
    ("role", "module", "owner", "names"),
    [
        ("site", "private.fed.client.client_req_processors", "ClientRequestProcessors", "request_processors"),
        ("coordinator", "private.fed.server.server_cmd_modules", "ServerCommandModules", "cmd_modules"),
    ],
)
def test_no_commands_are_taken(role: str, module: str, owner: str, names: str) -> None:
    """FLARE's own would let a coordinator read files at a site (shell_cmd) and an administrator send jobs."""
    script = f"""
        from nvflare.{module} import {owner}
        had = len({owner}.{names})
        from graphsilo.runtime.engines.nvflare import engine
        program = engine._{role}()
        print(had > 3, len({owner}.{names}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0"]


def test_a_site_answers_the_coordinator_only(tmp_path: Path) -> None:
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.message import Message

    from graphsilo.runtime.engines.nvflare.relay import SiteRelay

    relay = SiteRelay(str(tmp_path / "none.sock"), str(tmp_path / "seen"))
    for origin in ("west", "server.job", "", None):
        head = {MessageHeaderKey.ORIGIN: origin, "graphsilo_number": "1"}
        reply = relay._answer_hello(Message(dict(head), None))
        assert reply.get_header("graphsilo_problem") == "it answers the coordinator only"
        relay._take_request(Message(dict(head), b"body"))
        assert relay._known == set()
    assert not (tmp_path / "seen").exists()


def test_nothing_is_left_when_the_runner_is_killed(federation: Federation) -> None:
    folder = federation.folder.parent / "alone"
    provision(spec(free_port()), folder)
    script = f"""
        import time
        from graphsilo.runtime.engines.nvflare.coordinator import NvflareTransport
        from graphsilo.runtime.engines.nvflare.site import NvflareSite
        site = NvflareSite({str(folder / "north")!r})
        site.start()
        transport = NvflareTransport({str(folder / "coordinator")!r})
        transport.start()
        print(site.pid, transport.pid, flush=True)
        time.sleep(600)
    """
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    pids = [int(word) for word in runner.stdout.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    runner.kill()
    runner.wait()
    runner.stdout.close()
    until(lambda: not any(alive(pid) for pid in pids), seconds=10)
