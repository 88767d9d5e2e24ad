"""What only sums over silos are seen of: scores of all of them, and one threshold and calibration for all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from graphsilo.errors import FederationError
from graphsilo.evaluate.binned import BINS, choose
from graphsilo.experiments.evaluation import EVERYBODY, RoundScores, SetScores
from graphsilo.federation.client import EvaluateSums, ScoreCounts


def gather_sums(
    total: EvaluateSums, clients: int, rare: int | None = None, agreed: Mapping[str, Tensor] | None = None
) -> RoundScores:
    """What sums over clients come to; one row that stands for everybody."""
    result: RoundScores = {}
    for name, size in total.sizes.items():
        view, _, which = name.partition("/")
        kinds = [key.removeprefix(f"{name}/") for key in total.counts if key.startswith(f"{name}/")]
        found = SetScores(tuple(kinds), sizes=size.numpy(), clients=(EVERYBODY,), summed=clients, rare=rare)
        if kinds:
            found.counts = np.stack([total.counts[f"{name}/{kind}"].numpy() for kind in kinds])[None]
        for key, pair in total.ranked.items():
            if key.startswith(f"{name}/"):
                above, weight = pair[:, 0].tolist()
                found.scores[key.removeprefix(f"{name}/")] = np.array([[above / weight if weight else np.nan, weight]])
        for key, table in (total.bins or {}).items():
            if key.startswith(f"{name}/"):
                found.tables[key.removeprefix(f"{name}/")] = table.numpy()
        if agreed and which == "seen":
            found.note_agreed(agreed[view])
        result.setdefault(view, {})[which] = found
    return result


def agree(total: ScoreCounts, positive: int, aim: str, share: float) -> dict[str, Tensor]:
    """By view, [5] the ``evaluate.rare.Decision`` that sums over silos come to.

    Args:
        total: What ``evaluate_bins`` of all silos add up to.
        positive: The class that is looked for.
        aim, share: As ``evaluate.binned.choose`` has them.

    Raises:
        FederationError: Most silos answered something else.
    """
    found = {}
    for name, table in total.bins.items():
        if tuple(table.shape) != (1, 2, BINS):
            raise FederationError("silos did not count how the scores of their validation items lie, as was asked.")
        decision = choose(table[0].numpy(), positive, aim, share)
        found[name.partition("/")[0]] = torch.tensor(list(decision), dtype=torch.float64)
    return found
