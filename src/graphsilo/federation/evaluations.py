"""How often a silo lets its data be evaluated: tables of the same items can be compared with each other.

A table of hits and misses, of scores in bins or by period tells little of one item. Two of them that a coordinator had
counted with bins, thresholds, periods or models that hardly differ are unlike in single items alone. No silo can tell
such questions from those of an honest run, whose models change a little from round to round; so it counts what it
answers or refuses, for each run and, as a run's name is the coordinator's word, over all runs on the same data: that a
bin is too small to leave tells of items, too. An answer is on the disk of its record before it leaves. One that was
given before to the same questions, all earlier ones of the run included, says nothing more and counts once: that is
what a run asks for that goes on from a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphsilo.errors import DisclosureError
from graphsilo.federation.record import Record

if TYPE_CHECKING:
    from graphsilo.federation.policy import DisclosurePolicy


@dataclass(frozen=True)
class Evaluation:
    """An answer of evaluation that is about to leave.

    Attributes:
        run: Name of the run.
        data: Hash of the data that it is of.
        key: Of the answer and all that was asked.
    """

    run: str
    data: str
    key: str

    @classmethod
    def of(cls, run: str, data: str, seed: int, step: str, number: int, *asked: bytes) -> Evaluation:
        """The one of a seed and round.

        Args:
            run, data: As above.
            seed, step, number: Seed, step and round that it answers.
            asked: Hashes of all that the silo was asked before, of what it is asked now, and of its answer.
        """
        digest = hashlib.sha256(json.dumps([run, data, seed, step, number]).encode())
        for part in asked:
            digest.update(part)
        return cls(run, data, digest.hexdigest()[:32])


class Evaluations(Record):
    """What one silo has answered, as a file of lines; ``path`` and errors are a ``Record``'s."""

    what = "record of evaluations"
    stops = "answered", "no evaluation is answered"
    removed = "have the same items counted as often again"

    def answered(self, data: str) -> int:
        """How many answers left of these data, in all runs.

        Raises:
            DisclosureError: The record cannot be read.
        """
        self._read_on()
        return sum(map(len, self._known.get(data, {}).values()))

    def check_room(self, wanted: int, run: str, data: str, policy: DisclosurePolicy) -> None:
        """Refuse a run that is going to ask for more than may be answered, before anything is trained.

        Args:
            wanted: Answers that the run will ask for at most, by the coordinator's word.
            run: Its name.
            data: Hash of the silo's data.
            policy: Of its owner.

        Raises:
            DisclosureError: It is; or the record cannot be read.
        """
        self._read_on()
        known = self._known.get(data, {})
        others = sum(len(keys) for name, keys in known.items() if name != run)
        if wanted > policy.max_run_evaluations:
            raise _make_error(f"may ask for up to {wanted:,} of them", "max_run_evaluations", policy)
        if wanted > policy.max_total_evaluations - others:
            raise _make_error(f"may ask for up to {wanted:,} after those before it", _IN_ALL, policy)

    def count(self, answer: Evaluation, policy: DisclosurePolicy) -> None:
        """Count an answer that is about to leave, unless it was; it is on the disk when this returns.

        Args:
            answer: It.
            policy: Of the silo's owner.

        Raises:
            DisclosureError: Too many were answered before; or the record cannot be read or written. It must not be
                sent.
        """

        def check() -> None:
            self._read_on()
            known = self._known.get(answer.data, {})
            if len(known.get(answer.run, ())) >= policy.max_run_evaluations:
                raise _make_error("has asked for so many", "max_run_evaluations", policy)
            if sum(map(len, known.values())) >= policy.max_total_evaluations:
                raise _make_error("and earlier ones have asked for so many", _IN_ALL, policy)

        self._read_on()
        if answer.key not in self._known.get(answer.data, {}).get(answer.run, ()):
            self._add({"data": answer.data, "run": answer.run, "key": answer.key}, check)

    def _empty(self) -> None:
        self._known: dict[str, dict[str, set[str]]] = {}

    def _take(self, line: dict[str, Any]) -> None:
        runs = self._known.setdefault(str(line["data"]), {})
        runs.setdefault(str(line["run"]), set()).add(str(line["key"]))


_IN_ALL = "max_total_evaluations"


def _make_error(why: str, name: str, policy: DisclosurePolicy) -> DisclosureError:
    whose = "a run" if name != _IN_ALL else "all runs together"
    return DisclosureError(
        f"this silo answers {getattr(policy, name):,} evaluations of the same data in {whose} (policy.{name}), and "
        f"this run {why}: tables of the same items under models, thresholds or periods that hardly differ tell of "
        f"single ones. Evaluate less often (evaluation.every), choose fewer rounds or seeds, or ask the silo's owner."
    )
