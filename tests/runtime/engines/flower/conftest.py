"""A real Flower federation on this machine's loopback: SuperLink, SuperNodes, and a thread for each supervisor."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphsilo.runtime import pipe
from graphsilo.runtime.engines.flower import QUIET

HERE = Path(__file__).parent
TEMPLATE = Path(__file__).resolve().parents[4] / "examples" / "flower"


class Endpoint:
    """What a supervisor does towards the engine, and nothing else.

    An empty request is answered with the name, any other with its bytes in reverse; ``die`` hangs up without an answer,
    ``sleep`` never answers.
    """

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.path = folder / f"{name}.sock"
        self.listener = pipe.listen(self.path)
        self.ended = threading.Event()
        self.requests: list[int] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                body = pipe.receive(connection)
                self.requests.append(len(body))
                if body == b"die":
                    return
                if body == b"sleep":
                    self.ended.wait()
                    return
                pipe.send(connection, bytes(body)[::-1] or self.name.encode())

    def close(self) -> None:
        self.ended.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.path.unlink(missing_ok=True)


class Federation:
    """Everything that runs has FLWR_HOME in this folder, by which it is found and ended."""

    def __init__(self, folder: Path, *, secure: bool):
        self.folder, self.secure = folder, secure
        self.endpoints: dict[str, Endpoint] = {}
        self.number = ""  # of the run that takes orders
        self.processes: dict[str, subprocess.Popen] = {}
        self.programs = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            **QUIET,
            "FLWR_HOME": str(folder / "home"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        (folder / "home").mkdir()
        trust = f'root-certificates = "{folder}/ca.pem"' if secure else "insecure = true"
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        )
        if secure:
            certificates(folder)
        security = ["--insecure"]
        if secure:
            files = {"ca-cert": "ca.pem", "cert": "link.pem", "key": "key.pem"}
            security = [f"--ssl-{kind}file={folder}/{file}" for kind, file in files.items()]
            security.append("--enable-supernode-auth")
        self.start("superlink", "flower-superlink", *security, "--host", "127.0.0.1", "--port", str(self.port))
        wait_for(lambda: reachable(self.port), "the SuperLink to listen", self.log("superlink"))

    def start(self, name: str, program: str, *options: str) -> None:
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.programs / program), *options],
                env=self.environment, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def flwr(self, *options: str) -> str:
        done = subprocess.run(
            [str(self.programs / "flwr"), *options],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def add_site(
        self,
        name: str,
        *,
        node: str | None = None,
        register: bool = True,
        encrypted: bool = True,
        socket: Path | None = None,
    ) -> None:
        """A SuperNode, and the endpoint behind it unless there is one."""
        if name not in self.endpoints and socket is None:
            self.endpoints[name] = Endpoint(self.folder, name)
        path = socket or self.endpoints[name].path
        node = node or name
        security = ["--insecure"]
        if self.secure and encrypted:
            new_key(self.folder / node)
            security = [
                f"--root-certificates={self.folder}/ca.pem",
                f"--auth-supernode-private-key={self.folder}/{node}",
            ]
            if register:
                self.flwr("supernode", "register", f"{self.folder}/{node}.pub", "here")
        self.start(
            node, "flower-supernode", *security, "--superlink", self.address, "--port", str(free_port()),
            "--node-config", f'graphsilo-site="{path}"',
        )  # fmt: skip

    def run(self, sites: str, *, component: str | None = "driver:app", **config: str) -> str:
        """Start a run of the template's app, by default with the tests' ServerApp; give back the run's number."""
        app = self.folder / "app"
        shutil.copytree(TEMPLATE, app, dirs_exist_ok=True)
        if component is not None:
            shutil.copy(HERE / "driver.py", app)
            project = app / "pyproject.toml"
            project.write_text(project.read_text().replace("graphsilo.cli.federation.flower:app", component))
        values = {"graphsilo-federation": sites, "graphsilo-out": str(self.folder / "driver.sock"), **config}
        said = self.flwr("run", str(app), "here", *(f'--run-config={key}="{value}"' for key, value in values.items()))
        return re.search(r"started run (\d+)", said)[1]

    def order(self, do: str, body: bytes = b"", **more: object) -> tuple[bytes, list[str] | None, float]:
        """Answer, error and seconds of one call at the FlowerTransport in the ServerApp."""
        path = self.folder / "driver.sock"
        wait_for(path.exists, "the ServerApp to start", self.log("superlink"))
        with pipe.connect(path, timeout=300) as connection:
            pipe.send(connection, json.dumps({"do": do, **more}).encode())
            pipe.send(connection, body)
            said = json.loads(pipe.receive(connection))
            answer = bytes(pipe.receive(connection))
        return answer, said.get("error"), said.get("seconds", 0.0)

    def ask(self, site: str, body: bytes, timeout: float = 120.0) -> tuple[bytes, list[str] | None, float]:
        return self.order("request", body, site=site, timeout=timeout)

    def status(self, number: str) -> str:
        runs = json.loads(self.flwr("list", "here", "--format", "json"))["runs"]
        return next(run["status"] for run in runs if str(run["run-id"]) == number)

    def wait_for_end(self, number: str, seconds: float = 90.0) -> None:
        # Each look starts a process that takes seconds of a core.
        wait_for(
            lambda: self.status(number).startswith("finished"), "the run", self.log("superlink"), seconds, every=10.0
        )

    def ours(self) -> list[int]:
        mark = f"FLWR_HOME={self.folder}/home".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def close(self) -> None:
        for endpoint in self.endpoints.values():
            endpoint.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.ours():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            end = time.monotonic() + 10
            while self.ours() and time.monotonic() < end:
                time.sleep(0.1)
        for process in self.processes.values():
            process.wait(timeout=10)
        assert not self.ours()


