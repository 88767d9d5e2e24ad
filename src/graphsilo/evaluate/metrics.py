"""Metrics computed from confusion counts, for all clients at once.

Everything is derived from three numbers per class: hits (true and predicted), actual (true) and predicted. An undefined
value is missing (NaN in arrays, None in what goes to JSON), never 0: a client without a node of a group says nothing
about that group and is left out of its mean.

Two averages, both kept: the mean over clients weighted by their node counts n_k, which the papers print, and *pooled*,
the metric of the summed counts.

Worked by hand: true classes 0, 0, 1, predicted 0, 1, 1. Class 0: 1 hit, 2 actual, 1 predicted, F1 = 2*1/(2+1) = 2/3.
Class 1: 1 hit, 1 actual, 2 predicted, F1 = 2/3. Accuracy 2/3, macro-F1 2/3. If only the first two nodes are
heterophilous, Hete-F1 looks at class 0 alone: 1 hit, 2 actual, 1 predicted, F1 = 2/3; class 1 is predicted there but
is nobody's label, so it counts as a miss of class 0 and not as a class of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphsilo.errors import DataError
from graphsilo.evaluate.counts import CELLS, Counts

Values: TypeAlias = "NDArray[np.float64]"
Summary: TypeAlias = "dict[str, Any]"
"""Plain values that JSON can hold: numbers, None, and lists and dictionaries of them."""

GROUPS = ("all", "min", "hete", "hete_min")
LIGHT = ("accuracy", "macro_f1", "macro_f1_present", "min_f1", "hete_f1", "hete_min_f1")
"""What every round records."""

# [groups, cells]: cells are neither, hete only, minority only, both
_GROUP_CELLS = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]])


class Margins(NamedTuple):
    """What all metrics here need of a confusion matrix; each [..., C] int64, and additive like the matrix itself."""

    hits: NDArray[np.int64]
    actual: NDArray[np.int64]
    predicted: NDArray[np.int64]


def margins(confusion: NDArray[np.int64]) -> Margins:
    """Hits, actual and predicted counts per class of [..., C true, C predicted] confusion matrices."""
    return Margins(np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(axis=-1), confusion.sum(axis=-2))


def group_margins(counts: Counts) -> Margins:
    """The same for the four groups of ``GROUPS``: [..., 4 cells, C, C] counts give [..., 4 groups, C] margins."""
    return Margins(*(np.matmul(_GROUP_CELLS, array) for array in margins(counts)))


def accuracy(of: Margins) -> Values:
    """[...] share of items predicted right; NaN without items."""
    return _ratio(of.hits.sum(axis=-1), of.actual.sum(axis=-1))


def precision(of: Margins) -> Values:
    """[..., C] share of right ones among those predicted as the class; NaN where it is never predicted."""
    return _ratio(of.hits, of.predicted)


def recall(of: Margins) -> Values:
    """[..., C] share of the class that is found; NaN where nobody has it."""
    return _ratio(of.hits, of.actual)


def f1(of: Margins) -> Values:
    """[..., C] 2·hits / (actual + predicted); NaN where the class is neither a label nor a prediction."""
    return _ratio(2 * of.hits, of.actual + of.predicted)


PER_CLASS: dict[str, Callable[[Margins], Values]] = {
    "per_class_f1": f1, "per_class_precision": precision, "per_class_recall": recall,
}  # fmt: skip
"""Scores of each class."""


def macro_f1(of: Margins) -> Values:
    """[...] mean F1 over the classes among the labels or the predictions: scikit-learn's default."""
    return _mean_where(f1(of), of.actual + of.predicted > 0)


def group_f1(of: Margins) -> Values:
    """[...] mean F1 over the classes among the labels only; predictions of other classes are misses.

    Source: FairFGL, Min-F1, Hete-F1 and Hete-Min-F1; apply to the margins of the group. Of all items it is
    ``macro_f1_present``, the macro-F1 that follows the groups' rule.
    """
    return _mean_where(f1(of), of.actual > 0)


