"""Silo by silo: what joining brought each of them, and the table of all their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from graphsilo.evaluate.metrics import metric_of, select_main, sort_metrics
from graphsilo.experiments.storage.records import ClientScores
from graphsilo.experiments.storage.views import by_client
from graphsilo.report.exchange import CLIENT_ROWS
from graphsilo.report.figures import client_scores
from graphsilo.report.finding import Finding, Gain, points
from graphsilo.report.formats import (
    MISSING,
    bar_width,
    describe_share,
    in_sentence,
    integer,
    mean,
    metric,
    sortable,
)
from graphsilo.report.plot import present
from graphsilo.report.record import Context, Run
from graphsilo.report.sections import Block

_MISSED = " A silo's own model hardly knows a class that the silo misses, and no test item there shows it."
FIRST_ROWS = 20
"""Rows shown before the reader asks for all."""
SIGNS = {"gains": ("▲", "gains"), "loses": ("▼", "loses"), "same": ("=", "the same")}
"""A sign and a word, so that colour is not all that tells."""


def gains(run: Run, found: Finding) -> Context | None:
    """Every silo from what it reaches alone to what it reaches together; None where that is not known."""
    if not found.gains:
        return None
    name = run.main_metric
    ends = [value for gain in found.gains for value in (gain.alone, gain.together)]
    pad = 0.04 * (max(ends) - min(ends)) or 0.01
    low, high = min(ends) - pad, max(ends) + pad
    # With hundreds of silos the ends of the list are what one looks at
    count = len(found.gains)
    half = FIRST_ROWS // 2
    shown = range(count) if count <= 2 * FIRST_ROWS else (*range(half), *range(count - half, count))
    rows = [_gain_row(run, gain, low, high) | {"later": place not in shown} for place, gain in enumerate(found.gains)]
    return {
        "rows": rows,
        "first": len(shown),
        "metric": metric_of(name).title,
        "key": name,
        "unit": ", points" if metric_of(name).is_share else "",
        "axis": (metric(low + pad, name), metric(high - pad, name)),
        "intervals": any(gain.span is not None for gain in found.gains),
        "local": run.local.method.title
        if run.local is not None and any(row["local"] != row["texts"][0] for row in rows)
        else "",
        "beside": metric_of(metric_of(name).tie).title if any(row["beside"] for row in rows) else "",
        "note": _gain_note(found.gains, name),
    }


def _gain_row(run: Run, gain: Gain, low: float, high: float) -> Context:
    name = run.main_metric
    alone, together = (100 * (value - low) / (high - low) for value in (gain.alone, gain.together))
    sign, word = SIGNS[gain.side]
    interval, span = MISSING, gain.span
    if span is not None:
        interval = f"{points(span[0], name)} to {points(span[1], name)}"
        if metric_of(name).is_share and span[1] - span[0] > 1:
            interval = "too wide to say"  # two seeds, and wider than any difference can be
    texts = [metric(value, name) for value in (gain.alone, gain.together)]
    return {
        "name": run.names.title(gain.client),
        "local": metric(_local(run, gain.client, name), name),
        "side": gain.side,
        "sign": sign,
        "word": word,
        "texts": texts,
        "gain": points(gain.difference, name) if gain.side != "same" else metric(0.0, name),
        "interval": interval,
        "chance": gain.may_be_chance,
        "items": integer(gain.items) + ("" if gain.rare is None else f" ({integer(gain.rare)})"),
        "beside": _beside(run, gain.client, metric_of(name).tie),
        "ring": f"{alone:.2f}",
        "head": f"{together:.2f}",
        "from": f"{min(alone, together):.2f}",
        "width": f"{abs(together - alone):.2f}",
        "way": "right" if together >= alone else "left",
    }


def _beside(run: Run, client: int, name: str) -> str:
    """The metric that stands beside the first, alone and together; empty where either is not known."""
    records = (run.alone, run.result) if name and run.alone is not None else ()
    means = [mean(by_client(record, name).get(client, {}).values()) for record in records]
    return " → ".join(metric(value, name) for value in means) if means and None not in means else ""


def _local(run: Run, client: int, name: str) -> float | None:
    """What the backbone reaches by itself, mean over seeds."""
    return None if run.local is None else mean(by_client(run.local, name).get(client, {}).values())


def _gain_note(found: Sequence[Gain], name: str) -> str:
    same = "differs by less than 0.1 points" if metric_of(name).is_share else "the same"
    text = f"The largest gain first. Ring: alone; arrow head: together. ▲ gains, ▼ loses, = {same}."
    spans = [gain for gain in found if gain.span is not None]
    if spans:
        what = "seeds and test items" if all(gain.error is not None for gain in spans) else "seeds"
        text += f" Pale arrows: the interval, over {what}, holds 0."
    if any(gain.rare is not None for gain in found):
        text += " In brackets: test items of the class that is looked for."
    return text


def gain_blocks(run: Run, found: Finding) -> list[Block]:
    """The section of what joining brought."""
    shown = gains(run, found)
    return [] if shown is None else [("note", shown["note"]), ("gains", shown)]


def blocks(run: Run) -> list[Block]:
    """The section of all clients' numbers."""
    rows = rows_of(run)
    shown = table(run, rows)
    if shown is None:
        return []
    figure = client_scores(rows, run.main_metric, run.names)
    return [("note", shown["note"]), ("clients", shown), ("tiles", shown["spread"]), ("figures", present(figure))]


