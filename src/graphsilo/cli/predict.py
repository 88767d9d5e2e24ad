"""``graphsilo predict``: classes and probabilities, or ranked pairs, from a saved model."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphsilo.cli import complete
from graphsilo.cli.terminal import announce, is_terminal, say, show, table
from graphsilo.cli.values import (
    Debug,
    OwnCode,
    allow_own,
    option,
    switch,
    whole_numbers,
)
from graphsilo.errors import ConfigError
from graphsilo.loading import load
from graphsilo.spreadsheets import csv_text

if TYPE_CHECKING:
    from rich.table import Table

    from graphsilo.experiments.predict import Prediction

_NUMBERS = ("score", "calibrated")
SHOWN = 20
"""Rows on a terminal; a pipe or a file gets all of them."""


def predict(
    run: Path = option("DIR", "Folder of a finished run.", complete.runs, default=...),
    client: str | None = option("K", "Whose model, by number or name; not needed in a silo's own result folder."),
    seed: int | None = option("S", "Seed of training; else the run's first."),
    checkpoint: Literal["best", "last"] = option("", "Best by validation, or last round.", default="best"),
    model: Literal["own", "common"] | None = option(
        "", "The silo's own model or the common one; else the one that the run reports."
    ),
    graph: Path | None = option("FILE", "Graph to predict on (.yaml, .npz, .pt); else the client's own."),
    nodes: list[str] | None = option("ID,ID", "Only these nodes, by the ids of your table; else numbers. Repeatable."),
    top: int | None = option(
        "N", "Only so many, the highest scores of the class looked for first; of links, for each node (10).", min=1
    ),
    unlabelled: bool = switch("--unlabelled", "Only items whose class is not known, or none of whose targets is."),
    out: Path | None = option("PREDS.csv", "Write all rows to this file."),
    own: OwnCode = None,
    debug: Debug = False,
) -> None:
    """Classify nodes (or graphs) with the model of a saved run's client, or rank pairs that it says are linked."""
    allow_own(own)
    load("graphsilo.experiments.predict")
    from graphsilo.experiments import predict as predictions
    from graphsilo.experiments.storage import disk, reading

    if reading.read(run).task == "link":
        if graph is not None or unlabelled:
            raise ConfigError("--graph and --unlabelled are of nodes; this run ranks pairs of nodes. Leave them out.")
        _rank_pairs(run, out, client=client, nodes=nodes, top=top or 10, seed=seed, checkpoint=checkpoint, model=model)
        return
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UserWarning)
        found = predictions.predict(run, client=client, seed=seed, checkpoint=checkpoint, graph=graph, model=model)
    for warning in heard:
        announce(f"warning: {warning.message}")
    rows = list(range(len(found.node_ids))) if not nodes else found.places(_select_nodes(found, nodes))
    if unlabelled:
        count, rows = len(rows), [row for row in rows if found.is_open(row)]
        if not rows:
            raise ConfigError(f"all {count} nodes of {found.on} are labelled; --unlabelled leaves none. Leave it out.")
    rows = rows if top is None else found.rank(rows, top)
    if out is not None:
        disk.write_text(out.expanduser(), to_csv(found, rows))
        say(f"{len(rows)} predictions on {found.on}, by {found.by}: {out}")
        _say_decided(found)
    elif is_terminal():
        _print(found, rows)
    else:
        sys.stdout.write(to_csv(found, rows))


def _rank_pairs(run: Path, out: Path | None, *, nodes: Sequence[str] | None, **asked: Any) -> None:
    from graphsilo.experiments.predict_links import predict_links
    from graphsilo.experiments.storage import disk

    wanted = None if not nodes else [part.strip() for text in nodes for part in text.split(",") if part.strip()]
    found = predict_links(run, nodes=wanted, **asked)
    rows = list(zip(found.nodes.tolist(), found.others.tolist(), found.scores.tolist(), strict=True))
    text = csv_text([["node", "other", "score"], *([node, other, f"{score:.9g}"] for node, other, score in rows)])
    if out is not None:
        disk.write_text(out.expanduser(), text)
        say(f"{len(rows)} pairs that are no links on {found.on}, by {found.by}: {out}")
    elif is_terminal():
        say(f"Pairs that are no links on {found.on}, the likeliest first, by {found.by}:")
        say()
        grid = table("node", "other", "score", numbers=(2,))
        for node, other, score in rows[:SHOWN]:
            grid.add_row(node, other, f"{score:.3f}")
        _end(grid, rows)
    else:
        sys.stdout.write(text)