def weighted_f1(of: Margins) -> Values:
    """[...] mean F1 weighted by how many items have the class as label."""
    return _ratio((np.nan_to_num(f1(of)) * of.actual).sum(axis=-1), of.actual.sum(axis=-1))


def balanced_accuracy(of: Margins) -> Values:
    """[...] mean recall over the classes among the labels."""
    return _mean_where(recall(of), of.actual > 0)


def weighted_mean(values: ArrayLike, weights: ArrayLike) -> Values:
    """Mean over clients (last axis), leaving out missing values and renormalising the weights; NaN if none is left.

    Args:
        values: [..., clients] with NaN where missing.
        weights: [clients] or [..., clients], not negative; n_k in the papers' convention.
    """
    array, share = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    there = ~np.isnan(array)
    return _ratio((np.where(there, array, 0.0) * share).sum(axis=-1), (there * share).sum(axis=-1))


def round_summary(counts: Counts, weights: ArrayLike) -> dict[str, float | None]:
    """The light metrics of one kind, as a node-weighted mean over clients: cheap enough for every round.

    Args:
        counts: [clients, 4 cells, C, C] of one kind, e.g. ``stacked[:, plan.kind("test")]``.
        weights: [clients] n_k, all local nodes of each client.
    Returns:
        The names of ``LIGHT``; None where no client has an item of the group.
    Raises:
        DataError: ``counts`` or ``weights`` have the wrong shape, or a weight is negative.
    """
    return round_summaries(np.asarray(counts)[:, None], weights, ("all",))["all"]


