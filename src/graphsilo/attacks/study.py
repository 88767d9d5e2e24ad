"""All attacks on a run, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from graphsilo.attacks import record as records
from graphsilo.attacks.attribute import attribute
from graphsilo.attacks.classes import classes
from graphsilo.attacks.labels import labels
from graphsilo.attacks.links import links
from graphsilo.attacks.membership import membership, of_sums, shadow_runs
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.attacks.recorder import Repetition, open_run, repeat
from graphsilo.attacks.replay import replay
from graphsilo.attacks.rows import rows
from graphsilo.attacks.views import ATTACKERS, Attacker, View, views
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.doors import plain
from graphsilo.experiments.observer import Observer
from graphsilo.settings import Count, Settings, setting
from graphsilo.types import ClientId

Attack: TypeAlias = "Callable[[Sequence[tuple[View, Silo]], Sequence[Silo]], list[Outcome]]"
"""Takes what one attacker sees of each target, with the truth, and all silos, whose data the prior is made of."""

ATTACKS: Mapping[str, Attack] = {
    "rows": rows, "classes": classes, "labels": labels, "attribute": attribute, "links": links,
}  # fmt: skip
"""Attacks on what one attacker sees of some silos, by name."""
NAMES = (*ATTACKS, "membership", "replay")
SHADOWS = 16
"""Runs behind the membership attack, unless somebody asks for others."""


class Asked(Settings):
    """What a person asks of an attack."""

    attacks: list[str] | None = setting(None, "which; none: all", min_length=1)
    attackers: list[str] | None = setting(None, "as whom; none: all", min_length=1)
    seeds: list[Count] | None = setting(None, "seeds that are repeated and attacked; none: the first", min_length=1)
    clients: list[Count] | None = setting(None, "silos that are attacked; none: all", min_length=1)
    shadows: int = setting(
        SHADOWS, "runs behind the membership attack, each as long as the run itself; 0 leaves it out", ge=0
    )


def attack(
    folder: Path,
    *,
    say: Callable[[str], None] = lambda text: None,
    observer: Observer | None = None,
    **asked_for: Any,
) -> AttackRecord:
    """Attack a finished run, and write ``attack.json`` into its folder, beside what was found of these clients before.

    Args:
        folder: Of the run.
        say: Called with a line about what is done next.
        observer: Hears of the repetition's progress.
        asked_for: Settings of :class:`Asked`.

    Raises:
        ConfigError: An unknown attack, attacker, seed or client, a list without any, or a number that cannot be; or the
            attack by membership alone, without shadows.
        RunError: There is no such run, or its data is elsewhere.
        UnsupportedError: It is of another task.
    """
    asked = Asked.of(plain(asked_for))
    chosen = _select("attack", asked.attacks, NAMES)
    roles = _select("attacker", asked.attackers, ATTACKERS)
    shadows = asked.shadows if "membership" in chosen else 0
    result, config = open_run(folder)
    notes: list[str] = []
    outcomes: dict[int, list[Outcome]] = {}
    for seed in dict.fromkeys(asked.seeds or [result.seeds[0].seed]):
        say(f"Running seed {seed} of {result.method.title} again, to see what is sent.")
        repetition = repeat(result, config, seed, observer=observer)
        targets = _targets(repetition, asked.clients)
        if repetition.differs:
            notes.append(repetition.differs)
        found = _attack_seed(repetition, chosen, roles, targets, shadows, say)
        outcomes[seed] = [replace(one, clients=targets) for one in found]
    if not any(outcomes.values()) and "membership" in chosen and not shadows:
        raise ConfigError(
            f"{result.method.title} sends nothing that tells members without shadow runs, and shadows=0 (--shadows 0) "
            f"leaves these out: nothing was attacked. Give a number of shadow runs, such as {SHADOWS}."
        )
    record = AttackRecord(
        fingerprint=result.fingerprint, method=result.method.name, title=result.method.title, data=result.data.name,
        secure_sums=config.run.secure_sums, shadows=shadows, notes=notes, outcomes=outcomes,
    )  # fmt: skip
    record, text = records.beside(folder, record)
    if text:
        say(text)
    records.write(folder, record)
    return record


def _attack_seed(
    repetition: Repetition,
    chosen: Sequence[str],
    roles: Sequence[str],
    targets: tuple[ClientId, ...],
    shadows: int,
    say: Callable[[str], None],
) -> list[Outcome]:
    silos = {silo.client: silo for silo in repetition.simulation.silos}
    made: list[Outcome] = []
    seen: dict[Attacker, list[View]] = {role: views(repetition, role, targets) for role in ATTACKERS if role in roles}
    cases = {role: [(view, silos[view.target]) for view in found] for role, found in seen.items()}
    for name in chosen:
        if name in ATTACKS:
            say(f"Attack: {name}.")
            for each in cases.values():
                made += ATTACKS[name](each, repetition.simulation.silos)
    if "membership" in chosen:
        for each in cases.values():
            made += of_sums(each)
    if shadows:
        say(f"Attack: membership. It takes {shadows} more runs of this length; --shadows 0 leaves it out.")
        made += membership(repetition, seen, shadow_runs(repetition, targets, shadows, say))
    if "replay" in chosen and "coordinator" in seen:
        say("Attack: replay.")
        made += replay(repetition.recorder, repetition.seed, targets)
    return made


def _select(what: str, wanted: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    if wanted is None:
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
    return tuple(dict.fromkeys(clients or known))
