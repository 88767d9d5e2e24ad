"""``graphsilo silo explain``: what a run would mean for a silo, for its owner and a data protection officer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphsilo.cli.terminal import bare_table, count, say, show, table
from graphsilo.cli.values import (
    Debug,
    argument,
    option,
)

if TYPE_CHECKING:
    from graphsilo.report.silo_page import Explained


def explain(
    file: Path = argument("SILO.yaml", "What describes the silo."),
    run: str = argument("METHOD|CONFIG.yaml", "A method, or the settings of a run."),
    assignments: list[str] | None = option(
        "NAME=VALUE", "Any setting, such as run.secure_sums=true; repeatable.", flags="--set"
    ),
    log: Path | None = option("LOG", "The log that the silo keeps of what it sends."),
    out: Path | None = option("FILE", "Also as a page to print, such as page.html."),
    debug: Debug = False,
) -> None:
    """Say what would leave a silo in a run under its policy, who sees it, what has left so far, what is promised."""
    from graphsilo.cli.silo.commands import card_rows, list_private, read
    from graphsilo.data.silos.cards import card_of
    from graphsilo.experiments.config import load_config
    from graphsilo.report import silo_page

    described, held, _ = read(file)
    named = Path(run).suffix in (".yaml", ".yml")
    config = load_config(
        Path(run).expanduser() if named else None,
        overrides={} if named else {"method.name": run},
        assignments=assignments or [],
    )
    found = silo_page.explain(described, held, config, None if log is None else log.expanduser())
    before, kept = card_rows(card_of(described, held)), list_private(described)
    if out is not None:  # first, as whoever reads the rest may stop to
        silo_page.write(found, before, kept, out.expanduser())
    _print(found, before, kept)
    if out is not None:
        say()
        say(f"The same as a page: {out}")


def _print(found: Explained, before: list[tuple[str, str]], kept: str) -> None:
    from graphsilo.federation.journal import format_size
    from graphsilo.report.silo_page import NOT_PROMISED, attack_rows

    say(found.verdict)
    for text in found.refusals:
        say(f"  Why not: {text}")
    for text in found.warnings:
        say(f"  Note: {text}")
    say()
    show(bare_table((f"  {name}", value) for name, value in [*found.run, *found.limits]))
    say()
    say("What the federation learns of the silo before round 1:")
    say()
    show(bare_table((f"  {name}", value) for name, value in before))
    say()
    say("What would leave the silo in the run (steps of a trial run on small data with these settings):")
    say()
    grid = table("step", "when", "what leaves", "who sees it")
    for step in found.sent:
        leaves = "; ".join(f"{words} [{fields}]" for words, fields in step.discloses)
        grid.add_row(step.step, step.when, leaves, step.seen)
    show(grid)
    say()
    say(kept)
    if found.past is not None:
        say()
        say("What has left so far:" if found.past else "Nothing has left so far.")
        if found.past:
            say()
            grid = table("run", "method", "first (UTC)", "last (UTC)", "messages", "bytes", "of these", numbers=(4, 5))
            for run in found.past:
                grid.add_row(
                    run.run, run.method, run.first, run.last, count(run.messages), format_size(run.bytes), run.kinds
                )  # fmt: skip
            show(grid)
        if found.spent:
            say(found.spent)
    if found.attacks:
        data = ", ".join(sorted({each.data for each in found.attacks}))
        say()
        say(f"What attacks found from messages of this method on public data ({data}):")
        say()
        grid = table("attack and figure", "attacker", "settings", "success (95 %)", "without the run", "verdict")
        for row in attack_rows(found):
            grid.add_row(*row)
        show(grid)
    say()
    say("What is promised in this run:")
    say()
    grid = table("promise", "holds", "by what")
    for promise in found.promises:
        grid.add_row(promise.what, "yes" if promise.holds else "no", promise.why)
    show(grid)
    say()
    say("What nobody promises:")
    for text in NOT_PROMISED:
        say(f"- {text}")
