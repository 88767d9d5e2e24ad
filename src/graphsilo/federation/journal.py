"""The silo's own log: one line for every message that left it, or came in, in a file that stays at the silo.

Each line is a JSON object::

    {"time": "2026-01-31T12:00:00Z", "way": "sent", "run": "cora-3", "method": "fedavg", "round": 12,
     "handler": "train", "message": "fedavg.TrainReply", "bytes": 368640,
     "fields": [{"name": "weights", "kind": "model", "bytes": 368000, "tensors": 5},
                {"name": "num_samples", "kind": "counts", "bytes": 9, "value": 248.0}]}

A message is logged before it leaves, and does not leave if it cannot be logged. Lines are appended whole, by any number
of processes, and those of messages that leave are on the disk when the call returns. A file that has grown large is set
aside as ``NAME.1``, ``NAME.2`` and so on, the highest the youngest; nothing is ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from graphsilo.errors import DisclosureError, RunError
from graphsilo.federation.account import Account, Spent
from graphsilo.federation.kinds import SHORT
from graphsilo.federation.noise import compose

if TYPE_CHECKING:
    from graphsilo.federation.evaluations import Evaluation, Evaluations
    from graphsilo.federation.message import Message
    from graphsilo.federation.policy import DisclosurePolicy
    from graphsilo.federation.wire import Encoded

Way: TypeAlias = Literal["sent", "received", "refused", "failed", "warned", "damaged"]

CARD = "card"
"""Name of what a silo says of itself before a run: sizes, names of columns and classes."""
LARGEST = 50 * 10**6
"""Bytes of a file before another is begun."""
_LONGEST = 200
"""Signs of a text, or of a list as text, that is kept as it was sent."""


class FieldNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the log says of one field of a message.

    Attributes:
        name: Of the field.
        kind: What it discloses.
        bytes: Of its numbers and text.
        tensors: How many it holds; 0 for a plain value.
        shape: Of its tensor, if it is one.
        value: A plain value, if it is short.
    """

    name: str
    kind: str
    bytes: int
    tensors: int = 0
    shape: tuple[int, ...] | None = None
    value: Any = None


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the log.

    Attributes:
        time: When, in UTC: ``2026-01-31T12:00:00Z``.
        way: ``sent`` or ``received``; ``refused`` if it did not leave; ``failed`` where only the reason did;
            ``warned`` of what is going to leave; ``damaged`` for a line that cannot be read.
        run, method: Of which run; empty before any.
        round: 0 during set-up.
        handler: The step that was asked for.
        message: Name of the message; ``card`` for what a silo says of itself before a run.
        bytes: Of the whole message.
        fields: What was in it.
        reason: Why it was refused, what failed, or what to know.
    """

    time: str = ""
    way: Way = "damaged"
    run: str = ""
    method: str = ""
    round: int = 0
    handler: str = ""
    message: str = ""
    bytes: int = 0
    fields: tuple[FieldNote, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        """The line in words.

        Example:
            >>> weights = FieldNote("weights", "model", 368_000, tensors=5)
            >>> samples = FieldNote("num_samples", "counts", 9, value=248.0)
            >>> print(Entry(way="sent", round=12, bytes=368_640, fields=(weights, samples)))
            round 12, to the coordinator: model weights (5 tensors, 368 kB), counts (the number 248)
        """
        if self.way == "damaged":
            return "a line that cannot be read"
        place = f"round {self.round}" if self.round else "set-up"
        if self.handler == "evaluate":
            place += ", evaluation"
        if self.message == CARD:
            place = "before a run, the silo's card"
        if self.way == "warned":
            return f"before round 1, warning: {self.reason}"
        if self.way in ("refused", "failed"):
            return f"{place}, {self.way} ('{self.handler}'): {self.reason}"
        if self.way == "received":
            kinds = dict.fromkeys(SHORT.get(note.kind, note.kind) for note in self.fields if note.kind != "control")
            text = f" ({', '.join(kinds)})" if kinds else ""
            return f"{place}, from the coordinator: {format_size(self.bytes)}{text}"
        kinds_of = dict.fromkeys(note.kind for note in self.fields)
        parts = [_describe_kind(kind, [note for note in self.fields if note.kind == kind]) for kind in kinds_of]
        how = f", {self.reason}" if self.reason else ""
        return f"{place}, to the coordinator{how}: {', '.join(parts) or 'that it is done'}"


@dataclass
class Disclosed:
    """What left a silo of one kind: how many messages had some of it, and their bytes of it."""

    messages: int = 0
    bytes: int = 0


@dataclass
class JournalSummary:
    """What left a silo.

    Attributes:
        messages, bytes: In all.
        kinds: Per kind of disclosure; types, shapes and padding of a message count as ``control``.
        refused: Messages that were not sent.
        damaged: Lines that cannot be read.
    """

    messages: int = 0
    bytes: int = 0
    kinds: dict[str, Disclosed] = field(default_factory=dict)
    refused: int = 0
    damaged: int = 0


class Journal:
    """The log of one silo.

    Args:
        path: The file; its folder is made when the first line is written. Only its owner can read it.
        largest: Bytes of a file before another is begun.
        sync: Wait until the line of a message that leaves is on the disk; without, it may be lost when the machine
            loses power.
        account: Where what leaves in all is counted: releases with noise, and bytes if anybody bounds them. None: it
            is counted from the lines alone.
        policy: Of the owner, who may bound both: runs that are open at once, in whatever federations, count together.
        evaluations: Where answers of evaluation are counted, for a silo with a policy. None: they are not.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, largest: int = LARGEST, sync: bool = True,
        account: Account | None = None, policy: DisclosurePolicy | None = None,
        evaluations: Evaluations | None = None,
    ):  # fmt: skip
        self.path = Path(path)
        self.largest, self.sync = largest, sync
        self.account, self.policy, self.evaluations = account, policy, evaluations

    def note_message(
        self, way: Way, run: str, method: str, round: int, handler: str, message: Encoded | Message,
        bytes: int | None = None, reason: str = "", again: bool = False, evaluation: Evaluation | None = None,
    ) -> None:  # fmt: skip
        """Note a message that is about to leave (``sent``), or that came in (``received``), which is shorter.

        Args:
            way: Which of the two.
            run, method: Of which run.
            round: 0 during set-up.
            handler: The step that made it, or that it asks for.
            message: Its bytes, from which the log says what is in it; or the message.
            bytes: Of a message on its way; by default those of its encoding.
            reason: What else to know of it, such as that it was masked.
            again: Whether the same numbers passed the bounds before, and are masked again.
            evaluation: What it counts as, where it is an answer of evaluation.

        Raises:
            DisclosureError: It cannot be logged, or more would have left in all than the owner lets out: it must not
                be sent.
        """
        from graphsilo.federation.codec import encode
        from graphsilo.federation.wire import Encoded

        if isinstance(message, Encoded):
            name, length, fields = message.name, message.num_bytes, list(_read_fields(message))
        else:
            name, fields = message.wire_name(), list(_list_fields(message))
            length = encode(message).num_bytes if bytes is None else bytes
        if way == "received":
            fields = [{key: note[key] for key in ("name", "kind", "bytes")} for note in fields]
        content: dict[str, Any] = {"message": name, "bytes": length if bytes is None else bytes, "fields": fields}
        if reason:
            content["reason"] = reason
        self._count_evaluation(evaluation)
        if way == "sent":
            self._count(f"{name.rpartition('.')[2]}, which '{handler}' sends", fields, bounded=not again)
        self._write(way, run, method, round, handler, content)

    def note_card(self, content: Mapping[str, Any]) -> None:
        """Note the silo's card, which is about to leave.

        Raises:
            DisclosureError: It cannot be logged, and must not be sent.
        """
        fields = [
            {
                "name": name,
                "kind": "counts" if name == "counts" else "control",
                "bytes": len(msgspec.msgpack.encode(value)),
                **_plain(value),
            }
            for name, value in content.items()
        ]
        whole = {"message": CARD, "bytes": len(msgspec.msgpack.encode(content)), "fields": fields}
        self._write("sent", "", "", 0, "cards", whole)

    def note(
        self, way: Way, run: str, method: str, round: int, handler: str, reason: str,
        evaluation: Evaluation | None = None,
    ) -> None:  # fmt: skip
        """Note in words what is no message.

        Args:
            way: ``failed`` for a step, with the words that the coordinator receives; ``refused`` for a message that
                was not sent, and why; ``warned`` for what the silo's owner should know of a run that begins.
            run, method, round, handler: As for a message.
            reason: The words.
            evaluation: What it counts as, where an answer of evaluation was asked for.

        Raises:
            DisclosureError: It cannot be logged, or too many were answered or refused before.
        """
        self._count_evaluation(evaluation)
        self._write(way, run, method, round, handler, {"reason": reason})

    def sent_bytes(self, run: str) -> int:
        """Bytes of tensors and text that have left in a run, for a gate that begins after that."""
        return count_sent(entry for entry in (read(self.path) if _files(self.path) else ()) if entry.run == run)

    def _count_evaluation(self, evaluation: Evaluation | None) -> None:
        if evaluation is not None and self.evaluations is not None and self.policy is not None:
            self.evaluations.count(evaluation, self.policy)

    def _count(self, what: str, fields: Iterable[Mapping[str, Any]], *, bounded: bool) -> None:
        """Count a message that is about to leave, if it may: here, as no gate knows what left beside its own run."""
        if self.account is None:
            return
        policy = self.policy
        mu = next((note["value"] for note in fields if note["name"] == "mu" and note.get("value") is not None), None)
        counts_bytes = policy is not None and policy.max_total_bytes is not None
        size = sum(note["bytes"] for note in fields) if counts_bytes else 0
        if mu is not None or size:
            with self.account.lock():
                before = self.account.read() or self._count_spent(None)
                after = before.plus(mu, size)
                if policy is not None and bounded:
                    policy.check_in_all(what, before, after)
                self.account.write(after)

    def reconcile(self) -> Spent:
        """What has left in all: what the account says, or the lines where they say more; the account is brought up.

        Raises:
            DisclosureError: The account cannot be read; or there is none, and neither can some of the lines.
        """
        if self.account is None or not (self.account.path.exists() or _files(self.path)):
            return self._count_spent(None)
        with self.account.lock():
            counted = self.account.read()
            found = self._count_spent(counted)
            if found != (counted or Spent()):
                self.account.write(found)
        return found

    def _count_spent(self, counted: Spent | None, *, repaired: bool = False) -> Spent:
        """What the account or the lines say, whichever is more."""
        entries = list(read(self.path) if _files(self.path) else ())
        damaged = sum(entry.way == "damaged" for entry in entries)
        if counted is None and damaged and not repaired:
            raise DisclosureError(
                f"{damaged} line{'s' if damaged > 1 else ''} of the silo's log {self.path} cannot be read, so that "
                f"nobody knows what has left the silo in all, and nothing leaves that counts. Its owner may have the "
                f"others counted alone: graphsilo silo log LOG --repair SILO.yaml"
            )
        before = counted or Spent()
        squared, size = compose_mu(entries) ** 2, count_sent(entries)
        return Spent(max(before.squared_mu, squared), max(before.bytes, size))

    def repair(self) -> Spent:
        """Have the account say what the lines say that can be read: for the owner, who knows what the others were.

        Raises:
            DisclosureError: It cannot be written.
        """
        assert self.account is not None
        with self.account.lock():
            found = self._count_spent(None, repaired=True)
            self.account.write(found)
        return found

    def _write(self, way: Way, run: str, method: str, round: int, handler: str, content: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entry = {"time": now, "way": way, "run": run, "method": method, "round": round, "handler": handler, **content}
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n"
        try:
            handle = self._open(len(line))
            try:
                self._extend(handle, line, wait=way in ("sent", "failed"))
            finally:
                os.close(handle)
        except OSError as error:
            raise DisclosureError(
                f"the silo's log cannot be written ({error.strerror}), and nothing is sent that is not logged. The "
                f"silo's owner must make room for it, or mend its folder; then the run can go on."
            ) from error

    def _open(self, length: int) -> int:
        """The file, locked and with room for a line."""
        import fcntl  # not on every system, where a log can be read all the same

        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                mine = os.fstat(handle)
                here = self._stat()
                if here is None or (here.st_ino, here.st_dev) != (mine.st_ino, mine.st_dev):
                    os.close(handle)  # another process has set it aside in the meantime
                    continue
                if mine.st_size == 0 or mine.st_size + length <= self.largest:
                    return handle
                numbers = [number for number, _ in _find_set_aside(self.path)]
                self.path.rename(self.path.with_name(f"{self.path.name}.{max(numbers, default=0) + 1}"))
            except OSError:
                os.close(handle)
                raise
            os.close(handle)

    def _stat(self) -> os.stat_result | None:
        with contextlib.suppress(FileNotFoundError):
            return self.path.stat()
        return None

    def _extend(self, handle: int, line: bytes, wait: bool) -> None:
        """Write the whole line, or nothing."""
        end = os.fstat(handle).st_size
        if end and os.pread(handle, 1, end - 1) != b"\n":
            line = b"\n" + line  # the last line was cut when a machine stopped: it stays, by itself
        written = 0
        try:
            while written < len(line):
                count = os.write(handle, line[written:])
                if count == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += count
            if self.sync and wait:
                os.fdatasync(handle)
        except OSError:
            if written:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, end)
            raise


