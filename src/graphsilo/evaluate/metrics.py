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

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphsilo.errors import ConfigError, DataError
from graphsilo.evaluate.counts import CELLS, Counts
from graphsilo.types import Task

if TYPE_CHECKING:
    from graphsilo.evaluate.scores import Score

Values: TypeAlias = "NDArray[np.float64]"
Summary: TypeAlias = "dict[str, Any]"
"""Plain values that JSON can hold: numbers, None, and lists and dictionaries of them."""

GROUPS = {
    "all": ("All", "every test item"),
    "min": ("Min", "items of classes that are rare at their client"),
    "hete": ("Hete", "the half of the nodes whose neighbours agree least with their label"),
    "hete_min": ("Hete-Min", "rare class and heterophilous at once"),
}
"""The fairness groups in the order of the margins: title and who is in it."""

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


@dataclass(frozen=True)
class Metric:
    """A score, and all that anything needs to know to compute, select by, show and compare it.

    A metric is computed either from ``counts`` or, at the clients, by ``ranking``; never from both.

    Attributes:
        name: Its key in settings, results and tables.
        title: What readers know it by.
        meaning: Its definition, for the documentation.
        counts: From margins [..., groups, C] to values [..., groups]; to [..., groups, C] if ``per_class``. None where
            counts are not enough.
        ranking: From a client's labels and scores to its value, or what that is called in ``evaluate.scores``, with
            another module's name before a dot, behind which the metric's own name may be left out; None where counts
            are enough.
        takes: What else ``ranking`` is given by name, and it is measured only where that is known: the ``positive`` one
            of two classes that is looked for, the ``budget``, the ``decision`` (``evaluate.rare``).
        group: Of ``GROUPS``: whose items are scored.
        tasks: Where it is measured; for links there are no counts.
        is_share: From 0 to 1, so that it is shown in percent.
        bounds: Least and largest value that there is; by default 0 and 1 of a share, else none.
        higher_is_better: The direction of "best", "worst" and "better than".
        each_round: Recorded in every round, for curves; only these can select a round.
        selects: May choose the reported round (``evaluation.select_by``).
        tie: Metric that decides between rounds with equal values, where it is measured; empty: the first is taken.
        is_main: Has a column in the tables of the terminal and of comparisons.
        per_class: A list with a score of each class, or of each of several targets.
        of_rare: Where data has two classes, it looks at the one that is looked for alone, by default the rarer. One of
            counts takes the class's entry of ``counts``, and there is none where data has more; a ranking is given it.

    Raises:
        ConfigError: It is computed in no way or in two, or selects without being recorded in each round.
    """

    name: str
    title: str
    meaning: str
    counts: Callable[[Margins], Values] | None = None
    ranking: Callable[..., Score] | str | None = None
    group: str = "all"
    tasks: tuple[Task, ...] = ("node", "graph")
    is_share: bool = True
    higher_is_better: bool = True
    each_round: bool = False
    selects: bool = False
    tie: str = ""
    is_main: bool = False
    per_class: bool = False
    of_rare: bool = False
    takes: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if (self.counts is None) == (self.ranking is None):
            raise ConfigError(f"the metric '{self.name}' needs either `counts` or `ranking`, to be computed by.")
        if self.ranking is None and (self.group not in GROUPS or "link" in self.tasks):
            raise ConfigError(
                f"the metric '{self.name}' is computed from counts: of a group in {', '.join(GROUPS)}, and not of "
                f"links, which have no counts."
            )
        if self.selects and not (self.each_round or self.ranking):
            raise ConfigError(f"the metric '{self.name}' can select a round only if each round records it.")

    def rank(
        self, labels: NDArray[Any], scores: NDArray[np.floating[Any]], rare: int | None = None, **known: Any
    ) -> Score:  # fmt: skip
        """The value of a client's ranking; ``ranking`` says what it takes, ``rare`` is the class that is looked for and
        ``known`` holds what ``takes`` names. Labels of which a node may have several come as numbers with NaN, or as
        whole ones with -1, where one is not known.

        Raises:
            DataError: The metric is one of counts.
        """
        if self.ranking is None:
            raise DataError(f"the metric '{self.name}' is computed from counts, not from scores.")
        rank: Any = self.ranking
        if labels.dtype.kind == "f" and "multilabel" in self.tasks:
            labels = np.nan_to_num(labels, nan=-1).astype(np.int64)
        if isinstance(rank, str):
            module, _, name = rank.rpartition(".")
            rank = getattr(import_module(f"graphsilo.evaluate.{module or 'scores'}"), name or self.name)
        looked_for = (rare,) if self.of_rare and rare is not None else ()
        found: Score = rank(labels, scores, *looked_for, **{name: known[name] for name in self.takes})
        return found

    def may_be(self, value: float) -> bool:
        """Whether there can be such a value."""
        low, high = self.bounds or ((0.0, 1.0) if self.is_share else (-math.inf, math.inf))
        return math.isfinite(value) and low <= value <= high

    def of_outputs(self, labels: NDArray[Any], outputs: NDArray[np.floating[Any]]) -> float | None:
        """The value of what a model says of some items; None where it is undefined.

        Args:
            labels: [n] true classes; items without one (-1) are left out. Of targets [n, m].
            outputs: [n, C] logits or log-probabilities; what is said of targets.
        """
        if self.ranking is not None:
            return self.rank(labels, outputs).value
        known, classes = labels >= 0, outputs.shape[1]
        places = labels[known] * classes + outputs[known].argmax(1)
        return self.of_confusion(np.bincount(places, minlength=classes**2).reshape(classes, classes))

    def of_confusion(self, counts: NDArray[np.int64]) -> float | None:
        """The value of [C true, C predicted] counts; None where it is undefined.

        Raises:
            ConfigError: The metric is one of scores.
        """
        if self.counts is None:
            raise ConfigError(f"the metric '{self.name}' is computed from scores, not from counts.")
        value = float(self.counts(margins(counts)))
        return None if math.isnan(value) else value

    @property
    def factor(self) -> int:
        """What values are multiplied by to be shown: shares are shown in percent."""
        return 100 if self.is_share else 1

    def goodness(self, value: float) -> float:
        """The value such that more is better."""
        return value if self.higher_is_better else -value


