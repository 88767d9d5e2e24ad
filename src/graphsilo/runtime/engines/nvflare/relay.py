"""What runs inside the engine's processes: components that hand byte strings on, and keep nothing.

    runner ── relay.sock ── CoordinatorRelay ══ FLARE's cells, mutual TLS ══ SiteRelay ── site.sock ── supervisor

Three kinds of messages, all between FLARE's cells. ``ask`` (coordinator to site) and ``answer`` carry a number in their
header and a body that FLARE streams as it is, without serialising it: nothing is decoded on the way. Each goes one way.
FLARE's own request-and-reply would keep every reply, and a thread, for a minute, in case it must be sent again; here
nothing is sent again but by the runner. ``hello`` (a small request, with a reply) goes to every site each second. It
tells the site which answers are waited for, and the site tells which of them it knows nothing of: those were lost.

A site listens to the coordinator only. Who a sender is, the engine says, and its check has a gap (a site that registers
twice can name another sender with its first token); what stands in a request is believed for its signature, which the
supervisor checks.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message

from graphsilo.runtime import pipe
from graphsilo.runtime.protocol import MAX_BODY
from graphsilo.runtime.transport import Body

CHANNEL, ASK, ANSWER, HELLO = "graphsilo", "ask", "answer", "hello"
_NUMBER, _PROBLEM, _BIRTH, _WAITED, _UNKNOWN = (
    f"graphsilo_{name}" for name in ("number", "problem", "birth", "waited", "unknown")
)
_HELLO_SECONDS = 1.0
_HELLO_TIMEOUT = 20.0  # on a slow line a hello waits behind what is being sent
_FIRST_HELLO_TIMEOUT = 3.0  # a site that is just joining may not listen yet; then no answer ever comes
_MISSED_HELLOS = 3
_LOST_SECONDS = 10.0
_LOST_HELLOS = 3
_SILENCE_SECONDS = 90.0
_ANSWER_TRIES = 5
_SWEEP_BYTES = 16 << 20
_THREADS = 32

log = logging.getLogger("graphsilo.relay")


class _Sweeper:
    """Frees the bodies that have passed.

    FLARE's streams refer to each other in circles, so that a body stays in memory until Python looks for circles; left
    to itself it does so every few hundred MB. What exists when the engine has started is never looked at again
    (``freeze``), which keeps each search within milliseconds.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._lock = threading.Lock()
        gc.collect()
        gc.freeze()

    def note_passed(self, size: int) -> None:
        with self._lock:
            self._bytes += size
            if self._bytes < _SWEEP_BYTES:
                return
            self._bytes = 0
        gc.collect()


class _Waited:
    """One answer that is waited for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.problem = ""
        self.payload: Any = b""
        self.sent: float | None = None  # when the last byte had left
        self.unknown = 0  # hellos in which the site knew nothing of it

    def fail(self, problem: str) -> None:
        if not self.done.is_set():
            self.problem = problem
            self.done.set()


class _Site:
    """What the coordinator's relay knows of one site."""

    def __init__(self, name: str):
        self.name = name
        self.state = "never seen"
        self.since = time.time()
        self.problem = "it has not joined since the coordinator was started"
        self.birth = ""
        self.missed = 0
        self.waited: dict[str, _Waited] = {}
        self.lock = threading.Lock()

    def numbers(self) -> list[str]:
        """Of the answers that the site should know of by now."""
        limit = time.monotonic() - _LOST_SECONDS
        with self.lock:
            return [number for number, one in self.waited.items() if one.sent is not None and one.sent < limit]

    def note_heard(self, birth: str, unknown: Iterable[str]) -> None:
        with self.lock:
            self.missed = 0
            if self.birth != birth:
                if self.birth:
                    self._abandon("its engine was started again meanwhile")
                self.birth = birth
            for number in unknown:
                one = self.waited.get(number)
                if one is not None:
                    one.unknown += 1
                    if one.unknown >= _LOST_HELLOS:  # an answer that has just arrived is unknown there, too
                        one.fail("the request or its answer was lost on the way")
            if self.state != "up":
                self.state, self.since, self.problem = "up", time.time(), ""
                log.info("site '%s' is up", self.name)

    def note_silent(self, problem: str, *, certain: bool) -> None:
        with self.lock:
            self.missed += 1
            if self.state == "up" and (certain or self.missed >= _MISSED_HELLOS):
                self.state, self.since = "lost", time.time()
                self._abandon(f"the connection was lost meanwhile ({problem})")
                log.warning("site '%s' is lost: %s", self.name, problem)
            if self.state != "up":
                self.problem = problem

    def _abandon(self, problem: str) -> None:
        for one in self.waited.values():
            one.fail(problem)


