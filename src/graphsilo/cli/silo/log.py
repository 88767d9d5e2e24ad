"""``graphsilo silo log``: what left a silo, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graphsilo.cli.terminal import count, say, show, table
from graphsilo.cli.values import (
    Debug,
    argument,
    option,
    switch,
)
from graphsilo.errors import RunError, nearest

if TYPE_CHECKING:
    from graphsilo.federation.journal import Entry, JournalSummary


def log(
    path: Path = argument("LOG", "The log that a silo keeps of what it sends."),
    run: str | None = option("NAME", "Only of this run."),
    last: int | None = option("N", "Only the last lines.", min=1),
    received: bool = switch("--received", "Also what came in."),
    summary: bool = switch("--summary", "Only the sums per kind of disclosure."),
    repair: Path | None = option(
        "SILO.yaml", "The silo's file: have its account of all that left made again from the lines that can be read."
    ),
    debug: Debug = False,
) -> None:
    """Show what left a silo, message by message and in all."""
    from graphsilo.federation import journal

    if repair is not None:
        _repair(path, repair)
        return
    entries = list(journal.read(path))
    runs = dict.fromkeys(entry.run for entry in entries if entry.run)
    if run is not None and run not in runs:
        raise RunError(f"the log {path} holds nothing of a run '{run}'; {nearest(run, runs)}")
    if run is not None:
        entries = [entry for entry in entries if entry.run == run]
    if not summary:
        shown = [entry for entry in entries if received or entry.way != "received"]
        _lines(shown[-last:] if last else shown)
        say()
    _sums(journal.summarise(entries))


def _repair(path: Path, silo: Path) -> None:
    from graphsilo.data.silos.own import read_silo_file
    from graphsilo.federation.account import Account
    from graphsilo.federation.journal import Journal, format_size

    account = Account(read_silo_file(silo).record("account"))
    found = Journal(path, account=account).repair()
    say(
        f"{account.path} says now what the readable lines of the log do: {format_size(found.bytes)} in all, releases "
        f"with noise of μ = {found.mu:.3g} together. What other lines and other federations' logs held is counted no "
        f"more."
    )


def _lines(entries: list[Entry]) -> None:
    """A line per message, below a heading where another run begins."""

    before: tuple[str, str] | None = None
    for entry in entries:
        if entry.way != "damaged" and (entry.run, entry.method) != before:
            if before is not None:
                say()
            before = entry.run, entry.method
            say(_printable(f"run {entry.run} ({entry.method}):") if entry.run else "before a run:")
        when = entry.time.replace("T", " ").removesuffix("Z")
        say(_printable(f"  {when or '?'}  {entry}"))


def _printable(text: str) -> str:
    """Some of it came from elsewhere, what a run is called included; a terminal obeys what it cannot print."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _sums(found: JournalSummary) -> None:
    from graphsilo.federation.journal import format_size
    from graphsilo.federation.kinds import SHORT

    if found.messages:
        grid = table("what left the silo", "messages", "bytes", numbers=(1, 2))
        for kind, part in sorted(found.kinds.items(), key=lambda item: -item[1].bytes):
            name = "control: settings, names, shapes" if kind == "control" else SHORT.get(kind, kind)
            grid.add_row(name, count(part.messages), format_size(part.bytes))
        grid.add_row("all", count(found.messages), format_size(found.bytes), style="bold")
        show(grid)
    else:
        say("Nothing has left the silo.")
    if found.refused:
        messages = "message was" if found.refused == 1 else "messages were"
        say(f"{found.refused} {messages} not sent, because the silo refused; its lines say why.")
    if found.damaged:
        lines = "line" if found.damaged == 1 else "lines"
        say(f"{found.damaged} {lines} of the log cannot be read, as after a loss of power.")