METRICS: dict[str, Metric] = {}
"""Every metric by name, in the order in which tables show them."""


def register(metric: Metric) -> Metric:
    """Add a metric to ``METRICS``.

    Raises:
        ConfigError: There is one of this name.
    """
    if metric.name in METRICS:
        raise ConfigError(f"there is a metric '{metric.name}' already: give the new one another name.")
    METRICS[metric.name] = metric
    return metric


ADOPTED: dict[str, Metric] = {}
"""What persons brought along in this process, whether a run measures it or not."""


def measure_adopted(names: Collection[str]) -> None:
    """From now on measure these of those that were brought along, and no others.

    Raises:
        ConfigError: Nobody brought one of this name.
    """
    if unknown := sorted(set(names) - ADOPTED.keys()):
        raise ConfigError(
            f"evaluation.metrics names '{unknown[0]}', which is no metric of your own: say its file, FILE.py. What "
            f"graphsilo has is measured unasked."
        )
    for name, metric in ADOPTED.items():
        METRICS.pop(name, None)
        METRICS.update({name: metric} if name in names else {})


def metric_of(name: str) -> Metric:
    """The metric of this name, whatever view stands before it (``aggregate.accuracy``); of a name that is not in the
    table, a cost or one that is shown as a plain number."""
    name = name.rpartition(".")[2]
    if name in METRICS:
        return METRICS[name]
    from graphsilo.evaluate.costs import make_unlisted

    return make_unlisted(name)


def sort_metrics(names: Iterable[str]) -> list[str]:
    """Names of metrics, each once, as tables show them: the main ones, the others of the table, any others."""
    places = {name: (not each.is_main, place) for place, (name, each) in enumerate(METRICS.items())}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, (True, len(places))))


