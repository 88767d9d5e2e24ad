"""Figures of clients, classes, the partition and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.storage.records import PartitionFacts
from graphsilo.report.formats import in_sentence, number
from graphsilo.report.plot import (
    CATEGORIES,
    MUTED,
    SCALE,
    SERIES,
    Figure,
    Plot,
    axis_title,
    colour,
    layout_of,
    plain,
    short,
    size_unit,
    spaced,
)
from graphsilo.report.record import KIND_WORDS, Ledger

MANY_CLIENTS = 60
"""Above this, clients are no longer labelled one by one."""
_HEAT_ROWS = 600


def label_map(partition: PartitionFacts, class_names: Sequence[str] | None = None) -> Figure | None:
    """Clients by classes: which share of a client's labels each class has."""
    clients = [holder for holder in partition.per_client if holder.labels]
    if not clients:
        return None
    counts = np.array([holder.labels for holder in clients], dtype=np.float64)
    width = counts.shape[1]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = [str(holder.client) for holder in clients]
    note = ""
    many = len(clients) > MANY_CLIENTS
    if many:
        # Numbers say nothing among hundreds of rows; alike clients side by side do
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        note = " Clients are sorted by their most frequent class."
        if len(order) > _HEAT_ROWS:
            order = order[spaced(len(order), _HEAT_ROWS)]
            note += f" {_HEAT_ROWS} of {len(clients)} clients are drawn, evenly chosen along that order."
        counts, shares, names = counts[order], shares[order], [names[i] for i in order]
    classes = class_labels(width, class_names)
    top = float(np.ceil(10 * shares.max()) * 10)
    plot = _heat_map(classes, [f"client {name}" for name in names], counts, shares, top, ("Class", ""), "% of client")
    plot["data"][0]["hovertemplate"] = "%{y}, %{x}: %{customdata:,} nodes, %{z:.1f} %<extra></extra>"
    plot["data"][0]["ygap"] = 0 if many else 1
    plot["layout"]["yaxis"]["showticklabels"] = not many
    return Figure(
        "label-map",
        f"Labels per client: each row is a client, a stronger colour a larger share of its labels.{note}",
        f"Heat map of {len(clients)} clients by {width} classes",
        _map_height(len(clients)),
        {"labels": plot},
    )


def homophily(partition: PartitionFacts) -> Figure | None:
    """Edge homophily of each client; a histogram when there are many clients."""
    rows = [(str(holder.client), holder.homophily) for holder in partition.per_client if holder.homophily is not None]
    if not rows:
        return None
    values = np.array([value for _, value in rows])
    if len(rows) > MANY_CLIENTS:
        return Figure(
            "homophily",
            f"How many of the {len(rows)} clients have which homophily (share of edges that join equal labels).",
            f"Histogram of homophily over {len(rows)} clients, mean {values.mean():.2f}",
            _map_height(len(rows)),
            {"homophily": _histogram(values, "Homophily")},
        )
    trace = {
        "type": "bar",
        "x": [f"{name}" for name, _ in rows],
        "y": np.round(values, 3).tolist(),
        "marker": {"color": colour(0), "opacity": 0.85},
        "hovertemplate": "client %{x}: %{y:.2f}<extra></extra>",
    }
    layout = layout_of("Client", "Homophily", legend=False)
    layout["yaxis"]["range"] = [0, 1]
    layout["bargap"] = 0.35
    layout["xaxis"]["type"] = "category"
    return Figure(
        "homophily",
        "Homophily per client: the share of its edges that join nodes of equal label.",
        f"Bar chart of homophily per client, from {values.min():.2f} to {values.max():.2f}",
        _map_height(len(rows)),
        {"homophily": {"data": [trace], "layout": layout}},
    )