def read(path: str | os.PathLike[str]) -> Iterator[Entry]:
    """The lines of a log, oldest first, those of files that were set aside included.

    Raises:
        RunError: There is no such file, or it cannot be read.
    """
    files = _files(Path(path))
    if not files:
        raise RunError(
            f"the log of a silo was looked for at {path}, and is not there. A silo begins it with the first message "
            f"that it sends."
        )
    for file in files:
        try:
            with file.open("rb") as lines:
                for line in lines:
                    yield _entry(line)
        except OSError as error:
            raise RunError(f"the log {file} cannot be read ({error.strerror}).") from None


def compose_mu(entries: Iterable[Entry]) -> float:
    """What all releases with noise together tell, as the μ of ``federation.noise``: each says its own, ``mu``.

    Raises:
        RunError: One does not say it in a number.
    """
    notes = (note for entry in entries if entry.way == "sent" for note in entry.fields if note.name == "mu")
    values = [note.value for note in notes if note.value is not None]
    for value in values:
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise RunError(
                f"the silo's log has a release with noise of which it says mu = {str(value)[:40]!r}, which is no "
                f"number from 0 on: what they come to cannot be counted. The log was changed; its owner must mend it."
            )
    return compose(values)


def count_sent(entries: Iterable[Entry]) -> int:
    """Bytes of tensors and text that have left, but for the cards."""
    left = (entry for entry in entries if entry.way == "sent" and entry.message != CARD)
    return sum(note.bytes for entry in left for note in entry.fields)


