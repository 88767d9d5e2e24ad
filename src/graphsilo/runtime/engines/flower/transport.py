"""The coordinator's end in Flower: requests as messages to SuperNodes, answers as their replies."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from graphsilo.errors import ConfigError, FederationError, GraphsiloError
from graphsilo.runtime.engines.flower.envelope import ACTION, pack, unpack
from graphsilo.runtime.transport import Body, Parts, Transport, Unreachable, views_of

_POLL = 0.3  # seconds between two looks for a reply
_LOOK_AROUND = 2.0  # seconds between two looks for new SuperNodes
_GREETING = 120.0  # seconds that a hello may take; starting a ClientApp takes up to a minute on a busy machine
_AGAIN = 15.0  # seconds until a SuperNode that gave no name is greeted again

_log = logging.getLogger("flwr")  # a ServerApp's log goes to whoever started the run


class _NoReply(Exception):
    """Why a message got no answer, in words.

    Attributes:
        code: Flower's code of the error, where Flower sent one.
    """

    def __init__(self, reason: str, code: int | None = None):
        super().__init__(reason)
        self.code = code


class FlowerTransport(Transport):
    """Requests over a Flower grid.

    SuperNodes have numbers, sites have names: each SuperNode is greeted with an empty request, which its site answers
    with its name. That goes on in the background, so a site that comes later, or comes back under a new number, is
    found; a name that a reachable SuperNode bears is given to no other.

    Every request waits in a thread of its own: a reply of which a part is still being sent keeps nobody else waiting,
    nor does Flower's own endless trying when the SuperLink is gone.

    Args:
        grid: The grid of the ``ServerApp``.
        sites: Names of the sites, in the order of the federation.
        shortest: Seconds that every request has at least, whatever is asked: a process is started for it first.

    Raises:
        ConfigError: No site is named, or one twice.
    """

    def __init__(self, grid: Grid, sites: Sequence[str], *, shortest: float = 0.0):
        self.sites = tuple(sites)
        if not self.sites or len(set(self.sites)) != len(self.sites) or not all(self.sites):
            raise ConfigError(f"the sites of a federation have names, all different; {list(self.sites)} was given.")
        self._grid, self._shortest = grid, shortest
        self._nodes: dict[str, int] = {}
        self._doubtful: set[str] = set()  # sites whose last request was not answered
        self._problems: dict[int, str] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        threading.Thread(target=self._look_around, name="graphsilo-flower-hello", daemon=True).start()

    def wait_for_sites(self, timeout: float) -> None:
        """Wait until every site has said its name.

        Args:
            timeout: Seconds after which nobody waits any more.

        Raises:
            FederationError: Some have not.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._nodes) == len(self.sites) or self._closed.is_set(), timeout)
            missing = [site for site in self.sites if site not in self._nodes]
            problems = [f"SuperNode {node}: {reason}" for node, reason in sorted(self._problems.items())]
        if missing:
            raise FederationError(
                f"{len(self.sites)} sites were to come, after {timeout:.0f} s {', '.join(missing)} had not: start a "
                f"SuperNode and 'graphsilo join' there. {'; '.join(problems) or 'No SuperNode gave a reason.'}"
            )

    def request(self, site: str, body: Body | Parts, *, timeout: float) -> Body:
        if site not in self.sites:
            raise ConfigError(f"there is no site '{site}'; the federation has {', '.join(self.sites)}.")
        timeout = max(timeout, self._shortest)
        end = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: site in self._nodes or self._closed.is_set(), timeout)
            node = self._nodes.get(site)
        if self._closed.is_set():
            raise Unreachable(site, "the transport is closed")
        if node is None:
            raise Unreachable(site, f"no SuperNode has said that it is this site within {timeout:.0f} s")
        try:
            answer = self._submit(node, b"".join(views_of(body)), end).result(timeout=max(0.0, end - time.monotonic()))
        except TimeoutError:
            self._doubt(site, node)
            raise Unreachable(site, f"nothing came within {timeout:.0f} s") from None
        except _NoReply as error:
            if error.code != ErrorCode.CLIENT_APP_RAISED_EXCEPTION:  # that would be the SuperNode's own word
                self._doubt(site, node, gone=error.code == ErrorCode.NODE_UNAVAILABLE)
            raise Unreachable(site, str(error)) from error
        with self._changed:
            self._doubtful.discard(site)
        return answer

    def close(self) -> None:
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def _doubt(self, site: str, node: int, *, gone: bool = False) -> None:
        """Note that a SuperNode is silent, so that another one may come in its place."""
        with self._changed:
            self._doubtful.add(site)
            if gone and self._nodes.get(site) == node:
                del self._nodes[site]

    def _submit(self, node: int, body: Body, end: float) -> Future[bytes]:
        """Send and wait in a thread of its own, which ends with the request."""
        outcome: Future[bytes] = Future()

        def run() -> None:
            try:
                outcome.set_result(self._carry(node, body, end))
            except _NoReply as error:
                outcome.set_exception(error)
            except Exception as error:  # Flower's own errors; a daemon thread has nobody else to tell
                outcome.set_exception(_NoReply(f"Flower failed: {type(error).__name__}: {error}"))

        threading.Thread(target=run, name=f"graphsilo-flower-{node}", daemon=True).start()
        return outcome

    def _carry(self, node: int, body: Body, end: float) -> bytes:
        message = Message(pack(body), node, ACTION, ttl=max(1.0, end - time.monotonic()))
        sent = next(iter(self._grid.push_messages([message])), None)
        if not sent:
            raise _NoReply("the SuperLink refused the message (its log says why)")
        del message  # a body can be large, and the SuperLink has it
        while time.monotonic() < end and not self._closed.is_set():
            for reply in self._grid.pull_messages([sent]):
                if reply.metadata.reply_to_message_id == sent:
                    return self._open_reply(reply)
            self._closed.wait(_POLL)
        raise _NoReply("nothing came in time")

    @staticmethod
    def _open_reply(reply: Message) -> bytes:
        if reply.has_error():
            raise _NoReply(reply.error.reason or f"Flower's error {reply.error.code}", reply.error.code)
        try:
            return unpack(reply.content)
        except GraphsiloError as error:
            raise _NoReply(str(error)) from error

    def _look_around(self) -> None:
        """Greet every SuperNode that has no name yet."""
        asked: dict[int, Future[bytes]] = {}
        again: dict[int, float] = {}
        while not self._closed.is_set():
            with contextlib.suppress(Exception):  # the SuperLink is away for a moment: look again later
                online = set(self._grid.get_node_ids())
                for node in [node for node, greeting in asked.items() if greeting.done()]:
                    if not self._learn_name(node, asked.pop(node), online):
                        again[node] = time.monotonic() + _AGAIN
                for node in sorted(online - set(asked) - set(self._nodes.values())):
                    if time.monotonic() >= again.get(node, 0.0):
                        asked[node] = self._submit(node, b"", time.monotonic() + _GREETING)
            self._closed.wait(_POLL if asked else _LOOK_AROUND)

    def _learn_name(self, node: int, greeting: Future[bytes], online: set[int]) -> bool:
        """Whether a SuperNode's answer to a hello settles who it is."""
        try:
            name = greeting.result().decode("utf-8")
        except (_NoReply, UnicodeDecodeError) as error:
            problem = str(error) if isinstance(error, _NoReply) else "its site's name is no text"
        else:
            with self._changed:
                holder = self._nodes.get(name, node)
                taken = holder != node and holder in online and name not in self._doubtful
                if name in self.sites and not taken:
                    self._nodes[name] = node
                    self._doubtful.discard(name)
                    self._problems.pop(node, None)
                    self._changed.notify_all()
                    return True
            if name in self.sites:
                problem = f"calls itself '{name}', but SuperNode {holder} bears that name and is reachable"
            else:
                problem = f"calls itself '{name[:80]}', which is no site of this federation ({', '.join(self.sites)})"
        if self._problems.get(node) != problem:
            _log.warning("graphsilo: SuperNode %s: %s", node, problem)
        with self._changed:
            self._problems[node] = problem
        return False
