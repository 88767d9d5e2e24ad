"""What a client answers when it is evaluated: its predictions as confusion counts and rankings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import EvaluationSet, Silo
from graphsilo.evaluate.counts import ConfusionPlan
from graphsilo.types import CLASS_TASKS

PAIRED = "paired"
"""Kind of score: standard errors of the difference to another model over which items are tested."""


class Scoring:
    """Holds predictions against a silo's labels; what only depends on the labels is made once."""

    def __init__(self, least: int = 1) -> None:
        self.least = least  # items that a bin of scores holds, if any
        self._plans: dict[str, ConfusionPlan] = {}
        self.looking: dict[str, Any] = {}  # for what of two classes, as it was last asked for
        self.agreed: Mapping[str, Tensor] = {}  # by view, the decision that all silos have, likewise
        self._periods: list[float] = []  # that were asked for first

    def scores(
        self,
        silo: Silo,
        predict: Callable[[EvaluationSet, str], Tensor],
        views: Sequence[str],
        global_views: Sequence[str],
        *,
        auc: bool,
        rare: int | None = None,
        budget: float = 1.0,
        aim: str = "",
        agreed: Mapping[str, Tensor] | None = None,
        beside: NDArray[np.int64] | None = None,
        periods: Sequence[float] = (),
    ) -> dict[str, Any]:
        """The fields of an ``EvaluateReply``.

        Args:
            silo: Whose.
            predict: Logits, or embeddings for links, on a set by a view of the model.
            views: Views to score on the client's own sets.
            global_views: Views to score on the pooled graph.
            auc: Also rankings of classes.
            rare: Of two classes the one that is looked for.
            budget, aim, agreed: How it is looked for, as an ``EvaluateRequest`` has them.
            beside: [test items] classes that another model answers; how uncertain the difference to it is, is reported.
            periods: As an ``EvaluateRequest`` has them.
        """
        classes = silo.schema.num_classes
        self.looking = {} if rare is None else {"positive": rare, "budget": budget, "aim": aim}
        self.agreed = agreed or {}
        counts = [np.zeros((0, 4, classes, classes), dtype=np.int64)]
        kinds: dict[str, list[str]] = {}
        sizes: list[NDArray[np.int64]] = []
        scores: dict[str, list[float]] = {}
        bins: dict[str, NDArray[np.int64]] = {}
        ranked: dict[str, _Ranked] = {}
        for view in dict.fromkeys([*views, *global_views]):
            for evaluation in silo.evaluations:
                if view not in (global_views if evaluation.name == "global" else views):
                    continue
                output = predict(evaluation, view)
                if len(periods) and evaluation is silo.seen:
                    from graphsilo.federation.rank_scoring import with_periods

                    evaluation = with_periods(evaluation, periods, self.least, self._periods)
                name = f"{view}/{evaluation.name}"
                if silo.schema.task not in CLASS_TASKS:
                    from graphsilo.federation.rank_scoring import score_numbers

                    found, whole = score_numbers(name, silo, evaluation, output, *_parts(silo, evaluation))
                    scores.update(found)
                    kinds[name] = []
                    sizes.append(whole)
                    continue
                plan, answers = self._plan(silo, evaluation), output.argmax(1)
                if beside is not None and evaluation.name == silo.seen.name:
                    from graphsilo.evaluate.significance import paired_errors

                    items = evaluation.items["test"]
                    mine = answers.cpu().numpy()[items]
                    errors = paired_errors(evaluation.graph.labels[items], beside, mine, classes)
                    scores |= {f"{name}/{PAIRED}/{metric}": [each, len(items)] for metric, each in errors.items()}
                counts.append(plan.count(answers).reshape(-1, 4, classes, classes))
                kinds[name] = list(plan.kinds)
                # n_k weights a client's score on the pooled graph, too; its own nodes, not the graph's
                own = self._plan(silo, silo.seen).part_sizes.sum(keepdims=True)
                sizes.append(own if evaluation.name == "global" else plan.part_sizes)
                if auc:
                    known, decision = ranked.get(evaluation.name), self.agreed.get(view)
                    if known is None or not known.is_of(output, decision):
                        from graphsilo.federation.rank_scoring import score_classes

                        known = ranked[evaluation.name] = _Ranked(output, decision, *score_classes(
                            silo.schema.task, evaluation, output, *_parts(silo, evaluation), self.looking, decision,
                            self.least,
                        ))  # fmt: skip
                    scores.update({f"{name}/{key}": pair for key, pair in known.scores.items()})
                    bins.update({f"{name}/{kind}": table for kind, table in known.bins.items()})
        return {
            "kinds": kinds,
            "parts": [len(part) for part in sizes],
            "counts": torch.from_numpy(np.concatenate(counts, dtype=np.int32, casting="same_kind")),
            "sizes": torch.from_numpy(np.concatenate([*sizes, np.zeros(0, dtype=np.int64)])),
            "scores": scores,
            "bins": {name: torch.from_numpy(table) for name, table in bins.items()},
        }

    def _plan(self, silo: Silo, evaluation: EvaluationSet) -> ConfusionPlan:
        if evaluation.name not in self._plans:
            self._plans[evaluation.name] = ConfusionPlan.of(
                evaluation,
                silo.schema.num_classes,
                num_parts=silo.parts,
                # The pooled graph is one question about everybody's items, not one per client.
                together=evaluation.name == "global",
            )
        return self._plans[evaluation.name]


class _Ranked(NamedTuple):
    """What rankings say of a set: another view that says the same of it needs no other ones."""

    output: Tensor
    decision: Tensor | None
    scores: dict[str, list[float]]
    bins: dict[str, NDArray[np.int64]]

    def is_of(self, output: Tensor, decision: Tensor | None) -> bool:
        same = self.decision is decision or (
            self.decision is not None and decision is not None and torch.equal(self.decision, decision)
        )
        return same and torch.equal(self.output, output)


def probabilities(logits: Tensor) -> Tensor:
    """Softmax of each row, [items, C]."""
    if logits.is_cpu and logits.shape[1] < 16:
        # Rows of a few entries are normalised one by one; as columns, many at once.
        return F.log_softmax(logits.t().contiguous(), dim=0).t().contiguous().exp()
    return F.log_softmax(logits, dim=1).exp()


def _parts(silo: Silo, evaluation: EvaluationSet) -> tuple[NDArray[np.int64], int]:
    """The client of every item, and how many clients are scored apart: one, but for a pooled silo's own sets."""
    if evaluation.part is None or evaluation.name == "global":
        return np.zeros(evaluation.graph.num_items, dtype=np.int64), 1 if evaluation.name == "global" else silo.parts
    return evaluation.part, silo.parts


def to_wire(score: Any) -> list[float]:
    value = float("nan") if score.value is None else float(score.value)
    return [value, float(score.weight)]
