"""What O-pFGL's clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.message import Message, sends

_PLAIN = {"epsilon": None}
_ROUNDING = 1e-3
"""Share by which sums may be off."""


class StatisticsRequest(Message):
    """Ask for class statistics."""


class Statistics(Message):
    """Additive class statistics of one client, in float64; the server receives only their sum."""

    counts: Tensor = sends("counts", dtype=torch.float64, shape=("classes",), per_class="min_count", only_with=_PLAIN)
    labelled: Tensor = sends("counts", dtype=torch.float64, shape=("classes",), per_class="min_count", only_with=_PLAIN)
    contributors: Tensor = sends(
        "counts", dtype=torch.float64, shape=("classes",), per_class="min_count", only_with=_PLAIN
    )
    totals: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("classes", "width"), per_class="min_count", only_with=_PLAIN
    )
    within: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("classes", "width"), per_class="min_count", only_with=_PLAIN
    )
    squares: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("classes", "width"), per_class="min_count", only_with=_PLAIN
    )

    def check(self) -> None:
        self._check_sums(1)

    def check_total(self, request: Message, clients: int) -> None:
        self._check_sums(clients)
        # Of several clients Σ N μ² is at least (Σ N μ)² / Σ N.
        most = self.squares * (1 + _ROUNDING) + 1e-9 * self.squares.max()
        if bool((self.totals.square() > self.counts[:, None] * most).any()):
            raise MessageError("Statistics.totals are larger than their squares: no rows have such sums.")

    def _check_sums(self, clients: int) -> None:
        """Refuse what no rows of so many clients add up to."""
        if bool((self.contributors > clients).any()):
            raise MessageError(f"Statistics.contributors is more than {'one client' if clients == 1 else clients}.")
        for name, sums in (("within", self.within), ("squares", self.squares)):
            if bool((sums < 0).any()):
                raise MessageError(f"Statistics.{name} holds {float(sums.min()):.3g}: sums of squares are at least 0.")
        nobody = self.counts == 0
        if any(bool(sums[nobody].any()) for sums in (self.totals, self.within, self.squares)):
            raise MessageError("Statistics says something of a class that it counts no node of.")


class SurrogateRequest(Message):
    """The surrogate graph; of every undirected link one direction."""

    features: Tensor = sends("synthetic", shape=("nodes", "features"))
    labels: Tensor = sends("synthetic", dtype=torch.int64, shape=("nodes",))
    edges: Tensor = sends("synthetic", dtype=torch.int32, shape=(2, "links"))
    weights: Tensor = sends("synthetic", shape=("links",))


class GlobalStatistics(Message):
    """The statistics of all clients together, for clients that fit the surrogate themselves."""

    counts: Tensor = sends("counts", dtype=torch.float64, shape=("classes",))
    labelled: Tensor = sends("counts", dtype=torch.float64, shape=("classes",))
    mean: Tensor = sends("statistic", shape=("classes", "width"))
    variance: Tensor = sends("statistic", shape=("classes", "width"))
