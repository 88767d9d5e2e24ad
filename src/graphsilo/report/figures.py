"""The figures of the report pages, as plain plotly.js descriptions.

A figure is data and layout in dictionaries; nothing here needs plotly, which only draws them in the reader's browser.
Colours are named once, for light pages; ``DARK`` says what the page's script puts in their place in the dark. The
series colours follow Okabe and Ito, "Color Universal Design" (2008), darkened to reach 3:1 contrast on white.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphsilo.report.formats import MODES, in_sentence, is_share, metric_title, number, words
from graphsilo.report.record import Ledger, Run, dig, mapping, records, sorted_metrics

Plot: TypeAlias = "dict[str, Any]"
"""``{"data": [traces], "layout": {...}}`` as plotly.js takes it."""

SERIES = {
    "#0072b2": "#5ab4e6",  # blue
    "#d55e00": "#ff9a4d",  # vermilion
    "#008a63": "#3ecf9f",  # bluish green
    "#b0588f": "#e59cc6",  # reddish purple
    "#a87400": "#f2c14e",  # amber
    "#5b6573": "#a7b1bf",  # slate
    "#8c2d3a": "#f08a94",  # wine
    "#6b7a00": "#c3d154",  # olive
}
INK, MUTED, GRID, HOVER, CLEAR = "#1c2430", "#5d6878", "#e3e7ed", "#fdfdfe", "rgba(0,0,0,0)"
DARK = SERIES | {
    INK: "#e6e9ee",
    MUTED: "#9aa5b4",
    GRID: "#2c3440",
    HOVER: "#222a34",
    "#f2f5f9": "#1d242e",
    "#c6dbef": "#1f4467",
    "#6baed6": "#2a6fa6",
    "#2171b5": "#63aede",
    "#08306b": "#d6ecfb",
}
"""Light colour to dark colour."""
_COLOURS = list(SERIES)
_DASHES = ("solid", "dash", "dot", "dashdot")
_SCALE = [[0, "#f2f5f9"], [0.25, "#c6dbef"], [0.5, "#6baed6"], [0.75, "#2171b5"], [1, "#08306b"]]

KIND_ORDER = (
    "model",
    "gradient",
    "prototype",
    "statistic",
    "embedding",
    "generator",
    "synthetic",
    "logits",
    "topology",
    "counts",
    "score",
    "control",
)
MANY_CLIENTS = 60
"""Above this, clients are no longer labelled one by one."""
_POINTS = 400
_HEAT_ROWS = 600
_SEED_LINES = 10


@dataclass(frozen=True)
class Figure:
    """One figure of a page.

    Attributes:
        name: Its id on the page.
        caption: What is shown and how to read it.
        label: The same for those who cannot see it.
        height: Pixels.
        plots: One plot per choice; the choice named first is drawn first.
        group: Figures of one group change together when the reader chooses.
    """

    name: str
    caption: str
    label: str
    height: int
    plots: dict[str, Plot] = field(default_factory=dict)
    group: str = ""


def colour(position: int) -> str:
    """The colour of the series at a position; they repeat after eight, see ``dash``."""
    return _COLOURS[position % len(_COLOURS)]


def dash(position: int) -> str:
    """The line pattern that tells a repeated colour from its first use."""
    return _DASHES[position // len(_COLOURS) % len(_DASHES)]


def curves(run: Run) -> list[Figure]:
    """Validation and test scores by round and by megabytes sent, one choice per metric.

    Thin lines are seeds, the thick line is their mean over the rounds that all of them reached; diamonds mark the
    round that validation chose.
    """
    tracks = [_Track(seed) for seed in run.seeds]
    names = sorted_metrics(name for track in tracks for name in track.metrics)
    if not any(len(track.rounds) for track in tracks) or not names:
        return []
    if run.main_metric in names:
        names = [run.main_metric] + [name for name in names if name != run.main_metric]
    by_round = {name: _curve(tracks, name, by_size=False) for name in names}
    figures = [
        Figure(
            "curve-rounds",
            "By communication round. Thin lines are single seeds, thick lines their mean; "
            "diamonds mark the round that validation chose.",
            f"Line chart of validation and test {in_sentence(names[0])} by round",
            330,
            by_round,
            "curves",
        )
    ]
    if any(track.size is not None for track in tracks):
        figures.append(
            Figure(
                "curve-size",
                "By megabytes that crossed the silos' boundaries so far, both directions and all clients together, "
                "set-up included.",
                f"Line chart of validation and test {in_sentence(names[0])} by cumulative megabytes",
                330,
                {name: _curve(tracks, name, by_size=True) for name in names},
                "curves",
            )
        )
    return figures


def overlaid_curves(runs: Sequence[Run], labels: Sequence[str]) -> list[Figure]:
    """Mean test scores of several runs, by round and by megabytes; one choice per metric."""
    tracks = [[_Track(seed) for seed in run.seeds] for run in runs]
    names = sorted_metrics(name for group in tracks for track in group for name in track.metrics)
    figures = []
    for key, by_size, caption in (
        ("compare-rounds", False, "Test score by communication round, mean over seeds."),
        ("compare-size", True, "Test score by megabytes sent so far, both directions, set-up included."),
    ):
        plots = {}
        for name in names:
            data = []
            for position, (group, label) in enumerate(zip(tracks, labels, strict=True)):
                x, y = _mean_line(group, "test", name, by_size=by_size)
                if x:
                    style = {"color": colour(position), "dash": dash(position), "width": 2.2}
                    data.append(_line(x, y, label, style))
            if data:
                x_title = "MB sent and received" if by_size else "Round"
                plots[name] = {"data": data, "layout": _layout(x_title, _axis_title(name))}
        if plots:
            first = next(iter(plots))
            figures.append(
                Figure(key, caption, f"Line chart of test {in_sentence(first)} of all runs", 380, plots, "compare")
            )
    return figures


def trade_off(
    labels: Sequence[str], megabytes: Sequence[float | None], scores: Sequence[Any], name: str
) -> Figure | None:
    """Score against megabytes per run, deviations as whiskers; None with fewer than two complete pairs."""
    data = []
    for position, (label, size, score) in enumerate(zip(labels, megabytes, scores, strict=True)):
        if size is None or score is None:
            continue
        factor = 100 if is_share(name) else 1
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [size],
                "y": [_short(factor * score.mean)],
                "error_y": {
                    "type": "data",
                    "array": [_short(factor * (score.std or 0))],
                    "color": colour(position),
                    "thickness": 1.2,
                },
                "marker": {"color": colour(position), "size": 11, "symbol": _symbol(position)},
                "hovertemplate": f"%{{y:.1f}}, %{{x:,.2f}} MB<extra>{_plain(label)}</extra>",
            }
        )
    if len(data) < 2:
        return None
    layout = _layout("MB sent and received per seed", _axis_title(name))
    positive = all(trace["x"][0] > 0 for trace in data)  # type: ignore[index]
    if positive and max(trace["x"][0] for trace in data) > 30 * min(trace["x"][0] for trace in data):  # type: ignore[index]
        layout["xaxis"] |= {"type": "log", "dtick": 1}
    return Figure(
        "trade-off",
        "Score against communication: up and to the left is better. Whiskers are one standard deviation over seeds.",
        f"Scatter of {in_sentence(name)} against megabytes per run",
        360,
        {name: {"data": data, "layout": layout}},
    )


def label_map(partition: Mapping[str, Any], class_names: Sequence[str] | None = None) -> Figure | None:
    """Clients by classes: which share of a client's labels each class has."""
    clients = [row for row in records(partition.get("per_client")) if isinstance(row.get("labels"), list)]
    if not clients or not clients[0]["labels"]:
        return None
    width = max(len(row["labels"]) for row in clients)
    counts = np.zeros((len(clients), width))
    for position, row in enumerate(clients):
        counts[position, : len(row["labels"])] = [number(value) or 0.0 for value in row["labels"]]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = [str(row.get("client", position)) for position, row in enumerate(clients)]
    note = ""
    many = len(clients) > MANY_CLIENTS
    if many:
        # Numbers say nothing among hundreds of rows; alike clients side by side do
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        note = " Clients are sorted by their most frequent class."
        if len(order) > _HEAT_ROWS:
            order = order[np.linspace(0, len(order) - 1, _HEAT_ROWS).astype(int)]
            note += f" {_HEAT_ROWS} of {len(clients)} clients are drawn, evenly chosen along that order."
        counts, shares, names = counts[order], shares[order], [names[i] for i in order]
    classes = class_labels(width, class_names)
    top = float(np.ceil(10 * shares.max()) * 10)
    trace = {
        "type": "heatmap",
        "x": classes,
        "y": [f"client {name}" for name in names],
        "z": np.round(100 * shares, 1).tolist(),
        "customdata": counts.astype(int).tolist(),
        "colorscale": _SCALE,
        "zmin": 0,
        "zmax": top,
        "xgap": 1,
        "ygap": 0 if many else 1,
        "hovertemplate": "%{y}, %{x}: %{customdata:,} nodes, %{z:.1f} %<extra></extra>",
        "colorbar": _colour_bar("% of client", top),
    }
    layout = _layout("Class", "", legend=False)
    layout["yaxis"] |= {
        "autorange": "reversed",
        "showticklabels": not many,
        "type": "category",
        "gridcolor": CLEAR,
        "ticks": "",
    }
    layout["xaxis"] |= {"type": "category", "gridcolor": CLEAR, "ticks": ""}
    return Figure(
        "label-map",
        f"Labels per client: each row is a client, a stronger colour a larger share of its labels.{note}",
        f"Heat map of {len(clients)} clients by {width} classes",
        _map_height(len(clients)),
        {"labels": {"data": [trace], "layout": layout}},
    )


