"""Figures of clients, classes, the partition and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage.records import PartitionFacts
from graphsilo.report.formats import UNNAMED, Names, in_sentence, number
from graphsilo.report.plot import Axis, Bars, Dots, Figure, Heat, Plot, axis_title, short, size_unit, thin
from graphsilo.report.record import KIND_WORDS, Ledger

MANY_CLIENTS = 60
"""Above this, clients are no longer labelled one by one."""
UNEVEN = 1.5
"""A figure of sizes has something to say where the largest is so many times the smallest."""
_HEAT_ROWS = 600


def label_map(
    partition: PartitionFacts, class_names: Sequence[str] | None = None, names: Names = UNNAMED
) -> Figure | None:
    """Clients by classes: which share of a client's labels each class has."""
    clients = [holder for holder in partition.per_client if holder.labels]
    if not clients:
        return None
    counts = np.array([holder.labels for holder in clients], dtype=np.float64)
    width = counts.shape[1]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    titles = [names.short(holder.client) for holder in clients]
    note = ""
    if len(clients) > MANY_CLIENTS:
        # Numbers say nothing among hundreds of rows; alike clients side by side do
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        note = " Clients are sorted by their most frequent class."
        if len(order) > _HEAT_ROWS:
            order = order[thin(len(order), _HEAT_ROWS)]
            note += f" {_HEAT_ROWS} of {len(clients)} clients are drawn, evenly chosen along that order."
        counts, shares, titles = counts[order], shares[order], [""] * len(order)
    classes = class_labels(width, class_names)
    heat = Heat(100 * shares, float(np.ceil(10 * shares.max()) * 10), counts.astype(np.int64), "% of client")
    return Figure(
        "label-map",
        f"Labels per client: each row is a client, a stronger colour a larger share of its labels.{note}"
        f"{number_columns(classes)}",
        f"Heat map of {len(clients)} clients by {width} classes",
        _map_height(len(clients)),
        {"labels": Plot(Axis("Class", tuple(classes)), Axis(names=tuple(titles)), (heat,))},
    )


def homophily(partition: PartitionFacts) -> Figure | None:
    """A histogram of the clients' edge homophily, where there are many; few have it in their table."""
    values = np.array([holder.homophily for holder in partition.per_client if holder.homophily is not None])
    if len(values) <= MANY_CLIENTS:
        return None
    # Binned here: a thousand numbers say no more than twenty bars
    counts, edges = np.histogram(values, bins=20)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    tips = [f"{count} clients near {at:.2f}" for count, at in zip(counts.tolist(), middles, strict=True)]
    bars = Bars(counts.tolist(), tips=tips, at=middles, width=float(edges[1] - edges[0]))
    return Figure(
        "homophily",
        f"How many of the {len(values)} clients have which homophily (share of edges that join equal labels).",
        f"Histogram of homophily over {len(values)} clients, mean {values.mean():.2f}",
        _map_height(len(values)),
        {"homophily": Plot(Axis("Homophily"), Axis("Clients", whole=True), (bars,))},
    )


def client_scores(rows: Sequence[Mapping[str, Any]], name: str, names: Names = UNNAMED) -> Figure | None:
    """Score of each client against how many labelled items it trains on, where these differ enough to matter.

    Args:
        rows: ``{"client", "train", name}``; rows without one of the numbers are left out.
        name: The metric.
        names: Of the clients.
    """
    points = [
        (row["client"], x, y)
        for row in rows
        if (x := number(row.get("train"))) is not None and (y := number(row.get(name))) is not None
    ]
    sizes = [x for _, x, _ in points]
    if len(points) < 5 or max(sizes) < UNEVEN * max(1, min(sizes)):
        return None
    scores = [short(metric_of(name).factor * y) for _, _, y in points]
    dots = Dots(
        "",
        sizes,
        scores,
        tips=[
            f"{names.title(who)}: {y:.1f}, {x:,.0f} training items"
            for (who, x, _), y in zip(points, scores, strict=True)
        ],
        small=len(points) > MANY_CLIENTS,
    )
    log = min(sizes) > 0 and max(sizes) > 50 * min(sizes)
    return Figure(
        "client-scores",
        f"Test {in_sentence(name)} of each client against how much it has to train on (mean over seeds).",
        f"Scatter of {len(points)} clients: {in_sentence(name)} against training items",
        330,
        {name: Plot(Axis("Labelled training items", log=log), Axis(axis_title(name)), (dots,))},
    )


