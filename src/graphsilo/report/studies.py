"""What clients reported to the researcher about a method's inner workings: one table of numbers, and pictures of what
they learned beside what they hold.

A study is ``{client: {name: number or tensor}}``, as ``ClientBase.study`` gives it. Numbers become a table. Where a
client gives ``real_features`` and ``synthetic_features`` [items, features] (``real_labels`` and ``synthetic_labels``
[items] beside them), the page shows both in the plane of their first two principal components, and both as a heat map:
features that were copied rather than condensed would lie on real ones. ``missing_counts`` [true, generated] become a
heat map of how many missing neighbours were generated where so many are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.report.figures import class_labels
from graphsilo.report.formats import MISSING, integer, number, words
from graphsilo.report.plot import Axis, Dots, Figure, Heat, Plot, present, thin
from graphsilo.report.sections import Table

Study: TypeAlias = Mapping[Any, Mapping[str, Any]]
"""Client to facts: plain numbers, and tensors or arrays."""

MAX_POINTS = 400
"""Real nodes drawn at most, and as many synthetic ones; evenly chosen."""
MAP_ROWS, MAP_COLUMNS = 60, 120
"""Rows of each kind, and features, that a heat map shows at most."""
REAL, SYNTHETIC = "real", "synthetic"
_NONE: Mapping[str, Sequence[str]] = {}


def draw_study(study: Study, class_names: Sequence[str] | None = None) -> list[Figure]:
    """The figures of a study; what is neither a number nor features or counts to draw is left to the files."""
    return present(plane(study, class_names), feature_map(study, class_names), missing_counts(study))


def table(study: Study, choices_of: Mapping[str, Sequence[str]] = _NONE) -> Table | None:
    """Every plain number, or what it stands for by ``Method.choices``, a row per client; None where there is none."""
    names = dict.fromkeys(
        name for facts in study.values() for name, value in facts.items() if number(value) is not None
    )
    if not names:
        return None
    rows = [
        [f"Client {client}", *(_text(facts.get(name), choices_of.get(name, ())) for name in names)]
        for client, facts in study.items()
    ]
    columns = [("Client", "wrap"), *((words(name), "") for name in names)]
    return Table("Facts that the method's clients keep about themselves.", columns, rows, is_hidden=False)


def plane(study: Study, class_names: Sequence[str] | None = None) -> Figure | None:
    """Real and synthetic nodes in the plane of their first two principal components, one plot per client."""
    plots: dict[str, Plot] = {}
    for client, both in _pairs(study).items():
        real, synthetic = (features[thin(len(features), MAX_POINTS)] for features, _ in both)
        at, shares = principal_plane(np.concatenate([real, synthetic]))
        kinds = ((REAL, at[: len(real)], both[0][1]), (SYNTHETIC, at[len(real) :], both[1][1]))
        marks = []
        for place, (kind, points, labels) in enumerate(kinds):
            shown = None if labels is None else labels[thin(len(labels), MAX_POINTS)]
            marks.append(_dots(kind, points, shown, class_names, place))
        x, y = (Axis(f"Component {axis + 1} ({100 * share:.0f} % of variance)") for axis, share in enumerate(shares))
        plots[f"client {client}"] = Plot(x, y, tuple(marks))
    if not plots:
        return None
    return Figure(
        "study-plane",
        "Real and synthetic features in the plane of their first two principal components (of both together). "
        "Synthetic nodes that lie on real ones would give those away.",
        f"Scatter of real and synthetic nodes for {len(plots)} clients",
        380,
        plots,
        group="study",
    )


def feature_map(study: Study, class_names: Sequence[str] | None = None) -> Figure | None:
    """Real features (left) and synthetic ones (right), sorted by class: a row per node, a column per feature."""
    plots = {}
    for client, both in _pairs(study).items():
        (real, _), (synthetic, _) = both
        # The features that tell real nodes apart most, in their own order; both halves show the same.
        columns = np.sort(np.argsort(-real.std(axis=0), kind="stable")[:MAP_COLUMNS])
        low = float(min(real[:, columns].min(), synthetic[:, columns].min()))
        high = float(max(real[:, columns].max(), synthetic[:, columns].max()))
        top = high - low or 1.0
        parts = []
        for features, labels in both:
            order = np.arange(len(features)) if labels is None else np.argsort(labels, kind="stable")
            parts.append(features[np.ix_(order[thin(len(order), MAP_ROWS)], columns)] - low)
        second = len(columns) + max(1, len(columns) // 20)
        x = Axis("Features: real, then synthetic", ("",) * (second + len(columns)))
        y = Axis("Nodes, by class", ("",) * max(map(len, parts)))
        span = f"above the least ({low:.3g})"
        marks = tuple(Heat(part, top, unit=span, left=place * second) for place, part in enumerate(parts))
        plots[f"client {client}"] = Plot(x, y, marks)
    if not plots:
        return None
    return Figure(
        "study-features",
        f"Features of real nodes (left) and of synthetic ones (right), sorted by class: at most {MAP_ROWS} of each, "
        f"and the {MAP_COLUMNS} features that vary most among the real ones.",
        f"Heat maps of real and synthetic features for {len(plots)} clients",
        380,
        plots,
        group="study",
    )


def missing_counts(study: Study) -> Figure | None:
    """Of nodes that lack so many neighbours, the shares for which so many were generated; all clients together."""
    found = [np.asarray(facts["missing_counts"]) for facts in study.values() if "missing_counts" in facts]
    if not found:
        return None
    counts = sum(found[1:], found[0])
    of_row = counts.sum(axis=1, keepdims=True)
    shares = np.divide(100 * counts, of_row, out=np.full(counts.shape, np.nan), where=of_row > 0)
    names = (*map(str, range(len(counts) - 1)), f"{len(counts) - 1} or more")
    heat = Heat(shares, 100.0, unit="% of these nodes", written=True)
    return Figure(
        "study-missing",
        "Nodes that truly lack so many neighbours (down), and for what share of them so many were generated (across), "
        "all clients together: on the diagonal the number is right.",
        "Heat map of true and generated numbers of missing neighbours",
        130 + 30 * len(counts),
        {"": Plot(Axis("generated", names), Axis("truly missing", names), (heat,))},
        group="study",
    )


def principal_plane(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Points in the plane of their two largest principal components, and the share of variance of each.

    Args:
        values: [n, d].

    Returns:
        [n, 2], the sign of a component such that its farthest point is positive; and two shares from 0 to 1.
    """
    centred = values - values.mean(axis=0)
    # n is small and d may be thousands: the components come from the n × n inner products.
    squares, vectors = np.linalg.eigh(centred @ centred.T)
    squares, vectors = np.maximum(squares[::-1], 0.0), vectors[:, ::-1]
    total = float(squares.sum())
    points = np.zeros((len(values), 2))
    shares = [0.0, 0.0]
    for axis in range(min(2, len(values))):
        column = vectors[:, axis] * np.sqrt(squares[axis])
        points[:, axis] = column * (np.sign(column[np.abs(column).argmax()]) or 1.0)
        shares[axis] = float(squares[axis]) / total if total > 0 else 0.0
    return points, (shares[0], shares[1])


