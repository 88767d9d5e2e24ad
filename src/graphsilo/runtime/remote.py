"""Clients at other machines: the federation over any transport. Same numbers as in one process, bit for bit.

A request goes to every site that is asked, at the same time; answers are handed on by client number, so that sums are
those of one process. What can go wrong has one place here:

- No answer comes: the site is asked whether it still works on it. One that works has until the *deadline*, one that
  says nothing has the *patience*; then its clients count as failed, and the method's ``min_clients`` decides.
- An answer is damaged or belongs to another request: it is asked for again, and if it stays so the clients have failed.
- A worker died and forgot its clients' state: ``StateLost`` takes the whole run back to its last checkpoint, of which
  every site keeps its own part. A site that loses its state again and again without a round in between counts as gone.
- A site that comes back begins with its last checkpoint; one that has none yet begins anew.

What a site says of itself is believed within bounds: a text is cut, a number must be one, and nobody speaks for others.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from graphsilo.errors import FederationError, GraphsiloError, RunError
from graphsilo.federation.client import ModelSpec
from graphsilo.federation.codec import Encoded, aligned_bytes
from graphsilo.federation.interface import Failure
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.registry import Method
from graphsilo.federation.settings import MethodConfig
from graphsilo.runtime.dispatch import handler_of
from graphsilo.runtime.in_process import LocalFederation
from graphsilo.runtime.site.protocol import Packet, ProtocolError, pack, unpack
from graphsilo.runtime.transport import Transport, Unreachable
from graphsilo.types import ClientId

SiteState: TypeAlias = Literal["waiting", "up", "working", "late", "lost", "gone"]
_LOST_STATE = frozenset({"WorkerDied", "NotOpen"})
_MOST_LOSSES = 3
"""Times that a site may lose its state without a round in between."""
_FIRST_WAIT = 30.0
_PER_MEGABYTE = 1.0
_POLL_WAIT = 30.0
_BETWEEN = 0.5
_LONGEST_TEXT = 1000
"""Signs of a text of a site that are kept: it stands in the status, in logs and in the result."""
_MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What reading plain values of unknown types may raise."""


