"""Which classes a silo trains on: from counts that were sent, from rows of zeros, from how the output's bias moved.

The gradient of an output's bias is Σ (p_c - y_c): of a class that is not there it is positive, so that a step lowers
the bias (Zhao et al., "iDLG", 2020, read labels off so).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.attacks.measures import auc, auc_interval, wilson
from graphsilo.attacks.record import Outcome
from graphsilo.attacks.views import View
from graphsilo.data.silos.silo import Silo

ATTACK = "classes"
PRESENT = "AUC of which classes a silo trains on"
LARGEST = "share of silos whose largest class is named"


def classes(cases: Sequence[tuple[View, Silo]], others: Sequence[Silo]) -> list[Outcome]:
    """From training messages, and from counts of evaluation apart; the prior is that each silo is like all together."""
    attacker = cases[0][0].attacker
    made: list[Outcome] = []
    federation = np.sum([each.class_counts() for each in others], axis=0)
    for evaluation, name in ((False, ATTACK), (True, "classes, from evaluation")):
        scores, truth, prior = [], [], []
        used: dict[str, None] = {}
        largest = usual = 0
        for view, silo in cases:
            found, uses = _evidence(view, evaluation=evaluation)
            counts = silo.class_counts()
            if found is None or not counts.sum():
                continue
            used[uses] = None
            scores.append(found / max(1e-30, np.abs(found).max()))
            prior.append(federation / max(1, np.sum(federation)))
            truth.append(counts > 0)
            largest += int(counts[int(found.argmax())] == counts.max())
            usual += int(counts[int(np.argmax(federation))] == counts.max())
        if not scores:
            missing = "no counts and no change of an output's bias were seen"
            made += [
                Outcome(attack=name, attacker=attacker, figure=figure, uses=missing) for figure in (PRESENT, LARGEST)
            ]
            continue
        flat, there = np.concatenate(scores), np.concatenate(truth)
        uses = ", ".join(used)
        made.append(
            Outcome.of(
                name, attacker, PRESENT, uses, auc_interval(flat, there), prior=auc(np.concatenate(prior), there),
                targets=len(flat),
            )
        )  # fmt: skip
        named = wilson(largest, len(scores))
        made.append(Outcome.of(name, attacker, LARGEST, uses, named, prior=usual / len(scores), targets=len(scores)))
    return made


def _evidence(view: View, *, evaluation: bool) -> tuple[NDArray[np.float64] | None, str]:
    """[C] the larger, the likelier a class is there; and what that was made of."""
    number = view.public.schema.num_classes
    told: list[tuple[int, NDArray[np.float64], str]] = []
    for call, spec, tensor in view.fields("counts", "statistic", "prototype"):
        if call.phase == "evaluation":
            if evaluation and spec.name == "counts" and tensor.shape[-2:] == (number, number):
                # [..., true, predicted], by kind of item or candidate
                counts = tensor.reshape(-1, number, number).sum(dim=(0, 2)).numpy()
                told.append((0, counts, f"confusion counts{call.whose}"))
        elif not evaluation and spec.per_class and tensor.ndim and tensor.shape[0] == number:
            sizes = tensor.reshape(number, -1)
            rank = 0 if spec.kind == "counts" else 1
            values = sizes.sum(dim=1) if rank == 0 else sizes.norm(dim=1)
            told.append((rank, values.numpy(), f"{spec.name}{call.whose}"))
    if told:  # counts before norms; of several the one that says something of most classes
        _, values, uses = min(told, key=lambda each: (each[0], -np.count_nonzero(each[1])))
        return values, uses
    if evaluation:
        return None, ""
    for update in view.updates:
        moved = [
            (update.after[name].double() - update.before[name].double()).numpy()
            for name in update.after
            if name.endswith("bias") and update.after[name].shape == (number,)
        ]
        if moved:
            return moved[-1], f"change of the output's bias{update.whose}"
    return None, ""
