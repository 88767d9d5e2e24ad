"""What the page on attacks says, as plain values and text, from ``attack.json`` alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphsilo.attacks import findings
from graphsilo.attacks import record as records
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.errors import several
from graphsilo.experiments.storage import disk
from graphsilo.report.formats import MISSING, listed, short_hash
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Dots, Figure, Plot, short
from graphsilo.report.record import Context

NAME = "attack.html"
WHO = {
    "coordinator": "the coordinator",
    "silo": "another silo",
    "reader": "a reader of the saved model",
}
"""Attackers, in a sentence."""
SEES = {
    "coordinator": "all that clients send it; with secure sums only sums",
    "silo": "what the coordinator sends it, and its own data",
    "reader": "the model at the end, and predictions that the owner publishes",
}


def write(run_dir: Path, out: Path | None = None) -> Path:
    """Write the page on the attacks on a run; returns the file.

    Raises:
        RunError: There is no readable ``attack.json``, or the file cannot be written.
    """
    target = out or run_dir / NAME
    disk.write_text(target, render(records.read(run_dir)))
    return target


def render(record: AttackRecord) -> str:
    """The page as HTML."""
    context, _ = describe(record)
    return page("attack.html.j2", context)


def describe(record: AttackRecord) -> tuple[Context, list[Figure]]:
    """Everything the page shows, and its figures."""
    drawings = [drawn(outcomes, f"success-{place}", seed) for place, (seed, _, outcomes) in enumerate(record.parts)]
    several_seeds, apart = len(record.outcomes) > 1, len({clients for _, clients, _ in record.parts}) > 1
    context: Context = {
        "title": f"Attacks on {record.title}, {record.data}",
        "sentence": sentence(record),
        "warnings": record.notes,
        "attackers": [(WHO[who][:1].upper() + WHO[who][1:], SEES[who]) for who in WHO if who in _attackers(record)],
        "parts": [
            {
                "of": (f", seed {seed}" if several_seeds else "") + (f", {_silos(clients)}" if apart else ""),
                "learned": learned(outcomes),
                "held": held(outcomes),
                "rows": [_row(one) for one in outcomes if one.value is not None],
                "figure": figure,
            }
            for (seed, clients, outcomes), figure in zip(record.parts, drawings, strict=True)
        ],
        "guards": guards(record.method),
        "fingerprint": short_hash(record.fingerprint),
        "version": record.graphsilo,
    }
    return context, [figure for figure in drawings if figure is not None]


def sentence(record: AttackRecord) -> str:
    """What was attacked, as whom, and how often."""
    count = len(record.targets)
    sums = "with secure sums" if record.secure_sums else "without secure sums"
    text = f"{count} silo{'' if count == 1 else 's'} of a run {sums}, attacked as "
    text += f"{listed([WHO[who] for who in WHO if who in _attackers(record)])}."
    return text + (f" {record.shadows} shadow runs behind the membership attack." if record.shadows else "")


def learned(outcomes: Sequence[Outcome]) -> list[Context]:
    """What each attacker learned: an entry for each attack with a figure above the prior."""
    found: list[Context] = []
    for who, title in WHO.items():
        attacks: dict[str, list[Outcome]] = {}
        for one in outcomes:
            if one.attacker == who and one.succeeds:
                attacks.setdefault(one.attack, []).append(one)
        if attacks:
            entries = [(name[:1].upper() + name[1:], _figures(won), won[0].uses) for name, won in attacks.items()]
            found.append({"title": title[:1].upper() + title[1:], "entries": entries})
    return found


def _figures(won: Sequence[Outcome]) -> str:
    return "; ".join(
        f"{one.figure}: {number(one.value)} ({number(one.low)} to {number(one.high)}), without the run "
        f"{number(one.prior)}"
        for one in won
    )


def held(outcomes: Sequence[Outcome]) -> list[str]:
    """Attacks of which no figure is above the prior, by attacker, and those that had nothing to use."""
    won = {(one.attacker, one.attack) for one in outcomes if one.succeeds}
    tried = {(one.attacker, one.attack) for one in outcomes if one.value is not None}
    lines = []
    for who, title in WHO.items():
        names = list(dict.fromkeys(one.attack for one in outcomes if one.attacker == who))
        lost = [name for name in names if (who, name) in tried - won]
        idle = [name for name in names if (who, name) not in tried]
        parts = [f"no better than without the run: {'; '.join(lost)}"] if lost else []
        parts += [f"nothing to use: {'; '.join(idle)}"] if idle else []
        if parts:
            lines.append(f"{title[:1].upper() + title[1:]}, {'. It had '.join(parts)}.")
    return lines


def guards(method: str) -> Context | None:
    """What masks, noise and other settings change, as measured on public data: a column each; None where nothing is
    known but of the method as it comes."""
    known = findings.about(method)
    variants = sorted({each.variant for each in known})
    if len(variants) < 2:
        return None
    rows: dict[tuple[str, str, str], dict[str, findings.Finding]] = {}
    for each in known:
        rows.setdefault((each.attack, each.attacker, each.figure), {})[each.variant] = each
    return {
        "data": listed(sorted({each.data for each in known})),
        "variants": [variant or "as it comes" for variant in variants],
        "rows": [
            {
                "attack": attack,
                "attacker": _who(attacker),
                "figure": figure,
                "prior": number(next(iter(found.values())).prior),
                "cells": [_guarded(found.get(variant)) for variant in variants],
            }
            for (attack, attacker, figure), found in rows.items()
        ],
    }


def _guarded(found: findings.Finding | None) -> Context:
    if found is None:
        return {"text": MISSING, "succeeds": False}
    return {"text": f"{number(found.value)} ({number(found.low)} to {number(found.high)})", "succeeds": found.succeeds}


def drawn(outcomes: Sequence[Outcome], name: str, seed: int) -> Figure | None:
    """Success with its interval, and the prior beside it."""
    known = [one for one in outcomes if one.value is not None]
    if not known:
        return None
    places = tuple(f"{one.attack}: {_short(one.figure)}, {one.attacker}" for one in known)
    priors = [(at, one.prior) for at, one in enumerate(known) if one.prior is not None]
    tips = [f"{places[at]}: {value:.3f} without the run" for at, value in priors]
    marks = [Dots("without the run", [v for _, v in priors], [at for at, _ in priors], 5, tips, hollow=True)]
    for series, (title, wins) in enumerate((("not above the prior", False), ("above the prior", True))):
        chosen = [(at, one) for at, one in enumerate(known) if one.succeeds == wins]
        values = [short(one.value or 0.0) for _, one in chosen]
        tips = [f"{places[at]}: {value:.3f}" for (at, _), value in zip(chosen, values, strict=True)]
        reach = [(short(one.low or 0.0), short(one.high or 0.0)) for _, one in chosen]
        marks.append(Dots(title, values, [at for at, _ in chosen], series, tips, reach))
    plot = Plot(Axis("Success, from 0 to 1", low=0.0, high=1.0), Axis(names=places), tuple(marks))
    return Figure(
        name,
        "Each attack's success with its 95 % interval. The grey ring is what one would guess without the run; an "
        "attack tells something where its whole interval is to the right of it.",
        f"Success of {len(known)} attacks on seed {seed}, with intervals and priors",
        80 + 26 * len(known),
        {"success": plot},
    )


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return MISSING if value is None else f"{value:.3f}"


def _short(figure: str) -> str:
    """The figure's first word: what kind of number it is."""
    return figure.split(" ", 1)[0] + (f" {figure.rsplit(' ', 1)[1]}" if "cosine" in figure else "")


def _row(one: Outcome) -> Context:
    interval = MISSING if one.low is None else f"{number(one.low)} to {number(one.high)}"
    return {
        "attack": one.attack,
        "attacker": _who(one.attacker),
        "figure": one.figure,
        "value": number(one.value),
        "interval": interval,
        "prior": number(one.prior),
        "targets": one.targets or MISSING,
        "verdict": one.verdict,
        "succeeds": one.succeeds,
    }


def _silos(clients: Sequence[int]) -> str:
    return f"silo{'' if len(clients) == 1 else 's'} {several(clients, 6)}"


def _who(attacker: str) -> str:
    return WHO[attacker].removeprefix("the ").removeprefix("a ")


def _attackers(record: AttackRecord) -> set[str]:
    return {one.attacker for outcomes in record.outcomes.values() for one in outcomes}