def rows_of(run: Run) -> list[Context]:
    """Numbers per client, means over seeds; partition facts joined in."""
    gathered: dict[int, list[ClientScores]] = {}
    for seed in run.seeds:
        for row in seed.clients:
            gathered.setdefault(row.client, []).append(row)
    audit = {holder.client: holder for holder in run.result.partition.per_client}
    names = sort_metrics(
        name for rows in gathered.values() for name, value in rows[0].test.numbers.items() if value is not None
    )
    return [
        {
            "client": client,
            "nodes": rows[0].nodes,
            "train": rows[0].train,
            "val": rows[0].val,
            "test_items": rows[0].test_items,
            "missing_classes": None if rows[0].missing_classes is None else len(rows[0].missing_classes),
            "homophily": audit[client].homophily if client in audit else None,
            "metrics": names,
            **{name: mean(row.test.numbers.get(name) for row in rows) for name in names},
        }
        for client, rows in sorted(gathered.items())
    ]


def table(run: Run, rows: Sequence[Context]) -> Context | None:
    """The table of all clients, the worst first; None without any."""
    if not rows:
        return None
    main = run.main_metric
    names: list[str] = select_main(rows[0]["metrics"], main)
    if main not in names and names:
        main = names[0]
    sign = 1 if metric_of(main).higher_is_better else -1
    order = sorted(rows, key=lambda row: (row.get(main) is None, sign * (row.get(main) or 0), row["client"]))
    counts = [
        (key, title)
        for key, title in (
            ("nodes", "Nodes"),
            ("train", "Train"),
            ("val", "Validation"),
            ("test_items", "Test"),
            ("missing_classes", "Classes missing"),
        )
        if any(row.get(key) is not None for row in rows)
        and (key != "missing_classes" or (run.result.data.targets is None and run.result.data.classes))
    ]
    called = run.names
    has_homophily = any(row["homophily"] is not None for row in rows)
    table = []
    for row in order[:CLIENT_ROWS]:
        cells = [{"text": called.short(row["client"]), "value": called.short(row["client"]), "bar": None}]
        cells += [{"text": integer(row[key]), "value": sortable(row[key]), "bar": None} for key, _ in counts]
        if has_homophily:
            value = row["homophily"]
            text = MISSING if value is None else f"{value:.2f}"
            cells.append({"text": text, "value": sortable(value), "bar": None})
        for name in names:
            bar = bar_width(row[name]) if metric_of(name).is_share and row[name] is not None else None
            cells.append({"text": metric(row[name], name), "value": sortable(row[name]), "bar": bar})
        table.append(cells)
    columns = [
        "Silo" if called.known else "Client",
        *(title for _, title in counts),
        *(["Homophily"] if has_homophily else []),
    ]
    scores = [row[main] for row in rows if row.get(main) is not None]
    return {
        "columns": [(title, "homophily" if title == "Homophily" else "") for title in columns]
        + [(metric_of(name).title, name) for name in names],
        "sorted_by": len(columns) + names.index(main) if main in names else 0,
        "sorted_up": sign == 1,
        "rows": table,
        "first": FIRST_ROWS if len(table) > 2 * FIRST_ROWS else len(table),
        "note": _note(len(rows), len(table), main if main in names else None, describe_share(run.result))
        + (_MISSED if any(row["missing_classes"] for row in rows) else ""),
        "spread": _spread(scores, main),
    }


def _note(clients: int, shown: int, main: str | None, part: str) -> str:
    if main is None:
        return "Scores per client: not recorded; the test data belong to no single client."
    text = f"Means over seeds, sorted by {in_sentence(main)}, worst first; choose a heading to sort."
    if part:
        text += f" {part}."
    if shown < clients:
        text += f" The worst {shown} of {integer(clients)} clients are listed; result.json holds all."
    return text


def _spread(scores: Sequence[float], name: str) -> list[tuple[str, str]]:
    if len(scores) < 4:
        return []
    import numpy as np

    places = (("Minimum", 0), ("Lower quarter", 25), ("Median", 50), ("Upper quarter", 75), ("Maximum", 100))
    return [(title, metric(float(np.percentile(scores, place)), name)) for title, place in places]