def homophily(partition: Mapping[str, Any]) -> Figure | None:
    """Edge homophily of each client; a histogram when there are many clients."""
    rows = [
        (str(row.get("client", position)), value)
        for position, row in enumerate(records(partition.get("per_client")))
        if (value := number(row.get("homophily"))) is not None
    ]
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
    layout = _layout("Client", "Homophily", legend=False)
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
    factor = 100 if is_share(name) else 1
    sizes = [x for _, x, _ in points]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": sizes,
        "y": [_short(factor * y) for _, _, y in points],
        "customdata": [who for who, _, _ in points],
        "marker": {"color": colour(0), "size": 9 if len(points) <= MANY_CLIENTS else 5, "opacity": 0.75},
        "hovertemplate": "client %{customdata}: %{y:.1f}, %{x:,.0f} training items<extra></extra>",
    }
    layout = _layout("Labelled training items", _axis_title(name), legend=False)
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
    trace = {
        "type": "heatmap",
        "x": names,
        "y": names,
        "z": np.round(100 * shares, 1).tolist(),
        "customdata": counts.astype(int).tolist(),
        "colorscale": _SCALE,
        "zmin": 0,
        "zmax": 100,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "true %{y}, predicted %{x}: %{customdata:,} (%{z:.1f} %)<extra></extra>",
        "colorbar": _colour_bar("% of class", 100.0),
    }
    if width <= 12:
        trace |= {"texttemplate": "%{z:.0f}", "textfont": {"size": 12}}
    layout = _layout("Predicted", "True", legend=False)
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "gridcolor": CLEAR, "ticks": ""}
    layout["xaxis"] |= {"type": "category", "gridcolor": CLEAR, "ticks": ""}
    return Figure(
        "confusion",
        "Confusion: rows are true classes, columns predictions, numbers the percent of the true class. All clients' "
        "test items at the round that validation chose, summed over seeds.",
        f"Confusion matrix of {width} classes, {100 * np.trace(counts) / counts.sum():.1f} percent on the diagonal",
        _class_height(width),
        {"confusion": {"data": [trace], "layout": layout}},
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
        "x": [None if value is None else _short(100 * value.mean) for value in values],
        "error_x": {
            "type": "data",
            "array": [0 if value is None else _short(100 * (value.std or 0)) for value in values],
            "color": MUTED,
            "thickness": 1.2,
        },
        "marker": {"color": colour(0), "opacity": 0.75},
        "hovertemplate": "%{y}: %{x:.1f}<extra></extra>",
    }
    layout = _layout("F1 in percent", "", legend=False)
    layout["xaxis"]["range"] = [0, 100]
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "gridcolor": CLEAR, "ticks": ""}
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
    factor, unit = _size_unit(total)
    data = []
    for name in kind_names(ledger):
        sizes = [ledger.by_kind.get(way, {}).get(name, 0.0) for way, _ in ways]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [title for _, title in ways],
                "x": [_short(size / factor) for size in sizes],
                "marker": _kind_marker(name),
                "hovertemplate": f"%{{y}}: {_plain(name)}, %{{x:,.2f}} {unit}<extra></extra>",
            }
        )
    layout = _layout(f"{unit} per seed, all clients", "")
    layout |= {"barmode": "stack"}
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "gridcolor": CLEAR, "ticks": ""}
    return Figure(
        "kinds",
        "Bytes by what they disclose, summed over clients and rounds, mean over seeds.",
        "Stacked bars of bytes by disclosure kind, sent and received",
        230,
        {"kinds": {"data": data, "layout": layout}},
    )