def confusion(
    matrix: Any, class_names: Sequence[str] | None = None, when: str = "", *, decided: bool = False
) -> Figure | None:
    """Pooled confusion counts; colour is the share of the true class, so rare classes are seen too.

    Args:
        matrix: [true][predicted].
        class_names: Their names, if known.
        when: At which round, in words.
        decided: Whether a threshold decides elsewhere, and not which class is likelier.
    """
    counts = np.asarray(matrix, dtype=float)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.sum():
        return None
    width = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = tuple(class_labels(width, class_names))
    heat = Heat(100 * shares, 100.0, counts.astype(np.int64), "% of class", written=width <= 12)
    columns = "likelier classes, whatever the threshold decides" if decided else "predictions"
    return Figure(
        "confusion",
        f"Rows are true classes, columns {columns}; the numbers are percent of the true class. Test items of "
        f"all clients that were scored, {when}, summed over seeds.{number_columns(names)}",
        f"Confusion matrix of {width} classes, {100 * np.trace(counts) / counts.sum():.1f} percent on the diagonal",
        _class_height(width),
        {"confusion": Plot(Axis("Likelier" if decided else "Predicted", names), Axis("True class", names), (heat,))},
    )


def per_class(
    values: Sequence[Any], class_names: Sequence[str] | None = None, *, as_one_set: bool = False
) -> Figure | None:
    """F1 of each class.

    Args:
        values: One Spread per class, None where the class was never scored.
        class_names: Their names, if known.
        as_one_set: Of all silos' items together, where nobody sees a silo's own scores.
    """
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if not known:
        return None
    names = class_labels(len(values), class_names)
    means = [short(100 * value.mean) for _, value in known]
    widths = [100 * (value.std or 0.0) for _, value in known]
    dots = Dots(
        "",
        means,
        [float(place) for place, _ in known],
        tips=[
            f"{names[place]}: {mean:.1f}{f' ± {width:.1f}' if value.std is not None else ''}"
            for (place, value), mean, width in zip(known, means, widths, strict=True)
        ],
        reach=[(max(0.0, mean - width), min(100.0, mean + width)) for mean, width in zip(means, widths, strict=True)],
    )
    wide = ", and one standard deviation over seeds to each side" if any(widths) else ""
    return Figure(
        "per-class",
        f"F1 of each class, of all silos' items as one set, mean over seeds{wide}."
        if as_one_set
        else f"F1 of each class: its mean over clients and seeds{wide}. A "
        "client that has few of a class and misses them counts here as much as one that has many, so this can be far "
        "below the diagonal of the confusion, which counts items.",
        f"F1 for {len(values)} classes",
        int(min(90 + 26 * len(values), 900)),
        {"f1": Plot(Axis("F1, %", low=0.0, high=100.0), Axis(names=tuple(names)), (dots,))},
    )


def uploads(ledger: Ledger, names: Names = UNNAMED, *, limit: int = 20) -> Figure | None:
    """Bytes each client sent, most first, where some send clearly more than others."""
    sent = {who: sum(kinds.values()) for who, kinds in ledger.by_client.get("up", {}).items()}
    if len(sent) < 2 or max(sent.values()) < UNEVEN * min(sent.values()):
        return None
    shown = sorted(sent, key=lambda who: (-sent[who], who))[:limit]
    note = f" The {limit} of {len(sent)} clients that sent most." if len(sent) > limit else ""
    factor, unit = size_unit(sent[shown[0]])
    values = [short(sent[who] / factor) for who in shown]
    bars = Bars(values, tips=[f"{names.title(who)}: {v:,.2f} {unit}" for who, v in zip(shown, values, strict=True)])
    return Figure(
        "uploads",
        f"What each client sent in total; mean over seeds.{note}",
        f"Bars of bytes sent by {len(shown)} clients",
        70 + 20 * len(shown),
        {"uploads": Plot(Axis(f"{unit} per seed"), Axis(names=tuple(map(names.short, shown))), (bars,))},
    )


def class_labels(width: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Names of the classes for axes: as given, shortened and kept distinct, else their numbers."""
    if not class_names or len(class_names) != width:
        return [str(position) for position in range(width)]
    names = [str(name) if len(str(name)) <= 24 else f"{str(name)[:22]}…" for name in class_names]
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]


def number_columns(names: Sequence[str]) -> str:
    """What the columns' numbers stand for, where names may be too long to stand side by side."""
    if all(name.isdecimal() for name in names) or len(names) > 40:
        return ""
    return f" Columns: {', '.join(f'{place} {name}' for place, name in enumerate(names, start=1))}."


def kind_names(ledger: Ledger) -> list[str]:
    """Every kind that crossed, in the fixed order of the reports."""
    found = {name for way in ledger.by_kind.values() for name, size in way.items() if size}
    return [name for name in KIND_WORDS if name in found] + sorted(found - KIND_WORDS.keys())


def _map_height(clients: int) -> int:
    return int(min(max(150, 20 * clients + 100), 460))


def _class_height(classes: int) -> int:
    return int(min(max(200, 34 * classes + 90), 600))