_OF_SEARCH = ("ap", "precision_at_budget", "recall_at_budget", "threshold_f1", "auc")
"""What tables show where a class is looked for: how it is found, and not how well all classes are told apart."""


def select_main(names: Iterable[str], chosen: str = "") -> list[str]:
    """Of these names those that tables have a column for, in order; all of them where there is none.

    Of two classes the F1 of the rarer one stands for Min-F1, which counts what is missed of a class and nothing that is
    taken for it. Where one of two classes is looked for, as ``chosen`` says, by which rounds are chosen, it is about
    that one alone.
    """
    found = sort_metrics(names)
    if "rare_f1" in found and chosen in METRICS and METRICS[chosen].of_rare:
        return [name for name in _OF_SEARCH if name in found]
    hidden = "min_f1" if "rare_f1" in found else ""
    return [name for name in found if metric_of(name).is_main and name != hidden] or found


def rankings(task: Task, known: Collection[str] = ()) -> list[Metric]:
    """The metrics of a task that clients compute from their own scores, where so much is known beside these."""
    ranked = (each for each in METRICS.values() if each.ranking is not None and task in each.tasks)
    return [each for each in ranked if set(each.takes) <= set(known)]


def list_selecting(task: Task | None = None) -> list[str]:
    """Metrics that may choose the reported round, of one task or of any; the first is what is taken unasked."""
    return [each.name for each in METRICS.values() if each.selects and (task is None or task in each.tasks)]


def find_selecting(name: str, task: Task) -> Metric:
    """The metric of this name where the task has it, else the task's first."""
    return METRICS[name] if task in METRICS[name].tasks else METRICS[list_selecting(task)[0]]


def find_leading(values: Iterable[str]) -> str | None:
    """The metric that stands for all: the first of those that may select which is among the names."""
    names = set(values)
    return next((name for name in list_selecting() if name in names), None)


_RANKED: tuple[Task, ...] = ("node", "link", "graph", "multilabel")
_OF_NUMBERS: Any = {"tasks": ("regression",), "is_share": False, "bounds": (-1e100, 1)}
_ERROR: Any = {**_OF_NUMBERS, "bounds": (0, 1e100), "higher_is_better": False}
_BUDGET: Any = {"ranking": "rare.", "takes": ("positive", "budget")}
_DECIDED: Any = {"ranking": "rare.", "takes": ("decision",)}
_CHANCE: Any = {
    "ranking": "rare.",
    "takes": ("positive",),
    "is_share": False,
    "bounds": (0, 1),
    "higher_is_better": False,
}

