"""The section of a rare class: what is found within the budget and at the threshold, and how far probabilities hold."""

from __future__ import annotations

from graphsilo.evaluate.metrics import metric_of
from graphsilo.experiments.decisions import USUAL_BUDGET
from graphsilo.report.formats import integer, plus_minus
from graphsilo.report.record import Run
from graphsilo.report.sections import Block, Table

_BUDGET = "precision_at_budget", "recall_at_budget"
_THRESHOLD = "threshold_precision", "threshold_recall"


def rare_blocks(run: Run) -> list[Block]:
    """In words and as a table; nothing where these were not measured."""
    if run.spread("brier") is None:
        return []
    settings = run.config["evaluation"]
    positive, budget = settings.get("positive"), settings.get("budget") or USUAL_BUDGET
    which = "the rarer class" if positive is None else f"class '{positive}'"
    size = f"the {100 * budget:g} % of a silo's" if budget < 1 else f"a silo's {integer(int(budget))}"
    tops = f"Of {size} test items with the highest scores", *_BUDGET
    found = "Above the threshold that each silo chooses on its validation items", *_THRESHOLD
    texts = [
        f"{where}, {_percent(run, precise)} are of {which}; they hold {_percent(run, complete)} of its items."
        for where, precise, complete in (tops, found)
        if run.spread(complete) is not None
    ]
    rows = [
        (metric_of(raw).title, plus_minus(run.spread(raw), raw), plus_minus(run.spread(read), read))
        for raw, read in (("brier", "calibrated_brier"), ("calibration_error", "calibrated_error"))
    ]
    columns = [("Lower is better", "wrap"), ("The model's probabilities", ""), ("Calibrated", "")]
    caption = "How far the probabilities of this class can be trusted; calibrated on each silo's validation items."
    note = f"{' '.join(texts)} Means over silos." if texts else None
    return [("note", note), ("table", Table(caption, columns, rows, False))]


def _percent(run: Run, name: str) -> str:
    score = run.spread(name)
    return "none" if score is None else f"{100 * score.mean:.1f} %"
