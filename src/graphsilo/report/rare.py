"""The section of a rare class: what is found within the budget and at the threshold, and how far probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.evaluate.binned import BINS, RANKS, Curve, calibration, precision_recall
from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.decisions import USUAL_BUDGET
from graphsilo.experiments.storage.records import ClientScores, RunRecord, ScoreBins
from graphsilo.report.formats import describe_weights, integer, plus_minus
from graphsilo.report.plot import Axis, Dots, Figure, Line, Mark, Plot, present, short
from graphsilo.report.record import Run
from graphsilo.report.sections import Block, Table, warn_of

_BUDGET = "precision_at_budget", "recall_at_budget"
_THRESHOLD = "threshold_precision", "threshold_recall"
_RECALLS = np.linspace(0.01, 1.0, 100)
_TOGETHER, _ALONE = "together", "alone"
_FEW = 0.1
"""Share of the class below which probabilities are drawn in powers of ten."""


def rare_blocks(run: Run) -> list[Block]:
    """In words, as figures and as a table; nothing where these were not measured."""
    if run.spread("brier") is None:
        return []
    settings = run.config["evaluation"]
    positive, budget = settings.get("positive"), settings.get("budget") or USUAL_BUDGET
    which = "the rarer class" if positive is None else f"class '{positive}'"
    size = f"the {100 * budget:g} % of a silo's" if budget < 1 else f"a silo's {integer(int(budget))}"
    precise, complete = (_percent(run, name) for name in _BUDGET)
    texts = [
        f"Of {size} test items with the highest scores, {precise} are of {which}; they hold {complete} of its items "
        f"(means of silos, weighted {describe_weights(run.result) or 'by their nodes'})."
    ] if run.spread(_BUDGET[1]) is not None else []  # fmt: skip
    agreed = settings.get("threshold_by") == "federation"
    whose = "all silos have, by their validation items" if agreed else "each silo chooses on its validation items"
    texts += [f"Above the threshold that {whose}, {_say_found(run, which)}"] if run.spread(_THRESHOLD[1]) else []
    rows = [
        (metric_of(raw).title, plus_minus(run.spread(raw), raw), plus_minus(run.spread(read), read))
        for raw, read in (("brier", "calibrated_brier"), ("calibration_error", "calibrated_error"))
    ]
    columns = [("Lower is better", "wrap"), ("The model's probabilities", ""), ("Calibrated", "")]
    caption = "How far the probabilities of this class can be trusted; calibrated on validation items."
    note = " ".join(texts) or None
    if not all(map(_is_sound, _kept_bins(run.result))):
        figures = warn_of(["The counts of scores in result.json (score_bins) are damaged: their figures are left out."])
    else:
        figures = "pair", present(_draw_ranking(run, budget), _draw_calibration(run))
    return [("note", note), figures, ("table", Table(caption, columns, rows, False))]


def _say_found(run: Run, which: str) -> str:
    """How many test items are above the thresholds, and of the class: counts where they are known, else means."""
    pairs = [[pair for pair in map(_at_thresholds, seed.clients) if pair[1] is not None] for seed in run.seeds]
    silent = [sum(precision is None for precision, _ in each) for each in pairs]
    nobody = ""
    if any(silent):
        count = str(max(silent)) if len(set(silent)) == 1 else f"{min(silent)} to {max(silent)}"
        nobody = f" {count} of the {max(map(len, pairs))} silos {'flags' if count == '1' else 'flag'} none."
    if (counts := _count_found(run)) is not None:
        hits, flagged, there = map(integer, counts)
        seeds = f" (all {len(run.seeds)} seeds)" if len(run.seeds) > 1 else ""
        return f"{hits} of the {flagged} test items that silos flag are of {which}, of {there} in all{seeds}.{nobody}"
    some = " that flag any" if nobody else ""
    return (
        f"{_percent(run, _THRESHOLD[0])} are of {which} (mean of silos{some}); they hold "
        f"{_percent(run, _THRESHOLD[1])} of its items (mean of silos).{nobody}"
    )


def _at_thresholds(row: ClientScores) -> list[float | None]:
    return [row.test.numbers.get(name) for name in _THRESHOLD]


def _count_found(run: Run) -> tuple[int, int, int] | None:
    """Hits, items above the thresholds and items of the class, of all silos and seeds; None where they are not known:
    what a silo counts may be too little to be sent, and then its own scores have other hits."""
    found = np.zeros(3, dtype=np.int64)
    for seed in run.seeds:
        bins = seed.score_bins
        known = [(recall, row.rare_items) for row in seed.clients if (recall := _at_thresholds(row)[1]) is not None]
        hits = sum(round(recall * (items or 0)) for recall, items in known)
        if bins is None or not _is_sound(bins) or hits != bins.found[1] or not known:
            return None
        found += [bins.found[1], sum(bins.found), sum(bins.places[1])]
    return int(found[0]), int(found[1]), int(found[2])


def _percent(run: Run, name: str) -> str:
    score = run.spread(name)
    return "none" if score is None else f"{100 * score.mean:.1f} %"


def _bins_of(result: RunRecord | None) -> list[ScoreBins]:
    return [bins for bins in _kept_bins(result) if _is_sound(bins)]


def _is_sound(bins: ScoreBins) -> bool:
    """Whether there are as many counts as bins: a result may have been changed by hand."""
    wanted = (bins.places, RANKS), (bins.model, BINS), (bins.calibrated, BINS)
    whole = len(bins.found) == 2 and all([len(row) for row in table] == [width] * 2 for table, width in wanted)
    return whole and min(*bins.found, *(count for table, _ in wanted for row in table for count in row)) >= 0


def _kept_bins(result: RunRecord | None) -> list[ScoreBins]:
    return [] if result is None else [seed.score_bins for seed in result.seeds if seed.score_bins is not None]


# -- what is found, and how precisely ----------------------------------------------------------------------------------


def _draw_ranking(run: Run, budget: float) -> Figure | None:
    """Precision against recall, all silos' items together, each silo's ranked by itself."""
    lines: list[Mark] = []
    dots: list[Mark] = []
    for series, (name, result) in enumerate({_TOGETHER: run.result, _ALONE: run.alone}.items()):
        seeds = [(bins, curve) for bins in _bins_of(result) if (curve := precision_recall(np.array(bins.places)))]
        if not seeds:
            continue
        mean = np.mean([_precision_at(curve) for _, curve in seeds], axis=0)
        lines.append(Line(name, _percents(_RECALLS), _percents(mean), series, series))
        silos = len(run.result.partition.per_client)
        marks = {
            "threshold": [_at_threshold(bins) for bins, _ in seeds],
            "budget": [_at_budget(bins, curve, budget, silos) for bins, curve in seeds],
        }
        for word, points in marks.items():
            known = np.array([point for point in points if point is not None])
            if len(known):
                x, y = _percents(known.mean(axis=0))
                tip = f"{name}, {word}: {y:.1f} % precision, {x:.1f} % recall"
                dots.append(Dots("", [x], [y], series, [tip], hollow=word == "budget"))
    if not lines:
        return None
    return Figure(
        "precision-recall",
        "What is found of the class, and how much of what is found is of it, as every silo looks further down its own "
        "list; all silos' test items. Disc: at the silos' thresholds; ring: at their budgets.",
        "Line chart of precision against recall", 300,
        {"precision": Plot(Axis("Recall, %", low=0, high=100), Axis("Precision, %", low=0), (*lines, *dots))},
    )  # fmt: skip


def _precision_at(curve: Curve) -> NDArray[np.float64]:
    """Precision at the first place that has each recall."""
    place = np.searchsorted(curve.recall, _RECALLS - 1e-9)
    found: NDArray[np.float64] = curve.precision[np.minimum(place, len(curve.recall) - 1)]
    return found


def _at_threshold(bins: ScoreBins) -> tuple[float, float] | None:
    """Recall and precision; None where nothing is found."""
    (misses, hits), total = bins.found, sum(bins.places[1])
    return (hits / total, hits / (hits + misses)) if hits + misses and total else None


def _at_budget(bins: ScoreBins, curve: Curve, budget: float, silos: int) -> tuple[float, float] | None:
    """Recall and precision where the silos' budgets end; between two places as a straight line has it."""
    items, total = sum(map(sum, bins.places)), sum(bins.places[1])
    share = budget if budget < 1 else min(1.0, budget * silos / items)
    recall = float(np.interp(share, [0.0, *curve.taken], [0.0, *curve.recall]))
    return recall, recall * total / (share * items)