def round_summaries(counts: Counts, weights: ArrayLike, kinds: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """:func:`round_summary` for every kind at once.

    Args:
        counts: [clients, kinds, 4 cells, C, C].
        weights: [clients] n_k.
        kinds: Names along the second axis.
    """
    counts, share = _checked(counts, weights, axes=5)
    values = _light(group_margins(counts))  # [metrics, clients, kinds]
    means = weighted_mean(values.transpose(2, 0, 1), share)
    return {
        kind: dict(zip(LIGHT, (_plain(value) for value in row), strict=True))
        for kind, row in zip(kinds, means.tolist(), strict=True)
    }


def summarise(counts: Counts, weights: ArrayLike, *, clients: Sequence[int] | None = None) -> Summary:
    """Everything a result says about one kind of items.

    Args:
        counts: [clients, 4 cells, C, C] of one kind.
        weights: [clients] n_k, all local nodes of each client. A client with nothing to score is left out and the
            weights of the others are renormalised, metric by metric.
        clients: Numbers of the clients, by default 0 to K - 1.
    Returns:
        JSON-able, None where missing: the names of ``LIGHT``, ``weighted_f1``, ``balanced_accuracy`` and the lists of
        ``PER_CLASS`` are node-weighted means over clients (of a class, over those where it has that score); ``pooled``
        holds the same of the summed counts; ``worst_client`` its number and accuracy (the first of equals); ``spread``
        the unweighted standard deviation (ddof 0), minimum and maximum of the clients' accuracies; ``items`` how many
        were scored.
    Raises:
        DataError: ``counts``, ``weights`` or ``clients`` do not fit together, or a weight is negative.
    """
    counts, share = _checked(counts, weights, axes=4)
    names = _names(clients, len(counts))
    table = _table(counts)
    summary: Summary = {name: _plain(weighted_mean(values, share)) for name, values in table.items()}
    each = group_margins(counts)
    everybody = Margins(*(array[:, 0] for array in each))
    for name, score in PER_CLASS.items():
        summary[name] = _plain_list(weighted_mean(score(everybody).T, share))

    pool = counts.sum(axis=0, keepdims=True)
    summary["pooled"] = per_client(pool)[0]
    del summary["pooled"]["client"]
    scores = table["accuracy"]
    there = np.flatnonzero(~np.isnan(scores))
    if len(there):
        seen = scores[there]
        worst = int(there[seen.argmin()])
        summary["worst_client"] = {"client": names[worst], "accuracy": _plain(scores[worst])}
        summary["spread"] = {"std": _plain(seen.std()), "min": _plain(seen.min()), "max": _plain(seen.max())}
    else:
        summary["worst_client"] = {"client": None, "accuracy": None}
        summary["spread"] = {"std": None, "min": None, "max": None}
    summary["items"] = int(counts.sum())
    return summary


def per_client(counts: Counts, *, clients: Sequence[int] | None = None) -> list[Summary]:
    """One dictionary per client: its number, how many items were scored, and its metrics (None where missing).

    Args:
        counts: [clients, 4 cells, C, C] of one kind.
        clients: Numbers of the clients, by default 0 to K - 1.
    Raises:
        DataError: ``counts`` or ``clients`` have the wrong shape.
    """
    counts, _ = _checked(counts, np.ones(len(counts)), axes=4)
    names = _names(clients, len(counts))
    table = _table(counts)
    everybody = Margins(*(array[:, 0] for array in group_margins(counts)))
    classes = {name: score(everybody) for name, score in PER_CLASS.items()}
    sizes = counts.sum(axis=(1, 2, 3))
    return [
        {
            "client": names[row],
            "items": int(sizes[row]),
            **{name: _plain(values[row]) for name, values in table.items()},
            **{name: _plain_list(values[row]) for name, values in classes.items()},
        }
        for row in range(len(counts))
    ]


def _light(of: Margins) -> Values:
    """[6 metrics, ...] from [..., 4 groups, C] margins; group 0 is everybody, scored by both rules."""
    everybody = Margins(*(array[..., 0, :] for array in of))
    return np.stack([accuracy(everybody), macro_f1(everybody), *np.moveaxis(group_f1(of), -1, 0)])


def _table(counts: Counts) -> dict[str, Values]:
    """[clients] values of every scalar metric."""
    of = group_margins(counts)
    everybody = Margins(*(array[:, 0] for array in of))
    table = dict(zip(LIGHT, _light(of), strict=True))
    table["weighted_f1"] = weighted_f1(everybody)
    table["balanced_accuracy"] = balanced_accuracy(everybody)
    return table


def _ratio(top: NDArray[Any], bottom: NDArray[Any]) -> Values:
    """top / bottom, NaN where the bottom is 0."""
    out = np.full(np.shape(bottom), np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def _mean_where(values: Values, present: NDArray[np.bool_]) -> Values:
    """Mean over the last axis of the entries present; NaN where there is none."""
    return _ratio(np.where(present, values, 0.0).sum(axis=-1), present.sum(axis=-1))


def _plain(value: Any) -> float | None:
    number = float(value)
    return None if number != number else number


def _plain_list(values: Values) -> list[float | None]:
    return [_plain(value) for value in values.tolist()]


def _names(clients: Sequence[int] | None, count: int) -> list[int]:
    if clients is None:
        return list(range(count))
    if len(clients) != count:
        raise DataError(f"counts of {count} clients need {count} client numbers; got {len(clients)}.")
    return [int(client) for client in clients]


def _checked(counts: Counts, weights: ArrayLike, *, axes: int) -> tuple[Counts, Values]:
    counts, share = np.asarray(counts), np.asarray(weights, dtype=np.float64)
    if counts.ndim != axes or counts.shape[-3] != CELLS or counts.shape[-1] != counts.shape[-2]:
        wanted = "[clients, 4, classes, classes]" if axes == 4 else "[clients, kinds, 4, classes, classes]"
        raise DataError(f"counts must have shape {wanted}; got {counts.shape}: choose one kind, or stack clients.")
    if share.shape != counts.shape[:1]:
        raise DataError(f"counts of {len(counts)} clients need {len(counts)} weights; got shape {share.shape}.")
    if not (np.isfinite(share).all() and (share >= 0).all()):
        raise DataError("weights must be finite and not negative: they are the node counts of the clients.")
    return counts, share
