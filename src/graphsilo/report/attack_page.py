"""What the page on attacks says, from ``attack.json`` alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from graphsilo.attacks import findings
from graphsilo.attacks import record as records
from graphsilo.attacks.record import AttackRecord, Outcome
from graphsilo.errors import several
from graphsilo.experiments.storage import disk
from graphsilo.report.formats import MISSING, join_words, short_hash
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Dots, Figure, Plot, present, short
from graphsilo.report.sections import SELF_CONTAINED, Block, Page, Section, Table, add_heading, warn_of

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
    return page(describe(record))


def describe(record: AttackRecord) -> Page:
    """Everything the page shows."""
    several_seeds, apart = len(record.outcomes) > 1, len({clients for _, clients, _ in record.parts}) > 1
    sections = []
    for place, (seed, clients, outcomes) in enumerate(record.parts):
        of = (f", seed {seed}" if several_seeds else "") + (f", {_silos(clients)}" if apart else "")
        won = list_successes(outcomes)
        blocks: list[Block] = [block for title, entries in won for block in (("heading", title), ("bullets", entries))]
        sections.append(Section(f"part-{place + 1}", f"What was learned{of}", [
            *blocks,
            ("plain", "" if won else "No attack did better than one would without the run."),
            *add_heading("What was not", [("bullets", list_failures(outcomes))]),
            ("figures", present(draw_success(outcomes, f"success-{place}", seed))),
            ("table", _table(f"Every attack{of}", outcomes)),
        ]))  # fmt: skip
    who = [(_title(who), SEES[who]) for who in WHO if who in _attackers(record)]
    return Page(
        f"Attacks on {record.title}, {record.data}",
        "graphsilo attacks",
        [("lede", sentence(record))],
        [
            *sections,
            Section("guards", "What guards change", guards(record.method)),
            Section("read", "How to read it", [("plain", _REPEATED), ("facts", who), ("plain", _WITHOUT)]),
        ],
        notices=[warn_of(record.notes)],
        footer=f"Run {short_hash(record.fingerprint)}, graphsilo {record.graphsilo}. {SELF_CONTAINED}",
    )


_REPEATED = (
    "The run was repeated with the same seed, and its messages were noted. Each attacker was handed what it sees and "
    "nothing else; the truth served to count what it got right."
)
_WITHOUT = (
    "“Without the run” is what one would guess from other silos or from features alone. An attack that did no better "
    "may still be improved on; one that did shows what the messages tell at least."
)
_ATTACKED = [("Attack", "wrap"), ("As", "text"), ("Figure", "text wrap")]


def sentence(record: AttackRecord) -> str:
    """What was attacked, as whom, and how often."""
    count = len(record.targets)
    sums = "with secure sums" if record.secure_sums else "without secure sums"
    text = f"{count} silo{'' if count == 1 else 's'} of a run {sums}, attacked as "
    text += f"{join_words([WHO[who] for who in WHO if who in _attackers(record)])}."
    return text + (f" {record.shadows} shadow runs behind the membership attack." if record.shadows else "")


def list_successes(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Markup]]]:
    """What each attacker learned: an entry for each attack with a figure above the prior."""
    found = []
    for who in WHO:
        attacks: dict[str, list[Outcome]] = {}
        for one in outcomes:
            if one.attacker == who and one.succeeds:
                attacks.setdefault(one.attack, []).append(one)
        if attacks:
            entry = Markup("<b>{}.</b> {} From {}.")
            entries = [
                entry.format(name[:1].upper() + name[1:], f"{_figures(won)}.", won[0].uses)
                for name, won in attacks.items()
            ]
            found.append((_title(who), entries))
    return found


def _figures(won: Sequence[Outcome]) -> str:
    return "; ".join(
        f"{one.figure}: {number(one.value)} ({number(one.low)} to {number(one.high)}), without the run "
        f"{number(one.prior)}"
        for one in won
    )


def list_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Attacks of which no figure is above the prior, by attacker, and those that had nothing to use."""
    won = {(one.attacker, one.attack) for one in outcomes if one.succeeds}
    tried = {(one.attacker, one.attack) for one in outcomes if one.value is not None}
    lines = []
    for who in WHO:
        names = list(dict.fromkeys(one.attack for one in outcomes if one.attacker == who))
        lost = [name for name in names if (who, name) in tried - won]
        idle = [name for name in names if (who, name) not in tried]
        parts = [f"no better than without the run: {'; '.join(lost)}"] if lost else []
        parts += [f"nothing to use: {'; '.join(idle)}"] if idle else []
        if parts:
            lines.append(f"{_title(who)}, {'. It had '.join(parts)}.")
    return lines


def guards(method: str) -> list[Block]:
    """What masks, noise and other settings change, as measured on public data: a column each; empty where nothing is
    known but of the method as it comes."""
    known = findings.about(method)
    variants = sorted({each.variant for each in known})
    if len(variants) < 2:
        return []
    rows: dict[tuple[str, str, str], dict[str, findings.Finding]] = {}
    for each in known:
        rows.setdefault((each.attack, each.attacker, each.figure), {})[each.variant] = each
    cells = [
        (attack, _who(attacker), figure, number(next(iter(found.values())).prior), *(_format_finding(found.get(variant))
         for variant in variants))
        for (attack, attacker, figure), found in rows.items()
    ]  # fmt: skip
    columns = [*_ATTACKED, ("Without the run", ""), *((variant or "as it comes", "") for variant in variants)]
    text = (
        f"The same attacks on runs of this method on {join_words(sorted({each.data for each in known}))}, measured "
        f"beforehand: with its default settings, and with secure sums, noise or what else guards it. In bold what is "
        f"above the prior. Another graph may give away more or less."
    )
    return [("plain", text), ("table", Table("Attacks on runs with guards and without", columns, cells))]


def _format_finding(found: findings.Finding | None) -> str:
    if found is None:
        return MISSING
    text = f"{number(found.value)} ({number(found.low)} to {number(found.high)})"
    return Markup("<b>{}</b>").format(text) if found.succeeds else text


def draw_success(outcomes: Sequence[Outcome], name: str, seed: int) -> Figure | None:
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


def _table(caption: str, outcomes: Sequence[Outcome]) -> Table:
    known = [one for one in outcomes if one.value is not None]
    rows = [
        (
            one.attack, _who(one.attacker), one.figure, number(one.value),
            MISSING if one.low is None else f"{number(one.low)} to {number(one.high)}", number(one.prior),
            one.targets or MISSING, one.verdict,
        )
        for one in known
    ]  # fmt: skip
    columns = [(title, "") for title in ("Success", "95 % interval", "Without the run", "Targets")]
    pale = [place for place, one in enumerate(known) if not one.succeeds]
    return Table(caption, [*_ATTACKED, *columns, ("Verdict", "text")], rows, pale=pale)


def _silos(clients: Sequence[int]) -> str:
    return f"silo{'' if len(clients) == 1 else 's'} {several(clients, 6)}"


def _title(attacker: str) -> str:
    return WHO[attacker][:1].upper() + WHO[attacker][1:]


def _who(attacker: str) -> str:
    return WHO[attacker].removeprefix("the ").removeprefix("a ")


def _attackers(record: AttackRecord) -> set[str]:
    return {one.attacker for outcomes in record.outcomes.values() for one in outcomes}