def wait_for(condition, what: str, log: Path, seconds: float = 90.0, every: float = 0.1) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}:\n{log.read_text()[-4000:]}"
        time.sleep(every)


def reachable(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def certificates(folder: Path) -> None:
    """A certificate authority and the SuperLink's certificate for loopback."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.datetime.now(datetime.UTC)
    keys = {who: ec.generate_private_key(ec.SECP256R1()) for who in ("ca", "link")}
    names = {who: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, who)]) for who in keys}
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for who, key in keys.items():
        built = (
            x509.CertificateBuilder().subject_name(names[who]).issuer_name(names["ca"]).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
            .add_extension(here, critical=False).sign(keys["ca"], hashes.SHA256())
        )  # fmt: skip
        (folder / f"{who}.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private = keys["link"].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)


def new_key(path: Path) -> None:
    """A SuperNode's key pair in ssh's form."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public)


@contextlib.contextmanager
def federation(*, secure: bool) -> Iterator[Federation]:
    folder = Path(tempfile.mkdtemp(prefix="gsfl"))  # a unix socket's path must be short
    made = None
    try:
        made = Federation(folder, secure=secure)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def plain() -> Iterator[Federation]:
    """Two sites, north and south, and a run that waits for orders. No encryption."""
    with federation(secure=False) as made:
        made.add_site("north")
        made.add_site("south")
        made.number = made.run("north south")
        _, error, seconds = made.order("wait", timeout=120.0)
        assert error is None, error
        print(f"\nhello of two sites: {seconds:.1f} s")
        yield made


@pytest.fixture(scope="module")
def secure() -> Iterator[Federation]:
    """One site whose SuperNode has a key that the SuperLink knows; TLS."""
    with federation(secure=True) as made:
        made.add_site("north")
        made.run("north")
        _, error, _ = made.order("wait", timeout=120.0)
        assert error is None, error
        yield made


@pytest.fixture
def start_federation() -> Iterator[Callable[..., Federation]]:
    """Starts a federation of its own for one test."""
    with contextlib.ExitStack() as stack:
        yield lambda *, secure: stack.enter_context(federation(secure=secure))
