"""What a person should know of a run's outcome before believing a number of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphsilo.experiments.cohort import Cohort
from graphsilo.experiments.evaluation import EVERYBODY, SetScores
from graphsilo.federation.registry import Method

_MOST = 8
"""Silos that are named before the rest is only counted."""


def one_class(scores: SetScores) -> list[list[int]]:
    """[client, class] of the clients that were asked for several classes and answered with one."""
    if scores.counts is None:
        return []
    counts = scores.of("test").sum(axis=1)  # [clients, true, predicted]
    found = []
    for client, table in zip(scores.clients, counts, strict=True):
        answered = np.flatnonzero(table.sum(axis=0))
        if len(answered) == 1 and (table.sum(axis=1) > 0).sum() > 1:
            found.append([int(client), int(answered[0])])
    return found


def outcome_warnings(seeds: Sequence[Mapping[str, Any]], method: Method, cohort: Cohort) -> list[str]:
    """Says so where silos predict one class for everything at the reported round.

    Args:
        seeds: Results of all seeds, with what ``one_class`` found.
        method: By which method.
        cohort: Who took part.
    """
    among = {tuple(pair) for seed in seeds for pair in seed.get("one_class", ())}
    if not among or method.name == "majority":  # which is meant to
        return []
    names = {row["client"]: row.get("silo") for row in cohort.cut["per_client"]}
    words = cohort.schema.class_names
    classes = sorted({label for _, label in among})
    what = ", ".join(f"'{words[label]}'" if words else str(label) for label in classes[:_MOST])
    clients = sorted({client for client, _ in among})
    scored = {row["client"] for seed in seeds for row in seed["clients"] if row["test"].get("accuracy") is not None}
    if clients == [EVERYBODY] or scored <= set(clients):
        who, verb = "every silo", "predicts"
    else:
        shown = ", ".join(f"'{names[client]}'" if names.get(client) else str(client) for client in clients[:_MOST])
        more = f" and {len(clients) - _MOST} more" if len(clients) > _MOST else ""
        who, verb = (f"client {shown}", "predicts") if len(clients) == 1 else (f"clients {shown}{more}", "predict")
    in_seeds = [str(seed["seed"]) for seed in seeds if seed.get("one_class")]
    when = "" if len(seeds) == 1 else f" (seed{'s' if len(in_seeds) > 1 else ''} {', '.join(in_seeds)})"
    return [
        f"{who} {verb} one class for everything ({what}) at the reported round{when}: nothing was learned that tells "
        f"one item from another. Look at the units of the features (data.scale), the learning rate and the rounds."
    ]


def backbone_warnings(method: Method, cohort: Cohort) -> list[str]:
    """Says so where a method is another one on the backbone that was chosen."""
    if method.elsewhere is None or method.model is None:
        return []
    usual = method.model.get("name")
    others = sorted({spec.name for spec in cohort.models.values()} - {usual})
    if not others:
        return []
    return [
        f"{method.title} is {method.elsewhere} on any backbone but '{usual}', and '{', '.join(others)}' was chosen: "
        f"this run is not that of its paper. --model {usual} is."
    ]