class StateLost(FederationError):
    """A site has forgotten its clients' state; the run goes back to its last checkpoint.

    Attributes:
        site: Which.
    """

    def __init__(self, site: str, reason: str):
        super().__init__(f"site '{site}' has lost its clients' state: {reason}")
        self.site = site


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
    """The sites of a federation, for as long as a run lasts; each seed opens its clients anew.

    Args:
        transport: Leads to the sites.
        clients: Numbers of the clients at each site.
        run: Name of the run, the same after a restart: sites keep their checkpoints under it.
        deadline: Seconds that a site may work on one answer.
        patience: Seconds that a site may say nothing at all.
        max_bytes: Most bytes of one answer.
        say: Hears a line for every event worth one.
    """

    def __init__(
        self,
        transport: Transport,
        clients: Mapping[str, Sequence[ClientId]],
        run: str,
        *,
        deadline: float = 3600.0,
        patience: float = 120.0,
        max_bytes: int = 4 << 30,
        say: Callable[[str], None] = lambda text: None,
    ):
        self.transport, self.run = transport, run
        self.deadline, self.patience, self.max_bytes, self.say = deadline, patience, max_bytes, say
        self.status = {site: SiteStatus(tuple(sorted(clients[site]))) for site in clients}
        self.site_of = {client: site for site, members in clients.items() for client in members}
        self.limits: dict[ClientId, float] = {}
        self.told: dict[str, Any] = {}
        self.keeps_models = True
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
        from graphsilo.__about__ import __version__

        end = time.monotonic() + timeout
        missing = list(self.status)
        while missing:
            for site in list(missing):
                check()
                try:
                    answer = self._once(site, {"do": "hello"}, timeout=5.0)
                except Unreachable:
                    continue
                held, wanted = answer.header.get("clients"), list(self.status[site].clients)
                if not isinstance(held, list) or sorted(map(str, held)) != sorted(map(str, wanted)):
                    raise FederationError(
                        f"site '{site}' should hold the clients {wanted}, and holds {_told(held)}: its silos are not "
                        f"those of this federation's file."
                    )
                if answer.header.get("graphsilo") != __version__:
                    raise FederationError(
                        f"site '{site}' runs graphsilo {_told(answer.header.get('graphsilo'))}, the coordinator "
                        f"{__version__}: install the same release everywhere."
                    )
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
        """What every silo tells of itself before round 1.

        Raises:
            FederationError: A site does not answer, or cannot read its silos.
        """
        found: dict[ClientId, dict[str, Any]] = {}
        for site, packet in self.everywhere({"do": "cards"}).items():
            try:
                own = {int(client): dict(card) for client, card in packet.header["cards"]}
                limits = {client: _limit(card["counts"]) for client, card in own.items()}
            except _MALFORMED as error:
                raise FederationError(
                    f"the cards of site '{site}' are malformed ({type(error).__name__}: {_told(error)})."
                ) from None
            if sorted(own) != list(self.status[site].clients):
                raise FederationError(
                    f"site '{site}' was asked for the cards of the clients {list(self.status[site].clients)} and gave "
                    f"those of {_told(sorted(own))}."
                )
            found.update(own)
            self.limits.update(limits)
        return dict(sorted(found.items()))

    # -- during a run ---------------------------------------------------------------------------------------------

    def federation(
        self,
        method: Method,
        config: MethodConfig,
        models: Mapping[ClientId, ModelSpec],
        seed: int,
        device: str,
        ledger: Ledger | None = None,
    ) -> Remote:
        """Open all clients for one seed. What ``told`` holds goes with it: schema, task and the like.

        Raises:
            FederationError: Too few sites could open theirs.
        """
        return Remote(self, method, config, models, seed, device, ledger)

    def recovering(self, lost: StateLost) -> None:
        """A run begins again from its checkpoint because of a site. Too often is too often: then the site is gone."""
        status = self.status[lost.site]
        status.losses += 1
        status.become("lost", str(lost))
        if status.losses >= _MOST_LOSSES:
            status.become("gone", f"lost its state {status.losses} times in a row: {lost}")
        self.say(f"{lost} The run goes back to its last checkpoint.")

    def for_reference(self, name: str) -> RemoteSites:
        """The same sites for a reference row: its checkpoints stand apart, and its models are not kept."""
        other = copy.copy(self)
        other.run, other.keeps_models = f"{self.run}.{name}", False
        self._references.append(other.run)
        return other

    def tell_results(self, results: Mapping[ClientId, Mapping[str, Any]], config: Mapping[str, Any]) -> None:
        """Give every silo its own part of the result; one that does not answer goes without."""
        for site, status in self.status.items():
            own = [[client, dict(results[client])] for client in status.clients if client in results]
            try:
                header = {"do": "result", "run": self.run, "results": own, "config": dict(config)}
                checked(site, self.request(site, header))
                for reference in self._references:  # nothing to tell, and checkpoints to forget
                    checked(site, self.request(site, {**header, "run": reference, "results": []}))
            except FederationError as error:
                self.say(f"site '{site}' was not told its results: {error}")

    def close(self) -> None:
        """Nothing is asked or waited for any more; the transport stays open."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- packets --------------------------------------------------------------------------------------------------

    def everywhere(self, header: Mapping[str, Any]) -> dict[str, Packet]:
        """Ask all sites the same at once.

        Raises:
            FederationError: One of them did not answer, or could not do it.
        """
        futures = {site: self.submit(site, header) for site in self.status}
        wait(list(futures.values()))
        return {site: checked(site, future.result()) for site, future in futures.items()}

    def request(
        self, site: str, header: Mapping[str, Any], payloads: Sequence[Any] = (), *, deadline: float | None = None
    ) -> Packet:
        """Ask one site until it answers or is given up.

        Args:
            site: Which.
            header: What is asked.
            payloads: With which bytes.
            deadline: Seconds that it may work; None takes the federation's.

        Raises:
            Gone: No answer came in time.
            ProtocolError: Its answer stays damaged.
        """
        identity = uuid.uuid4().hex
        body = pack({**header, "id": identity}, payloads)
        status = self.status[site]
        if status.state == "gone":
            raise Gone(site, f"was given up ({status.note})", late=False)
        most = self.deadline if deadline is None else deadline
        begun = heard = time.monotonic()
        status.become("working")
        damaged = 0
        send, troubled = True, False
        while True:
            if self._closed.is_set():
                raise Gone(site, "is not waited for any more", late=False)
            asked = time.monotonic()
            left = begun + most - asked
            if left <= 0:
                status.become("late", f"took more than {most:.0f} s")
                raise Gone(site, f"did not finish within the deadline of {most:.0f} seconds", late=True)
            try:
                if send:
                    send = False
                    timeout = _FIRST_WAIT + _PER_MEGABYTE * len(body) / 1e6
                    answer = self._carry(site, body, min(timeout, left + 1))
                else:
                    question = pack({"do": "poll", "of": identity, "id": uuid.uuid4().hex})
                    answer = self._carry(site, question, min(_POLL_WAIT, left + 1))
                packet = unpack(answer, limit=self.max_bytes)
            except Unreachable as error:
                silent = time.monotonic() - heard
                if not troubled:
                    troubled = True
                    status.become("late", _told(error.reason))
                    self.say(f"site '{site}' gives no answer ({error.reason}); waiting {self.patience:.0f} s for it")
                if silent > self.patience:
                    status.become("lost", _told(error.reason))
                    raise Gone(site, f"has been silent for {silent:.0f} seconds ({error.reason})", late=False) from None
                self._closed.wait(min(_BETWEEN, max(0.0, self.patience - silent)))
                continue
            except ProtocolError as error:
                damaged += 1
                status.note = _told(error)
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

    def _carry(self, site: str, body: bytearray, timeout: float) -> bytearray:
        answer = self.transport.request(site, body, timeout=timeout)
        status = self.status[site]
        status.sent += len(body)
        status.received += len(answer)
        return answer

    def _once(self, site: str, header: Mapping[str, Any], *, timeout: float) -> Packet:
        """One attempt, for greetings."""
        identity = uuid.uuid4().hex
        try:
            packet = unpack(self._carry(site, pack({**header, "id": identity}), timeout), limit=self.max_bytes)
        except ProtocolError as error:
            raise Unreachable(site, str(error)) from None
        if packet.id != identity or not packet.header.get("ok"):
            raise Unreachable(site, _told(packet.header.get("text", "it answers something else")))
        return packet

    def submit(
        self, site: str, header: Mapping[str, Any], payloads: Sequence[Any] = (), *, deadline: float | None = None
    ) -> Future[Packet]:
        """``request`` in a thread of its own."""
        return self._threads.submit(self.request, site, header, payloads, deadline=deadline)


def checked(site: str, packet: Packet) -> Packet:
    """An answer that is one.

    Raises:
        StateLost: The site has forgotten its clients.
        FederationError: The site could not do what it was asked.
    """
    if packet.header.get("ok"):
        return packet
    kind, text = _told(packet.header.get("kind")), _told(packet.header.get("text"))
    if kind in _LOST_STATE:
        raise StateLost(site, text)
    raise FederationError(f"site '{site}': {text}" if kind != "FederationError" else f"site '{site}' {text}")


def _told(value: object) -> str:
    """What a site says, in one line and no longer than is read: it must not look like another line of a log."""
    text = str(value)
    cut = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} …"
    return "".join(sign if sign.isprintable() else " " for sign in cut)


def _limit(counts: Mapping[str, Any]) -> float:
    """How much a silo can count for at most, by what it said it holds: see ``LocalFederation.sum``."""
    return float(max(counts["nodes"], 2 * counts["links"], counts["graphs"]))


class Remote(LocalFederation):
    """The federation of one seed over remote sites."""

    def __init__(
        self,
        sites: RemoteSites,
        method: Method,
        config: MethodConfig,
        models: Mapping[ClientId, ModelSpec],
        seed: int,
        device: str,
        ledger: Ledger | None,
    ):
        super().__init__(list(sites.site_of), ledger)
        self.sites, self.seed, self.run = sites, seed, sites.run
        self._client = method.client
        self.limits = sites.limits
        self.minimum = config.min_clients
        self._begin = {
            "do": "open",
            "run": self.run,
            "seed": seed,
            "method": method.name,
            "config": config.model_dump(mode="json"),
            "device": device,
            **sites.told,
        }
        self._models = {client: [spec.name, dict(spec.settings)] for client, spec in models.items()}
        self._opened: set[str] = set()
        self._refused: dict[ClientId, str] = {}
        self._marks: dict[str, str] = {}
        failures = []
        futures = {site: sites.submit(site, self._opening(site)) for site in sites.status}
        wait(list(futures.values()))
        for site, future in futures.items():
            try:
                self._note_opened(site, future.result())
            except StateLost:
                raise
            except FederationError as error:
                if self.minimum is None and not isinstance(error, Gone):
                    raise
                failures.append(str(error))
        failures += [f"client {client} refuses: {text}" for client, text in self._refused.items()]
        present = sum(len(sites.status[site].clients) for site in self._opened) - len(self._refused)
        wanted = len(self.clients) if self.minimum is None else self.minimum
        if present < wanted:
            raise FederationError(
                f"{wanted} clients have to take part, {present} do. {'; '.join(failures)}. Wait for the site "
                f"and continue "
                f"with --resume, or allow fewer with method.min_clients."
            )

    def _note_opened(self, site: str, packet: Packet) -> None:
        header = checked(site, packet).header
        try:
            refused = {int(client): _told(text) for client, text in header.get("refused", [])}
        except _MALFORMED as error:
            raise FederationError(f"site '{site}' gave a malformed answer ({type(error).__name__}).") from None
        strange = [client for client in refused if client not in self.sites.status[site].clients]
        if strange:
            raise FederationError(f"site '{site}' speaks for client {strange[0]}, which is not its own.")
        for client, text in refused.items():
            self._refused[client] = text
            self.sites.say(f"client {client} at site '{site}' takes no part: {text}")
        self._opened.add(site)

    def _opening(self, site: str) -> dict[str, Any]:
        models = [[client, self._models[client]] for client in self.sites.status[site].clients]
        return {**self._begin, "models": models, "mark": self._marks.get(site)}

    # -- messages -------------------------------------------------------------------------------------------------

    def deliver(
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded], timeout: float | None = None
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        pending: dict[Future[Packet], tuple[str, list[ClientId]]] = {}
        early: dict[ClientId, Encoded | Failure] = {}
        for site, status in self.sites.status.items():
            asked = []
            for client in status.clients:
                if client in outgoing and client in self._refused:
                    early[client] = Failure(client, handler, "DisclosureError", self._refused[client])
                elif client in outgoing:
                    asked.append(client)
            if not asked:
                continue
            trouble = self._ready(site)
            if trouble is not None:
                early.update({client: Failure(client, handler, "Gone", trouble) for client in asked})
                continue
            payloads: list[Any] = []
            places: dict[int, int] = {}
            to = []
            for client in asked:
                encoded = outgoing[client]
                if id(encoded) not in places:  # a broadcast crosses to each site once
                    places[id(encoded)] = len(payloads)
                    payloads.append(encoded.data)
                to.append([client, places[id(encoded)]])
            header = {
                "do": "call", "run": self.run, "seed": self.seed, "handler": handler, "round": round, "to": to,
            }  # fmt: skip
            pending[self.sites.submit(site, header, payloads, deadline=timeout)] = site, asked
        yield from self._in_order(handler, sorted(outgoing), pending, early)

    def _in_order(
        self,
        handler: str,
        order: list[ClientId],
        pending: dict[Future[Packet], tuple[str, list[ClientId]]],
        early: dict[ClientId, Encoded | Failure],
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        """Answers as they come, handed on by client number: sums are the same as in one process."""
        position = 0
        lost: StateLost | None = None
        while pending or position < len(order):
            while lost is None and position < len(order) and order[position] in early:
                client = order[position]
                position += 1
                yield client, early.pop(client)
            if not pending:
                break
            done, _ = wait(list(pending), return_when=FIRST_COMPLETED)
            for future in done:
                site, asked = pending.pop(future)
                try:
                    early.update(self._answers(site, handler, asked, future.result()))
                except StateLost as error:
                    lost = lost or error
                except (FederationError, GraphsiloError) as error:
                    kind = type(error).__name__
                    early.update({client: Failure(client, handler, kind, str(error)) for client in asked})
        if lost is not None:
            raise lost  # after everybody has answered: nobody is left at work on what is thrown away

    def _answers(
        self, site: str, handler: str, asked: list[ClientId], packet: Packet
    ) -> dict[ClientId, Encoded | Failure]:
        header = checked(site, packet).header
        found: dict[ClientId, Encoded | Failure] = {}
        _, reply_type = handler_of(self._client, handler).types_cached()
        declared = [(spec.name, spec.kind) for spec in reply_type.specs()]
        spent = 0.0
        try:
            for answer in header["answers"]:
                client = int(answer["client"])
                seconds = float(answer["cpu"])
                if not 0 <= seconds < math.inf:
                    raise ValueError(f"{seconds} seconds")
                spent += seconds
                if "failure" in answer:
                    kind, reason = answer["failure"]
                    found[client] = Failure(client, handler, _told(kind), _told(reason))
                else:
                    payload = packet.payloads[answer["payload"]]
                    data = aligned_bytes(payload.nbytes)
                    data[:] = np.frombuffer(payload, dtype=np.uint8)
                    fields = tuple((str(name), str(kind), int(size)) for name, kind, size in answer["fields"])
                    # These go into the ledger, which says what left each silo.
                    sizes = [size for _, _, size in fields]
                    if [field[:2] for field in fields] != declared or min(sizes, default=0) < 0:
                        raise ValueError("its fields are not those of the message")
                    if answer["name"] != reply_type.wire_name() or sum(sizes) > data.nbytes:
                        raise ValueError("it is not the message that was asked for")
                    found[client] = Encoded(data, reply_type.wire_name(), fields)
        except _MALFORMED as error:
            raise FederationError(
                f"site '{site}' gave a malformed answer ({type(error).__name__}: {_told(error)})."
            ) from None
        if sorted(found) != asked:
            raise FederationError(
                f"site '{site}' was asked for clients {asked} and answered for {_told(sorted(found))}."
            )
        self.client_cpu_seconds += spent
        return found

    def _ready(self, site: str) -> str | None:
        """None when a site can be asked; otherwise why not. One that is back is opened where it left."""
        status = self.sites.status[site]
        if status.state == "gone":
            return f"site '{site}' was given up ({status.note})"
        if site in self._opened and status.state != "lost":
            return None
        try:
            self.sites._once(site, {"do": "hello"}, timeout=2.0)
            if site in self._opened:
                status.become("up")
                return None
            self._note_opened(site, self.sites.request(site, self._opening(site)))
        except (Unreachable, FederationError) as error:
            status.become("lost")
            return str(error)
        self.sites.say(f"site '{site}' is back")
        return None

    # -- for the runner -------------------------------------------------------------------------------------------

    def _here(self) -> list[str]:
        """Sites that take part just now. One beyond its deadline is still at work on what it was asked before."""
        return [site for site in self._opened if self.sites.status[site].state not in ("gone", "lost", "late")]

    def _session(self, operation: str, **settings: Any) -> dict[str, Any]:
        return {"do": operation, "run": self.run, "seed": self.seed, **settings}

    def _together(self, headers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Ask several sites at once. One that does not answer is left out where the method can do without it.

        Args:
            headers: What is asked, by site.

        Returns:
            The sites that did it.

        Raises:
            StateLost: One has forgotten its clients.
            FederationError: One could not do it, or too few answered.
        """
        futures = {site: self.sites.submit(site, header) for site, header in headers.items()}
        wait(list(futures.values()))
        done: list[str] = []
        silent: list[str] = []
        troubles: list[FederationError] = []
        for site, future in futures.items():
            try:
                checked(site, future.result())
                done.append(site)
            except (Gone, ProtocolError) as error:
                silent.append(str(error))
            except FederationError as error:
                troubles.append(error)
        if troubles:
            raise next((error for error in troubles if isinstance(error, StateLost)), troubles[0])
        for text in silent:
            self.sites.say(text)
        present = sum(client not in self._refused for site in done for client in self.sites.status[site].clients)
        wanted = len(self.clients) if self.minimum is None else self.minimum
        if silent and present < wanted:
            raise FederationError(f"{wanted} clients have to take part, {present} do. {'; '.join(silent)}.")
        return done

    def remember(self) -> None:
        self._together({site: self._session("remember") for site in self._here()})

    def client_states(self) -> dict[ClientId, Any]:
        """Has every site keep a checkpoint; returns where it is found, not what it holds.

        A site that is away keeps none, and would go back to the one before.
        """
        mark = f"seed{self.seed}-round{self.ledger.round}"
        for site in self._together({site: self._session("save", mark=mark) for site in self._here()}):
            self._marks[site] = mark
            self.sites.status[site].losses = 0
        return {client: {"mark": self._marks.get(self.sites.site_of[client])} for client in self.clients}

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        for site, status in self.sites.status.items():
            marks = {states[client]["mark"] for client in status.clients}
            if len(marks) != 1:
                raise RunError(
                    f"the checkpoint names no single mark of site '{site}'; begin the run anew with another --out."
                )
            mark = marks.pop()
            if mark is not None:
                self._marks[site] = mark
        asked = {site: self._session("restore", mark=self._marks[site]) for site in self._here() if site in self._marks}
        done = self._together(asked)
        self._opened -= asked.keys() - set(done)  # these begin with their checkpoint when they are back

    def finish(self, *, embeddings: bool, study: bool = False) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        """The sites write their models into their own folders; nothing comes here."""
        header = self._session("finish", embeddings=embeddings, models=self.sites.keeps_models)
        self._together(dict.fromkeys(self._here(), header))
        for client in self.clients:
            yield client, {"last": {}, "best": None}

    def peak_rss_bytes(self) -> int:
        """As far as sites tell; a run does not fail for it."""
        peaks = [super().peak_rss_bytes()]
        futures = {site: self.sites.submit(site, {"do": "memory"}) for site in self._here()}
        for site, future in futures.items():
            with contextlib.suppress(FederationError):
                told = checked(site, future.result()).header.get("bytes")
                if isinstance(told, int):
                    peaks.append(told)
        return max(peaks)