for _metric in (
    Metric("accuracy", "Accuracy", "share predicted right", accuracy, each_round=True, selects=True, is_main=True),
    Metric(
        "macro_f1", "Macro-F1", "mean F1 over the classes among a client's labels or predictions (scikit-learn's "
        "default)", macro_f1, each_round=True, selects=True, tie="ap", is_main=True,
    ),
    Metric(
        "auc", "AUC", "area under the ROC curve, exact, from each client's scores; computed at the client, which "
        "returns the value and its weight", ranking="roc_auc", tasks=_RANKED, selects=True, is_main=True,
    ),
    Metric(
        "ap", "Average precision", "precision averaged over the recall that each threshold adds, exact, at the "
        "client; of two classes that of the one looked for, of more the mean of each against the others",
        ranking="average_precision", tasks=_RANKED, selects=True, is_main=True, of_rare=True,
    ),
    Metric(
        "rare_f1", "F1 of the positive class", "of two classes, the F1 of the one that is looked for: the rarer one "
        "among all silos' training items, or `evaluation.positive`", f1, each_round=True, is_main=True, of_rare=True,
    ),
    Metric(
        "macro_f1_present", "Macro-F1 of classes present", "the same as `macro_f1` over the classes among the labels "
        "alone: the rule of the groups, so that the four can be compared", group_f1, each_round=True,
    ),
    Metric(
        "min_f1", "Min-F1", "mean F1 over the labels' classes of the minority nodes", group_f1, group="min",
        each_round=True, is_main=True,
    ),
    Metric(
        "hete_f1", "Hete-F1", "mean F1 over the labels' classes of the heterophilous nodes", group_f1, group="hete",
        each_round=True, is_main=True,
    ),
    Metric(
        "hete_min_f1", "Hete-Min-F1", "mean F1 over the labels' classes of the minority nodes that are heterophilous",
        group_f1, group="hete_min", each_round=True, is_main=True,
    ),
    Metric("weighted_f1", "Weighted F1", "mean F1 weighted by how many items have the class", weighted_f1),
    Metric(
        "balanced_accuracy", "Balanced accuracy", "mean recall over the classes among the labels", balanced_accuracy,
    ),
    Metric(
        "per_class_f1", "F1 per class", "F1 of each class; none where it is neither a label nor a prediction", f1,
        per_class=True,
    ),
    Metric(
        "per_class_precision", "Precision per class", "precision of each class; none where it is never predicted",
        precision, per_class=True,
    ),
    Metric(
        "per_class_recall", "Recall per class", "recall of each class; none where nobody has it", recall,
        per_class=True,
    ),
    Metric(
        "mae", "MAE", "mean absolute error, in the unit of what is estimated; of several targets the mean, each in "
        "standard deviations of all training items", ranking="targets.mean_absolute_error", selects=True, is_main=True,
        **_ERROR,
    ),
    Metric(
        "rmse", "RMSE", "root of the mean squared error, in the unit of what is estimated",
        ranking="targets.root_mean_squared_error", selects=True, is_main=True, **_ERROR,
    ),
    Metric(
        "r2", "R²", "share of the variance at a client that is explained; below 0: worse than its own mean",
        ranking="targets.r_squared", is_main=True, **_OF_NUMBERS,
    ),
    Metric(
        "spearman", "Spearman", "correlation of the ranks of truth and estimate at a client",
        ranking="targets.spearman", is_main=True, **_OF_NUMBERS,
    ),
    Metric(
        "target_mae", "MAE per target", "mean absolute error of each of several targets, in its unit",
        ranking="targets.mean_absolute_error", per_class=True, **_ERROR,
    ),
    Metric(
        "target_rmse", "RMSE per target", "root of the mean squared error of each, in its unit",
        ranking="targets.root_mean_squared_error", per_class=True, **_ERROR,
    ),
    Metric(
        "target_r2", "R² per target", "share of the variance of each of several targets that is explained",
        ranking="targets.r_squared", per_class=True, **_OF_NUMBERS,
    ),
    Metric(
        "micro_f1", "Micro-F1", "2 · hits / (labels that there are + labels said) over all labels at once, said where "
        "the chance is above one half", ranking="targets.micro_f1", tasks=("multilabel",), is_main=True,
    ),
    Metric(
        "label_ap", "Average precision per label", "average precision of each label; none where all have it, or none",
        ranking="average_precision", tasks=("multilabel",), per_class=True,
    ),
    Metric(
        "precision_at_budget", "Precision at budget", "of two classes, share of the one looked for among the items "
        "that a client can look into (`evaluation.budget`), the highest scores first", **_BUDGET,
    ),
    Metric(
        "recall_at_budget", "Recall at budget", "of two classes, share of the one looked for that is among the items "
        "that a client can look into (`evaluation.budget`), the highest scores first", **_BUDGET,
    ),
    Metric(
        "threshold_f1", "F1 at threshold", "F1 of the class looked for at the threshold that each client chooses on "
        "its validation items (`evaluation.threshold`)", **_DECIDED,
    ),
    Metric(
        "threshold_precision", "Precision at threshold", "precision of the class looked for at that threshold; none "
        "where nothing is above it", **_DECIDED,
    ),
    Metric(
        "threshold_recall", "Recall at threshold", "recall of the class looked for at the threshold of each client",
        **_DECIDED,
    ),
    Metric(
        "brier", "Brier score", "mean of (p - y)², p the probability of the class looked for and y 1 or 0", **_CHANCE,
    ),
    Metric(
        "calibration_error", "Calibration error", "expected calibration error: how far, in each of ten equal ranges "
        "of its probability, the mean is from the share of the class looked for, weighted by items", **_CHANCE,
    ),
    Metric(
        "calibrated_brier", "Brier score, calibrated", "Brier score of probabilities calibrated on a client's "
        "validation items (Platt scaling)", **{**_CHANCE, **_DECIDED},
    ),
    Metric(
        "calibrated_error", "Calibration error, calibrated", "expected calibration error of probabilities calibrated "
        "on a client's validation items", **{**_CHANCE, **_DECIDED},
    ),
    Metric(
        "hits_at_10", "Hits@10", "share of a client's links that rank above all but nine of the pairs that are none",
        ranking="rare.", tasks=("link",),
    ),
):  # fmt: skip
    register(_metric)


