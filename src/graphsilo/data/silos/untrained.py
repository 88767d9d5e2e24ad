"""Why nobody in a federation has anything to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from graphsilo.data.silos.silo import Silo
from graphsilo.errors import DataError, PartitionError

_FEW = 5
"""Items of the commonest class below which there may be as many classes as items."""
_CHOSEN = ", or choose by another scenario.degree or scenario.class_rate"
NO_LABELS = (
    "Say which column or attribute holds the class (nodes.label in a description of tables, graphsilo.graph_of(data, "
    "labels=...) in Python) or the numbers to be estimated (nodes.targets), or ask for task=link, which needs none."
)


def refuse_untrained(silos: Sequence[Silo], what: str, split: str) -> NoReturn:
    """Says what is missing, and what to do; arguments and errors are those of ``parts.require_training``."""
    labels = np.concatenate([silo.graph.labels for silo in silos])
    if not len(labels):
        raise PartitionError(
            f"no client has a {what} left: the scenario took all away. Ask for fewer clients, or with the scenario "
            f"'open' for a smaller scenario.crop."
        )
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    if not len(counts):
        raise DataError(f"none of the {len(labels)} {what}s has a label. {NO_LABELS}")
    if split == "predefined":
        raise PartitionError(
            f"the training masks choose no {what} that has a label, and {counts.sum()} of {len(labels)} {what}s have "
            f"one: mend the masks, or divide the {what}s again with partition.split=stratified."
        )
    cause = ""
    if counts.max() < _FEW:
        cause = (
            f" The labels name {len(counts)} classes for {counts.sum()} {what}s, at most {counts.max()} of each: do "
            f"they hold ids, or something measured, which must be cut into classes first?"
        )
    raise PartitionError(
        f"no client has a {what} to train on: ask for fewer clients, or raise the training ratio"
        f"{_CHOSEN if any(each.name == 'receiver' for each in silos[0].evaluations) else ''}.{cause}"
    )
