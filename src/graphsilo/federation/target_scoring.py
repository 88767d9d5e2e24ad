"""How good estimates of targets are: scores that a client computes itself, as of rankings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.data.silos.silo import EvaluationSet, Silo
from graphsilo.data.silos.targets import read_targets, scale_values
from graphsilo.evaluate.metrics import rankings
from graphsilo.federation.scoring import to_wire


def score_targets(
    name: str, silo: Silo, evaluation: EvaluationSet, output: Tensor, owner: NDArray[np.int64], parts: int
) -> dict[str, list[float]]:
    """Of several targets the mean in scaled units, and each by itself in its own, its number behind an ``@``."""
    targets, scale = evaluation.graph.union.targets, None if silo.scale is None else silo.scale.targets
    assert targets is not None
    truth, found = targets.values, output.cpu().numpy()
    own = read_targets(silo, found) if silo.schema.task == "regression" else found
    single = truth.shape[1] == 1
    means = (truth, own) if single or scale is None else (scale_values(scale, truth), found)
    scores: dict[str, list[float]] = {}
    for metric in rankings(silo.schema.task):
        if not metric.per_class:
            pairs = {metric.name: means}
        elif single:
            continue
        else:
            pairs = {f"{metric.name}@{t}": (truth[:, t : t + 1], own[:, t : t + 1]) for t in range(truth.shape[1])}
        for key, (true, said) in pairs.items():
            for kind, items in evaluation.items.items():
                if kind == "train":
                    continue
                of = scores.setdefault(f"{name}/{kind}/{key}", [])
                for part in range(parts):
                    mine = items[owner[items] == part]
                    of.extend(to_wire(metric.rank(true[mine], said[mine])))
    return scores
