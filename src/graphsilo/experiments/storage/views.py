"""A result as a table, a figure or a line of a notebook. No torch: pages and the command line use it, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from graphsilo import drawing
from graphsilo.errors import ConfigError, RunError, UnsupportedError, library, nearest
from graphsilo.evaluate.metrics import find_leading, metric_of
from graphsilo.experiments.storage import reading, records
from graphsilo.experiments.storage.records import RunRecord, tree_of
from graphsilo.notebook import table

_CURVE, _ROW, _FRAME = 1.75, 0.13, 0.55  # inches: a curve, and a chart by its rows


def alone(folder: Path | None) -> RunRecord | None:
    """What every client reaches with the same method by itself, else with the backbone; None where neither was run."""
    for label in ("alone", "local"):
        if folder is not None and (folder / "references" / label / "result.json").exists():
            try:
                return reading.read_run(folder / "references" / label)
            except RunError:
                continue
    return None


def names_of(record: RunRecord) -> dict[int, str]:
    """What clients are called: their silo's name, else "client 3"."""
    return {row.client: row.silo or f"client {row.client}" for row in record.partition.per_client}


def by_client(record: RunRecord, name: str) -> dict[int, dict[int, float]]:
    """A test metric of every client that was scored: client to seed to score."""
    found: dict[int, dict[int, float]] = {}
    for seed in record.seeds:
        for row in seed.clients:
            value = row.test.numbers.get(name)
            if value is not None:
                found.setdefault(row.client, {})[seed.seed] = value
    return found


# -- tables ------------------------------------------------------------------------------------------------------------


def frame(record: RunRecord, folder: Path | None, kind: str) -> Any:
    """Rounds, clients or seeds as a data frame.

    Raises:
        ConfigError: There is no such table.
        UnsupportedError: Neither pandas nor polars is installed.
    """
    kinds = {"rounds": _rounds, "clients": _clients, "seeds": _seeds}
    if kind not in kinds:
        raise ConfigError(f"Result.frame has no table '{kind}'; {nearest(kind, kinds)}")
    rows = kinds[kind](record, folder)
    columns = dict.fromkeys(name for row in rows for name in row)
    data = {name: [row.get(name) for row in rows] for name in columns}
    return _frame_type()(data)


def _frame_type() -> Callable[[Mapping[str, list[Any]]], Any]:
    """pandas' where it is installed, else that of polars."""
    try:
        return library("pandas", "notebook").DataFrame  # type: ignore[no-any-return]
    except UnsupportedError as error:
        try:
            return library("polars", "notebook").DataFrame  # type: ignore[no-any-return]
        except UnsupportedError:
            raise error from None


def flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted name; lists as text."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        elif isinstance(value, list):
            flat[prefix + name] = "; ".join(str(item) for item in value)
        else:
            flat[prefix + name] = value
    return flat


def _rounds(record: RunRecord, folder: Path | None) -> list[dict[str, Any]]:
    return [{"seed": seed.seed, **flatten(tree_of(row))} for seed in record.seeds for row in seed.rounds]


def _clients(record: RunRecord, folder: Path | None) -> list[dict[str, Any]]:
    """With what each reached alone, seed by seed, where that was run."""
    other = alone(folder)
    apart = {
        (seed.seed, row.client): row.test.numbers for seed in (other.seeds if other else ()) for row in seed.clients
    }
    names = names_of(record)
    rows = []
    for seed in record.seeds:
        for row in seed.clients:
            facts = {"nodes": row.nodes, "train": row.train, "test_items": row.test_items}
            own = {f"alone.{name}": value for name, value in apart.get((seed.seed, row.client), {}).items()}
            who = {"seed": seed.seed, "client": row.client, "name": names[row.client]}
            rows.append({**who, **facts, **row.test.numbers, **own})
    return rows


