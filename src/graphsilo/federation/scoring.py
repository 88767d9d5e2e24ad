"""What a client answers when it is evaluated: its predictions as confusion counts and rankings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import EvaluationSet, Links, Silo
from graphsilo.errors import MessageError
from graphsilo.evaluate import sums
from graphsilo.evaluate.counts import ConfusionPlan
from graphsilo.evaluate.metrics import rankings
from graphsilo.evaluate.spread import paired_errors
from graphsilo.types import TARGET_TASKS, Task

PAIRED = "paired"
"""Kind of score: standard errors of the difference to another model over which items are tested."""


class Scoring:
    """Holds predictions against a silo's labels; what only depends on the labels is made once."""

    def __init__(self) -> None:
        self._plans: dict[str, ConfusionPlan] = {}
        self.looking: dict[str, Any] = {}  # for what of two classes, as it was last asked for

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
        beside: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        """The fields of an ``EvaluateReply``.

        Args:
            silo: Whose.
            predict: Logits, or embeddings for links, on a set by a view of the model.
            views: Views to score on the client's own sets.
            global_views: Views to score on the pooled graph.
            auc: Also rankings of classes.
            rare: Of two classes the one that is looked for.
            budget, aim: How it is looked for, as an ``EvaluateRequest`` has them.
            beside: [test items] classes that another model answers; how uncertain the difference to it is, is reported.
        """
        classes = silo.schema.num_classes
        self.looking = {} if rare is None else {"positive": rare, "budget": budget, "aim": aim}
        counts = [np.zeros((0, 4, classes, classes), dtype=np.int64)]
        kinds: dict[str, list[str]] = {}
        sizes: list[NDArray[np.int64]] = []
        scores: dict[str, list[float]] = {}
        for view in dict.fromkeys([*views, *global_views]):
            for evaluation in silo.evaluations:
                if view not in (global_views if evaluation.name == "global" else views):
                    continue
                output = predict(evaluation, view)
                name = f"{view}/{evaluation.name}"
                if silo.schema.task == "link":
                    owner, parts = _parts(silo, evaluation)
                    scores.update(_score_links(name, silo.links, output, owner, parts))
                    kinds[name] = []
                    alone = evaluation.name == "global" or parts == 1
                    sizes.append(np.array([silo.num_items]) if alone else np.bincount(owner, minlength=parts))
                    continue
                if silo.schema.task in TARGET_TASKS:
                    from graphsilo.federation.target_scoring import score_targets

                    owner, parts = _parts(silo, evaluation)
                    scores.update(score_targets(name, silo, evaluation, output, owner, parts))
                    kinds[name] = []
                    whole = (
                        [silo.seen.graph.num_items] if parts == 1 else np.bincount(owner[owner >= 0], minlength=parts)
                    )
                    sizes.append(np.array(whole))
                    continue
                plan, answers = self._plan(silo, evaluation), output.argmax(1)
                if beside is not None and evaluation is silo.seen:
                    items = evaluation.items["test"]
                    mine = answers.cpu().numpy()[items]
                    errors = paired_errors(evaluation.graph.labels[items], beside, mine, classes)
                    scores |= {f"{name}/{PAIRED}/{metric}": [each, len(items)] for metric, each in errors.items()}
                counts.append(plan.count(answers).reshape(-1, 4, classes, classes))
                kinds[name] = list(plan.kinds)
                # n_k weights a client's score on the pooled graph, too; its own nodes, not the graph's
                own = np.array([len(silo.seen.graph.labels)])
                sizes.append(own if evaluation.name == "global" else plan.part_sizes)
                if auc:
                    task, parts_of = silo.schema.task, _parts(silo, evaluation)
                    scores.update(_score_classes(name, task, evaluation, output, *parts_of, self.looking))
        return {
            "kinds": kinds,
            "parts": [len(part) for part in sizes],
            "counts": torch.from_numpy(np.concatenate(counts, dtype=np.int32, casting="same_kind")),
            "sizes": torch.from_numpy(np.concatenate([*sizes, np.zeros(0, dtype=np.int64)])),
            "scores": scores,
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


def sums_of(
    kinds: Mapping[str, Sequence[str]],
    parts: Sequence[int],
    counts: Tensor,
    sizes: Tensor,
    scores: Mapping[str, Sequence[float]],
) -> dict[str, dict[str, Tensor]]:
    """The fields of an ``EvaluateSums``, from those of an ``EvaluateReply``.

    Raises:
        MessageError: Several clients' items are counted apart: there is nothing to sum.
    """
    if any(part != 1 for part in parts):
        raise MessageError("silos that are pooled in one place have no sum over silos.")
    table = counts.numpy().astype(np.int64)
    found: dict[str, dict[str, Tensor]] = {"counts": {}, "ranked": {}, "items": {}, "sizes": {}}
    row = 0
    for place, (name, named) in enumerate(kinds.items()):
        size = int(sizes[place])
        found["sizes"][name] = torch.tensor([size])
        mine = {score: pair for score, pair in scores.items() if score.startswith(f"{name}/")}
        found["ranked"].update(
            {score: torch.from_numpy(pair) for score, pair in sums.to_weighted_sums(mine, size).items()}
        )
        found["items"].update({score: torch.tensor([int(items)]) for score, (_, items) in mine.items()})
        if not named:
            continue
        own = table[row : row + len(named)]
        row += len(named)
        for place_of, kind in enumerate(named):
            found["counts"][f"{name}/{kind}"] = torch.from_numpy(own[place_of].copy())
    return found


def probabilities(logits: Tensor) -> Tensor:
    """Softmax of each row, [items, C]."""
    if logits.is_cpu and logits.shape[1] < 16:
        # Rows of a few entries are normalised one by one; as columns, many at once.
        return F.log_softmax(logits.t().contiguous(), dim=0).t().contiguous().exp()
    return F.log_softmax(logits, dim=1).exp()


def _score_links(
    name: str, links: Links | None, embeddings: Tensor, owner: NDArray[np.int64], parts: int
) -> dict[str, list[float]]:
    if links is None:
        raise MessageError("a silo for link prediction holds no links.")
    from graphsilo.training.links import link_scores

    scores: dict[str, list[float]] = {}
    for kind, positive, negative in (
        ("val", links.val, links.val_negative),
        ("test", links.test, links.test_negative),
    ):
        pairs = np.concatenate([positive, negative], axis=1)
        labels = np.concatenate([np.ones(positive.shape[1]), np.zeros(negative.shape[1])]).astype(np.int64)
        value = link_scores(embeddings, pairs).cpu().numpy()
        scores.update(_rank_parts(f"{name}/{kind}", "link", labels, value, owner[pairs[0]], parts))
    return scores


def _parts(silo: Silo, evaluation: EvaluationSet) -> tuple[NDArray[np.int64], int]:
    """The client of every item, and how many clients are scored apart: one, but for a pooled silo's own sets."""
    if evaluation.part is None or evaluation.name == "global":
        return np.zeros(evaluation.graph.num_items, dtype=np.int64), 1 if evaluation.name == "global" else silo.parts
    return evaluation.part, silo.parts


def _rank_parts(
    name: str, task: Task, labels: NDArray[np.int64], values: NDArray[Any], owner: NDArray[np.int64], parts: int,
    known: Sequence[Mapping[str, Any]] = (),
) -> dict[str, list[float]]:  # fmt: skip
    """By metric, value and weight of each part's own ranking, in turn: a ranking over several clients' items would be
    another metric than the mean over clients that stands beside it. ``known`` is what metrics take, of each part."""
    found: dict[str, list[float]] = {}
    known = known or [{}] * parts
    for metric in rankings(task, known[0]):
        for part in range(parts):
            mine = owner == part
            score = metric.rank(labels[mine], values[mine], known[part].get("positive"), **known[part])
            found.setdefault(f"{name}/{metric.name}", []).extend(to_wire(score))
    return found


def _score_classes(
    name: str, task: Task, evaluation: EvaluationSet, output: Tensor, owner: NDArray[np.int64], parts: int,
    asked: Mapping[str, Any],
) -> dict[str, list[float]]:  # fmt: skip
    shares = probabilities(output).cpu().numpy()
    scores: dict[str, list[float]] = {}
    known = [dict(asked) for _ in range(parts)]
    if asked.get("aim") and "val" in evaluation.items:
        from graphsilo.evaluate.rare import choose_for

        for part in range(parts):
            mine = {kind: items[owner[items] == part] for kind, items in evaluation.items.items()}
            known[part]["decision"] = choose_for(mine, evaluation.graph.labels, shares, **asked)
    for kind, items in evaluation.items.items():
        labels, values = evaluation.graph.labels[items], shares[items]
        scores.update(_rank_parts(f"{name}/{kind}", task, labels, values, owner[items], parts, known))
    return scores


def to_wire(score: Any) -> list[float]:
    value = float("nan") if score.value is None else float(score.value)
    return [value, float(score.weight)]
