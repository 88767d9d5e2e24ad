"""The score of a run, beside what it is held against: other models of the run, references, costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from graphsilo.evaluate.metrics import metric_of, select_main
from graphsilo.experiments.storage.records import Spent
from graphsilo.report import tables
from graphsilo.report.finding import choice, points, unit_of
from graphsilo.report.formats import (
    MISSING,
    Spread,
    data_size,
    describe_share,
    describe_weights,
    deviation,
    duration,
    explain_references,
    in_sentence,
    join_words,
    metric,
    percent,
    plus_minus,
    reference_title,
    spread,
    unit_of_errors,
    when_scored,
    with_unit,
    words,
)
from graphsilo.report.record import Context, Pick, Run

SHORT_MODES = {
    "own_local": {"title": "Own models", "key": "own"},
    "own_global": {"title": "Own models, all data", "key": "own"},
    "aggregate_local": {"title": "Common model", "key": "common"},
    "aggregate_global": {"title": "Common model, all data", "key": "common"},
    "silo_local": {"title": "Own or common, by silo", "key": "own"},
    "validation": {"title": "Own or common, by seed", "key": "own"},
}
"""Whose model was scored, as a heading beside its score; and the word that explains it."""


def headline(run: Run) -> Context:
    """The score in large, what stands beside it, and tiles of further numbers."""
    name = run.main_metric
    score = run.spread(name)
    return {
        "metric": metric_of(name).title,
        "unit": unit_of_errors(run.result, name),
        "key": name,
        "models": _models(run),
        "mean": MISSING if score is None else metric(score.mean, name),
        "std": None if score is None or score.std is None else deviation(score, name),
        "explained": _note(run, score),
        "chosen": choice(run.result),
        "references": _reference_table(run),
        "tiles": _tiles(run),
    }


def _models(run: Run) -> list[Context]:
    """The models that were scored side by side, the headline's first; empty where there is one."""
    name = run.main_metric
    others = run.others
    if not others:
        return []
    picks: list[Pick] = [lambda seed: seed.test]
    picks += [partial(lambda mode, seed: seed.modes[mode].test, mode) for mode in others]
    return [
        {**SHORT_MODES.get(mode, {"title": words(mode), "key": ""}), "score": with_unit(run.spread(name, pick), name)}
        for mode, pick in zip((run.reported, *others), picks, strict=True)
    ]


def _note(run: Run, score: Spread | None) -> str:
    seeds = run.seed_names
    if score is None:
        return "no test score recorded"
    over = f"mean ± standard deviation over {score.count} seeds" if score.std is not None else f"one seed ({seeds[0]})"
    weights = describe_weights(run.result)
    of = f"test, mean of silos, weighted {weights}; {over}" if weights else f"test, {over}"
    chosen = [seed.best_round for seed in run.seeds]
    if len(chosen) > 5:
        return f"{of}, {when_scored(run.seeds, 'rounds')} ({min(chosen)} to {max(chosen)})"
    return f"{of}, {when_scored(run.seeds)} ({join_words(map(str, chosen))})"


