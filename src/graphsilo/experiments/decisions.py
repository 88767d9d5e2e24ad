"""What a silo's own labels add to predictions: decision at a threshold, calibrated probability, split, true class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import Schema, Silo
from graphsilo.evaluate.rare import FEW, Decision, log_odds, probability_at
from graphsilo.types import CLASS_TASKS


def apply_decision(decision: Decision, shares: NDArray[Any]) -> dict[str, Any]:
    """Fields of a ``Prediction`` of [m, 2] probabilities."""
    odds = log_odds(shares, decision.positive)
    return {
        "positive": decision.positive,
        "scores": shares[:, decision.positive],
        "calibrated": decision.calibrate(odds) if decision.is_calibrated else None,
        "decisions": np.where(decision.find(odds), decision.positive, 1 - decision.positive),
    }


def describe_decision(decision: Decision, positive: str, aim: str) -> str:
    """In words, from what probability on an item counts as found and how probabilities are calibrated."""
    if not decision.is_chosen:
        return (
            f"decision: the likelier class, as no validation items could choose a threshold (they are of one class, "
            f"unknown, or {positive} is ranked no better than by chance)"
        )
    aims = {"f1": "the largest F1", "budget": "no more than evaluation.budget"}
    text = (
        f"decision: {positive} from a score of {probability_at(decision.threshold):.3g} on, chosen on the silo's "
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