def uploads(ledger: Ledger, *, most: int = 40) -> Figure | None:
    """Bytes each client sent, stacked by what they disclose; the clients that sent most when there are many."""
    sent = ledger.by_client.get("up", {})
    if not sent:
        return None
    shown = sorted(sent)
    note = ""
    if len(shown) > most:
        shown = sorted(sorted(shown, key=lambda who: (-sum(sent[who].values()), who))[:most])
        note = f" The {most} of {len(sent)} clients that sent most."
    factor, unit = _size_unit(max(sum(sent[who].values()) for who in shown))
    data = [
        {
            "type": "bar",
            "name": name,
            "x": [str(who) for who in shown],
            "y": [_short(sent[who].get(name, 0.0) / factor) for who in shown],
            "marker": _kind_marker(name),
            "hovertemplate": f"client %{{x}}: {_plain(name)}, %{{y:,.2f}} {unit}<extra></extra>",
        }
        for name in kind_names(ledger)
        if any(sent[who].get(name) for who in shown)
    ]
    if not data:
        return None
    layout = _layout("Client", f"{unit} per seed")
    layout |= {"barmode": "stack"}
    layout["xaxis"]["type"] = "category"
    return Figure(
        "uploads",
        f"What each client sent in total, by kind; mean over seeds.{note}",
        f"Stacked bars of bytes sent by {len(shown)} clients",
        300,
        {"uploads": {"data": data, "layout": layout}},
    )