def _reference_table(run: Run) -> Context | None:
    """Local, this run, global: values per metric, and a dot on one common axis for the main metric."""
    main = run.main_metric
    tie = metric_of(main).tie
    order = [main, tie, *run.metrics()] if tie in run.metrics() else [main, *run.metrics()]
    names = [name for name in dict.fromkeys(order) if name == main or metric_of(name).selects]
    names = (_of_search(run) or names)[:3]
    found = {
        key: {name: tables.reference_spread(run, key, name) for name in names} for key in run.result.reference_rows
    }
    if not found or not names:
        return None
    spent = {key: means.beside.spent or Spent() for key, means in run.result.reference_rows.items()}
    title = run.result.method.title
    rows = [(reference_title(key, title), scores, spent[key], False) for key, scores in found.items()]
    mine = {name: run.spread(name) for name in names}
    # From the backbone alone to the method alone to the method together.
    rows.insert(
        len(found.keys() & {"majority", "local", "alone", "trees_alone"}), (title, mine, run.result.spent, True)
    )
    reach = [
        edge
        for _, scores, *_ in rows
        if (score := scores.get(main)) is not None
        for edge in (score.mean - (score.std or 0), score.mean + (score.std or 0))
    ]
    low, high = (min(reach), max(reach)) if reach else (0.0, 1.0)
    pad = 0.08 * (high - low) or 0.01
    low, high = low - pad, high + pad

    def at(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}"

    lines = []
    for title, scores, took, own in rows:
        score = scores.get(main)
        dot = None
        if score is not None:
            width = 200 * (score.std or 0) / (high - low)
            dot = {"at": at(score.mean), "from": at(score.mean - (score.std or 0)), "width": f"{width:.2f}"}
        cells = [
            *(plus_minus(scores[name], name) for name in names),
            data_size(took.upload_bytes),
            duration(took.cpu_seconds),
        ]
        lines.append({"title": title, "own": own, "dot": dot, "cells": cells})
    gaps = [(name, run.result.gap_closed.get(name)) for name in names]
    texts = [f"{percent(gap, 0)} % in {in_sentence(name)}" for name, gap in gaps if gap is not None]
    steps = _steps(run, found, mine, main)
    return {
        "steps": steps,
        "metric": in_sentence(main),
        "columns": [
            *(f"{each.title}, %" if each.is_share else each.title for each in map(metric_of, names)),
            "Sent",
            "CPU",
        ],
        "rows": lines,
        "gap_sentence": f"Of the way from silos alone to all data in one place it goes {join_words(texts)}."
        if texts
        else None,
        "explained": explain_references(found),
        "axis": [metric(low, main), metric(high, main)],
    }


def _of_search(run: Run) -> list[str]:
    """Metrics of the class that is looked for, where rounds are chosen by how it is found."""
    return select_main(run.metrics(), run.main_metric) if metric_of(run.main_metric).of_rare else []


def _steps(
    run: Run, found: Mapping[str, Mapping[str, Spread | None]], mine: Mapping[str, Spread | None], name: str
) -> str:
    """What the method brings by itself, and what joining brings beside it."""
    local, alone = (found.get(key, {}).get(name) for key in ("local", "alone"))
    together = mine.get(name)
    if local is None or alone is None or together is None or local.mean == alone.mean:
        return ""
    method = points(alone.mean - local.mean, name), points(together.mean - alone.mean, name)
    return (
        f"From the backbone alone to {run.result.method.title} alone: {method[0]}{unit_of(name)} of "
        f"{in_sentence(name)}, which a silo has without the others. From there to together: {method[1]}."
    )


def _tiles(run: Run) -> list[tuple[str, str]]:
    tiles: list[tuple[str, str]] = []
    for name in _of_search(run) or run.metrics():
        if name != run.main_metric and len(tiles) < 2:
            tiles.append((metric_of(name).title, with_unit(run.spread(name), name)))
    worst = spread(_worst(run))
    if worst is not None:
        who = "Worst scored client" if describe_share(run.result) else "Worst client"
        tiles.append((f"{who}, {in_sentence(run.main_metric)}", with_unit(worst, run.main_metric)))
    return [
        *tiles,
        ("Sent for training, per seed", data_size(run.result.spent.upload_bytes)),
        ("Received for training, per seed", data_size(run.result.spent.download_bytes)),
        ("CPU time, per seed", duration(run.result.spent.cpu_seconds)),
    ]


def _worst(run: Run) -> list[float | None]:
    """The worst client's score per seed."""
    name, found = run.main_metric, []
    for seed in run.seeds:
        scores = [score for row in seed.clients if (score := row.test.numbers.get(name)) is not None]
        found.append((min if metric_of(name).higher_is_better else max)(scores, default=None))
    return found
