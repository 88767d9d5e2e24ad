"""Small graphs that the tests of silos share, and a PostgreSQL server for one test run."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition
from kit.silos import ids


def undirected(pairs: list[tuple[int, int]]) -> np.ndarray:
    edges = np.array(pairs + [(b, a) for a, b in pairs], dtype=np.int64).T
    return edges[:, np.lexsort((edges[1], edges[0]))]


@pytest.fixture
def path() -> Graph:
    """A path of nine nodes; labels 0 0 1 | 1 0 2 | 2 2 0."""
    return Graph(
        features=np.arange(9, dtype=np.float32)[:, None],
        edges=undirected([(i, i + 1) for i in range(8)]),
        labels=ids(0, 0, 1, 1, 0, 2, 2, 2, 0),
        num_classes=3,
        name="path",
    )


@pytest.fixture
def cut_path() -> Partition:
    """Clients 0-1-2 and 3-4-5; the new client holds 6-7-8."""
    return Partition(
        rule="files",
        seed=0,
        data="path",
        num_nodes=9,
        nodes=(ids(0, 1, 2), ids(5, 4, 3)),
        train=(ids(0, 2), ids(4, 5)),
        val=(ids(1), ids()),
        test=(ids(), ids(3)),
        new_part=ids(6, 7, 8),
    )


def make_random_graph(seed: int = 0, nodes: int = 240) -> Graph:
    generator = np.random.default_rng(seed)
    block = np.arange(nodes) % 6
    pairs = np.stack(np.triu_indices(nodes, 1))
    kept = generator.random(pairs.shape[1]) < np.where(block[pairs[0]] == block[pairs[1]], 0.2, 0.01)
    edges = np.concatenate([pairs[:, kept], pairs[::-1, kept]], axis=1)
    labels = np.where(generator.random(nodes) < 0.2, generator.integers(5, size=nodes), block % 5)
    labels[:4] = -1
    return Graph(generator.standard_normal((nodes, 3)).astype(np.float32), edges, labels, 5, name="random")


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """Six blocks in five classes; the first four nodes have no label."""
    return make_random_graph


@dataclass(frozen=True)
class PostgresServer:
    """A server that listens on the loopback, and on a socket in ``folder``.

    Attributes:
        folder: Of its socket.
        port: Of both.
        user, password: Of its superuser; the password is asked for on the loopback only.
    """

    folder: Path
    port: int
    user: str
    password: str

    def url(self, *, user: str | None = None, password: str | None = None, database: str = "postgres") -> str:
        """As written under ``connection``."""
        who = f"{user or self.user}:{password or self.password}"
        return f"postgresql+psycopg://{who}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser."""
        import psycopg

        address = f"host={self.folder} port={self.port} user={self.user} dbname=postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def find_postgres() -> Path | None:
    """The folder with initdb and postgres: of the PATH, of Debian's packages, or of pg_config."""
    places = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        places.append(Path(told.stdout.strip()))
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def server_account() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A throw-away cluster in a folder of its own."""
    programs, account = find_postgres(), server_account()
    if programs is None:
        pytest.skip("no PostgreSQL: initdb and postgres are neither on the PATH nor in /usr/lib/postgresql")
    if account is None:
        pytest.skip("PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'")
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    # Not in pytest's own folder, which belongs to root alone where the server runs as somebody else.
    folder = Path(tempfile.mkdtemp(prefix="graphsilo-pg-"))
    as_account = {} if os.getuid() != 0 else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(folder)}
    try:
        (folder / "password").write_text("s3cret:p@ss/word")
        for path in (folder, folder / "password"):
            os.chown(path, account.pw_uid, account.pw_gid)
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "keeper", "-E", "UTF8", "--locale=C", "--no-sync",
             "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={folder / 'password'}"],
            cwd=folder, env=environment, check=True, capture_output=True, **as_account,
        )  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-p", str(port), "-c", "listen_addresses=127.0.0.1",
             "-c", f"unix_socket_directories={folder}", "-c", "fsync=off", "-c", "max_connections=20"],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"), **as_account,
        )  # fmt: skip
        try:
            found = PostgresServer(folder, port, "keeper", "s3cret:p%40ss%2Fword")
            wait_for(found, server)
            yield found
        finally:
            server.send_signal(signal.SIGINT)  # "fast": connections are closed
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(server: PostgresServer, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            return server.execute("SELECT 1")
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL does not start ({error}): {(server.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