def round_cost(run: Run) -> list[Figure]:
    """Bytes and seconds of each round, mean over seeds."""
    rounds = _mean_rounds(run, ("upload_bytes", "download_bytes", "cpu_seconds", "wall_seconds"))
    if not rounds["round"]:
        return []
    figures = []
    sizes = [value for key in ("upload_bytes", "download_bytes") for value in rounds[key] if value]
    if sizes:
        factor, unit = _size_unit(max(sizes))
        figures.append(
            Figure(
                "round-bytes",
                "Bytes per round, all clients together, mean over seeds.",
                "Line chart of bytes sent and received per round",
                260,
                {"bytes": _cost_plot(rounds, {"upload_bytes": "sent", "download_bytes": "received"}, factor, unit)},
            )
        )
    if any(value for key in ("cpu_seconds", "wall_seconds") for value in rounds[key]):
        figures.append(
            Figure(
                "round-seconds",
                "Seconds per round, mean over seeds: processor time of all clients and the server, and the clock.",
                "Line chart of processor and clock seconds per round",
                260,
                {"seconds": _cost_plot(rounds, {"cpu_seconds": "processor", "wall_seconds": "clock"}, 1, "Seconds")},
            )
        )
    return figures


def choices(drawn: Sequence[Figure]) -> list[tuple[str, str]]:
    """What the reader can choose among figures of one group: plot name and title."""
    names = dict.fromkeys(name for figure in drawn for name in figure.plots)
    return [(name, metric_title(name)) for name in names]


def present(*found: Figure | None) -> list[Figure]:
    """The figures that had something to show."""
    return [figure for figure in found if figure is not None]