def to_csv(found: Prediction, rows: Sequence[int]) -> str:
    """A line per node: id, class, its name where it has one, its probability, and the probability of every class; or
    id and what is estimated, under the name of each target. Then what ``_beside`` has. Where a threshold decides, the
    likelier class is not said beside the decision: it is often another."""
    beside = _beside(found, rows)
    if found.values is not None:
        lines = [["node", *_target_names(found), *beside]]
        for place, row in enumerate(rows):
            more = [column[place] for column in beside.values()]
            lines.append([str(found.node_ids[row]), *(f"{value:.9g}" for value in found.values[row]), *more])
        return csv_text(lines)
    names = found.class_names
    count = found.probabilities.shape[1]
    headings = [f"p_{names[index] if names else index}" for index in range(count)]
    likelier = [] if "decision" in beside else ["class", *(["class_name"] if names else []), "probability"]
    lines = [["node", *likelier, *headings, *beside]]
    for place, row in enumerate(rows):
        chosen = int(found.classes[row])
        values = [f"{float(value):.9g}" for value in found.probabilities[row]]
        said = [str(chosen), *([names[chosen]] if names else []), values[chosen]] if likelier else []
        more = [column[place] for column in beside.values()]
        lines.append([str(found.node_ids[row]), *said, *values, *more])
    return csv_text(lines)


def _beside(found: Prediction, rows: Sequence[int], form: str = ".9g") -> dict[str, list[str]]:
    """By heading, of these rows, as far as known: score and calibrated probability of the class looked for, decision at
    the threshold, split, true class, or the true value of each target."""
    columns: dict[str, tuple[Any, Callable[[Any], str]]] = {
        "score": (found.scores, lambda value: f"{float(value):{form}}"),
        "calibrated": (found.calibrated, lambda value: f"{float(value):{form}}"),
        "decision": (found.decisions, lambda label: _name(found, int(label))),
        "split": (found.splits, str),
        "label": (found.labels, lambda label: "" if label < 0 else _name(found, int(label))),
    }
    if found.truth is not None:
        for name, known in zip(_target_names(found), found.truth.T, strict=True):
            columns[f"true_{name}"] = (known, lambda value: "" if math.isnan(value) else f"{float(str(value)):{form}}")
    return {
        heading: [write(values[row]) for row in rows]
        for heading, (values, write) in columns.items()
        if values is not None
    }


def _say_decided(found: Prediction) -> None:
    if found.decided:
        say(f"{found.decided[0].upper()}{found.decided[1:]}.")


def _select_nodes(found: Prediction, nodes: Sequence[str]) -> Sequence[str | int]:
    """Ids asked for. An id may hold a comma itself, so an entry that is an id as it stands is not taken apart."""
    if not found.has_names:
        return [number for text in nodes for number in whole_numbers(text, "--nodes")]
    known = set(found.node_ids.tolist())
    parts = [part for text in nodes for part in ([text] if text.strip() in known else text.split(","))]
    wanted = [part.strip() for part in parts if part.strip()]
    if not wanted:
        raise ConfigError(f"--nodes takes ids of nodes, such as {found.node_ids[0]}; got none.")
    return wanted


def _print(found: Prediction, rows: Sequence[int]) -> None:
    say(f"Predictions on {found.on}, by {found.by}:")
    say()
    if found.values is not None:
        beside = _beside(found, rows[:SHOWN], ",.6g")
        grid = table("node", *_target_names(found), *beside, numbers=range(1, 1 + found.values.shape[1] + len(beside)))
        for place, row in enumerate(rows[:SHOWN]):
            more = [column[place] for column in beside.values()]
            grid.add_row(str(found.node_ids[row]), *(f"{value:,.6g}" for value in found.values[row]), *more)
        _end(grid, rows)
        return
    if found.positive is not None:
        beside = _beside(found, rows[:SHOWN], ".3f")
        grid = table("node", *beside, numbers=(0, *(place for place, name in enumerate(beside, 1) if name in _NUMBERS)))
        for place, row in enumerate(rows[:SHOWN]):
            grid.add_row(str(found.node_ids[row]), *(column[place] for column in beside.values()))
        _say_decided(found)
        say()
        _end(grid, rows)
        return
    grid = table("node", "class", "probability", "second", "probability", numbers=(0, 2, 4))
    for row in rows[:SHOWN]:
        chances = found.probabilities[row]
        order = chances.argsort()[::-1]
        cells = [text for index in order[:2] for text in (_name(found, int(index)), f"{chances[index]:.2f}")]
        grid.add_row(str(found.node_ids[row]), *cells)
    _end(grid, rows)


def _end(grid: Table, rows: Sequence[Any]) -> None:
    show(grid)
    if len(rows) > SHOWN:
        say()
        say(f"{len(rows) - SHOWN} more; --out FILE.csv writes them all.")


def _target_names(found: Prediction) -> list[str]:
    assert found.values is not None
    return [_name(found, index) for index in range(found.values.shape[1])]


def _name(found: Prediction, index: int) -> str:
    return found.class_names[index] if found.class_names else str(index)
