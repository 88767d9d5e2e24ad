"""How well a client's model ranks: scores of pairs, and of classes, that the client computes itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import EvaluationSet, Links, Silo
from graphsilo.errors import MessageError, refuse_unless
from graphsilo.evaluate import sums
from graphsilo.evaluate.binned import count, count_scores
from graphsilo.evaluate.metrics import rankings
from graphsilo.evaluate.rare import Decision, choose_for, log_odds
from graphsilo.federation.scoring import probabilities, to_wire
from graphsilo.training.links import link_scores
from graphsilo.types import Task

MOST_PERIODS = 60
"""Five years of months: of days, tables would tell when items are looked at."""


def with_periods(
    evaluation: EvaluationSet, bounds: Sequence[float], least: int, asked: list[float] | None = None
) -> EvaluationSet:
    """With the test items of each period as a kind of their own; none of a period with fewer labelled ones than
    ``least``, or where items have no times.

    Args:
        evaluation: The set.
        bounds: Of the periods, ascending.
        least: Fewest labelled items of a period.
        asked: Those that were asked for before, if any were; takes these. Tables of periods that differ by a day would
            tell what is on that day.

    Raises:
        RequestError: They are many, in no order, or others than before.
    """
    asked = [] if asked is None else asked
    refuse_unless(
        len(bounds) <= MOST_PERIODS + 1 and all(one < other for one, other in pairwise(bounds))
        and asked in ([], list(bounds)), "periods",
    )  # fmt: skip
    asked[:] = bounds
    items, graph = evaluation.items["test"], evaluation.graph.union
    times = np.full(len(items), np.nan) if graph.time is None else graph.time[items]
    place = np.searchsorted(np.asarray(bounds), times, side="left") - 1  # NaN is behind the last
    kinds = {f"test:{number}": items[place == number] for number in range(len(bounds) - 1)}
    labels = evaluation.graph.labels
    few = {kind: found[:0] for kind, found in kinds.items() if (labels[found] >= 0).sum() < least}
    return replace(evaluation, items={**evaluation.items, **kinds, **few})


def score_numbers(
    name: str, silo: Silo, evaluation: EvaluationSet, output: Tensor, owner: NDArray[np.int64], parts: int
) -> tuple[dict[str, list[float]], NDArray[np.int64]]:
    """Scores where there are no classes to be counted, of links or targets, and [parts] how many items weigh them."""
    if silo.schema.task == "link":
        alone, items = evaluation.name == "global" or parts == 1, silo.num_items
        weighed = owner >= 0
        found = _score_links(name, silo.links, output, owner, parts)
    else:
        from graphsilo.federation.target_scoring import score_targets

        types, own = (each.graph.union.types for each in (evaluation, silo.seen))
        weighed = owner >= 0 if types is None else (owner >= 0) & types.targets
        alone, items = parts == 1, silo.seen.graph.num_items if own is None else int(own.targets.sum())
        found = score_targets(name, silo, evaluation, output, owner, parts)
    return found, np.array([items]) if alone else np.bincount(owner[weighed], minlength=parts)


def _score_links(
    name: str, links: Links | None, embeddings: Tensor, owner: NDArray[np.int64], parts: int
) -> dict[str, list[float]]:
    """Of validation and test pairs, by what is scored and how."""
    if links is None:
        raise MessageError("a silo for link prediction holds no links.")
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


def _rank_parts(
    name: str, task: Task, labels: NDArray[np.int64], values: NDArray[Any], owner: NDArray[np.int64], parts: int,
    known: Sequence[Mapping[str, Any]] = (),
) -> dict[str, list[float]]:  # fmt: skip
    """By metric, value and weight of each part's own ranking, in turn: a ranking over several clients' items would be
    another metric than the mean over clients that stands beside it. ``known`` is what metrics take, of each part. Of a
    period nothing but the main ones is asked for."""
    found: dict[str, list[float]] = {}
    known = known or [{}] * parts
    metrics = [metric for metric in rankings(task, known[0]) if metric.is_main or "test:" not in name]
    for part, its in enumerate(known):
        mine = owner == part
        own, ranked = labels[mine], values[mine]
        for metric in metrics:
            score = metric.rank(own, ranked, its.get("positive"), **its)
            found.setdefault(f"{name}/{metric.name}", []).extend(to_wire(score))
    return found


def score_classes(
    task: Task, evaluation: EvaluationSet, output: Tensor, owner: NDArray[np.int64], parts: int,
    asked: Mapping[str, Any], agreed: Tensor | None = None, least: int = 1,
) -> tuple[dict[str, list[float]], dict[str, NDArray[np.int64]]]:  # fmt: skip
    """Scores by ``kind/metric``, and by kind the [parts, 2, COLUMNS] counts of ``evaluate.binned``.

    Args:
        task: Of the run.
        evaluation: The set.
        output: Logits of all its items.
        owner, parts: Part of each item, and how many there are.
        asked: For what of two classes.
        agreed: [5] the ``Decision`` that all silos have; None: each part chooses its own.
        least: Fewest items in a bin.
    """
    shares = probabilities(output).cpu().numpy()
    scores: dict[str, list[float]] = {}
    bins: dict[str, NDArray[np.int64]] = {}
    known = [dict(asked) for _ in range(parts)]
    decides = bool(asked.get("aim")) and "val" in evaluation.items
    refuse_unless(agreed is None or float(agreed[0]) == asked.get("positive"), "a threshold")
    for part in range(parts) if decides else ():
        mine = {kind: items[owner[items] == part] for kind, items in evaluation.items.items()}
        known[part]["decision"] = (
            choose_for(mine, evaluation.graph.labels, shares, **asked)
            if agreed is None
            else Decision.of(agreed.tolist())
        )
    for kind, items in evaluation.items.items():
        labels, values = evaluation.graph.labels[items], shares[items]
        scores.update(_rank_parts(kind, task, labels, values, owner[items], parts, known))
        if decides and kind == "test":
            tables = [
                count_scores(labels[mine], values[mine], asked["positive"], known[part]["decision"], least)
                for part in range(parts)
                for mine in [owner[items] == part]
            ]
            bins[kind] = np.stack(tables)
    return scores, bins


def count_validation(
    evaluation: EvaluationSet, outputs: Mapping[str, Tensor], positive: int, least: int
) -> dict[str, Tensor]:
    """By name, [1, 2, BINS] how the scores of the validation items lie in each of some models' logits."""
    items = evaluation.items["val"]
    items = items[evaluation.graph.labels[items] >= 0]
    there = evaluation.graph.labels[items] == positive
    return {
        name: torch.from_numpy(
            count(there, log_odds(probabilities(output).cpu().numpy()[items], positive), least)[None]
        )
        for name, output in outputs.items()
    }


def sums_of(
    kinds: Mapping[str, Sequence[str]],
    parts: Sequence[int],
    counts: Tensor,
    sizes: Tensor,
    scores: Mapping[str, Sequence[float]],
    bins: Mapping[str, Tensor],
) -> dict[str, dict[str, Tensor]]:
    """The fields of an ``EvaluateSums``, from those of an ``EvaluateReply``.

    Raises:
        MessageError: Several clients' items are counted apart: there is nothing to sum.
    """
    if any(part != 1 for part in parts):
        raise MessageError("silos that are pooled in one place have no sum over silos.")
    table = counts.numpy().astype(np.int64)
    found: dict[str, dict[str, Tensor]] = {"counts": {}, "ranked": {}, "items": {}, "sizes": {}, "bins": dict(bins)}
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