def _percents(values: NDArray[np.float64] | Sequence[float]) -> list[float]:
    return [short(100 * float(value)) for value in values]


# -- probabilities -----------------------------------------------------------------------------------------------------


def _draw_calibration(run: Run) -> Figure | None:
    """The share of the class against the mean probability of groups of items, of all seeds."""
    bins = _bins_of(run.result)
    tables: Mapping[str, NDArray[np.int64]] = {
        name: np.sum([getattr(each, key) for each in bins], axis=0) if bins else np.zeros((2, 0), dtype=np.int64)
        for name, key in (("model", "model"), ("calibrated", "calibrated"))
    }
    hits, items = tables["model"][1].sum(), tables["model"].sum()
    if not hits or hits == items:
        return None
    log = hits < _FEW * items
    marks: list[Mark] = []
    ends: list[float] = []
    for series, (name, table) in enumerate(tables.items()):
        groups = [(mean, share, size) for mean, share, size in calibration(table) if not log or (mean and share)]
        x, y = ([short(100 * group[place]) for group in groups] for place in (0, 1))
        ends += [*x, *y]
        tips = [
            f"{name}: {a:.3g} % said, {b:.3g} % are; {integer(n)} items"
            for a, b, (*_, n) in zip(x, y, groups, strict=True)
        ]
        marks += [Line(name, x, y, 2 + series, series), Dots("", x, y, 2 + series, tips, small=True)]
    if not ends:
        return None
    low, high = (min(ends), max(ends)) if log else (0.0, 100.0)
    return Figure(
        "calibration",
        "On the thin line probabilities are right: as many items are of the class as they say. Dots: groups of test "
        f"items with like scores{', of all seeds' if len(bins) > 1 else ''}, each with as many of the class.",
        "Line chart of the share of the class against the probability said", 300,
        {"share": Plot(
            Axis("Probability said, %", low=low, high=high, log=log),
            Axis("Share of the class, %", low=low, high=high, log=log),
            (Line("", [low, high], [low, high], 5, quiet=True), *marks),
        )},
    )  # fmt: skip