def weighted_mean(values: ArrayLike, weights: ArrayLike) -> Values:
    """Mean over clients (last axis), leaving out missing values and renormalising the weights; NaN if none is left.

    Args:
        values: [..., clients] with NaN where missing.
        weights: [clients] or [..., clients], not negative; n_k in the papers' convention.
    """
    array, share = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    there = ~np.isnan(array)
    return _ratio((np.where(there, array, 0.0) * share).sum(axis=-1), (there * share).sum(axis=-1))


def round_summary(counts: Counts, weights: ArrayLike, *, rare: int | None = None) -> dict[str, float | None]:
    """The light metrics of one kind, as a node-weighted mean over clients: cheap enough for every round.

    Args:
        counts: [clients, 4 cells, C, C] of one kind, e.g. ``stacked[:, plan.kind("test")]``.
        weights: [clients] n_k, all local nodes of each client.
        rare: The rarer of two classes, for the metrics that look at it alone.
    Returns:
        The metrics that each round records; None where no client has an item of the group.
    Raises:
        DataError: ``counts`` or ``weights`` have the wrong shape, or a weight is negative.
    """
    return round_summaries(np.asarray(counts)[:, None], weights, ("all",), rare=rare)["all"]


def round_summaries(
    counts: Counts, weights: ArrayLike, kinds: Sequence[str], *, rare: int | None = None
) -> dict[str, dict[str, float | None]]:
    """:func:`round_summary` for every kind at once.

    Args:
        counts: [clients, kinds, 4 cells, C, C].
        weights: [clients] n_k.
        kinds: Names along the second axis.
        rare: As for one kind.
    """
    counts, share = _check_counts(counts, weights, axes=5)
    table = _table(counts, rare, each_round=True)
    values = np.stack(list(table.values()))  # [metrics, clients, kinds]
    means = weighted_mean(values.transpose(2, 0, 1), share)
    return {
        kind: dict(zip(table, (_plain(value) for value in row), strict=True))
        for kind, row in zip(kinds, means.tolist(), strict=True)
    }


def summarise(
    counts: Counts, weights: ArrayLike, *, clients: Sequence[int] | None = None, rare: int | None = None
) -> Summary:
    """Everything a result says about one kind of items.

    Args:
        counts: [clients, 4 cells, C, C] of one kind.
        weights: [clients] n_k, all local nodes of each client. A client with nothing to score is left out and the
            weights of the others are renormalised, metric by metric.
        clients: Numbers of the clients, by default 0 to K - 1.
        rare: The rarer of two classes.
    Returns:
        JSON-able, None where missing: the metrics are node-weighted means over clients (of a class, over those where
        it has that score); ``pooled`` holds the same of the summed counts; ``worst_client`` its number and accuracy
        (the first of equals); ``spread`` the unweighted standard deviation (ddof 0), minimum and maximum of the
        clients' accuracies; ``items`` how many were scored.
    Raises:
        DataError: ``counts``, ``weights`` or ``clients`` do not fit together, or a weight is negative.
    """
    counts, share = _check_counts(counts, weights, axes=4)
    names = _names(clients, len(counts))
    table = _table(counts, rare)
    summary: Summary = {name: _plain(weighted_mean(values.T, share)) for name, values in table.items()}
    pool = counts.sum(axis=0, keepdims=True)
    summary["pooled"] = score_clients(pool, rare=rare)[0]
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


