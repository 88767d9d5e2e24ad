"""Clients at other machines: the federation over any transport. Same numbers as in one process, bit for bit.

A request goes to every site that is asked, at the same time; answers are handed on by client number, so that sums are
those of one process. What can go wrong has one place here:

- No answer comes: the site is asked whether it still works on it. One that works has until the *deadline*, one that
  says nothing has the *patience*; then its clients count as failed, and the method's ``min_clients`` decides.
- An answer is damaged or belongs to another request: it is asked for again, and if it stays so the clients have failed.
- A worker died and forgot its clients' state: ``StateLost`` takes the whole run back to its last checkpoint, of which
  every site keeps its own part. A site that loses its state again and again without a round in between counts as gone.
- A site that comes back begins with its last checkpoint; one that has none yet begins from the start.

What a site says of itself is believed within bounds: a text is cut, a number must be one, and nobody speaks for others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from graphsilo.errors import FederationError, GraphsiloError, RunError, one_line
from graphsilo.federation.class_counts import CountingClient
from graphsilo.federation.codec import encode
from graphsilo.federation.interface import Failure, answers_of, suggest_fewer
from graphsilo.federation.kinds import MASKED
from graphsilo.federation.ledger import Ledger
from graphsilo.federation.message import Message
from graphsilo.federation.model_files import SCALE, flatten, scale_tensors, tensor_file
from graphsilo.federation.scaling import ScalingClient, message_of
from graphsilo.federation.secure import CALL, MASK
from graphsilo.federation.secure.messages import ANSWERS, Offer
from graphsilo.federation.wire import Encoded, aligned_view
from graphsilo.runtime.alone import AloneClient
from graphsilo.runtime.dispatch import handler_of
from graphsilo.runtime.exchange import Exchange, bundle
from graphsilo.runtime.hosted import NOBODY, Reported
from graphsilo.runtime.lost import StateLost
from graphsilo.runtime.protocol import Packet, ProtocolError
from graphsilo.runtime.remote.sites import MALFORMED, Gone, RemoteSites, check_release, require_ok
from graphsilo.runtime.setup import ClientSetup
from graphsilo.runtime.transport import Broadcast, Unreachable
from graphsilo.types import ClientId

_LONGEST = 1e7
"""Seconds of one step that are believed: what a site says of its time ends no run, and names no other."""


class Remote(Exchange):
    """The federation of one seed over remote sites."""

    def __init__(
        self,
        sites: RemoteSites,
        setup: ClientSetup,
        ledger: Ledger | None,
    ):
        super().__init__(list(sites.site_of), ledger)
        self.sites, self.seed, self.run = sites, setup.seed, sites.run
        self._client = setup.method.client
        self.limits, self.degrees = sites.limits, sites.degrees
        self.minimum = setup.config.min_clients
        self._begin = {
            "do": "open",
            "run": self.run,
            "method": setup.method.name,
            "agreeing": setup.method.client is ScalingClient,
            "alone": issubclass(setup.method.client, AloneClient),
            "counting": setup.method.client is CountingClient,
            "beside": sites.beside,
            "evaluations": sites.evaluations(setup.method, setup.config),
            **setup.tree(),
            **sites.facts,
        }
        self._scale = [] if setup.scale is None else [encode(message_of(setup.scale)).data]
        self._agreed = {} if setup.scale is None else flatten({SCALE: scale_tensors(setup.scale)})
        self._models = {client: spec.wire() for client, spec in setup.models.items()}
        self._opened: set[str] = set()
        self._refused: dict[ClientId, str] = {}
        self._marks: dict[str, str] = {}
        failures = []
        openings = {site: self._opening(site) for site in sites.status}
        for site, future in sites.ask_all(openings, dict.fromkeys(openings, self._scale)).items():
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
            why = "; ".join(text.rstrip(".") for text in failures)
            raise FederationError(
                f"{wanted} clients have to take part, {present} do: {why}. Mend that and continue the job, where this "
                f"has stopped it (`graphsilo federation submit --continue JOB`)"
                f"{suggest_fewer(wanted, self.minimum)}."
            )

    def _note_opened(self, site: str, packet: Packet) -> None:
        header = require_ok(site, packet).header
        check_release(site, packet)  # before it trains: it may have been started again since the run began
        try:
            refused = {int(client): one_line(text) for client, text in header.get("refused", [])}
        except MALFORMED as error:
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
        self, handler: str, round: int, outgoing: Mapping[ClientId, Encoded]
    ) -> Iterator[tuple[ClientId, Encoded | Failure]]:
        pending: dict[Future[Packet], tuple[str, list[ClientId]]] = {}
        early: dict[ClientId, Encoded | Failure] = {}
        shared: dict[int, Broadcast] = {}
        for site, status in self.sites.status.items():
            asked = []
            for client in status.clients:
                if client in outgoing and client in self._refused:
                    early[client] = Failure(client, handler, "DisclosureError", self._refused[client])
                elif client in outgoing:
                    asked.append(client)
            if not asked:
                continue
            trouble = self._make_ready(site)
            if trouble is not None:
                early.update({client: Failure(client, handler, "Gone", trouble) for client in asked})
                continue
            messages, to = bundle(asked, outgoing)
            payloads = [shared.setdefault(id(message), Broadcast(message)) for message in messages]
            back = self._back(site, self.back)
            header = self._session("call", handler=handler, round=round, to=to, step=self.turn, back=back)
            pending[self.sites.submit(site, header, payloads)] = site, asked
        yield from self._yield_in_order(handler, sorted(outgoing), pending, early)

    def _yield_in_order(
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
        header = require_ok(site, packet).header
        found: dict[ClientId, Encoded | Failure] = {}
        expected = self._list_expected(handler)
        spent: dict[ClientId, float] = {}
        try:
            for answer in header["answers"]:
                client = int(answer["client"])
                seconds = float(answer["cpu"])
                if not 0 <= seconds < _LONGEST:
                    raise ValueError(f"{seconds} seconds")
                spent[client] = seconds
                if "failure" in answer:
                    kind, reason, other = answer["failure"]
                    peer = None if other is None else int(other)
                    found[client] = Failure(client, handler, one_line(kind), one_line(reason), peer=peer)
                else:
                    data = aligned_view(packet.payloads[answer["payload"]])
                    fields = tuple((str(name), str(kind), int(size)) for name, kind, size in answer["fields"])
                    # These go into the ledger, which says what left each silo.
                    sizes = [size for _, _, size in fields]
                    name = str(answer["name"])
                    if name not in expected or sum(sizes) > data.nbytes:
                        raise ValueError("it is not the message that was asked for")
                    if [field[:2] for field in fields] != expected[name] or min(sizes, default=0) < 0:
                        raise ValueError("its fields are not those of the message")
                    found[client] = Encoded(data, name, fields)
        except MALFORMED as error:
            raise FederationError(
                f"site '{site}' gave a malformed answer ({type(error).__name__}: {one_line(error)})."
            ) from None
        if sorted(found) != asked:
            raise FederationError(
                f"site '{site}' was asked for clients {asked} and answered for {one_line(sorted(found))}."
            )
        for client, seconds in spent.items():
            self._note_elsewhere(client, seconds)
        return found

    def _list_expected(self, handler: str) -> dict[str, list[tuple[str, str]]]:
        """Names and fields of the messages that may answer."""
        if handler == MASK:
            kinds = answers_of(self._client).values()
            return {f"{kind.wire_name()}{MASKED}": _list_fields(kind) for kind in kinds}
        secure = ANSWERS.get(handler) or (Offer if handler.startswith(CALL) else None)
        kind = secure or self.compression.find_carrier(*handler_of(self._client, handler).types())
        return {kind.wire_name(): _list_fields(kind)}

    def _make_ready(self, site: str) -> str | None:
        """None when a site can be asked; otherwise why not. One that is back is opened where it left."""
        status = self.sites.status[site]
        if status.state == "gone":
            return f"site '{site}' was given up ({status.note})"
        if site in self._opened and status.state != "lost":
            return None
        try:
            check_release(site, self.sites._ask_once(site, {"do": "hello"}, timeout=2.0))
            if site in self._opened:
                status.become("up")
                return None
            self._note_opened(site, self.sites.request(site, self._opening(site), self._scale))
        except (Unreachable, FederationError) as error:
            status.become("lost")
            return str(error)
        self.sites.say(f"site '{site}' is back")
        return None

    # -- for the runner -------------------------------------------------------------------------------------------

    def _back(self, site: str, since: Mapping[ClientId, int]) -> list[list[int]]:
        """Which clients of a site take back what they changed, and from which step on."""
        return [[client, since[client]] for client in self.sites.status[site].clients if client in since]

    def _here(self) -> list[str]:
        """Sites that take part just now. One beyond its deadline is still at work on what it was asked before."""
        return [site for site in self._opened if self.sites.status[site].state not in ("gone", "lost", "late")]

    def _session(self, operation: str, **settings: Any) -> dict[str, Any]:
        return {"do": operation, "run": self.run, "seed": self.seed, **settings}

    def _ask_together(
        self, headers: Mapping[str, Mapping[str, Any]], payloads: Mapping[str, Sequence[Any]] | None = None
    ) -> list[str]:
        """Ask several sites at once. One that does not answer is left out where the method can do without it.

        Returns:
            The sites that did it.

        Raises:
            StateLost: One has forgotten its clients.
            FederationError: One could not do it, or too few answered.
        """
        done: list[str] = []
        silent: list[str] = []
        troubles: list[FederationError] = []
        for site, future in self.sites.ask_all(headers, payloads or {}).items():
            try:
                require_ok(site, future.result())
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

    def remember(self, clients: Collection[ClientId] | None = None, view: str = "own") -> None:
        asked = self.clients if clients is None else clients
        self._ask_together({site: self._session("remember", clients=sorted(asked), view=view) for site in self._here()})

    def client_states(self) -> dict[ClientId, Any]:
        """Has every site keep a checkpoint; returns where it is found, not what it holds.

        A site that is away keeps none, and would go back to the one before.
        """
        mark = f"seed{self.seed}-round{self.ledger.round}"
        headers = {
            site: self._session("save", mark=mark, back=self._back(site, self.uncounted)) for site in self._here()
        }
        for site in self._ask_together(headers):
            self._marks[site] = mark
            self.sites.status[site].losses = 0
        return {client: {"mark": self._marks.get(self.sites.site_of[client])} for client in self.clients}

    def load_client_states(self, states: Mapping[ClientId, Any]) -> None:
        for site, status in self.sites.status.items():
            marks = {states[client]["mark"] for client in status.clients}
            if len(marks) != 1:
                raise RunError(
                    f"the checkpoint names no single mark of site '{site}'; begin the run again with another --out."
                )
            mark = marks.pop()
            if mark is not None:
                self._marks[site] = mark
        asked = {site: self._session("restore", mark=self._marks[site]) for site in self._here() if site in self._marks}
        done = self._ask_together(asked)
        self._opened -= asked.keys() - set(done)  # these begin with their checkpoint when they are back

    def finish(
        self, *, embeddings: bool, study: bool = False, reported: Mapping[ClientId, Reported] = NOBODY
    ) -> Iterator[tuple[ClientId, dict[str, Any]]]:
        """The sites write models and answers into their own folders; nothing comes here."""
        waiting = {
            site: [client for client in status.clients if client not in self._refused]
            for site, status in (self.sites.status.items() if self.sites.beside is None else ())
        }
        files: dict[int, bytes] = {}  # of models that many are sent
        while any(waiting.values()):  # one client of a site at a time: a message has a bound
            headers: dict[str, dict[str, Any]] = {}
            models: dict[str, list[Any]] = {}
            for site in [site for site in self._here() if waiting.get(site)]:
                client = waiting[site].pop(0)
                view, common, agreed = reported.get(client, (None, None, []))
                asked = {"client": client, "embeddings": embeddings, "view": view, "agreed": agreed}
                headers[site] = self._session("finish", **asked)
                if common is not None:
                    if id(common) not in files:
                        files[id(common)] = tensor_file({**common, **self._agreed})
                    models[site] = [files[id(common)]]
            if not headers:
                break
            self._ask_together(headers, models)
        for client in self.clients:
            yield client, {"last": {}, "best": None}

    def peak_rss_bytes(self) -> int:
        """As far as sites tell; a run does not fail for it."""
        peaks = [super().peak_rss_bytes()]
        for site, future in self.sites.ask_all({site: {"do": "memory"} for site in self._here()}).items():
            with contextlib.suppress(FederationError):
                reported = require_ok(site, future.result()).header.get("bytes")
                if isinstance(reported, int):
                    peaks.append(reported)
        return max(peaks)


def _list_fields(kind: type[Message]) -> list[tuple[str, str]]:
    return [(spec.name, spec.kind) for spec in kind.specs()]
