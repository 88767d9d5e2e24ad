"""``graphsilo why``: what columns and neighbours add to a node's score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphsilo.cli import complete
from graphsilo.cli.terminal import say, show, table
from graphsilo.cli.values import Debug, OwnCode, allow_own, option
from graphsilo.errors import ConfigError
from graphsilo.loading import load

if TYPE_CHECKING:
    from graphsilo.experiments.why import Why


def why(
    run: Path = option("DIR", "Folder of a finished run.", complete.runs, default=...),
    node: str | None = option("ID", "The node, by the id of your table; else its number."),
    client: str | None = option("K", "Whose node, by number or name; not needed where one client alone has it."),
    of: str | None = option("CLASS", "Whose score; else of two classes the rarer one, of several the most probable."),
    top: int = option("N", "Columns and nodes that are shown; of a page, nodes.", default=10, min=1),
    seed: int | None = option("S", "Seed of training; else the run's first."),
    checkpoint: Literal["best", "last"] = option("", "Best by validation, or last round.", default="best"),
    model: Literal["own", "common"] | None = option(
        "", "The silo's own model or the common one; else the one that the run reports."
    ),
    page: Path | None = option(
        "FILE.html", "Write a page of the node, or without one of the test nodes with the highest scores."
    ),
    own: OwnCode = None,
    debug: Debug = False,
) -> None:
    """Say why a node has its score: what each column, and each neighbour, adds."""
    allow_own(own)
    load("graphsilo.experiments.why")
    from graphsilo.experiments import why as reasons

    if node is None and page is None:
        raise ConfigError("a node is to be named (--node ID), or a page of the highest scores (--page FILE.html).")
    asked: dict[str, Any] = {"client": client, "seed": seed, "checkpoint": checkpoint, "model": model, "of": of}
    if page is not None:
        from graphsilo.report import why_page

        several = reasons.top_cases(run, top, **asked) if node is None else [reasons.why(run, node, **asked)]
        say(str(why_page.write(several, page.expanduser(), f"Why, in {run.name}")))
        return
    assert node is not None
    found = reasons.why(run, node, **asked)
    say(describe(found))
    say()
    grid = table("column", "value", "usual here", "adds", numbers=range(1, 4))
    for each in found.reasons[:top]:
        grid.add_row(each.column, number(each.value), number(each.usual), found.say(each.share))
    if rest := found.reasons[top:]:
        grid.add_row(f"{len(rest)} others", "", "", found.say(sum(each.share for each in rest)))
    show(grid)
    say()
    grid = table("node", "links away", "adds", numbers=range(1, 3))
    for one in found.nodes[:top]:
        away = "" if one.links is None else str(one.links)
        grid.add_row("itself" if one.links == 0 else one.node, away, found.say(one.share))
    if others := found.nodes[top:]:
        grid.add_row(f"{len(others)} others", "", found.say(sum(one.share for one in others)))
    show(grid)


def describe(found: Why) -> str:
    """What the score is, what it is held against, and how true the shares are."""
    exact = (
        "Columns add up to the difference, and so do nodes."
        if found.is_exact
        else f"Integrated gradients, which are approximate: {found.gap:+.1e} of the difference is in no share."
    )
    return f"Node {found.node}, by {found.by}: {found.title}. {exact}"


def number(value: float | None) -> str:
    """With four digits, and commas between thousands."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"