class CoordinatorRelay(FLComponent):  # type: ignore[misc]
    """Listens for the runner and asks sites in its name.

    Args:
        socket_path: Where it listens.
        sites: The sites that may be asked; others that hold a certificate of this federation are left alone.
    """

    def __init__(self, socket_path: str, sites: list[str]):
        super().__init__()
        self._path = Path(socket_path)
        self._sites = {name: _Site(name) for name in sites}
        self._engine: Any = None
        self._cell: Any = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when the engine has started."""
        if event_type == EventType.SYSTEM_START and self._engine is None:
            _or_end(self._begin, fl_ctx)

    def _begin(self, fl_ctx: FLContext) -> None:
        self._engine = fl_ctx.get_engine()
        self._cell = self._engine.get_cell()
        self._sweeper = _Sweeper()
        self._cell.register_request_cb(channel=CHANNEL, topic=ANSWER, cb=self._take_answer)
        self._path.unlink(missing_ok=True)  # one coordinator per kit: the runner holds a lock on it
        listener = pipe.listen(self._path)
        threading.Thread(target=self._accept, args=(listener,), name="graphsilo-accept", daemon=True).start()
        for site in self._sites.values():
            threading.Thread(target=self._greet, args=(site,), name=f"hello-{site.name}", daemon=True).start()
        log.info("relay for %d sites is listening", len(self._sites))

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="graphsilo-serve", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while True:
                    head = json.loads(bytes(pipe.receive(connection)))
                    body = pipe.receive(connection)
                    try:
                        answer, content = self._carry_out(head, body)
                    except Exception as error:
                        log.exception("a request of the runner failed inside the engine")
                        answer, content = {"problem": f"the engine failed: {type(error).__name__}: {error}"}, None
                    size = len(body) + _size(content)
                    del body  # a body of 100 MB should not outlive its answer
                    pipe.send(connection, json.dumps(answer).encode("utf-8"))
                    pipe.send(connection, *_parts(content))
                    content = None
                    self._sweeper.note_passed(size)
            except (EOFError, OSError):
                return  # the runner has let go

    def _carry_out(self, head: dict[str, Any], body: Body) -> tuple[dict[str, Any], Any]:
        if head["do"] == "health":
            table = {
                site.name: {"state": site.state, "since": site.since, "problem": site.problem}
                for site in self._sites.values()
            }
            return {"health": table}, None
        site = self._sites.get(head["site"])
        if site is None:
            return {"problem": "it is not in this federation"}, None
        number, one = secrets.token_hex(8), _Waited()
        with site.lock:
            if site.state != "up":
                return {"problem": f"it is not connected ({site.problem})"}, None
            site.waited[number] = one
        try:
            self._ask(site, number, one, body)
            if not one.done.wait(float(head["timeout"])):
                return {"problem": f"no answer within {head['timeout']:g} s"}, None
        finally:
            with site.lock:
                site.waited.pop(number, None)
        return ({"problem": one.problem}, None) if one.problem else ({}, one.payload)

    def _ask(self, site: _Site, number: str, one: _Waited, body: Body) -> None:
        target = self._target(site)
        if target is None:
            one.fail("it has not joined")
            return
        message = Message({_NUMBER: number}, body)
        self._cell.fire_and_forget(channel=CHANNEL, topic=ASK, targets=target, message=message, optional=True)

        def note_sent(future: Any) -> None:
            if future.error:
                one.fail(f"the request could not be sent ({future.error})")
            else:
                one.sent = time.monotonic()

        future = message.get_prop(MessagePropKey.FUTURES)[target]
        future.add_done_callback(note_sent, future)

    def _target(self, site: _Site) -> str | None:
        client = self._engine.client_manager.name_to_clients.get(site.name)
        return client.get_fqcn() if client is not None else None

    def _take_answer(self, message: Message) -> Message:
        origin = message.get_header(MessageHeaderKey.ORIGIN)
        site = self._sites.get(origin)
        one = site.waited.get(message.get_header(_NUMBER)) if site is not None else None
        if one is None or one.done.is_set():
            log.info("an answer of '%s' came that nobody waits for any more", origin)
        elif message.get_header(_PROBLEM):
            one.fail(str(message.get_header(_PROBLEM)))
        else:
            one.payload = message.payload
            one.done.set()
        return Message()

    def _greet(self, site: _Site) -> None:
        while True:
            try:
                self._greet_once(site)
            except Exception as error:
                site.note_silent(f"{type(error).__name__}: {error}", certain=False)
            time.sleep(_HELLO_SECONDS)

    def _greet_once(self, site: _Site) -> None:
        target = self._target(site)
        if target is None:
            site.note_silent("it has not joined", certain=True)
            return
        reply = self._cell.core_cell.send_request(
            channel=CHANNEL,
            topic=HELLO,
            target=target,
            request=Message({_WAITED: site.numbers()}, None),
            timeout=_HELLO_TIMEOUT if site.state == "up" else _FIRST_HELLO_TIMEOUT,
            optional=True,  # whom it does not reach is not worth an error in the engine's log
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        problem = reply.get_header(_PROBLEM)
        if problem:
            site.note_silent(str(problem), certain=True)
        elif code == ReturnCode.OK:
            site.note_heard(str(reply.get_header(_BIRTH)), reply.get_header(_UNKNOWN) or ())
        elif code == ReturnCode.TIMEOUT:
            site.note_silent("no answer to a hello in time", certain=False)
        else:
            site.note_silent("the connection is broken", certain=True)


class SiteRelay(FLComponent):  # type: ignore[misc]
    """Hands the coordinator's requests to the supervisor of this site and its answers back.

    Args:
        socket_path: Where the supervisor listens.
        seen_path: File whose time of change says when the coordinator was last heard.
    """

    def __init__(self, socket_path: str, seen_path: str):
        super().__init__()
        self._path = Path(socket_path)
        self._seen = Path(seen_path)
        self._birth = secrets.token_hex(8)
        self._heard = 0.0
        self._known: set[str] = set()
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="graphsilo-ask")
        self._cell: Any = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when the engine has joined."""
        if event_type == EventType.SYSTEM_START and self._cell is None:
            _or_end(self._begin, fl_ctx)

    def _begin(self, fl_ctx: FLContext) -> None:
        self._cell = fl_ctx.get_engine().get_cell()
        self._sweeper = _Sweeper()
        self._cell.register_request_cb(channel=CHANNEL, topic=HELLO, cb=self._answer_hello)
        self._cell.register_request_cb(channel=CHANNEL, topic=ASK, cb=self._take_request)
        threading.Thread(target=self._watch, name="graphsilo-watch", daemon=True).start()
        log.info("joined the federation; requests go to %s", self._path)

    def _answer_hello(self, message: Message) -> Message:
        if not _from_coordinator(message):
            return Message({_PROBLEM: "it answers the coordinator only"})
        self._heard = time.monotonic()
        self._seen.touch()
        try:
            pipe.connect(self._path, timeout=5.0).close()
        except OSError:
            return Message({_PROBLEM: "its engine is connected, but nobody serves the silos there ('graphsilo join')"})
        unknown = [number for number in message.get_header(_WAITED) or () if number not in self._known]
        return Message({_BIRTH: self._birth, _UNKNOWN: unknown})

    def _take_request(self, message: Message) -> Message:
        if _from_coordinator(message):
            number = str(message.get_header(_NUMBER))
            self._known.add(number)
            self._threads.submit(self._carry_out, number, message.payload)  # the engine's own threads stay free
        return Message()

    def _carry_out(self, number: str, payload: Any) -> None:
        size = _size(payload)
        try:
            try:
                answer, problem = self._exchange(payload), ""
            except (OSError, EOFError) as error:
                answer, problem = bytearray(), f"its engine is connected, but the supervisor there is not ({error})"
            del payload
            self._send(number, answer, problem)
            size += len(answer)
            del answer
            self._sweeper.note_passed(size)
        except Exception:
            log.exception("a request could not be carried out")
        finally:
            self._known.discard(number)

    def _send(self, number: str, answer: Body, problem: str) -> None:
        for attempt in range(_ANSWER_TRIES):
            head = {_NUMBER: number, _PROBLEM: problem} if problem else {_NUMBER: number}
            message = Message(head, answer)
            self._cell.fire_and_forget(
                channel=CHANNEL, topic=ANSWER, targets=FQCN.ROOT_SERVER, message=message, optional=True
            )
            try:
                message.get_prop(MessagePropKey.FUTURES)[FQCN.ROOT_SERVER].result()
                return
            except Exception as error:
                log.warning("an answer could not be sent (%s)", error)
            time.sleep(2.0**attempt)  # the connection may be back by then

    def _exchange(self, payload: Any) -> Body:
        with pipe.connect(self._path) as connection:
            pipe.send(connection, *_parts(payload))
            return pipe.receive(connection, limit=MAX_BODY)

    def _watch(self) -> None:
        """End this process when the coordinator has fallen silent: the way there may be dead with neither end knowing.

        Whoever started the process starts it again, with a connection of its own.
        """
        while True:
            time.sleep(5.0)
            if self._heard and time.monotonic() - self._heard > _SILENCE_SECONDS:
                log.warning("the coordinator has said nothing for %d s; connecting again", _SILENCE_SECONDS)
                logging.shutdown()
                os._exit(3)


def _or_end(begin: Callable[[FLContext], None], fl_ctx: FLContext) -> None:
    """FLARE swallows what goes wrong in a component; an engine without its relay is of no use, so it ends."""
    try:
        begin(fl_ctx)
    except Exception:
        log.exception("the relay could not be started")
        traceback.print_exc()
        logging.shutdown()
        os._exit(4)


def _from_coordinator(message: Message) -> bool:
    origin = message.get_header(MessageHeaderKey.ORIGIN)
    if origin == FQCN.ROOT_SERVER:
        return True
    log.warning("a message of '%s', who is not the coordinator, was refused", origin)
    return False


def _parts(payload: Any) -> Iterable[Any]:
    """A payload of FLARE's: nothing, a byte string, or a list of them."""
    if payload is None:
        return ()
    return payload if isinstance(payload, list) else (payload,)


def _size(payload: Any) -> int:
    return sum(len(part) for part in _parts(payload))
