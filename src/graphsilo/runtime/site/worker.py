"""The process at a site that holds the silos and computes. Started, watched and started again by ``site.supervisor``.

It alone imports torch, reads private data and keeps the clients' state; it answers packets one after the other.
Nothing of what it knows goes out but its answers, and every message among them has passed the silo's policy and stands
in its log.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import torch

from graphsilo import documents
from graphsilo.__about__ import __version__
from graphsilo.data.graph import content_hash
from graphsilo.data.scales import Scaling
from graphsilo.data.silos.cards import card_of
from graphsilo.data.silos.column_scales import other_units_here
from graphsilo.data.silos.own import SiloFile, read_silo_file
from graphsilo.data.silos.scaling import prepare_silo
from graphsilo.data.silos.schema import schema_of
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.data.silos.targets import described_counts
from graphsilo.data.sources.atomic import atomic_file
from graphsilo.errors import (
    ConfigError,
    DataError,
    DisclosureError,
    FederationError,
    GraphsiloError,
    RunError,
    UnsupportedError,
    one_line,
    quote,
)
from graphsilo.evaluate.metrics import list_selecting
from graphsilo.federation import registry
from graphsilo.federation.account import Account, Spent
from graphsilo.federation.class_counts import CountingClient
from graphsilo.federation.client import (
    ClientContext,
    ModelSpec,
)
from graphsilo.federation.codec import decode
from graphsilo.federation.compression import Compression
from graphsilo.federation.evaluations import Evaluation, Evaluations
from graphsilo.federation.exposure import warn_silo
from graphsilo.federation.interface import Failure, answers_of
from graphsilo.federation.journal import Journal
from graphsilo.federation.kinds import MASKED
from graphsilo.federation.model_files import (
    SCALE,
    aggregate_path,
    kept_files,
    read_answers,
    tensor_file,
    tensors_in_file,
)
from graphsilo.federation.policy import DisclosurePolicy, Gate
from graphsilo.federation.reduced import check_precision
from graphsilo.federation.registry import Method
from graphsilo.federation.scaling import AgreedScale, AgreedTargetScale, ScalingClient, TargetsClient, scale_from
from graphsilo.federation.secure import CALL, STEPS
from graphsilo.federation.secure.opened import OpenedSums
from graphsilo.federation.secure.party import Party
from graphsilo.federation.settings import MethodConfig
from graphsilo.federation.wire import Encoded, aligned_view
from graphsilo.runtime import pipe
from graphsilo.runtime.alone import make_alone
from graphsilo.runtime.dispatch import Inbox, call
from graphsilo.runtime.hosted import READS_ONLY, HostedClient, Turn
from graphsilo.runtime.machine import LEAST_FREE, free_disk, keep_freed_memory, make_repeatable, peak
from graphsilo.runtime.parties import Parties
from graphsilo.runtime.protocol import Packet, check_header, pack_error, parts, unpack
from graphsilo.runtime.site.certified import Kits
from graphsilo.runtime.site.identities import Pinned, load_identity, load_secret
from graphsilo.runtime.site.state import SiteState, safe_name
from graphsilo.runtime.transport import Parts, views_of
from graphsilo.types import ClientId, Precision

_LONGEST_NAME = 100
_LONGEST_TEXT = 2000


class NotOpen(FederationError):
    """The run is not (or no longer) open here: the worker is younger than it."""


@dataclass(frozen=True)
class Member:
    """One silo of this site.

    Attributes:
        client: Its number in the federation.
        file: What its ``silo.yaml`` says.
        policy: What may leave it.
        journal: Where everything that leaves it is noted.
        evaluations: Where answers of evaluation are counted.
    """

    client: ClientId
    file: SiloFile
    policy: DisclosurePolicy
    journal: Journal
    evaluations: Evaluations


@dataclass
class Session:
    """One seed of a run, open at this site.

    Attributes:
        words: Of each client, the hash of what others said of how it is made.
        asked: Likewise, of that and of all that it was asked since, but for what changes nothing.
    """

    run: str
    seed: int
    method: Method
    config: MethodConfig
    clients: dict[ClientId, HostedClient]
    make: dict[ClientId, Callable[[], HostedClient]]
    gates: dict[ClientId, Gate]
    state: SiteState
    parties: Parties
    words: Mapping[ClientId, bytes]
    asked: dict[ClientId, bytes]


class SiteWorker:
    """Answers packets.

    Args:
        members: The silos of this site.
        folder: Of the site: ``state/`` and ``results/`` are made in it.
        kits: What the site's kit says of who is who in secure sums; None believes keys at first sight.
    """

    def __init__(self, members: Sequence[Member], folder: Path, kits: Kits | None = None):
        self.members = {member.client: member for member in members}
        self.folder, self._kits = folder, kits
        self.session: Session | None = None
        self._silos: dict[tuple[Any, ...], Silo] = {}
        self._alone: dict[ClientId, tuple[dict[str, Any], str]] = {}  # cards, and hashes of the data that they are of
        self._warned: set[tuple[str, ClientId]] = set()

    def answer(self, packet: Packet) -> Parts:
        """The answer to one packet; what goes wrong is an answer, too."""
        started = time.process_time()
        try:
            check_header(packet.header)
            header, payloads = getattr(self, f"do_{packet.header['do']}")(packet)
            header["cpu"] = _coarse_seconds(started)
            return parts({"id": packet.id, "ok": True, **header}, payloads)
        except Exception as error:
            # Texts about tables and tracebacks may hold private values: they stay in the site's own log.
            agreed = isinstance(error, GraphsiloError) and not isinstance(error, DataError)
            note = "".join(f"\n{line}" for line in getattr(error, "__notes__", []))
            trace = "" if isinstance(error, GraphsiloError) else f"\n{traceback.format_exc()}"
            _tell(f"{packet.header.get('do')}: {type(error).__name__}: {error}{note}{trace}")
            run, step = (one_line(packet.header.get(key, ""), _LONGEST_NAME) for key in ("run", "do"))
            text = (
                one_line(error, _LONGEST_TEXT)
                if agreed
                else "what went wrong stands in the log at the site (run/worker.log)"
            )
            try:
                for member in self.members.values():
                    member.journal.note("failed", run, "", 0, step, text)
            except DisclosureError:  # what cannot be logged does not leave
                return [pack_error(packet.id, "DisclosureError", "this site cannot write its silos' logs.")]
            return [pack_error(packet.id, type(error).__name__, text)]

    # -- before a run ---------------------------------------------------------------------------------------------

    def do_cards(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """What the federation learns of each silo before round 1."""
        asked = [self._member(client) for client in packet.header.get("of", sorted(self.members))]
        for member in asked:
            member.journal.note_card(self._read(member)[0])
        return {"cards": [[member.client, self._read(member)[0]] for member in asked]}, []

    def do_open(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Make the clients of a run; a run that was open is closed."""
        header = packet.header
        run, seed = safe_name(header["run"]), int(header["seed"])
        if any(self._is_complete(run, client) for client in self.members):
            raise RunError(
                f"run '{run}' is complete at this site, and its models stay as they are. Begin it again with another "
                f"--out."
            )
        if free_disk(self.folder) < LEAST_FREE:  # whatever a coordinator begins, the owner's machine goes on
            raise RunError(
                "this site has less than 1 GB free on the disk of its folder, and begins no run there. Its owner may "
                "make room, in results/ for example."
            )
        method = registry.load(str(header["method"]))
        if bool(header.get("alone")):
            method = make_alone(method)
        if method.pooled:
            raise ConfigError(f"{method.title} pools all data in one place; silos do not take part in that.")
        if header["task"] not in method.tasks:  # of a task that it is not made for, a policy does not know what it says
            raise UnsupportedError(f"{method.title} does not do this task, only {', '.join(method.tasks)}.")
        config = _same_settings(method, header["config"])
        schema = schema_of(header["schema"])
        device = str(header["device"])
        if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", device):
            raise ConfigError("run.device must be cpu or cuda between machines.")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigError("run.device cuda was asked for, but this site has none. Use run.device=cpu.")
        make_repeatable(device)
        compression, select_by = Compression.of(header["compression"]), str(header["select_by"])
        if select_by not in (names := list_selecting(header["task"])):
            raise ConfigError(f"evaluation.select_by must be one of {', '.join(names)}; got {quote(select_by)}.")
        beside = header.get("beside")
        if beside is not None and not run.startswith(f"{safe_name(beside)}."):
            raise ConfigError("a reference row stands beside a run of the same name.")
        agreeing, scaling = bool(header["agreeing"]), Scaling.from_tree(header["scaling"])
        counting = bool(header.get("counting"))
        told = AgreedTargetScale if header["task"] == "regression" else AgreedScale
        agreed = decode(aligned_view(packet.payloads[0]), told) if packet.payloads else None
        scale = None if agreed is None else scale_from(agreed)
        secure, report = bool(header.get("secure_sums")), str(header.get("report"))
        singles = (frozenset({"evaluate"}) if report == "silos" else frozenset()) if secure else None
        # Where single answers are seen as they are, another checkpoint than the site's own tells nothing more.
        clients = [client for client, _ in header["models"]]
        secret = self._secret(clients) if secure or config.promises(1) else b""
        state = SiteState(self.folder / "state", run, secret)
        if not state.agrees(singles):
            raise DisclosureError(
                f"run '{run}' was opened here with other words on what is seen of single silos (run.secure_sums, "
                f"evaluation.report), and they hold until its end. Begin another run with another --out."
            )
        self.session = None
        make: dict[ClientId, Callable[[], HostedClient]] = {}
        hashes: dict[ClientId, str] = {}
        gates: dict[ClientId, Gate] = {}
        words: dict[ClientId, bytes] = {}
        refused: dict[ClientId, str] = {}
        parties = Parties(self._party, run)
        specs = {client: _spec(*wire) for client, wire in header["models"]}
        common = _spec(*header["common"])
        for client, spec in specs.items():
            member = self._member(client)
            of_features = agreeing and header["task"] != "regression" if scale is None else len(scale.shift) > 0
            if of_features and not member.file.scaling.is_agreed:
                asked = "sums were asked of it" if agreeing else "was sent a scale"
                raise ConfigError(
                    f"silo '{member.file.name}' scales its features by itself ({member.file.scaling.words()}), and "
                    f"{asked}."
                )
            silo = self._silo(member, header["task"], schema, header["sparse"])
            if not agreeing:
                config.check_features(scaling, silo.estimated)
            counts = described_counts(silo).tolist()
            try:
                member.policy.check_method(method, config, counts)
                member.policy.check_secure_sums(config, secure, report)
                if agreeing:
                    member.policy.check_scaling(targets=not member.file.scaling.is_agreed)
                wanted = int(header.get("evaluations", 0))
                member.evaluations.check_room(wanted, run, self._read(member)[1], member.policy)
            except DisclosureError as error:
                member.journal.note("refused", run, method.name, 0, "open", str(error))
                _tell("\n".join([str(error), *getattr(error, "__notes__", [])]))
                refused[client] = str(error)
                continue
            if not agreeing and (run, client) not in self._warned:
                self._warned.add((run, client))
                least = getattr(config, "min_count", 1)
                sent = 0 if method.alone else config.square_columns(schema)
                texts = [warn_silo(method.title, sent, counts, least), *silo.graph.union.notes]
                if scale is not None and len(scale.shift):
                    texts += other_units_here(silo, scale)
                for text in filter(None, texts):
                    member.journal.note("warned", run, method.name, 0, "open", text)
                    _tell(f"silo '{member.file.name}': {text}")
            # The log is read only where there is a bound: one of years is long.
            policy, journal = member.policy, member.journal
            bounded = policy.max_total_bytes is not None or policy.max_epsilon is not None
            spent = journal.reconcile() if bounded else Spent()
            gates[client] = Gate(
                policy,
                counts,
                sent_bytes=0 if policy.max_run_bytes is None else journal.sent_bytes(run),
                spent=spent,
                singles=singles,
                config=config,
            )
            check_precision({client: spec}, [silo])
            if agreed is not None:
                journal.note_message("received", run, method.name, 0, "scale", agreed)
            hashes[client] = content_hash([silo.graph])
            own = silo if agreeing else prepare_silo(silo, scaling, scale, clip=True)
            kind = CountingClient if counting else method.client
            if agreeing:  # who scales its features alone is asked for no sum of them
                kind = ScalingClient if member.file.scaling.is_agreed else TargetsClient
            context = ClientContext(
                client, own, config, spec, seed, device, common, compression, select_by,
                read_answers(self._find_beside(member, beside, client), seed, client), policy.min_evaluation_count,
            )  # fmt: skip
            words[client] = _hash_words(header, packet.payloads, spec)
            make[client] = partial(HostedClient.open, kind, context, parties, words[client] if secure else b"")
        session = Session(run, seed, method, config, {}, make, gates, state, parties, words, dict(words))
        if header.get("mark") is not None:
            self._restore(session, str(header["mark"]))
        else:
            session.clients.update({client: opened() for client, opened in make.items()})
        if hashes:
            state.note_opened(hashes, singles)
        self.session = session
        return {"clients": sorted(make), "refused": sorted(refused.items()), "graphsilo": __version__}, []

    # -- during a run ---------------------------------------------------------------------------------------------

    def do_call(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Ask clients of this site for one step."""
        session = self._open(packet)
        handler, number = str(packet.header["handler"])[:200], int(packet.header["round"])
        # In memory that is aligned as torch's: kernels give the same bits as in one process.
        step, back = int(packet.header.get("step", 0)), dict(packet.header.get("back", ()))
        inboxes = [Inbox(aligned_view(payload)) for payload in packet.payloads]
        answers: list[dict[str, Any]] = []
        payloads: list[Any] = []
        asked = [client for client, _ in packet.header["to"]]
        if len(set(asked)) < len(asked):
            raise FederationError("a silo was asked for the same step twice at once.")
        for client, index in packet.header["to"]:
            started, evaluation = time.process_time(), None
            member = self._member(client)
            if client not in session.clients:
                raise FederationError(f"silo '{member.file.name}' does not take part in this run.")
            if handler in STEPS:
                reply = session.parties.answer(client, handler, inboxes[index].data)
            else:
                held, turn = session.clients[client], (step, back.get(client))
                reply = call(held, handler, number, inboxes[index], session.gates[client], turn)
                evaluation = self._note_asked(session, member, handler, number, inboxes[index], turn, reply)
            reply = _log_reply(member, session, number, handler, inboxes[index], reply, evaluation)
            answer: dict[str, Any] = {"client": client, "cpu": _coarse_seconds(started)}
            if isinstance(reply, Failure):
                if reply.trace:
                    _tell(reply.trace)
                answer["failure"] = [reply.kind, reply.reason, reply.peer]
            else:
                answer.update(name=reply.name, fields=[list(item) for item in reply.field_bytes], payload=len(payloads))
                payloads.append(reply.data)
            answers.append(answer)
        return {"answers": answers}, payloads

    def do_save(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Keep a checkpoint of all clients."""
        session = self._open(packet)
        mark = str(packet.header["mark"])
        if not re.fullmatch(rf"seed{session.seed}-round[0-9]{{1,9}}", mark):
            raise RunError("a checkpoint is named after the seed and a round, as in seed0-round12.")
        back = dict(packet.header.get("back", ()))
        for client, held in session.clients.items():
            held.settle(back.get(client))
            if client in back:
                session.asked[client] = _hash_on(session.asked[client], b"", "save", back[client])
        tree = {
            str(client): {**held.state(), "words": session.words[client], "asked by": session.asked[client]}
            for client, held in session.clients.items()
        }
        session.state.save(mark, tree)
        return {}, []

    def do_restore(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Put all clients where they were."""
        self._restore(self._open(packet), str(packet.header["mark"]))
        return {}, []

    def do_remember(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Keep a copy of the models of those clients whose validation has never been better."""
        wanted = packet.header["clients"]
        for client, held in self._open(packet).clients.items():
            if client in wanted:
                held.remember(packet.header["view"])
        return {}, []

    # -- after a run ----------------------------------------------------------------------------------------------

    def do_finish(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Write a client's models, embeddings and answers of a seed into the site's own folder.

        With the server's model of the best round, where that is what the run reports of the client.
        """
        session, wanted = self._open(packet), packet.header
        client, view = wanted["client"], wanted["view"]
        if client in session.make and client not in session.clients:
            return {}, []  # is asked again, where the answer was lost
        if client not in session.make or view not in (
            ("aggregate",) if packet.payloads else (None, "own", "aggregate")
        ):
            raise FederationError("a site cannot do what was asked of it.")
        sent = tensors_in_file(bytes(packet.payloads[0])) if packet.payloads else None
        common = sent and {name: tensor for name, tensor in sent.items() if not name.startswith(f"{SCALE}/")}
        reported = None if view is None else (view, common, list(wanted.get("agreed", ())))
        # Of what it is asked now no later answer may depend, and there is none.
        held = session.clients.pop(client)
        try:
            found = held.finish(embeddings=bool(wanted["embeddings"]), study=False, reported=reported)
        except Exception:
            if not session.gates[client].explain_only_sums("finish"):
                raise
            # Whether a model that was sent can be used here may depend on rows: only the owner is told.
            member = self._member(client)
            member.journal.note("failed", session.run, session.method.name, 0, "finish", "its models were not kept")
            _tell(traceback.format_exc())
            return {}, []
        folder, seed = self._results(session.run, client), session.seed
        for path, tensors in kept_files(folder, seed, client, found):
            _write(path, tensor_file(tensors))
        if sent:
            _write(aggregate_path(folder, seed, None, "best"), tensor_file(sent))
        return {}, []

    def do_result(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """Write each silo's own part of the result, once; the coordinator sends no other silo's.

        Only of a run that took place here, and never where code is found: nobody but the silo's owner names that.
        """
        header = packet.header
        run = safe_name(header["run"])
        state = SiteState(self.folder / "state", run)
        opened = state.read_clients()
        for client, _ in header["results"]:
            if self._member(client).client not in opened and not self._is_complete(run, client):
                raise RunError(
                    f"run '{run}' was not opened for client {client} at this site, so that nothing is kept of it here."
                )
        config = {name: value for name, value in header["config"].items() if name != "own"}
        for client, tree in header["results"]:
            if self._is_complete(run, client):  # was sent before the coordinator was killed, which had not noted it yet
                continue
            member, folder = self._member(client), self._results(run, client)
            own = {**tree, "silo": member.file.name, "silo_file": str(member.file.path), "client": client}
            own["silo_data"] = opened[client]  # for predictions to compare, later on
            _write(folder / "config.yaml", documents.write(config).encode())
            _write(folder / "result.json", json.dumps(own, indent=1, allow_nan=False).encode() + b"\n")
        if self.session is not None and self.session.run == run:
            self.session = None
        state.forget(complete=any(self._is_complete(run, client) for client in self.members))
        return {}, []

    def do_memory(self, packet: Packet) -> tuple[dict[str, Any], list[Any]]:
        """The most memory this process has used."""
        return {"bytes": peak()}, []

    # -- within ---------------------------------------------------------------------------------------------------

    def _open(self, packet: Packet) -> Session:
        wanted = (safe_name(packet.header["run"]), packet.header["seed"])
        if self.session is None or (self.session.run, self.session.seed) != wanted:
            raise NotOpen(f"run '{wanted[0]}' with seed {wanted[1]} is not open at this site.")
        return self.session

    def _member(self, client: Any) -> Member:
        if client not in self.members:
            raise FederationError(f"this site holds no client {client}.")
        return self.members[client]

    def _party(self, client: ClientId) -> Party:
        """A silo in secure sums: its key, the others' keys, and what it has opened, in this run and before.

        Whose keys it has seen is of this federation; all else is the data's, whatever federation they are summed in.
        """
        member = self._member(client)
        identity = load_identity(member.file.record("key"), client, self._kits)
        known = Pinned(self.folder / "sums" / f"{member.file.name}.known", self._kits)
        record, data = OpenedSums(member.file.record("opened")), self._read(member)[1]
        return Party(client, identity, known, record, least=member.policy.min_silos, data=data)

    def _note_asked(
        self, session: Session, member: Member, handler: str, number: int, inbox: Inbox, turn: Turn,
        reply: Encoded | Failure,
    ) -> Evaluation | None:  # fmt: skip
        """Keep what a client was asked; what its answer counts as, where it is one of evaluation."""
        client, step = member.client, handler.removeprefix(CALL)
        before, now = session.asked[client], hashlib.sha256(inbox.data.data).digest()
        if step not in READS_ONLY or turn[1] is not None:
            session.asked[client] = _hash_on(before, now, handler, number, turn[1])
        kind = answers_of(type(session.clients[client].client)).get(step)
        if kind is None or not any(spec.evaluated for spec in kind.specs()):
            return None
        if isinstance(reply, Failure):  # that there is no answer may depend on the items, too
            answer = reply.reason.encode()
        else:
            offered = step != handler
            answer = session.parties.of(client).kept.digest if offered else hashlib.sha256(reply.data.data).digest()
        return Evaluation.of(
            session.run, self._read(member)[1], session.seed, handler, number, session.asked[client], now, answer
        )

    def _secret(self, clients: Iterable[ClientId]) -> bytes:
        """That of these silos of the site, for their checkpoints."""
        each = (load_secret(self._member(client).file.record("secret")) for client in sorted(clients))
        return hashlib.sha256(b"checkpoints" + b"".join(each)).digest()

    def _read(self, member: Member) -> tuple[dict[str, Any], str]:
        """A silo's card, and the hash of its data as they are by themselves: not as a coordinator wants them."""
        if member.client not in self._alone:
            silo = member.file.load(member.client)
            self._alone[member.client] = card_of(member.file, silo), content_hash([silo.graph])
        return self._alone[member.client]

    def _silo(self, member: Member, task: Any, schema: Schema, sparse: Any) -> Silo:
        key = (member.client, task, schema, sparse)
        if key not in self._silos:
            # One federation, one schema: what was loaded for another is not needed any more.
            self._silos = {other: silo for other, silo in self._silos.items() if other[1:] == key[1:]}
            known = self._read(member)[1]
            self._silos[key] = member.file.load(member.client, task=task, schema=schema, sparse=sparse)
            # What was opened of these data is kept under what they hold, which their files may not hold any more.
            del self._alone[member.client]
            if self._read(member)[1] != known:
                self._silos = {}
                raise RunError(
                    f"the data of silo '{member.file.name}' changed since this site read them. It has read them again: "
                    f"begin the run again."
                )
        return self._silos[key]

    def _restore(self, session: Session, mark: str) -> None:
        tree = session.state.load(mark)
        for client, opened in session.make.items():
            if str(client) not in tree:
                raise RunError(f"the checkpoint '{mark}' of this site knows no client {client}.")
            if tree[str(client)].get("words") != session.words[client]:  # whose answers others would not be asked for
                raise RunError(
                    f"the checkpoint '{mark}' of this site was made under other settings than this run is opened with. "
                    f"Begin another run with another --out."
                )
            # Made again: what it was asked since, and is in no state, would stay with it.
            session.clients[client] = opened()
            session.clients[client].load_state(tree[str(client)])
            session.asked[client] = tree[str(client)].get("asked by", os.urandom(32))

    def _is_complete(self, run: str, client: ClientId) -> bool:
        return (self._results(run, client) / "result.json").exists()

    def _find_beside(self, member: Member, run: str | None, client: ClientId) -> Path | None:
        """Where a run's answers are, if a silo lets out what a row beside it says of them; else it scores as ever."""
        return self._results(run, client) if run is not None and member.policy.allows("score") else None

    def _results(self, run: str, client: ClientId) -> Path:
        return self.folder / "results" / run / self.members[client].file.name


def _hash_words(header: Mapping[str, Any], payloads: Sequence[Any], spec: ModelSpec) -> bytes:
    """[32] hash of all that a client's answers depend on by the words of who opens a run, itself and its data apart."""
    own = ("id", "do", "device", "mark", "models", "evaluations")
    words = {name: value for name, value in header.items() if name not in own}
    digest = hashlib.sha256(json.dumps([words, spec.wire()], sort_keys=True).encode())
    for payload in payloads:
        digest.update(payload)
    return digest.digest()


def _hash_on(before: bytes, data: bytes, *step: Any) -> bytes:
    """[32] hash of all that was asked, with one step more."""
    return hashlib.sha256(before + data + json.dumps(step).encode()).digest()


def _spec(name: str, settings: Mapping[str, Any], precision: str) -> ModelSpec:
    """A backbone as the coordinator describes it."""
    if precision not in get_args(Precision):
        raise ConfigError(f"run.precision must be one of {', '.join(get_args(Precision))}.")
    return ModelSpec(name, settings, cast("Precision", precision))


def _same_settings(method: Method, sent: Mapping[str, Any]) -> MethodConfig:
    """The method's settings as the coordinator has them, if this installation understands them alike.

    Raises:
        ConfigError: It does not; names the first setting that differs.
    """
    try:
        config = method.config.of(sent, owner=method.name)
    except ConfigError as error:
        raise ConfigError(
            f"this site does not accept the coordinator's settings: {error} Install the same release of graphsilo "
            f"everywhere."
        ) from None
    own = config.model_dump(mode="json")
    different = [name for name in {**own, **sent} if own.get(name) != sent.get(name)]
    if different:
        name = different[0]
        raise ConfigError(
            f"method.{name} is {sent.get(name)!r} at the coordinator and {own.get(name)!r} at this site. "
            f"Install the same release of graphsilo everywhere."
        )
    return config


def _coarse_seconds(started: float) -> float:
    """CPU seconds since a moment, to the hundredth: finer, they would tell of the silo what no field declares."""
    return round(time.process_time() - started, 2)


def _log_reply(
    member: Member,
    session: Session,
    number: int,
    handler: str,
    inbox: Inbox,
    reply: Encoded | Failure,
    evaluation: Evaluation | None,
) -> Encoded | Failure:
    """The reply, once what came and what leaves stands in the log; what cannot be logged does not leave."""
    journal, place = member.journal, (session.run, session.method.name, number, handler)
    try:
        if inbox.message is not None:
            journal.note_message("received", *place, inbox.message, bytes=inbox.data.nbytes)
        if not isinstance(reply, Failure):
            if reply.name.endswith(MASKED):  # the log is the silo's own: it says what was masked
                party = session.parties.of(member.client)
                how = f"masked, in a sum of {party.current.count} silos"
                journal.note_message("sent", *place, party.kept.answer, reply.num_bytes, how, again=party.counted)
                party.counted = True
            else:
                journal.note_message("sent", *place, reply, evaluation=evaluation)
        elif reply.kind == DisclosureError.__name__:
            journal.note("refused", *place, reply.reason, evaluation)
        else:
            journal.note("failed", *place, f"{reply.kind}: {reply.reason}", evaluation)
    except DisclosureError as error:
        with contextlib.suppress(DisclosureError):  # it may be the log that cannot be written
            journal.note("refused", *place, str(error))
        trace = "\n".join(getattr(error, "__notes__", []))
        return Failure(member.client, handler, type(error).__name__, str(error), trace)
    return reply


def _tell(text: str) -> None:
    """Write to the site's own log, which somebody reads at a terminal: some of it are a coordinator's words."""
    print("\n".join(one_line(line) for line in text.splitlines()), file=sys.stderr, flush=True)


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path) as file:
            file.write(data)
    except OSError as error:
        raise RunError(f"{path.name} could not be written at the site ({error.strerror}).") from error


def members_of(
    silos: Sequence[tuple[ClientId, Path]], folder: Path, may_send: Mapping[str, Sequence[str]]
) -> list[Member]:
    """The silos of a site from their files.

    Args:
        silos: Number and file of each.
        folder: Of the site.
        may_send: Kinds of disclosure that the federation grants a client (as text) at most, where it says so.

    Raises:
        GraphsiloError: A file is not what it should be.
    """
    members = []
    for client, path in silos:
        file = read_silo_file(path)
        policy = DisclosurePolicy.of(file.policy, origin=str(path))
        if str(client) in may_send:
            granted = tuple(kind for kind in policy.kinds if kind in may_send[str(client)])
            policy = policy.model_copy(update={"kinds": granted})
        log = folder / "sent" / f"{file.name}.jsonl"
        evaluations = Evaluations(file.record("evaluated"))
        journal = Journal(log, account=Account(file.record("account")), policy=policy, evaluations=evaluations)
        members.append(Member(client, file, policy, journal, evaluations))
    return members


def main() -> None:
    """Serve one connection until it closes."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(1)
    keep_freed_memory()
    # Ctrl-C reaches the whole group; the supervisor decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin = json.loads(sys.argv[2])
    folder = Path(begin["folder"])
    try:
        silos = [(client, Path(path)) for client, path in begin["silos"]]
        kits = None if begin["kits"] is None else Kits.of(begin["kits"])
        worker = SiteWorker(members_of(silos, folder, begin["may_send"]), folder, kits)
    except GraphsiloError as error:
        pipe.send(connection, pack_error("ready", type(error).__name__, str(error)))
        return
    pipe.send(connection, *views_of(parts({"id": "ready", "ok": True})))
    try:
        while True:
            packet = unpack(pipe.receive(connection), clients=len(silos), whole=True)
            pipe.send(connection, *views_of(worker.answer(packet)))
            del packet  # of many megabytes, which the next one needs
    except (EOFError, OSError):
        return  # the supervisor has gone
