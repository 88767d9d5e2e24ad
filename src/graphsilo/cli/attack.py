"""``graphsilo attack``: what somebody who keeps to the protocol learns from what a run sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphsilo.cli import complete
from graphsilo.cli.terminal import announce, say, show, table
from graphsilo.cli.values import (
    Debug,
    OwnCode,
    allow_own,
    argument,
    option,
    switch,
    whole_numbers,
)
from graphsilo.errors import several
from graphsilo.loading import load

if TYPE_CHECKING:
    from graphsilo.attacks.record import AttackRecord, Outcome


def attack(
    run: Path = argument("RUN", "Folder of a finished run, with its data here.", complete.runs),
    only: list[str] | None = option("NAME", "Attack to carry out, as named above; repeatable. Else all."),
    attackers: list[str] | None = option(
        "WHO", "coordinator, silo or reader (of the saved model); repeatable. Else all.", flags="--as"
    ),
    seeds: str | None = option("0,1,2", "Seeds that are run again and attacked; else the first."),
    clients: str | None = option("0,3", "Clients that are attacked; else all, pooled."),
    shadows: int = option("N", "Runs behind the membership attack, each as long as RUN; 0 leaves it out.", default=16),
    quiet: bool = switch("--quiet -q", "Print the table only."),
    own: OwnCode = None,
    debug: Debug = False,
) -> None:
    """Attack a finished run: it is run again, its messages are noted, and what they give away is measured.

    Attacks: rows, classes, labels, attribute, links, membership, replay. Writes RUN/attack.json and RUN/attack.html.
    """
    allow_own(own)
    load("graphsilo.attacks.study")
    from graphsilo.attacks import study
    from graphsilo.report import attack_page

    found = study.attack(
        run,
        attacks=only,
        attackers=attackers,
        seeds=None if seeds is None else whole_numbers(seeds, "--seeds"),
        clients=None if clients is None else whole_numbers(clients, "--clients"),
        shadows=shadows,
        say=(lambda text: None) if quiet else announce,
    )
    page = attack_page.write(run)
    _print(found)
    say()
    say(f"Report: {page}")


def _print(found: AttackRecord) -> None:
    for text in found.notes:
        say(f"Note: {text}")
        say()
    for seed, clients, outcomes in found.parts:
        who = f"{'client' if len(clients) == 1 else 'clients'} {several(clients, 6)}"
        say(f"{found.title} on {found.data}, seed {seed}: {who} attacked.")
        say()
        grid = table("attack", "as", "figure", "success", "95 %", "without the run", "verdict", numbers=(3, 4, 5))
        for one in outcomes:
            if one.value is not None:
                grid.add_row(*_cells(one), style="" if one.succeeds else "dim")
        show(grid)
        say()
        for line in (*_uses(outcomes), *_list_unused(outcomes)):
            say(line)


def _cells(one: Outcome) -> tuple[str, ...]:
    interval = f"{one.low:.3f} to {one.high:.3f}"
    prior = "–" if one.prior is None else f"{one.prior:.3f}"
    return one.attack, one.attacker, one.figure, f"{one.value:.3f}", interval, prior, one.verdict


def _uses(outcomes: list[Outcome]) -> list[str]:
    """What attacks that found something used."""
    texts = {f"{one.attack}, as {one.attacker}: from {one.uses}." for one in outcomes if one.succeeds}
    return sorted(texts)


def _list_unused(outcomes: list[Outcome]) -> list[str]:
    """Attacks that found nothing to use, for none of their figures."""
    found = {(one.attack, one.attacker) for one in outcomes if one.value is not None}
    places: dict[str, dict[str, None]] = {}
    for one in outcomes:
        if (one.attack, one.attacker) not in found:
            places.setdefault(one.attack, {})[one.attacker] = None
    texts = [f"{attack} (as {', '.join(who)})" for attack, who in places.items()]
    return [f"Nothing to use: {'; '.join(texts)}."] if texts else []
