"""The sites of a federation, seen from its coordinator: how each is, and one request until it answers or is given up.

What can go wrong with one request has its place here; what it means for a round has its place in ``runtime.remote``.
"""

from __future__ import annotations

import copy
import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphsilo.__about__ import __version__
from graphsilo.errors import FederationError, one_line
from graphsilo.federation.ledger import Ledger
from graphsilo.runtime.lost import MAX_LOSSES, StateLost
from graphsilo.runtime.protocol import MAX_BODY, Packet, ProtocolError, parts, unpack
from graphsilo.runtime.setup import ClientSetup
from graphsilo.runtime.transport import Body, Parts, Transport, Unreachable, size_of
from graphsilo.types import ClientId

if TYPE_CHECKING:
    from graphsilo.federation.registry import Method
    from graphsilo.federation.settings import MethodConfig
    from graphsilo.runtime.remote.federation import Remote

SiteState: TypeAlias = Literal["waiting", "up", "working", "late", "lost", "gone"]
_LOST_STATE = frozenset({"WorkerDied", "NotOpen"})
_FIRST_WAIT = 30.0
_PER_MEGABYTE = 1.0
_POLL_WAIT = 30.0
_BETWEEN = 0.5
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What reading plain values of unknown types may raise."""


class Gone(FederationError):
    """A site gave no answer in time.

    Attributes:
        site: Which.
        late: Whether it was at work when time was up, rather than silent.
    """

    def __init__(self, site: str, reason: str, *, late: bool):
        super().__init__(f"site '{site}' {reason}")
        self.site, self.late = site, late


@dataclass
class SiteStatus:
    """What is known of a site just now, for whoever watches.

    Attributes:
        clients: Who lives there.
        state: ``waiting`` (never seen), ``up``, ``working``, ``late`` (no answer yet, or beyond the deadline), ``lost``
            (silent for longer than the patience) or ``gone`` (given up).
        since: Unix time of the last change.
        seconds: What its last answer took.
        sent, received: Bytes of packets to and from it.
        losses: Times in a row that it lost its state.
        note: Last trouble in words.
    """

    clients: tuple[ClientId, ...]
    state: SiteState = "waiting"
    since: float = field(default_factory=time.time)
    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    losses: int = 0
    note: str = ""

    def become(self, state: SiteState, note: str = "") -> None:
        if state != self.state:
            self.since = time.time()
        self.state = state
        if note:
            self.note = note


class RemoteSites:
    """The sites of a federation, for as long as a run lasts; each seed opens its clients again.

    ``evaluations`` says how many answers of evaluation all seeds of a method ask for at most; 0: nobody knows.

    Args:
        transport: Leads to the sites.
        clients: Numbers of the clients at each site.
        run: Name of the run, the same after a restart: sites keep their checkpoints under it.
        without: Clients that are not asked for anything; a site that holds no other is not waited for.
        deadline: Seconds that a site may work on one answer.
        patience: Seconds that a site may say nothing at all.
        say: Receives a line for every event worth one.
    """

    def __init__(
        self,
        transport: Transport,
        clients: Mapping[str, Sequence[ClientId]],
        run: str,
        *,
        without: Collection[ClientId] = (),
        deadline: float = 3600.0,
        patience: float = 120.0,
        say: Callable[[str], None] = lambda text: None,
    ):
        self.transport, self.run = transport, run
        self.deadline, self.patience, self.say = deadline, patience, say
        self.held = {site: sorted(members) for site, members in clients.items()}
        asked = {
            site: tuple(client for client in members if client not in without) for site, members in self.held.items()
        }
        self.status = {site: SiteStatus(members) for site, members in asked.items() if members}
        self.site_of = {client: site for site, members in asked.items() for client in members}
        self._items: dict[ClientId, dict[str, float]] = {}
        self.degrees: dict[ClientId, float] = {}
        self.facts: dict[str, Any] = {}
        self.evaluations: Callable[[Method, MethodConfig], int] = lambda method, config: 0
        self.beside: str | None = None
        self._references: list[str] = []
        self._threads = ThreadPoolExecutor(max(2, len(self.status)), thread_name_prefix="site")
        self._closed = threading.Event()

    # -- before a run ---------------------------------------------------------------------------------------------

    def wait_for_all(self, timeout: float = math.inf, *, check: Callable[[], None] = lambda: None) -> None:
        """Wait until every site answers, and check that each holds the silos that the federation says.

        Args:
            timeout: Seconds.
            check: Called again and again meanwhile; may raise to end the waiting.

        Raises:
            FederationError: Some did not in time, or a site holds other silos or another release of graphsilo.
        """
        end = time.monotonic() + timeout
        missing = list(self.status)
        while missing:
            for site in list(missing):
                check()
                try:
                    answer = self._ask_once(site, {"do": "hello"}, timeout=5.0)
                except Unreachable:
                    continue
                held, wanted = answer.header.get("clients"), self.held[site]
                if not isinstance(held, list) or sorted(map(str, held)) != sorted(map(str, wanted)):
                    raise FederationError(
                        f"site '{site}' should hold the clients {wanted}, and holds {one_line(held)}: its silos are "
                        f"not those of this federation's file."
                    )
                check_release(site, answer)
                self.status[site].become("up")
                self.say(f"site '{site}' is up")
                missing.remove(site)
            if missing:
                if time.monotonic() > end:
                    raise FederationError(
                        f"{len(missing)} of {len(self.status)} sites did not answer within {timeout:.0f} seconds: "
                        f"{', '.join(missing)}. Start `graphsilo join` there, or look at its log."
                    )
                time.sleep(_BETWEEN)

    def cards(self) -> dict[ClientId, dict[str, Any]]:
        """What every silo reports about itself before round 1.

        Raises:
            FederationError: A site does not answer, or cannot read its silos.
        """
        found: dict[ClientId, dict[str, Any]] = {}
        asked = {site: {"do": "cards", "of": list(status.clients)} for site, status in self.status.items()}
        for site, future in self.ask_all(asked).items():
            packet = require_ok(site, future.result())
            try:
                own = {int(client): dict(card) for client, card in packet.header["cards"]}
                counts = {client: card["counts"] for client, card in own.items()}
                items = {
                    client: {
                        "node": float(each["nodes"]),
                        "graph": float(max(each["nodes"], each["graphs"])),
                        "link": float(max(each["nodes"], 2 * each["links"])),
                    }
                    for client, each in counts.items()
                }
                degrees = {
                    client: math.inf if own[client]["weighted"] else float(each["nodes"] + 2 * each["links"])
                    for client, each in counts.items()
                }
            except MALFORMED as error:
                raise FederationError(
                    f"the cards of site '{site}' are malformed ({type(error).__name__}: {one_line(error)})."
                ) from None
            if sorted(own) != list(self.status[site].clients):
                raise FederationError(
                    f"site '{site}' was asked for the cards of the clients {list(self.status[site].clients)} and gave "
                    f"those of {one_line(sorted(own))}."
                )
            found.update(own)
            self._items.update(items)
            self.degrees.update(degrees)
        return dict(sorted(found.items()))

    @property
    def limits(self) -> dict[ClientId, float]:
        """How much each silo can count for at most in this task, by what it said it holds: see ``Exchange.sum``."""
        return {client: items.get(self.facts["task"], items["node"]) for client, items in self._items.items()}

    # -- during a run ---------------------------------------------------------------------------------------------

    def federation(self, setup: ClientSetup, ledger: Ledger | None = None) -> Remote:
        """Open all clients for one seed. What ``facts`` holds goes with it: schema, task and the like.

        Raises:
            FederationError: Too few sites could open theirs.
        """
        from graphsilo.runtime.remote.federation import Remote  # which is made of sites

        return Remote(self, setup, ledger)

    def recover(self, lost: StateLost) -> None:
        """A run begins again from its checkpoint because of a site. Too often is too often: then the site is gone."""
        status = self.status[lost.site]
        status.losses += 1
        status.become("lost", str(lost))
        if status.losses >= MAX_LOSSES:
            status.become("gone", f"lost its state {status.losses} times in a row: {lost}")
        self.say(f"{lost} The run goes back to its last checkpoint.")

    def for_reference(self, name: str) -> RemoteSites:
        """The same sites for a reference row: its checkpoints stand apart, and its models are not kept."""
        other = copy.copy(self)
        other.run, other.beside = f"{self.run}.{name}", self.run
        self._references.append(other.run)
        return other

    def send_results(
        self,
        results: Mapping[ClientId, Mapping[str, Any]],
        config: Mapping[str, Any],
    ) -> None:
        """Give every silo its own part of the result; one that does not answer goes without.

        Args:
            results: Of each client.
            config: Of the run.
        """
        for site, status in self.status.items():
            own = [[client, dict(results[client])] for client in status.clients if client in results]
            try:
                header = {"do": "result", "run": self.run, "results": own, "config": dict(config)}
                require_ok(site, self.request(site, header))
                for reference in self._references:  # nothing to tell, and checkpoints to forget
                    require_ok(site, self.request(site, {**header, "run": reference, "results": []}))
            except FederationError as error:
                self.say(f"site '{site}' was not sent its results: {error}")

    def close(self) -> None:
        """Nothing is asked or waited for any more; the transport stays open."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- packets --------------------------------------------------------------------------------------------------

    def request(self, site: str, header: Mapping[str, Any], payloads: Sequence[Any] = ()) -> Packet:
        """Ask one site until it answers or is given up.

        Raises:
            Gone: No answer came in time.
            ProtocolError: Its answer stays damaged.
        """
        identity = uuid.uuid4().hex
        body = parts({**header, "id": identity}, payloads)
        status = self.status[site]
        if status.state == "gone":
            raise Gone(site, f"was given up ({status.note})", late=False)
        begun = heard = time.monotonic()
        status.become("working")
        damaged = 0
        send, troubled = True, False
        while True:
            if self._closed.is_set():
                raise Gone(site, "is not waited for any more", late=False)
            asked = time.monotonic()
            left = begun + self.deadline - asked
            if left <= 0:
                status.become("late", f"took more than {self.deadline:.0f} s")
                raise Gone(site, f"did not finish within the deadline of {self.deadline:.0f} seconds", late=True)
            try:
                if send:
                    send = False
                    timeout = _FIRST_WAIT + _PER_MEGABYTE * size_of(body) / 1e6
                    answer = self._carry(site, body, min(timeout, left + 1))
                else:
                    question = parts({"do": "poll", "of": identity, "id": uuid.uuid4().hex})
                    answer = self._carry(site, question, min(_POLL_WAIT, left + 1))
                packet = unpack(answer, limit=MAX_BODY, clients=len(status.clients))
            except Unreachable as error:
                silent = time.monotonic() - heard
                if not troubled:
                    troubled = True
                    status.become("late", one_line(error.reason))
                    self.say(f"site '{site}' gives no answer ({error.reason}); waiting {self.patience:.0f} s for it")
                if silent > self.patience:
                    status.become("lost", one_line(error.reason))
                    raise Gone(site, f"has been silent for {silent:.0f} seconds ({error.reason})", late=False) from None
                self._closed.wait(min(_BETWEEN, max(0.0, self.patience - silent)))
                continue
            except ProtocolError as error:
                damaged += 1
                status.note = one_line(error)
                if damaged > 2:
                    status.become("up")
                    raise
                continue
            heard = time.monotonic()
            state = packet.header.get("state")
            if state in ("unknown", "running"):
                send = state == "unknown"
                status.become("working")
                # A site keeps a question for a while; one that does not must not be asked without a pause.
                self._closed.wait(max(0.0, _BETWEEN - (heard - asked)))
            elif packet.id != identity:
                damaged += 1
                if damaged > 2:
                    status.become("up")
                    raise ProtocolError(f"site '{site}' answers another request than the one it was asked.")
            else:
                status.seconds = heard - begun
                status.become("up")
                if troubled:
                    self.say(f"site '{site}' answers again")
                return packet

    def _carry(self, site: str, body: Parts, timeout: float) -> Body:
        answer = self.transport.request(site, body, timeout=timeout)
        status = self.status[site]
        status.sent += size_of(body)
        status.received += len(answer)
        return answer

    def _ask_once(self, site: str, header: Mapping[str, Any], *, timeout: float) -> Packet:
        """One attempt, for greetings."""
        identity = uuid.uuid4().hex
        try:
            answer = self._carry(site, parts({**header, "id": identity}), timeout)
            packet = unpack(answer, limit=MAX_BODY, clients=len(self.status[site].clients))
        except ProtocolError as error:
            raise Unreachable(site, str(error)) from None
        if packet.id != identity or not packet.header.get("ok"):
            raise Unreachable(site, one_line(packet.header.get("text", "it answers something else")))
        return packet

    def submit(self, site: str, header: Mapping[str, Any], payloads: Sequence[Any] = ()) -> Future[Packet]:
        """``request`` in a thread of its own."""
        return self._threads.submit(self.request, site, header, payloads)

    def ask_all(
        self, headers: Mapping[str, Mapping[str, Any]], payloads: Mapping[str, Sequence[Any]] = MappingProxyType({})
    ) -> dict[str, Future[Packet]]:
        """``request`` of several sites at once; all have answered then, or were given up."""
        futures = {site: self.submit(site, header, payloads.get(site, ())) for site, header in headers.items()}
        wait(list(futures.values()))
        return futures


def check_release(site: str, packet: Packet) -> None:
    """Refuse a site that runs another release, by what it answers whenever it joins.

    Raises:
        FederationError: It does.
    """
    found = packet.header.get("graphsilo")
    if found != __version__:
        raise FederationError(
            f"site '{site}' runs graphsilo {one_line(found)}, the coordinator {__version__}: install the same release "
            f"everywhere."
        )


def require_ok(site: str, packet: Packet) -> Packet:
    """An answer that is one.

    Raises:
        StateLost: The site has forgotten its clients.
        FederationError: The site could not do what it was asked.
    """
    if packet.header.get("ok"):
        return packet
    kind, text = one_line(packet.header.get("kind")), one_line(packet.header.get("text"))
    if kind in _LOST_STATE:
        raise StateLost(site, text)
    raise FederationError(f"site '{site}': {text}" if kind != "FederationError" else f"site '{site}' {text}")
