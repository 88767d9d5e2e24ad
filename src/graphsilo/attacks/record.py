"""What ``attack.json`` holds, typed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec

from graphsilo.__about__ import __version__
from graphsilo.attacks.measures import Interval
from graphsilo.errors import RunError
from graphsilo.experiments.storage import disk

FORMAT = 2
"""Version of ``attack.json``."""
NAME = "attack.json"


class Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A part of it."""


class Outcome(Record, frozen=True, kw_only=True):
    """What one attack came to, by one figure.

    Attributes:
        attack, attacker: Which, and as whom.
        figure: What ``value`` is, in words.
        uses: What the attack used of what the attacker saw; where there was nothing to use, what was missing.
        value, low, high: Success and its 95 % interval, from 0 to 1; None where there was nothing to use.
        prior: The same figure without the run; None where there is none.
        targets: How many things were guessed.
        clients: Whose silos were attacked.
    """

    attack: str
    attacker: str
    figure: str
    uses: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    prior: float | None = None
    targets: int = 0
    clients: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, attack: str, attacker: str, figure: str, uses: str, found: Interval | None, *, prior: float | None,
        targets: int,
    ) -> Outcome:  # fmt: skip
        """From a figure with its interval."""
        if found is None:
            return cls(attack=attack, attacker=attacker, figure=figure, uses="all targets are of one kind")
        value, low, high = found
        return cls(
            attack=attack, attacker=attacker, figure=figure, uses=uses, value=value, low=low, high=high, prior=prior,
            targets=targets,
        )  # fmt: skip

    @property
    def what(self) -> tuple[tuple[int, ...], str, str, str]:
        """What tells it from the others of its seed."""
        return self.clients, self.attack, self.attacker, self.figure

    @property
    def succeeds(self) -> bool:
        """Whether the whole interval is above the prior."""
        return self.low is not None and self.low > (self.prior or 0.0)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.value is None:
            return "nothing to use"
        return "above the prior" if self.succeeds else "not above the prior"


class AttackRecord(Record, frozen=True, kw_only=True):
    """The attacks on a run.

    Attributes:
        fingerprint: Of the run.
        shadows: Runs behind the membership attack, per seed.
        notes: What to know of the numbers.
        outcomes: By seed.
    """

    format: int = FORMAT
    graphsilo: str = __version__
    fingerprint: str
    method: str
    title: str
    data: str
    secure_sums: bool
    shadows: int
    notes: list[str]
    outcomes: dict[int, list[Outcome]]

    @property
    def targets(self) -> list[int]:
        """Clients that were attacked."""
        return sorted({client for _, clients, _ in self.parts for client in clients})

    @property
    def parts(self) -> list[tuple[int, tuple[int, ...], list[Outcome]]]:
        """Seed, clients that were attacked together, and what came of it."""
        found: dict[tuple[int, tuple[int, ...]], list[Outcome]] = {}
        for seed, outcomes in self.outcomes.items():
            for one in outcomes:
                found.setdefault((seed, one.clients), []).append(one)
        return [(*both, outcomes) for both, outcomes in found.items()]

    def __repr__(self) -> str:
        each = [outcome for outcomes in self.outcomes.values() for outcome in outcomes]
        above = sum(outcome.succeeds for outcome in each)
        return f"AttackRecord({self.title} on {self.data}: {above} of {len(each)} attacks above the prior)"


def beside(folder: Path, new: AttackRecord) -> tuple[AttackRecord, str]:
    """What was found now and what stands in the folder already, in one; and a sentence on it, where there is any.

    Outcomes of the same seed, clients, attack, attacker and figure are those found now. Another run's record is no part
    of it and is kept under another name.
    """
    path = folder / NAME
    if not path.exists():
        return new, ""
    try:
        old = read(folder)
    except RunError:
        old = None
    if old is None or old.fingerprint != new.fingerprint:
        aside = next(free for number in count(1) if not (free := path.with_stem(f"attack-{number}")).exists())
        path.rename(aside)
        return new, f"What an earlier attack on another run or of another version found is kept as {aside.name}."
    outcomes = {}
    kept = 0
    for seed in sorted({*old.outcomes, *new.outcomes}):
        now = new.outcomes.get(seed, [])
        again = {one.what for one in now}
        before = [one for one in old.outcomes.get(seed, []) if one.what not in again]
        outcomes[seed], kept = [*before, *now], kept + len(before)
    notes = list(dict.fromkeys((*old.notes, *new.notes)))
    both = msgspec.structs.replace(new, outcomes=outcomes, notes=notes, shadows=new.shadows or old.shadows)
    return both, f"{kept} figures of earlier attacks on this run stand beside those found now." if kept else ""


def write(folder: Path, record: AttackRecord) -> Path:
    """Write ``attack.json``; returns where."""
    path = folder / NAME
    disk.write_json(path, msgspec.to_builtins(record))
    return path


def read(folder: Path) -> AttackRecord:
    """Read it.

    Raises:
        RunError: It is missing, damaged or another version's.
    """
    path = folder / NAME
    tree = disk.read_json(path, "what attacks found")
    version = tree.get("format") if isinstance(tree, dict) else None
    if version != FORMAT:
        raise RunError(
            f"'{path}' should hold what attacks found in format {FORMAT}, but its format is {version!r}: attack the "
            f"run again."
        )
    try:
        return msgspec.convert(tree, AttackRecord, strict=False)
    except msgspec.ValidationError as error:
        raise RunError(
            f"'{path}' does not have the form of what attacks found: {error}. Attack the run again."
        ) from None