def _seeds(record: RunRecord, folder: Path | None) -> list[dict[str, Any]]:
    kept = ("seed", "best_round", "last_round", "cpu_seconds", "wall_seconds", "peak_rss_bytes")
    rows = []
    for seed in record.seeds:
        steps = (seed.setup, *seed.rounds)
        sent = {way: sum(getattr(step, way) for step in steps) for way in ("upload_bytes", "download_bytes")}
        scores = {"validation": seed.validation.numbers, "test": seed.test.numbers}
        rows.append({**{name: getattr(seed, name) for name in kept}, **sent, **flatten(scores)})
    return rows


def html(record: RunRecord) -> str:
    """A run in a notebook: scores over seeds, and those of its reference rows."""
    summary = record.summary
    rows = []
    columns = {"test": summary.test, "validation": summary.validation, **record.reference_rows}
    known = {name: means.metrics for name, means in columns.items() if means is not None}
    for name in [each for each in summary.test.metrics if summary.test.metrics[each].mean is not None]:
        rows.append([metric_of(name).title, *(_plus_minus(known[column].get(name)) for column in known)])
    seeds = len(record.seeds)
    notes = [
        f"{'One seed' if seeds == 1 else f'Mean ± deviation over {seeds} seeds'}, at the best round on validation; "
        f"{record.partition.clients} clients ({record.partition.rule}); "
        f"{summary.upload_bytes / 1e6:.2f} MB sent, {summary.download_bytes / 1e6:.2f} MB received.",
    ]  # fmt: skip
    return table(f"{record.method.title} on {record.data.name}", ["", *known], rows, notes)


def _plus_minus(value: records.MeanStd | None) -> str | None:
    if value is None or value.mean is None:
        return None
    return f"{value.mean:.3f}" if value.std is None else f"{value.mean:.3f} ± {value.std:.3f}"


# -- figures -----------------------------------------------------------------------------------------------------------


def figure(record: RunRecord, folder: Path | None, *, metric: str | None = None, width: float | None = None) -> Any:
    """Validation and test along rounds; and every client alone and together, where a row of these was run.

    Raises:
        ConfigError: The run was not scored by such a metric.
        UnsupportedError: matplotlib is not installed.
    """
    name = metric_name(record, metric)
    scale, axis = axis_of(name)
    lines = [
        drawing.Curve(group, [curve_of(seed, group, name, scale) for seed in record.seeds])
        for group in ("validation", "test")
    ]
    title = f"{record.method.title} on {record.data.name}"
    panels = [(drawing.curves(lines, x="Round", y=axis, title=title), _CURVE)]
    other = alone(folder)
    if other is not None:
        before, after, names = by_client(other, name), by_client(record, name), names_of(record)
        rows = [
            drawing.Change(names[client], *(scale * fmean(scores[client].values()) for scores in (before, after)))
            for client in after
            if client in before
        ]
        if rows:
            panel = drawing.changes(rows, x=f"Test {axis[:1].lower()}{axis[1:]}", before="alone", after="together")
            panels.append((panel, _FRAME + _ROW * len(rows)))
    return drawing.figure(panels, width=width or drawing.COLUMN)


def metric_name(record: RunRecord, wanted: str | None) -> str:
    """The metric that a figure shows.

    Raises:
        ConfigError: The run was not scored by it.
    """
    known = [name for name, value in record.summary.test.metrics.items() if value.mean is not None]
    found = wanted or find_leading(known)
    if found not in known:
        what = f"'{wanted}'" if wanted else "anything"
        raise ConfigError(f"{record.method.title} on {record.data.name} was not scored by {what}; "
                          f"{nearest(str(wanted), known) if known else 'there is no test item.'}")  # fmt: skip
    return str(found)


def axis_of(name: str) -> tuple[float, str]:
    """By what values are multiplied, and how the axis is called."""
    known = metric_of(name)
    return float(known.factor), f"{known.title}, %" if known.is_share else known.title


def curve_of(seed: records.Seed, group: str, name: str, scale: float) -> dict[int, float]:
    """Round to value, where it was evaluated."""
    values = ((row.round, seed.curve(row, group).get(name)) for row in seed.rounds)
    return {number: scale * value for number, value in values if value is not None}
