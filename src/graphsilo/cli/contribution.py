"""``graphsilo contribution``: what each silo was worth to the others, and they to it."""

from __future__ import annotations

import math
from pathlib import Path

from graphsilo.cli import complete
from graphsilo.cli.terminal import say, show, table
from graphsilo.cli.values import Debug, OwnCode, allow_own, clients_of, option
from graphsilo.loading import load


def contribution(
    run: Path = option("DIR", "Folder of a finished run.", complete.runs, default=...),
    clients: str | None = option("K,K", "Only these clients, by number or name; else all."),
    own: OwnCode = None,
    debug: Debug = False,
) -> None:
    """Train again without each silo, and each alone, and say what it was worth."""
    allow_own(own)
    load("graphsilo.experiments.contribution")
    from graphsilo.evaluate.metrics import metric_of
    from graphsilo.experiments import contribution as worth

    wanted = None if clients is None else clients_of([clients], "--clients")
    found = worth.contribution(run, clients=wanted, say=say)
    metric = metric_of(found[0].metric)
    title, better = metric.title, 1.0 if metric.higher_is_better else -1.0
    say(f"{title} on test items, with and without each silo; runs are in {run / worth.FOLDER}.")
    say()
    grid = table("silo", "others with it", "without it", "worth", "its own", "alone", "gains", numbers=range(1, 7))
    for each in found:
        pairs = (each.others, each.others_without), (each.own, each.own_alone)
        cells = [text for a, b in pairs for text in (_number(a), _number(b), _number(a - b, sign="+"))]
        grid.add_row(each.name, *cells)
    show(grid)
    say()
    for each in found:
        others, gain = each.others - each.others_without, each.own - each.own_alone
        say(f"Silo {each.name}: {describe(better * others, better * gain)}.")
    if found[0].seeds == 1:
        say()
        say("One seed: nothing says how much of this is chance.")


def describe(worth: float, gain: float) -> str:
    """What the differences mean."""
    others = _word(
        worth, "the others are better with it", "the others are better without it", "no matter to the others"
    )
    return f"{others}; {_word(gain, 'it is better with them', 'it is better alone', 'they are no matter to it')}"


def _word(value: float, above: str, below: str, same: str) -> str:
    if math.isnan(value):
        return "not known for want of test items"
    return same if abs(value) < 5e-4 else f"{above if value > 0 else below} by {abs(value):.3f}"


def _number(value: float, sign: str = "") -> str:
    return "" if math.isnan(value) else f"{value:{sign}.3f}"