def summarise(entries: Iterable[Entry]) -> JournalSummary:
    """What left a silo by some lines of its log, in all and per kind of disclosure."""
    result = JournalSummary()
    for entry in entries:
        result.refused += entry.way == "refused"
        result.damaged += entry.way == "damaged"
        if entry.way != "sent":
            continue
        result.messages += 1
        result.bytes += entry.bytes
        amounts: dict[str, int] = {}
        for note in entry.fields:
            amounts[note.kind] = amounts.get(note.kind, 0) + note.bytes
        amounts["control"] = amounts.get("control", 0) + max(0, entry.bytes - sum(amounts.values()))
        for kind, amount in amounts.items():
            total = result.kinds.setdefault(kind, Disclosed())
            total.messages += 1
            total.bytes += amount
    return result


def format_size(count: int) -> str:
    """Bytes as people read them, in powers of 1000.

    Example:
        >>> [format_size(count) for count in (0, 999, 1_640, 368_000, 61_400_000)]
        ['0 B', '999 B', '1.6 kB', '368 kB', '61 MB']
    """
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            return f"{amount:.1f} {unit}" if unit != "B" and amount < 9.95 else f"{amount:.0f} {unit}"
        amount /= 1000
    raise AssertionError


# -- what is in a message ----------------------------------------------------------------------------------------------


