"""What a run has come to, as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from graphsilo.cli.terminal import Sheet
from graphsilo.errors import several
from graphsilo.evaluate.metrics import METRICS, main_ones, metric_of
from graphsilo.report.formats import (
    MISSING,
    MODES,
    REFERENCES,
    Spread,
    absent_clients,
    data_size,
    duration,
    mean,
    number,
    percent,
    plus_minus,
    spread,
)

SCENARIOS = {"missing_class": "Missing class", "unseen_node": "Unseen node", "new_client": "New client"}


def sheet(tree: Mapping[str, Any]) -> Sheet:
    """The run and its reference rows, in percent.

    Args:
        tree: What result.json holds.
    """
    test = tree["summary"]["test"]
    metrics = {name: metric_of(name).title for name in main_ones(METRICS.keys() & test.keys())}
    scenarios = {name: heading for name, heading in SCENARIOS.items() if name in tree["summary"].get("scenarios", {})}
    worst = "worst_client" in test
    known = tree.get("references") or {}
    references = {name: known[name] for name in REFERENCES if name in known}
    gap = known.get("gap_closed")
    columns = [
        *metrics.values(),
        *(["Worst client"] if worst else []),
        *scenarios.values(),
        "Best round",
        "Sent",
        "Received",
        "CPU",
        *(["Gap closed"] if gap is not None else []),
    ]
    seeds = tree["seeds"]
    main = [_cell(test.get(name), name) for name in metrics]
    main += [_cell(test["worst_client"].get("accuracy"))] if worst else []
    main += [_scenario(tree["summary"]["scenarios"][name]) for name in scenarios]
    main += [
        _rounds([seed["best_round"] for seed in seeds]),
        data_size(tree["summary"]["upload_bytes"]),
        data_size(tree["summary"]["download_bytes"]),
        duration(mean(seed["cpu_seconds"] for seed in seeds)),
    ]
    main += [_gap(gap, next(iter(metrics), ""))] if gap is not None else []
    rows = [(tree["method"]["title"], main, "bold")]
    for name, scores in references.items():
        cells = [_cell(scores.get(metric), metric) for metric in metrics]
        cells += [_cell((scores.get("worst_client") or {}).get("accuracy"))] if worst else []
        cells += [_scenario((scores.get("scenarios") or {}).get(scenario, {})) for scenario in scenarios]
        cells += [MISSING] * (len(columns) - len(cells))
        rows.append((REFERENCES[name], cells, "dim"))
    absent = absent_clients(tree.get("partition"))
    counted = f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'}{f', without {absent}' if absent else ''}"
    return Sheet(f"Test, % ({counted})", columns, rows)


def scored(tree: Mapping[str, Any]) -> str:
    """Whose model the table scores, on whose test data, and when; empty where the result does not say."""
    modes = list(tree["seeds"][0].get("modes") or {})
    if not modes:
        return ""
    others = f"; {', '.join(modes[1:])} {'is' if len(modes) == 2 else 'are'} in result.json" if modes[1:] else ""
    return (
        f"Scored: {MODES.get(modes[0], modes[0])} ({modes[0]}) at the round that validation chose{others}. Sent and "
        f"received: for training, per seed; what evaluation takes is in ledger.parquet."
    )


def remarks(tree: Mapping[str, Any]) -> list[str]:
    """What a person should know before believing the table: warnings of the cut, and answers that never came."""
    found = list(tree.get("warnings") or [])
    gap = (tree.get("references") or {}).get("gap_closed")
    if gap is not None and next(iter(gap.values()), 0.0) is None:
        found.append("the centralised model is no better than local ones here, so there is no gap to close.")
    failures: dict[str, list[int]] = defaultdict(list)
    for seed in tree["seeds"]:
        for row in seed["rounds"]:
            for failure in row.get("failures", []):
                failures[failure].append(row["round"])
    for text, rounds in failures.items():
        when = f"round{'' if len(rounds) == 1 else 's'} {several(rounds, 6)}"
        found.append(f"{text}, in {when}; the method went on without it.")
    return found


def _cell(value: Any, name: str = "accuracy") -> str:
    if not isinstance(value, Mapping):
        return MISSING
    middle = number(value.get("mean"))
    return MISSING if middle is None else plus_minus(Spread(middle, number(value.get("std")), 0), name)


def _scenario(scores: Mapping[str, Any]) -> str:
    return _cell(scores.get("accuracy"))


def _rounds(numbers: list[int]) -> str:
    if len(numbers) <= 3:
        return ", ".join(map(str, numbers))
    found = spread(numbers)
    return f"{min(numbers)}-{max(numbers)}" if found is not None else MISSING


def _gap(gap: Mapping[str, Any], metric: str) -> str:
    value = gap.get(metric)
    return MISSING if value is None else f"{percent(value, 0)} %"