def client_scores(rows: Sequence[Mapping[str, Any]], name: str) -> Figure | None:
    """Score of each client against how many labelled items it trains on.

    Args:
        rows: ``{"client", "train", name}``; rows without one of the numbers are left out.
        name: The metric.
    """
    points = [
        (row["client"], x, y)
        for row in rows
        if (x := number(row.get("train"))) is not None and (y := number(row.get(name))) is not None
    ]
    if len(points) < 3:
        return None
    factor = metric_of(name).factor
    sizes = [x for _, x, _ in points]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": sizes,
        "y": [short(factor * y) for _, _, y in points],
        "customdata": [who for who, _, _ in points],
        "marker": {"color": colour(0), "size": 9 if len(points) <= MANY_CLIENTS else 5, "opacity": 0.75},
        "hovertemplate": "client %{customdata}: %{y:.1f}, %{x:,.0f} training items<extra></extra>",
    }
    layout = layout_of("Labelled training items", axis_title(name), legend=False)
    if min(sizes) > 0 and max(sizes) > 50 * min(sizes):
        layout["xaxis"]["type"] = "log"
    return Figure(
        "client-scores",
        f"Test {in_sentence(name)} of each client against how much it has to train on (mean over seeds).",
        f"Scatter of {len(points)} clients: {in_sentence(name)} against training items",
        330,
        {name: {"data": [trace], "layout": layout}},
    )


def confusion(matrix: Any, class_names: Sequence[str] | None = None) -> Figure | None:
    """Pooled confusion counts; colour is the share of the true class, so rare classes are seen too."""
    counts = np.asarray(matrix, dtype=float)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.sum():
        return None
    width = len(counts)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = class_labels(width, class_names)
    plot = _heat_map(names, names, counts, shares, 100.0, ("Predicted", "True"), "% of class")
    plot["data"][0]["hovertemplate"] = "true %{y}, predicted %{x}: %{customdata:,} (%{z:.1f} %)<extra></extra>"
    if width <= 12:
        plot["data"][0] |= {"texttemplate": "%{z:.0f}", "textfont": {"size": 12}}
    return Figure(
        "confusion",
        "Confusion: rows are true classes, columns predictions, numbers the percent of the true class. All clients' "
        "test items at the round that validation chose, summed over seeds.",
        f"Confusion matrix of {width} classes, {100 * np.trace(counts) / counts.sum():.1f} percent on the diagonal",
        _class_height(width),
        {"confusion": plot},
    )


def per_class(values: Sequence[Any], class_names: Sequence[str] | None = None) -> Figure | None:
    """F1 of each class.

    Args:
        values: One Spread per class, None where the class was never scored.
        class_names: Their names, if known.
    """
    if not any(value is not None for value in values):
        return None
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": class_labels(len(values), class_names),
        "x": [None if value is None else short(100 * value.mean) for value in values],
        "error_x": {
            "type": "data",
            "array": [0 if value is None else short(100 * (value.std or 0)) for value in values],
            "color": MUTED,
            "thickness": 1.2,
        },
        "marker": {"color": colour(0), "opacity": 0.75},
        "hovertemplate": "%{y}: %{x:.1f}<extra></extra>",
    }
    layout = layout_of("F1 in percent", "", legend=False)
    layout["xaxis"]["range"] = [0, 100]
    layout["yaxis"] |= {"autorange": "reversed", **CATEGORIES}
    return Figure(
        "per-class",
        "F1 per class, mean over clients and seeds; whiskers are one standard deviation over seeds.",
        f"Bar chart of F1 for {len(values)} classes",
        _class_height(len(values)),
        {"f1": {"data": [trace], "layout": layout}},
    )


def kinds(ledger: Ledger) -> Figure | None:
    """Bytes by what they disclose, one stacked bar per direction."""
    ways = [("up", "Left the silos"), ("down", "Came back")]
    total = max((ledger.total(way) for way, _ in ways), default=0.0)
    if not total:
        return None
    factor, unit = size_unit(total)
    data = []
    for name in kind_names(ledger):
        sizes = [ledger.by_kind.get(way, {}).get(name, 0.0) for way, _ in ways]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [title for _, title in ways],
                "x": [short(size / factor) for size in sizes],
                "marker": _kind_marker(name),
                "hovertemplate": f"%{{y}}: {plain(name)}, %{{x:,.2f}} {unit}<extra></extra>",
            }
        )
    layout = layout_of(f"{unit} per seed, all clients", "")
    layout |= {"barmode": "stack"}
    layout["yaxis"] |= {"autorange": "reversed", **CATEGORIES}
    return Figure(
        "kinds",
        "Bytes by what they disclose, summed over clients and rounds, mean over seeds.",
        "Stacked bars of bytes by disclosure kind, sent and received",
        230,
        {"kinds": {"data": data, "layout": layout}},
    )