def _list_fields(message: Message) -> Iterator[dict[str, Any]]:
    from graphsilo.federation.policy import is_filled, payload_bytes

    for spec in message.specs():
        value = getattr(message, spec.name)
        if not is_filled(value):
            continue
        note: dict[str, Any] = {"name": spec.name, "kind": spec.kind, "bytes": payload_bytes(value)}
        if spec.form == "tensor":
            note.update(tensors=1, shape=list(value.shape))
        elif spec.form != "plain":
            note["tensors"] = len(value)
        else:
            note.update(_plain(value))
        yield note


def _read_fields(encoded: Encoded) -> Iterator[dict[str, Any]]:
    """What the bytes say, not what somebody says of them; the kinds are those that were declared."""
    from graphsilo.federation.policy import payload_bytes
    from graphsilo.federation.wire import header_bytes

    _, body, _ = msgspec.msgpack.decode(header_bytes(encoded.data, encoded.name)[8:])
    for name, kind, payload in encoded.field_bytes:
        value = body.get(name)
        if value is None or (isinstance(value, str | list | dict) and not value):
            continue
        note: dict[str, Any] = {"name": name, "kind": kind}
        items = list(value.values()) if isinstance(value, dict) else value
        if (amount := _tensor_bytes(value)) is not None:
            if amount:
                yield {**note, "bytes": amount, "tensors": 1, "shape": value[1]}
        elif payload or (isinstance(items, list) and all(_tensor_bytes(item) is not None for item in items)):
            names = sum(len(str(key).encode()) for key in value if items is not value)
            yield {**note, "bytes": names + sum(_tensor_bytes(item) or 0 for item in items), "tensors": len(items)}
        else:
            yield {**note, "bytes": payload_bytes(value), **_plain(value)}


