"""Means that some lying clients cannot move at will: what stands in an average's place (``run.robust``).

Applies to answers that hold nothing but averages, tensors ``weighted_by`` something, and counts. A rule is applied to
each averaged field by itself, once all answers to a step have come: the coordinator keeps them until then.

Sources: coordinate-wise trimmed mean and median: Yin, Chen, Ramchandran, Bartlett. "Byzantine-Robust Distributed
Learning: Towards Optimal Statistical Rates". ICML 2018. Krum: Blanchard, El Mhamdi, Guerraoui, Stainer. "Machine
Learning with Adversaries: Byzantine Tolerant Gradient Descent". NeurIPS 2017. Clipping: Sun, Kairouz, Suresh, McMahan.
"Can You Really Backdoor Federated Learning?". 2019, with the median of the round's lengths in place of a fixed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import cast

import torch
from torch import Tensor

from graphsilo.errors import FederationError
from graphsilo.federation.accumulator import BLOCK, Rule, Share
from graphsilo.federation.kinds import Kind
from graphsilo.federation.message import FieldSpec, Message, Tensors
from graphsilo.types import COUNTING, Averaging, ClientId

NO_VALUES: frozenset[Kind] = frozenset({"counts", "control"})
"""Kinds that may stand beside averages: how many there are of something, and settings."""


@dataclass(frozen=True)
class Robust:
    """How averages are made.

    Attributes:
        way: ``none``, ``trimmed_mean``, ``median``, ``krum`` or ``clip``.
        liars: How many clients may lie, of those that trimmed mean and Krum hold against each other.
    """

    way: Averaging = "none"
    liars: int = 1

    @property
    def least(self) -> int:
        """Fewest answers with which the rule promises anything: of two, nobody can say which one is right."""
        return 2 * self.liars + {"trimmed_mean": 1, "krum": 3}[self.way] if self.way in COUNTING else 3

    def rule(self, kind: type[Message], requests: Message | Mapping[ClientId, Message]) -> Rule | None:
        """What an accumulator does with the averages in these answers; None where it just adds up."""
        one = requests if isinstance(requests, Message) else next(iter(requests.values()), None)
        if self.way == "none" or one is None or not averages(type(one), kind):
            return None

        def apply(spec: FieldSpec, clients: Sequence[ClientId], shares: Sequence[Share]) -> Sequence[Share]:
            asked = [requests if isinstance(requests, Message) else requests[client] for client in clients]
            olds = [_get_old(spec, request) for request in asked]
            # Who has nothing to train on answers with what it was sent: it is no opinion.
            some = [(share, old) for share, old in zip(shares, olds, strict=True) if share[1] > 0]
            if not some:
                return shares
            if len(some) < self.least:
                raise FederationError(
                    f"{len(some)} clients had something to train on, and run.robust={self.way} needs {self.least}. "
                    f"Have more clients answer in each round{', or lower run.liars' if self.way in COUNTING else ''}."
                )
            return self._combine([share for share, _ in some], [old for _, old in some])

        return apply

    def _combine(self, shares: Sequence[Share], olds: Sequence[Tensors | None]) -> Sequence[Share]:
        """Shares whose sum, over the sum of the weights that came, is the rule's mean."""
        values: list[Tensors] = [value for value, _ in shares]
        count, total = len(values), math.fsum(weight for _, weight in shares)
        if self.way == "clip":
            return clip_changes(shares, olds)
        if self.way == "krum":
            return [(values[place], total / (count - self.liars)) for place in multi_krum(values, self.liars)]
        cut = self.liars if self.way == "trimmed_mean" else (count - 1) // 2
        return [({name: trimmed_mean([value[name] for value in values], cut) for name in values[0]}, total)]


PLAIN = Robust()


def averages(request: type[Message], reply: type[Message]) -> tuple[FieldSpec, ...]:
    """The fields that an answer holds averages in; none where it also holds anything else but counts."""
    sent = {spec.name for spec in request.specs() if spec.form == "tensors"}
    found = tuple(
        spec
        for spec in reply.specs()
        if spec.weighted_by and spec.form == "tensors" and all(dtype.is_floating_point for dtype in spec.dtypes)
        and (spec.kind == "gradient" or (spec.like or spec.name) in sent)
    )  # fmt: skip
    return found if all(spec in found or spec.kind in NO_VALUES for spec in reply.specs()) else ()


def trimmed_mean(values: Sequence[Tensor], cut: int) -> Tensor:
    """Per entry, the mean of what is left without the ``cut`` smallest and the ``cut`` largest, in float64.

    Example:
        >>> trimmed_mean([torch.tensor([value]) for value in (1.0, -50.0, 3.0, 2.0, 90.0)], 1)
        tensor([2.], dtype=torch.float64)
    """
    blocks = zip(*(value.reshape(-1).split(BLOCK) for value in values), strict=True)
    means = [torch.stack(block).sort(0).values[cut : len(values) - cut].double().mean(0) for block in blocks]
    return torch.cat(means).view(values[0].shape)


def multi_krum(values: Sequence[Tensors], liars: int) -> list[int]:
    """Multi-Krum's places, ascending: the n − f whose n − f − 2 nearest others lie closest, by the sum of squares.

    Of some that lie equally close the first ones are taken.
    """
    count = len(values)
    apart = torch.full((count, count), math.inf, dtype=torch.float64)
    for place, mine in enumerate(values):
        for other in range(place):
            apart[place, other] = apart[other, place] = length(mine, values[other]) ** 2
    scores = apart.sort(1).values[:, : count - liars - 2].sum(1)
    return sorted(scores.argsort(stable=True)[: count - liars].tolist())


def clip_changes(shares: Sequence[Share], olds: Sequence[Tensors | None]) -> list[Share]:
    """The shares with each change no longer than the median of all; the rest of a weight is that of the old values."""
    lengths = [length(value, old) for (value, _), old in zip(shares, olds, strict=True)]
    bound = median(lengths)
    found: list[Share] = []
    for (value, weight), old, size in zip(shares, olds, lengths, strict=True):
        kept = min(1.0, bound / size) if size else 1.0
        found.append((value, weight * kept))
        if old is not None and kept < 1.0:
            found.append((old, weight * (1.0 - kept)))
    return found


def length(values: Tensors, old: Tensors | None) -> float:
    """‖values − old‖ over all tensors, or ‖values‖, in float64."""
    changes = (value.double() - old[name].double() if old else value.double() for name, value in values.items())
    return math.sqrt(math.fsum(float(change.square().sum()) for change in changes))


def _get_old(spec: FieldSpec, request: Message) -> Tensors | None:
    """What a client began with; a gradient is a change by itself."""
    return None if spec.kind == "gradient" else cast("Tensors", getattr(request, spec.like or spec.name))
