"""The site's end of a federation: takes packets from the engine, has the worker answer them, and keeps it alive.

    engine's client process --unix socket--> supervisor --socket pair--> worker (torch, silos)

The supervisor holds no private data and imports no torch. It answers a repeated request with the answer that it gave
before, starts a worker that died again, and says so to whoever asks next. The worker's memory died with it: the
coordinator takes the whole federation back to its last checkpoint, of which every site keeps its own part.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from graphsilo import loading
from graphsilo.__about__ import __version__
from graphsilo.errors import DisclosureError, FederationError, one_line
from graphsilo.runtime import pipe
from graphsilo.runtime.lost import describe_end
from graphsilo.runtime.machine import LARGE_PAGES
from graphsilo.runtime.protocol import MAX_BODY, OPERATIONS, Packet, ProtocolError, header_of, pack, pack_error, unpack
from graphsilo.runtime.site.certified import Kits
from graphsilo.runtime.transport import Body
from graphsilo.types import ClientId

KEPT_ANSWERS = 4
"""Answers that are kept to be given again. A coordinator asks a site one thing at a time."""
_STATELESS = frozenset({"cards", "open", "result", "memory"})
"""What a new worker can answer as well as one that died idle: it needs nothing that the old one knew."""
_START = 60.0
_ATTEMPTS = 3
PATIENCE = 20.0
"""Seconds after which a repeated request is answered that its answer is still being made."""


class SiteSupervisor:
    """Serves a site.

    Args:
        name: Of the site.
        silos: Number in the federation and ``silo.yaml`` of each silo that lives here.
        folder: Of the site; ``run/site.sock`` is made in it.
        say: Receives a line for every event worth one.
        may_send: Kinds of disclosure that the federation grants a silo at most, where it says so.
        kits: What the site's kit says of who is who in secure sums; None believes silos' keys at first sight.
        open_request: Checks that a request is the coordinator's, and gives what is asked; None believes the engine.
    """

    def __init__(
        self,
        name: str,
        silos: Sequence[tuple[ClientId, Path]],
        folder: Path,
        *,
        say: Callable[[str], None] = lambda text: None,
        may_send: Mapping[ClientId, Sequence[str]] | None = None,
        kits: Kits | None = None,
        open_request: Callable[[Body], memoryview] | None = None,
    ):
        self.name, self.silos, self.folder = name, list(silos), folder
        self.say: Callable[[str], None] = lambda text: say(one_line(text, 4000))  # some of it a coordinator's words
        self._open_request, self._kits = open_request, kits
        self.socket_path = folder / "run" / "site.sock"
        self.may_send = {str(client): list(kinds) for client, kinds in (may_send or {}).items()}
        self.started = time.time()
        self.restarts = 0
        self._answers: OrderedDict[str, Future[Body]] = OrderedDict()
        self._newest = ""
        self._reported: list[tuple[str, ClientId, str]] = []
        self._failed: set[tuple[ClientId, str]] = set()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._closed = threading.Event()

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the worker, which reads and checks the silos, and listen.

        Raises:
            FederationError: A silo is not what it should be.
            RunError: Another supervisor serves this folder.
        """
        self._listener = pipe.listen(self.socket_path)
        try:
            self._start_worker()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._accept, daemon=True, name="site").start()

    def close(self) -> None:
        """End the worker and stop listening. May be called twice."""
        self._closed.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self.socket_path.unlink(missing_ok=True)
        self._stop_worker()

    @property
    def worker_pid(self) -> int | None:
        """Process number of the worker, while there is one."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    # -- requests -------------------------------------------------------------------------------------------------

    def answer(self, body: Body) -> Body:
        """The answer to a request; an empty one asks for the site's name."""
        if len(body) == 0:
            return self.name.encode()
        try:
            if self._open_request is not None:
                body = self._open_request(body)
            packet = unpack(body, limit=MAX_BODY, clients=len(self.silos))
        except ProtocolError as error:
            self.say(f"a request was refused: {error}")
            return pack_error("", type(error).__name__, str(error))
        operation = packet.header.get("do")
        if operation == "hello":
            return self._hello(packet)
        if operation == "poll":
            return self._poll(packet)
        if not isinstance(operation, str) or operation not in OPERATIONS:  # before any log or terminal has it
            return pack_error(packet.id, "FederationError", "a site cannot do what was asked of it.")
        with self._lock:
            future = self._answers.get(packet.id)
            if future is None:
                future = self._answers[packet.id] = Future()
                self._newest = packet.id
                mine = True
                while len(self._answers) > KEPT_ANSWERS:
                    first = next(iter(self._answers))
                    if not self._answers[first].done():
                        break
                    self._answers.pop(first)
            else:
                mine = False
        if mine:
            try:
                future.set_result(self._ask_worker(packet, body))
            except BaseException as error:  # such as a silo file that is wrong by now; it is for the site to read
                self.say(f"the worker process cannot answer ({type(error).__name__}): {error}")
                text = (
                    f"the worker process of site '{self.name}' cannot answer; the reason stands in the log at the site."
                )
                future.set_result(pack_error(packet.id, "FederationError", text))
        return future.result()

    def _hello(self, packet: Packet) -> bytearray:
        return pack(
            {
                "id": packet.id,
                "ok": True,
                "site": self.name,
                "clients": [client for client, _ in self.silos],
                "graphsilo": __version__,
                "since": self.started,
                "restarts": self.restarts,
            }
        )

    def _poll(self, packet: Packet) -> Body:
        """Whether a request's answer is there (then it is the answer), is being made, or was never asked for."""
        with self._lock:
            future = self._answers.get(str(packet.header.get("of")))
        if future is None:
            return pack({"id": packet.id, "ok": True, "state": "unknown"})
        try:
            return future.result(timeout=PATIENCE)
        except TimeoutError:
            return pack({"id": packet.id, "ok": True, "state": "running"})

    def _ask_worker(self, packet: Packet, body: Body) -> Body:
        with self._turn:
            if packet.id != self._newest:  # nobody waits for it: a coordinator asks a site one thing at a time
                return pack_error(packet.id, "Superseded", "the coordinator has asked for something else since.")
            why = ""
            for _ in range(2 if packet.header["do"] in _STATELESS else 1):
                if self._closed.is_set():
                    return pack_error(packet.id, "SiteClosed", f"site '{self.name}' is being stopped.")
                if self._connection is None:
                    self._start_worker()
                    self.restarts += 1
                connection = self._connection
                if connection is None:
                    return pack_error(packet.id, "WorkerDied", "the worker process could not be started.")
                try:
                    pipe.send(connection, body)
                    answer = pipe.receive(connection)
                except (EOFError, OSError):
                    why = self._stop_worker()
                    self.say(f"the worker process {why}; it is started again when it is next needed")
                    continue
                header = header_of(answer)
                if header.get("ok"):
                    self._print(packet, header)
                elif header.get("kind") == "NotOpen":
                    self.say(
                        f"run {packet.header.get('run')} began before this site's worker was started: the coordinator "
                        f"opens it here again, and all go on from their last checkpoints"
                    )
                else:
                    self.say(f"'{packet.header.get('do')}' failed ({header.get('kind')}): {header.get('text')}")
                return answer
            return pack_error(packet.id, "WorkerDied", f"the worker process of site '{self.name}' {why}.")

    def _print(self, packet: Packet, answer: Mapping[str, Any]) -> None:
        """What a person at the site wants to know."""
        header = packet.header
        refused = [] if header["do"] != "open" else [(header["run"], *one) for one in answer["refused"]]
        for run, client, why in refused:
            if (run, client, why) not in self._reported:  # each seed opens again, and before it who agrees on a scale
                self.say(f"client {client} takes no part in run {run}: {why}")
        if header["do"] == "open":
            self._reported = refused
            self._failed.clear()
            if len(refused) == len(header["models"]):
                return
        for one in answer.get("answers", ()):
            if (found := one.get("failure")) and (one["client"], found[0]) not in self._failed:
                self._failed.add((one["client"], found[0]))  # who asks again and again is noted in the silo's log alone
                does = "refuses" if found[0] == DisclosureError.__name__ else "failed in"
                self.say(f"client {one['client']} {does} '{header['handler']}' of run {header['run']}: {found[1]}")
        before = header.get("agreeing") or header.get("counting")
        if header["do"] == "open" and not before:  # the same run opens again to train
            begins = "goes on" if header.get("mark") else "begins"
            self.say(f"run {header['run']} {begins}: {header['method']}, seed {header['seed']}")
        elif header["do"] == "result" and header["results"]:
            self.say(f"run {header['run']} is done; scores and models are in {self.folder}/results/{header['run']}")

    # -- worker ---------------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        """Start the worker; one that does not come up is ended and started again, a few times."""
        for attempt in range(_ATTEMPTS):
            try:
                self._start_worker_once()
                return
            except TimeoutError:
                self.say(f"the worker process did not come up within {_START:.0f} s; see {self.folder}/run/worker.log")
                if attempt == _ATTEMPTS - 1:
                    raise FederationError(
                        f"the worker process of site '{self.name}' did not come up in {_ATTEMPTS} attempts of "
                        f"{_START:.0f} seconds: is the machine overloaded? See {self.folder}/run/worker.log."
                    ) from None

    def _start_worker_once(self) -> None:
        mine, theirs = socket.socketpair()
        environment = {**LARGE_PAGES, **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        begin = {
            "silos": [[client, str(path)] for client, path in self.silos],
            "folder": str(self.folder),
            "may_send": self.may_send,
            "kits": None if self._kits is None else self._kits.tree(),
        }
        (self.folder / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "run" / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    *loading.command("graphsilo.runtime.site.worker", str(theirs.fileno()), json.dumps(begin)),
                ],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        try:
            mine.settimeout(_START)
            ready = unpack(pipe.receive(mine))
            mine.settimeout(None)
        except TimeoutError:
            mine.close()
            self._process.send_signal(signal.SIGABRT)  # writes where it hangs into its log
            self._stop_worker()
            raise
        except (EOFError, OSError):
            mine.close()
            why = self._stop_worker()
            raise FederationError(
                f"the worker process of site '{self.name}' {why} before it was ready; see {self.folder}/run/worker.log."
            ) from None
        if not ready.header["ok"]:
            mine.close()
            self._stop_worker()
            raise FederationError(str(ready.header["text"]))
        self._connection = mine

    def _stop_worker(self) -> str:
        """End the worker; says how it ended."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        process = self._process
        if process is None:
            return "is not running"
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
        return describe_end(process.returncode)

    # -- socket ---------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        listener = self._listener
        while listener is not None and not self._closed.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True, name="site-connection").start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while not self._closed.is_set():
                try:
                    body = pipe.receive(connection, limit=MAX_BODY)
                    pipe.send(connection, self.answer(body))
                except (EOFError, OSError):
                    return