_Features: TypeAlias = "tuple[NDArray[np.float64], NDArray[np.int64] | None]"


def _pairs(study: Study) -> dict[Any, tuple[_Features, _Features]]:
    """Clients that gave real and synthetic features of the same width, both with something in them."""
    found = {}
    for client, facts in study.items():
        both = [_features(facts, kind) for kind in (REAL, SYNTHETIC)]
        real, synthetic = both
        if real is not None and synthetic is not None and real[0].shape[1] == synthetic[0].shape[1]:
            found[client] = (real, synthetic)
    return found


def _features(facts: Mapping[str, Any], kind: str) -> _Features | None:
    value = facts.get(f"{kind}_features")
    if value is None:
        return None
    features = np.asarray(value, dtype=np.float64)
    if features.ndim != 2 or 0 in features.shape or not np.isfinite(features).all():
        return None
    given = facts.get(f"{kind}_labels")
    labels = None if given is None else np.asarray(given).astype(np.int64)
    return features, labels if labels is not None and labels.shape == features.shape[:1] else None


def _names(labels: NDArray[np.int64] | None, rows: NDArray[np.int64], class_names: Sequence[str] | None) -> list[str]:
    """What to call each row: its class, or its number."""
    if labels is None:
        return [f"node {row}" for row in rows.tolist()]
    width = len(class_names) if class_names else 0
    titles = class_labels(width, class_names)
    return [titles[label] if 0 <= label < width else f"class {label}" for label in labels[rows].tolist()]


def _dots(
    kind: str,
    points: NDArray[np.float64],
    labels: NDArray[np.int64] | None,
    class_names: Sequence[str] | None,
    place: int,
) -> Dots:
    tips = [f"{kind}, {name}" for name in _names(labels, np.arange(len(points)), class_names)]
    x, y = (np.round(points[:, axis], 4).tolist() for axis in (0, 1))
    return Dots(words(kind), x, y, place, tips, small=True, hollow=kind == SYNTHETIC)


def _text(value: Any, choices_of: Sequence[str]) -> str:
    """A number as the table shows it: whole numbers as such, others with four significant digits, a choice in words."""
    known = number(value)
    if known is None:
        return MISSING
    if known in range(len(choices_of)):
        return choices_of[int(known)]
    return integer(known) if float(known).is_integer() else f"{known:.4g}"
