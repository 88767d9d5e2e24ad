"""What clients' validation items say of several models, in counts that add up over clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.evaluate.choice import Judge, confusions, weight_scores
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation.message import Message, Tensors, sends


class CandidatesRequest(Message):
    """Asks for ``Candidates``."""

    def count_models(self) -> tuple[int, ...]:
        """Of how many the answer may be."""
        raise NotImplementedError

    def count_classes(self) -> int | None:
        """Of how many classes, where the request says it."""
        return None


class Candidates(Message):
    """What one client's validation items say of some models. All together: ``evaluate.choice.rate_candidates``.

    Attributes:
        counts: [models, C true, C predicted] validation items; no models where nothing is chosen.
        ranked: Of metrics of scores, by name [2, models]: a value times the items that it rests on, and these.
    """

    counts: Tensor = sends("counts", dtype=torch.int64, shape=("models", "classes", "classes"), evaluated=True)
    ranked: Tensors = sends("score", dtype=torch.float64, evaluated=True, default=())

    @classmethod
    def none(cls, classes: int) -> Self:
        """Of no models."""
        return cls(counts=torch.zeros(0, classes, classes, dtype=torch.int64), ranked={})

    @classmethod
    def from_outputs(
        cls, judge: Judge, outputs: Sequence[NDArray[Any]], classes: int, further: Iterable[str] = ()
    ) -> Self:
        """Of models that say ``outputs``, [items, C] each, of the judge's items.

        Args:
            judge: Whose metric is ranked, where it is one of scores.
            outputs: Logits or log-probabilities.
            classes: C.
            further: Names of other metrics that are.
        """
        labels = judge.labels
        if labels.ndim > 1:  # targets, of which there is nothing to count but items
            labels, guesses = (np.zeros(shape, dtype=np.int64) for shape in (len(labels), (len(labels), len(outputs))))
        else:
            guesses = np.stack([output.argmax(axis=1) for output in outputs], axis=1)
        names = {judge.metric.name, *further}
        ranked = {
            name: torch.from_numpy(weight_scores([METRICS[name].rank(judge.labels, output) for output in outputs]))
            for name in sorted(names)
            if METRICS[name].ranking is not None
        }
        return cls(counts=torch.from_numpy(confusions(labels, guesses, classes)), ranked=ranked)

    def check(self) -> None:
        true = self.counts.sum(2)
        if self.counts.numel() and (int(self.counts.min()) < 0 or bool((true != true[0]).any())):
            raise MessageError(
                f"Candidates has {int(self.counts.min())} items in one place, or not the same items for each model."
            )
        items = self.counts.sum((1, 2))
        for name, ranked in dict(self.ranked).items():
            most = 1.0 if name not in METRICS or METRICS[name].is_share else torch.inf  # an error has no bound
            if ranked.shape != (2, len(items)) or bool(
                ((ranked[0] < 0) | (ranked[0] > most * ranked[1]) | (ranked[1] > items)).any()
            ):
                raise MessageError("Candidates.ranked is no mean of scores from 0 to 1, of items that were scored.")

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, CandidatesRequest)
        known = request.count_models()
        if len(self.counts) not in known:
            raise MessageError(f"Candidates is of {len(self.counts)} models; {known[-1]} were asked about.")
        classes = request.count_classes()
        if classes not in (None, self.counts.shape[1]):
            raise MessageError(f"Candidates is of {self.counts.shape[1]} classes; there are {classes}.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        most = int(self.counts.sum((1, 2)).max()) if self.counts.numel() else 0
        if most > items:
            raise MessageError(f"Candidates counts {most} items; there are {items:g} at most.")
