"""Evaluation from counts that add up: confusion counts, metrics computed from them, node groups, seeds."""

from __future__ import annotations

from graphsilo.evaluate.counts import CELLS, ConfusionPlan, Counts
from graphsilo.evaluate.groups import Groups, homophily, node_groups
from graphsilo.evaluate.metrics import (
    METRICS,
    Metric,
    per_client,
    register,
    round_summaries,
    round_summary,
    summarise,
    weighted_mean,
)
from graphsilo.evaluate.scores import Score, average_precision, combine, roc_auc
from graphsilo.evaluate.significance import (
    PairedComparison,
    SeedSummary,
    compare_paired,
    gap_closed,
    holm,
    over_seeds,
    summarise_seeds,
)

__all__ = [
    "CELLS",
    "METRICS",
    "ConfusionPlan",
    "Counts",
    "Groups",
    "Metric",
    "PairedComparison",
    "Score",
    "SeedSummary",
    "average_precision",
    "combine",
    "compare_paired",
    "gap_closed",
    "holm",
    "homophily",
    "node_groups",
    "over_seeds",
    "per_client",
    "register",
    "roc_auc",
    "round_summaries",
    "round_summary",
    "summarise",
    "summarise_seeds",
    "weighted_mean",
]
