"""All attacks on a run, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from graphsilo.attacks import record as records
from graphsilo.attacks.classes import classes
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.attacks.recorder import Repetition, opened, repeat
from graphsilo.attacks.rows import rows
from graphsilo.attacks.views import ATTACKERS, Attacker, View, views
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.observer import Observer
from graphsilo.types import ClientId

Attack: TypeAlias = "Callable[[Sequence[tuple[View, Silo]], Sequence[Silo]], list[Outcome]]"

ATTACKS: Mapping[str, Attack] = {"rows": rows, "classes": classes}
"""Attacks on what one attacker sees, by name."""
NAMES = tuple(ATTACKS)
SHADOWS = 16


def attack(
    folder: Path,
    *,
    attacks: Sequence[str] | None = None,
    attackers: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    clients: Sequence[ClientId] | None = None,
    say: Callable[[str], None] = lambda text: None,
    observer: Observer | None = None,
) -> AttackRecord:
    """Attack a finished run, and write ``attack.json`` into its folder.

    Args:
        folder: Of the run.
        attacks: Which; None takes all.
        attackers: As whom; None takes all.
        seeds: Seeds that are repeated and attacked; None takes the first.
        clients: Silos that are attacked; None takes all.
        say: Called with a line about what is done next.
        observer: Hears of the repetition's progress.

    Raises:
        ConfigError: An unknown attack, attacker, seed or client.
        RunError: There is no such run, or its data is elsewhere.
        UnsupportedError: It is of another task.
    """
    chosen = _known("attack", attacks, NAMES)
    roles = _known("attacker", attackers, ATTACKERS)
    result, config = opened(folder)
    notes: list[str] = []
    outcomes: dict[int, list[Outcome]] = {}
    targets: tuple[ClientId, ...] = ()
    for seed in seeds or [result.seeds[0].seed]:
        say(f"Running seed {seed} of {result.method.title} again, to see what is sent.")
        repetition = repeat(result, config, seed, observer=observer)
        targets = _targets(repetition, clients)
        if repetition.differs:
            notes.append(repetition.differs)
        outcomes[seed] = _attacked(repetition, chosen, roles, targets, say)
    found = AttackRecord(
        fingerprint=result.fingerprint, method=result.method.name, title=result.method.title, data=result.data.name,
        secure_sums=config.run.secure_sums, targets=list(targets), shadows=0, notes=notes, outcomes=outcomes,
    )  # fmt: skip
    records.write(folder, found)
    return found


def _attacked(
    repetition: Repetition,
    chosen: Sequence[str],
    roles: Sequence[str],
    targets: tuple[ClientId, ...],
    say: Callable[[str], None],
) -> list[Outcome]:
    silos = {silo.client: silo for silo in repetition.simulation.silos}
    made: list[Outcome] = []
    seen: dict[Attacker, list[View]] = {role: views(repetition, role, targets) for role in ATTACKERS if role in roles}
    for name in chosen:
        if name in ATTACKS:
            say(f"Attack: {name}.")
            for found in seen.values():
                cases = [(view, silos[view.target]) for view in found]
                made += ATTACKS[name](cases, repetition.simulation.silos)
    return made


def _known(what: str, wanted: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    if not wanted:
        return tuple(known)
    strange = [name for name in wanted if name not in known]
    if strange:
        raise ConfigError(f"there is no {what} '{strange[0]}'; {nearest(strange[0], known)}")
    return tuple(name for name in known if name in wanted)


def _targets(repetition: Repetition, clients: Sequence[ClientId] | None) -> tuple[ClientId, ...]:
    known = repetition.simulation.clients
    strange = sorted(set(clients or ()).difference(known))
    if strange:
        raise ConfigError(f"the run has clients {min(known)} to {max(known)}; {strange[0]} was asked for.")
    return tuple(clients or known)
