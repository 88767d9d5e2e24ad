"""Silos agree on the scale of their features, before the clients of a method are made.

Two sums over silos, of which a server sees nothing else: rows and Σx of each column, then Σ(x - mean)². They leave a
silo as additive statistics, and its policy may refuse them: then every silo scales by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphsilo.data.silos.column_scales import ColumnSums, members_of, squares_of, sums_of, visible_graph
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.silos.targets import target_scale, target_sums
from graphsilo.errors import MessageError, UnsupportedError
from graphsilo.federation.client import ClientBase
from graphsilo.federation.interface import Federation, handler
from graphsilo.federation.message import Message, sends
from graphsilo.federation.model_files import scale_of, scale_tensors
from graphsilo.federation.settings import MethodConfig

if TYPE_CHECKING:
    from graphsilo.models.view import GraphTensors

_LARGEST_FEATURE = float(torch.finfo(torch.float32).max)
_LARGEST_SQUARES = 1e100
"""Whatever centre comes of sums that are taken, honest squares about it are below: nobody else fails for a liar."""


class SumsRequest(Message):
    """Add up the columns."""


class FeatureSums(Message):
    """What a silo adds to the means.

    Attributes:
        num_samples: Rows that count.
        sums: [features] float64 sum of each column.
        others: [features] int64 entries that are neither 0 nor 1: columns without any stay as they are.
        filled: [features] int64 entries that are not 0, where features are kept sparse; else [0].
        members: [features] int64 rows of nodes whose type has the column, where nodes have types; else [0].
    """

    num_samples: int = sends("counts")
    # Not compared: a bank of companies has other amounts than one of students, and scaling is what mends it.
    sums: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("features",), per_class=False, words=3, compared=False
    )
    others: Tensor = sends("statistic", dtype=torch.int64, shape=("features",), per_class=False)
    filled: Tensor = sends("statistic", dtype=torch.int64, shape=("filled",), per_class=False)
    members: Tensor = sends("statistic", dtype=torch.int64, shape=("members",), per_class=False)

    @property
    def fewest(self) -> int:
        """Rows of the column that fewest nodes have."""
        return _fewest(self.num_samples, self.members)

    def check(self) -> None:
        _check_members(self.members, self.sums, "FeatureSums")
        for name, count in (("others", self.others), ("filled", self.filled), ("members", self.members)):
            if count.numel() and not 0 <= int(count.min()) <= int(count.max()) <= self.num_samples:
                raise MessageError(
                    f"FeatureSums.{name} counts {int(count.min())} to {int(count.max())} entries of a column with "
                    f"{self.num_samples} rows, which cannot be."
                )
        if self.sums.numel() and float(self.sums.abs().max()) > self.num_samples * _LARGEST_FEATURE:
            raise MessageError(
                f"FeatureSums.sums holds {float(self.sums.abs().max()):.3g}, more than {self.num_samples} rows of "
                f"float32 numbers can add up to."
            )


class SquaresRequest(Message):
    """Add up the squares about the common centre.

    Attributes:
        centre: [features] float64.
    """

    centre: Tensor = sends("statistic", dtype=torch.float64, shape=("features",), per_class=False)


class FeatureSquares(Message):
    """What a silo adds to the deviations.

    Attributes:
        num_samples: Rows that count.
        squares: [features] float64 sum of (x - centre)².
        members: As in :class:`FeatureSums`.
    """

    num_samples: int = sends("counts")
    squares: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("features",), per_class=False, largest=_LARGEST_SQUARES, words=3,
        compared=False,
    )  # fmt: skip
    members: Tensor = sends("statistic", dtype=torch.int64, shape=("members",), per_class=False)

    @property
    def fewest(self) -> int:
        """Rows of the column that fewest nodes have."""
        return _fewest(self.num_samples, self.members)

    def check(self) -> None:
        _check_members(self.members, self.squares, "FeatureSquares")
        if self.members.numel() and not 0 <= int(self.members.min()) <= int(self.members.max()) <= self.num_samples:
            raise MessageError(f"FeatureSquares.members counts more than the {self.num_samples} rows, or fewer than 0.")
        if self.squares.numel() and float(self.squares.min()) < 0:
            raise MessageError(
                f"FeatureSquares.squares holds {float(self.squares.min()):.3g}: a sum of squares is at least 0."
            )


def _fewest(rows: int, members: Tensor) -> int:
    known = members[members > 0]
    return int(known.min()) if known.numel() else rows


def _check_members(members: Tensor, columns: Tensor, what: str) -> None:
    if members.numel() not in (0, columns.numel()):
        raise MessageError(f"{what}.members counts rows of {members.numel()} columns, and there are {columns.numel()}.")


class TargetsRequest(Message):
    """Add up the targets of training items; where a centre is given, the squares about it.

    Attributes:
        centre: [targets] float64.
    """

    centre: Tensor | None = sends("statistic", dtype=torch.float64, shape=("classes",), per_class=False, default=None)


class TargetSums(Message):
    """What a silo adds to the means, or deviations, of targets.

    Attributes:
        counts: [targets] int64 training items of which each is known.
        sums: [targets] float64 sum of y, or of (y - centre)².
    """

    counts: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class=False)
    sums: Tensor = sends(
        "statistic", dtype=torch.float64, shape=("classes",), per_class=False, largest=_LARGEST_SQUARES, words=3,
        compared=False,
    )  # fmt: skip

    @property
    def fewest(self) -> int:
        """Items of the target that is known of fewest."""
        return _fewest(0, self.counts)

    def check(self) -> None:
        if self.counts.numel() and int(self.counts.min()) < 0:
            raise MessageError(f"TargetSums counts {int(self.counts.min())} items; at least 0 can be.")
        if bool(((self.counts == 0) & (self.sums != 0)).any()):
            raise MessageError("TargetSums has a sum over no item that is not 0.")

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, TargetsRequest)
        if request.centre is not None and bool((self.sums < 0).any()):
            raise MessageError("TargetSums has a sum of squares below 0.")
        if request.centre is None and bool((self.sums.abs() > self.counts * _LARGEST_FEATURE).any()):
            raise MessageError("TargetSums has a sum of more than float32 numbers can add up to.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        if self.counts.numel() and int(self.counts.max()) > items:
            raise MessageError(f"TargetSums counts {int(self.counts.max())} items; there are {items:g} at most.")


class AgreedScale(Message):
    """The scale that a client is made with.

    Attributes:
        shift, factor: [features] float64; x becomes (x - shift) · factor.
    """

    shift: Tensor = sends("statistic", dtype=torch.float64, shape=("features",), per_class=False)
    factor: Tensor = sends("statistic", dtype=torch.float64, shape=("features",), per_class=False)


class AgreedTargetScale(AgreedScale):
    """The same with that of numbers that are to be estimated; features may stay as they are, [0].

    Attributes:
        target_shift, target_factor: [targets] float64.
    """

    target_shift: Tensor = sends("statistic", dtype=torch.float64, shape=("classes",), per_class=False)
    target_factor: Tensor = sends("statistic", dtype=torch.float64, shape=("classes",), per_class=False)


class TargetsClient(ClientBase[MethodConfig]):
    """A silo before it is the client of a method, of whose targets alone something is added up."""

    takes_unscaled = True

    @handler
    def target_sums(self, request: TargetsRequest) -> TargetSums:
        """Either look at targets."""
        counts, sums = target_sums(self.silo, None if request.centre is None else request.centre.numpy())
        return TargetSums(counts=torch.from_numpy(counts), sums=torch.from_numpy(sums))

    def predict(self, data: GraphTensors, view: str = "own") -> Tensor:
        raise UnsupportedError("nothing has been trained yet: the silos are agreeing on the scale of their features.")


class ScalingClient(TargetsClient):
    """The same, of whose features something is added up, too."""

    @handler
    def feature_sums(self, request: SumsRequest) -> FeatureSums:
        """The first look."""
        graph = visible_graph(self.silo)
        found = sums_of(graph.features, graph.types)
        return FeatureSums(
            num_samples=found.rows,
            sums=torch.from_numpy(found.sums),
            others=torch.from_numpy(found.others),
            filled=torch.from_numpy(found.filled),
            members=torch.from_numpy(found.members),
        )

    @handler
    def feature_squares(self, request: SquaresRequest) -> FeatureSquares:
        """The second look."""
        graph = visible_graph(self.silo)
        squares = squares_of(graph.features, request.centre.numpy(), graph.types)
        return FeatureSquares(
            num_samples=graph.num_nodes, squares=torch.from_numpy(squares),
            members=torch.from_numpy(members_of(graph)),
        )  # fmt: skip


def agree(federation: Federation, minimum: int | None, *, features: bool = True, targets: bool = False) -> FeatureScale:
    """The scale of all silos together: of features, of targets, or of both.

    Args:
        federation: Of :class:`ScalingClient`.
        minimum: Fewest silos that must add something; None for all.

    Raises:
        FederationError: Too few did.
    """
    nothing = np.zeros(0)
    found = _agree_on_features(federation, minimum) if features else FeatureScale(nothing, nothing)
    return replace(found, targets=_agree_on_targets(federation, minimum)) if targets else found


def _agree_on_targets(federation: Federation, minimum: int | None) -> FeatureScale:
    first = federation.sum(ScalingClient.target_sums, TargetsRequest()).require(minimum)
    centre = first.sums / first.counts.clamp_min(1)
    second = federation.sum(ScalingClient.target_sums, TargetsRequest(centre=centre)).require(minimum)
    return target_scale(centre.numpy(), second.sums.numpy(), second.counts.numpy())


def _agree_on_features(federation: Federation, minimum: int | None) -> FeatureScale:
    first = federation.sum(ScalingClient.feature_sums, SumsRequest()).require(minimum)
    columns = (part.numpy() for part in (first.sums, first.others, first.filled, first.members))
    sums = ColumnSums(first.num_samples, *columns)
    centre = sums.centre()
    request = SquaresRequest(centre=torch.from_numpy(centre))
    second = federation.sum(ScalingClient.feature_squares, request).require(minimum)
    rows = second.members.numpy() if second.members.numel() else second.num_samples
    return sums.scale(centre, second.squares.numpy(), rows)


def message_of(scale: FeatureScale) -> AgreedScale:
    """A scale on its way to a client."""
    kind = AgreedScale if scale.targets is None else AgreedTargetScale
    return kind(**scale_tensors(scale))


def scale_from(message: AgreedScale) -> FeatureScale:
    """The scale of such a message.

    Raises:
        MessageError: It would make all numbers one.
    """
    if isinstance(message, AgreedTargetScale) and bool((message.target_factor <= 0).any()):
        raise MessageError(
            "the scale of targets that came would make all numbers one: it has a factor that is not above 0."
        )
    return scale_of(vars(message))