def score_clients(counts: Counts, *, clients: Sequence[int] | None = None, rare: int | None = None) -> list[Summary]:
    """One dictionary per client: its number, how many items were scored, and its metrics (None where missing).

    Args:
        counts: [clients, 4 cells, C, C] of one kind.
        clients: Numbers of the clients, by default 0 to K - 1.
        rare: The rarer of two classes.
    Raises:
        DataError: ``counts`` or ``clients`` have the wrong shape.
    """
    counts, _ = _check_counts(counts, np.ones(len(counts)), axes=4)
    names = _names(clients, len(counts))
    table = _table(counts, rare)
    sizes = counts.sum(axis=(1, 2, 3))
    return [
        {
            "client": names[row],
            "items": int(sizes[row]),
            **{name: _plain(values[row]) for name, values in table.items()},
        }
        for row in range(len(counts))
    ]


def columns(counts: Counts, rare: int | None = None) -> dict[str, Values]:
    """[rows, values] of every metric that counts give: one value, or one per class; NaN where missing.

    Args:
        counts: [rows, 4 cells, C, C].
        rare: The rarer of two classes.
    """
    return {name: values.reshape(len(counts), -1) for name, values in _table(counts, rare).items()}


def _table(counts: Counts, rare: int | None, *, each_round: bool = False) -> dict[str, Values]:
    """[...] values, or [..., C] per class, of every metric that counts give; of those of each round where asked."""
    of = group_margins(counts)
    places = {group: place for place, group in enumerate(GROUPS)}
    scored: dict[Callable[[Margins], Values], Values] = {}
    table = {}
    for name, each in METRICS.items():
        if each.counts is None or (each_round and not each.each_round) or (each.of_rare and rare is None):
            continue
        if each.counts not in scored:  # of all groups at once: four metrics are one computation
            scored[each.counts] = each.counts(of)
        place = places[each.group]
        found = scored[each.counts]
        if each.per_class or each.of_rare:
            table[name] = found[..., place, rare if each.of_rare else slice(None)]
        else:
            table[name] = found[..., place]
    return table


def _ratio(top: NDArray[Any], bottom: NDArray[Any]) -> Values:
    """top / bottom, NaN where the bottom is 0."""
    out = np.full(np.shape(bottom), np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def _mean_where(values: Values, present: NDArray[np.bool_]) -> Values:
    """Mean over the last axis of the entries present; NaN where there is none."""
    return _ratio(np.where(present, values, 0.0).sum(axis=-1), present.sum(axis=-1))


def _plain(value: Any) -> Any:
    """A number, None for one that is missing; of an array the list."""
    if isinstance(value, np.ndarray) and value.ndim:
        return [_plain(one) for one in value.tolist()]
    number = float(value)
    return None if number != number else number


def _names(clients: Sequence[int] | None, count: int) -> list[int]:
    if clients is None:
        return list(range(count))
    if len(clients) != count:
        raise DataError(f"counts of {count} clients need {count} client numbers; got {len(clients)}.")
    return [int(client) for client in clients]


def _check_counts(counts: Counts, weights: ArrayLike, *, axes: int) -> tuple[Counts, Values]:
    counts, share = np.asarray(counts), np.asarray(weights, dtype=np.float64)
    if counts.ndim != axes or counts.shape[-3] != CELLS or counts.shape[-1] != counts.shape[-2]:
        wanted = "[clients, 4, classes, classes]" if axes == 4 else "[clients, kinds, 4, classes, classes]"
        raise DataError(f"counts must have shape {wanted}; got {counts.shape}: choose one kind, or stack clients.")
    if share.shape != counts.shape[:1]:
        raise DataError(f"counts of {len(counts)} clients need {len(counts)} weights; got shape {share.shape}.")
    if not (np.isfinite(share).all() and (share >= 0).all()):
        raise DataError("weights must be finite and not negative: they are the node counts of the clients.")
    return counts, share