def class_labels(width: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Names of the classes for axes: as given, shortened and kept distinct, else their numbers."""
    if not class_names or len(class_names) != width:
        return [str(position) for position in range(width)]
    names = [str(name) if len(str(name)) <= 24 else f"{str(name)[:22]}…" for name in class_names]
    # Equal names would fall together on a category axis
    return [_plain(name) if names.count(name) == 1 else f"{_plain(name)} ({i})" for i, name in enumerate(names)]


class _Track:
    """Scores and cumulative bytes of one seed along its rounds."""

    def __init__(self, seed: Mapping[str, Any]) -> None:
        rows = [row for row in records(seed.get("rounds")) if number(row.get("round")) is not None]
        if len(rows) > _POINTS:
            picked = np.unique(np.linspace(0, len(rows) - 1, _POINTS).astype(int))
        else:
            picked = np.arange(len(rows))
        keep = [rows[i] for i in picked]
        self.rounds = [int(row["round"]) for row in keep]
        self.rows = keep
        self.best = number(seed.get("best_round"))
        self.seed = seed.get("seed")
        self.metrics = sorted_metrics(
            name
            for row in keep
            for group in ("test", "validation")
            for name, value in mapping(row.get(group)).items()
            if number(value) is not None
        )
        self.size: list[float] | None = None
        if any(number(row.get("upload_bytes")) is not None for row in rows):
            each = [(number(row.get("upload_bytes")) or 0) + (number(row.get("download_bytes")) or 0) for row in rows]
            start = sum(number(dig(seed, "setup", key)) or 0 for key in ("upload_bytes", "download_bytes"))
            self.size = ((start + np.cumsum(each)) / 1e6)[picked].tolist() if len(picked) else []

    def line(self, group: str, name: str) -> dict[int, float]:
        """Score by round, where it was recorded; ``group`` is a dotted path such as ``modes.own_local.test``."""
        keys = (*group.split("."), name)
        values = zip(self.rounds, (number(dig(row, *keys)) for row in self.rows), strict=True)
        return {when: score for when, score in values if score is not None}

    def sizes(self) -> dict[int, float]:
        """Megabytes so far by round."""
        return dict(zip(self.rounds, self.size, strict=True)) if self.size is not None else {}


def _curve(tracks: Sequence[_Track], name: str, *, by_size: bool) -> Plot:
    factor = 100 if is_share(name) else 1
    data: list[Plot] = []
    for position, group in enumerate(("validation", "test")):
        style = {"color": colour(position), "dash": "dash" if group == "validation" else "solid"}
        if len(tracks) > 1:
            for track in tracks[:_SEED_LINES]:
                x, y = _mean_line([track], group, name, by_size=by_size)
                if x:
                    thin = _line(x, y, f"{group}, seed {track.seed}", {**style, "dash": "solid", "width": 1})
                    data.append(
                        thin | {"opacity": 0.45, "hoverinfo": "skip", "showlegend": False, "legendgroup": group}
                    )
        x, y = _mean_line(tracks, group, name, by_size=by_size)
        if x:
            data.append(_line(x, y, words(group), {**style, "width": 2.4}) | {"legendgroup": group})
    modes = dict.fromkeys(mode for track in tracks for row in track.rows for mode in mapping(row.get("modes")))
    for position, mode in enumerate(modes, start=2):
        x, y = _mean_line(tracks, f"modes.{mode}.test", name, by_size=by_size)
        if x:
            dotted: Plot = {"color": colour(position), "dash": "dot", "width": 1.8}
            data.append(_line(x, y, f"Test, {MODES.get(mode, words(mode))}", dotted))
    chosen: list[tuple[float, float]] = []
    for track in tracks:
        line, sizes = track.line("test", name), track.sizes()
        when = int(track.best) if track.best is not None else None
        if when in line and (not by_size or when in sizes):
            chosen.append((sizes[when] if by_size else when, _short(factor * line[when])))
    if chosen:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "chosen round",
                "x": [_short(x) for x, _ in chosen],
                "y": [y for _, y in chosen],
                "marker": {
                    "symbol": "diamond",
                    "size": 9,
                    "color": colour(1),
                    "line": {"color": HOVER, "width": 1.2},
                },
                "hovertemplate": "%{y:.1f} at %{x}<extra>chosen round</extra>",
            }
        )
    return {"data": data, "layout": _layout("MB sent and received" if by_size else "Round", _axis_title(name))}


def _mean_line(tracks: Sequence[_Track], group: str, name: str, *, by_size: bool) -> tuple[list[float], list[float]]:
    """Mean over the seeds that recorded the score, at the rounds that all of these reached."""
    lines = [(line, track.sizes()) for track in tracks if (line := track.line(group, name))]
    if by_size:
        lines = [(line, sizes) for line, sizes in lines if sizes]
    if not lines:
        return [], []
    common = sorted(set.intersection(*(set(line) for line, _ in lines)))
    factor = 100 if is_share(name) else 1
    y = [_short(factor * float(np.mean([line[when] for line, _ in lines]))) for when in common]
    if not by_size:
        return [float(when) for when in common], y
    return [_short(float(np.mean([sizes[when] for _, sizes in lines]))) for when in common], y


def _mean_rounds(run: Run, keys: Iterable[str]) -> dict[str, list[Any]]:
    listed = [
        [row for row in records(seed.get("rounds")) if number(row.get("round")) is not None] for seed in run.seeds
    ]
    seeds = [{row["round"]: row for row in rows} for rows in listed if rows]
    if not seeds:
        return {"round": []} | {key: [] for key in keys}
    common: list[Any] = sorted(set.intersection(*(set(rows) for rows in seeds)))
    if len(common) > _POINTS:
        common = [common[i] for i in np.unique(np.linspace(0, len(common) - 1, _POINTS).astype(int))]
    found: dict[str, list[Any]] = {"round": common}
    for key in keys:
        column: list[Any] = []
        for when in common:
            known = [value for rows in seeds if (value := number(rows[when].get(key))) is not None]
            column.append(float(np.mean(known)) if known else None)
        found[key] = column
    return found


def _cost_plot(rounds: Mapping[str, list[Any]], series: Mapping[str, str], factor: float, unit: str) -> Plot:
    data = []
    for position, (key, title) in enumerate(series.items()):
        if any(value is not None for value in rounds[key]):
            y = [None if value is None else _short(value / factor) for value in rounds[key]]
            style = {"color": colour(position), "dash": _DASHES[position], "width": 2}
            data.append(_line(rounds["round"], y, title, style, digits=3))
    layout = _layout("Round", unit)
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def _line(x: Sequence[Any], y: Sequence[Any], name: str, style: Plot, *, digits: int = 1) -> Plot:
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "name": _plain(name),
        "x": list(x),
        "y": list(y),
        "line": style,
        "marker": {"color": style["color"], "size": 9},
        "hovertemplate": f"%{{y:,.{digits}f}}<extra>{_plain(name)}</extra>",
    }


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
    return {"data": [trace], "layout": _layout(title, "Clients", legend=False)}


def kind_names(ledger: Ledger) -> list[str]:
    """Every kind that crossed, in the fixed order of the reports."""
    found = {name for way in ledger.by_kind.values() for name, size in way.items() if size}
    return [name for name in KIND_ORDER if name in found] + sorted(found - set(KIND_ORDER))


def _kind_marker(name: str) -> Plot:
    """A fixed colour per kind, so that two reports read alike; hatching where colours repeat."""
    position = KIND_ORDER.index(name) if name in KIND_ORDER else len(KIND_ORDER)
    marker: Plot = {"color": colour(position)}
    if position >= len(_COLOURS):
        marker["pattern"] = {"shape": "/", "size": 6, "solidity": 0.35}
    return marker


def _symbol(position: int) -> str:
    return ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")[position % 8]


def _map_height(clients: int) -> int:
    return int(min(max(320, 18 * clients + 120), 460))


def _class_height(classes: int) -> int:
    return int(min(max(340, 34 * classes + 130), 600))


def _size_unit(largest: float) -> tuple[float, str]:
    return next(((f, unit) for f, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= f), (1.0, "Bytes"))


def _axis_title(name: str) -> str:
    return f"{metric_title(name)} in percent" if is_share(name) else metric_title(name)


def _colour_bar(title: str, top: float) -> Plot:
    return {
        "title": {"text": title, "font": {"color": MUTED, "size": 12}},
        "tickfont": {"color": MUTED},
        "thickness": 11,
        "outlinewidth": 0,
        "tickvals": [0, top / 2, top],
    }


def _layout(x_title: str, y_title: str, *, legend: bool = True) -> Plot:
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"color": MUTED, "size": 12},
    }
    title = {"font": {"color": MUTED, "size": 12.5}, "standoff": 10}
    return {
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "margin": {"l": 52, "r": 12, "t": 12, "b": 44},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
            "traceorder": "normal",
        },
        "hoverlabel": {"bgcolor": HOVER, "bordercolor": GRID, "font": {"color": INK, "size": 12}},
        "hovermode": "closest",
        "xaxis": {**axis, "title": {**title, "text": x_title}},
        "yaxis": {**axis, "title": {**title, "text": y_title}},
    }


def _plain(text: str) -> str:
    """Text without what plotly.js reads as markup or as a template."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def _short(value: float) -> float:
    """Five significant digits: nobody reads more in a figure, and pages stay small."""
    return float(f"{value:.5g}")