def uploads(ledger: Ledger, *, limit: int = 40) -> Figure | None:
    """Bytes each client sent, stacked by what they disclose; the clients that sent most when there are many."""
    sent = ledger.by_client.get("up", {})
    if not sent:
        return None
    shown = sorted(sent)
    note = ""
    if len(shown) > limit:
        shown = sorted(sorted(shown, key=lambda who: (-sum(sent[who].values()), who))[:limit])
        note = f" The {limit} of {len(sent)} clients that sent most."
    factor, unit = size_unit(max(sum(sent[who].values()) for who in shown))
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [str(who) for who in shown],
            "y": [short(sent[who].get(name, 0.0) / factor) for who in shown],
            "marker": _kind_marker(name),
            "hovertemplate": f"client %{{x}}: {plain(name)}, %{{y:,.2f}} {unit}<extra></extra>",
        }
        for name in kind_names(ledger)
        if any(sent[who].get(name) for who in shown)
    ]
    if not data:
        return None
    layout = layout_of("Client", f"{unit} per seed")
    layout |= {"barmode": "stack"}
    layout["xaxis"]["type"] = "category"
    return Figure(
        "uploads",
        f"What each client sent in total, by kind; mean over seeds.{note}",
        f"Stacked bars of bytes sent by {len(shown)} clients",
        300,
        {"uploads": {"data": data, "layout": layout}},
    )


def class_labels(width: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Names of the classes for axes: as given, shortened and kept distinct, else their numbers."""
    if not class_names or len(class_names) != width:
        return [str(position) for position in range(width)]
    names = [str(name) if len(str(name)) <= 24 else f"{str(name)[:22]}…" for name in class_names]
    # Equal names would fall together on a category axis
    return [plain(name) if names.count(name) == 1 else f"{plain(name)} ({i})" for i, name in enumerate(names)]


def _histogram(values: Any, title: str) -> Plot:
    # Binned here: a thousand numbers say no more than twenty bars
    counts, edges = np.histogram(values, bins=20)
    trace = {
        "type": "bar",
        "x": np.round((edges[:-1] + edges[1:]) / 2, 4).tolist(),
        "y": counts.tolist(),
        "width": np.round(0.94 * np.diff(edges), 5).tolist(),
        "marker": {"color": colour(0)},
        "hovertemplate": "%{y} clients near %{x:.2f}<extra></extra>",
    }
    return {"data": [trace], "layout": layout_of(title, "Clients", legend=False)}


def kind_names(ledger: Ledger) -> list[str]:
    """Every kind that crossed, in the fixed order of the reports."""
    found = {name for way in ledger.by_kind.values() for name, size in way.items() if size}
    return [name for name in KIND_WORDS if name in found] + sorted(found - KIND_WORDS.keys())


def _kind_marker(name: str) -> Plot:
    """A fixed colour per kind, so that two reports read alike; hatching where colours repeat."""
    position = [*KIND_WORDS, name].index(name)
    marker: Plot = {"color": colour(position)}
    if position >= len(SERIES):
        marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.35}
    return marker


def _map_height(clients: int) -> int:
    return int(min(max(320, 18 * clients + 120), 460))


def _class_height(classes: int) -> int:
    return int(min(max(340, 34 * classes + 130), 600))


def _heat_map(
    x: list[str], y: list[str], counts: Any, shares: Any, top: float, axes: tuple[str, str], unit: str
) -> Plot:
    """Shares as colours up to ``top`` percent, counts for who points at a cell."""
    trace = {
        "type": "heatmap",
        "x": x,
        "y": y,
        "z": np.round(100 * shares, 1).tolist(),
        "customdata": counts.astype(int).tolist(),
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": top,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {
            "title": {"text": unit, "font": {"color": MUTED, "size": 12}},
            "tickfont": {"color": MUTED},
            "thickness": 11,
            "outlinewidth": 0,
            "tickvals": [0, top / 2, top],
        },
    }
    layout = layout_of(*axes, legend=False)
    layout["yaxis"] |= {"autorange": "reversed", **CATEGORIES}
    layout["xaxis"] |= CATEGORIES
    return {"data": [trace], "layout": layout}