def _tensor_bytes(value: Any) -> int | None:
    """Bytes of a tensor by the reference ``[type, shape, offset]`` of the codec; None where it is none."""
    from graphsilo.federation.wire import SIZES

    match value:
        case [str(code), list(shape), int()] if code in SIZES:
            return math.prod(shape) * SIZES[code]
    return None


def _plain(value: Any) -> dict[str, Any]:
    """A plain value, unless it is long."""
    if hasattr(value, "item"):  # numpy's numbers
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": str(value)}
    if isinstance(value, bool | int | float):
        return {"value": value}
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = str(value)
        value = text
    return {"value": value} if len(text) <= _LONGEST else {}


# -- words -------------------------------------------------------------------------------------------------------------


def _describe_kind(kind: str, notes: Iterable[FieldNote]) -> str:
    """One kind of what a message disclosed."""
    notes = list(notes)
    parts = []
    tensors = [note for note in notes if note.tensors]
    if tensors:
        count = sum(note.tensors for note in tensors)
        shape = tensors[0].shape
        form = f" of {' × '.join(map(str, shape))}" if count == 1 and shape else ""
        amount = format_size(sum(note.bytes for note in tensors))
        parts.append(f"{count} tensor{'s' if count > 1 else ''}{form}, {amount}")
    numbers = [_number(note.value) for note in notes if type(note.value) in (int, float)]
    if numbers:
        parts.append(f"the number{'s' if len(numbers) > 1 else ''} {_enumerate(numbers)}")
    texts = [repr(note.value) for note in notes if isinstance(note.value, str)]
    if texts:
        parts.append(f"the text{'s' if len(texts) > 1 else ''} {_enumerate(texts)}")
    answers = [str(note.value).lower() for note in notes if isinstance(note.value, bool)]
    parts += [_enumerate(answers)] if answers else []
    others = [note for note in notes if not note.tensors and not isinstance(note.value, bool | int | float | str)]
    if others:
        names = _enumerate([note.name for note in others])
        parts.append(f"{names}, {format_size(sum(note.bytes for note in others))}")
    return f"{SHORT.get(kind, kind)} ({'; '.join(parts)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def _enumerate(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# -- files -------------------------------------------------------------------------------------------------------------


def _find_set_aside(path: Path) -> list[tuple[int, Path]]:
    """Files that were set aside, oldest first."""
    found = []
    for other in path.parent.glob(f"{glob.escape(path.name)}.*"):
        number = other.name.removeprefix(f"{path.name}.")
        if number.isdecimal():
            found.append((int(number), other))
    return sorted(found)


def _files(path: Path) -> list[Path]:
    return [*(other for _, other in _find_set_aside(path)), *([path] if path.is_file() else [])]


def _entry(line: bytes) -> Entry:
    try:
        return msgspec.json.decode(line, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Entry()
