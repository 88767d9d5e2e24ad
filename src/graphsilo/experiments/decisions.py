"""Which of two classes is looked for, and what is said of it: decision, calibrated probability, split, true class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.errors import ConfigError, nearest
from graphsilo.evaluate.rare import FEW, Decision, log_odds, probability_at, share_of
from graphsilo.experiments.participants import Participants, class_word
from graphsilo.types import CLASS_TASKS

if TYPE_CHECKING:
    from graphsilo.experiments.config import EvaluationConfig

USUAL_BUDGET = 0.01
"""Share of a silo's items that can be looked into where nobody says how many."""


def positive_class(config: EvaluationConfig, schema: Schema, rare: int | None) -> int | None:
    """Of two classes the one that is looked for: the one asked for, else the rarer one, where there are two.

    Raises:
        ConfigError: One was asked for that there is not, or there are not two.
    """
    if config.positive is None:
        return rare
    wanted = str(config.positive)
    if schema.task not in CLASS_TASKS or schema.num_classes != 2:
        raise ConfigError(
            f"evaluation.positive names the one of two classes that is looked for, and this data has "
            f"{schema.num_classes if schema.task in CLASS_TASKS else 'none (task ' + schema.task + ')'}. Leave it out."
        )
    names = schema.class_names or ("0", "1")
    if wanted not in (*names, "0", "1"):
        raise ConfigError(f"evaluation.positive: there is no class '{wanted}'; {nearest(wanted, names)}")
    return names.index(wanted) if wanted in names else int(wanted)


_SHAKY = 5
"""Validation items of the class looked for below which a threshold is chance."""


def threshold_warnings(config: EvaluationConfig, participants: Participants) -> list[str]:
    """Says at which silos a threshold of their own rests on very few items; of silos elsewhere nobody knows."""
    positive = positive_class(config, participants.schema, participants.rare)
    if positive is None or config.threshold_by != "silo":
        return []
    few = {}
    for silo in getattr(participants, "silos", ()):
        seen = silo.seen
        count = int((seen.graph.labels[seen.items.get("val", [])] == positive).sum())
        if 0 < count < _SHAKY:
            few[silo.client] = count
    if not few:
        return []
    counts = sorted(set(few.values()))
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [
        f"at {participants.name_clients(list(few))} the threshold rests on {number} validation items of class "
        f"{class_word(positive, participants.schema)}, and is little better than chance. "
        f"evaluation.threshold_by=federation has all silos choose one together."
    ]


def looked_for(config: EvaluationConfig, schema: Schema, rare: int | None) -> dict[str, Any] | None:
    """Which of two classes is looked for, within what budget, and what a threshold is good for, as an
    ``EvaluateRequest`` has them; None where there are not two."""
    positive = positive_class(config, schema, rare)
    budget = USUAL_BUDGET if config.budget is None else config.budget
    return None if positive is None else {"positive": positive, "budget": budget, "aim": str(config.threshold)}


def share_within(budget: float, tested: Sequence[int]) -> float:
    """The share of all silos' test items that their budgets are; ``tested`` says how many each has."""
    return share_of(budget if budget < 1 else budget * len(tested), sum(tested))


def apply_decision(decision: Decision, shares: NDArray[Any]) -> dict[str, Any]:
    """Fields of a ``Prediction`` of [m, 2] probabilities."""
    odds = log_odds(shares, decision.positive)
    return {
        "positive": decision.positive,
        "scores": shares[:, decision.positive],
        "calibrated": decision.calibrate(odds) if decision.is_calibrated else None,
        "decisions": np.where(decision.find(odds), decision.positive, 1 - decision.positive),
    }


def describe_decision(decision: Decision, positive: str, aim: str, whose: str = "the silo's") -> str:
    """In words, from what probability on an item counts as found and how probabilities are calibrated; ``whose``
    validation items chose this."""
    if not decision.is_chosen:
        return (
            f"decision: the likelier class, as no validation items could choose a threshold (they are of one class, "
            f"unknown, or {positive} is ranked no better than by chance)"
        )
    aims = {"f1": "the largest F1", "budget": "no more than evaluation.budget"}
    text = (
        f"decision: {positive} from a score of {probability_at(decision.threshold):.3g} on, chosen on {whose} "
        f"validation items for {aims.get(aim, f'a precision of {aim}')}"
    )
    few = f"not calibrated, with fewer than {FEW} validation items of a class"
    return f"{text}; {'calibrated on these' if decision.is_calibrated else few}"


def splits_of(silo: Silo) -> NDArray[np.str_]:
    """[items] ``train``, ``val`` or ``test`` of each item of the silo's own graph; empty where it is in none."""
    seen = silo.seen
    found = np.zeros(seen.graph.num_items, dtype="<U5")
    found[np.isin(seen.graph.global_ids, silo.graph.global_ids[silo.train])] = "train"  # training may see a part
    for name in ("val", "test"):
        found[seen.items.get(name, np.zeros(0, dtype=np.int64))] = name
    return found


def labels_of(graph: Graph | GraphCollection, schema: Schema) -> NDArray[np.int64] | None:
    """[items] true classes in the model's numbers, -1 where unknown; None where there are no classes, or they have
    other names."""
    labels, own, names = graph.labels, graph.union.class_names, schema.class_names
    if schema.task not in CLASS_TASKS:
        return None
    if own and names and tuple(own) != tuple(names):
        if not set(own) & set(names):
            return None
        places = np.array([names.index(name) if name in names else -1 for name in own])
        labels = np.where(labels >= 0, places[labels], -1)
    return labels if labels.max(initial=-1) < schema.num_classes else None
