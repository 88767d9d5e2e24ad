"""What FedTrees' clients and server send each other."""

from __future__ import annotations

import torch
from torch import Tensor

from graphsilo.errors import MessageError
from graphsilo.federation.candidates import CandidatesRequest
from graphsilo.federation.message import Message, Tensors, sends
from graphsilo.methods.fedtrees.bins import COARSE, FINE
from graphsilo.methods.fedtrees.directions import LARGEST_MOMENT


class CountRequest(Message):
    """Ask how much there is to learn from."""


class Counts(Message):
    """One client's training nodes by class.

    Attributes:
        classes: [C].
    """

    classes: Tensor = sends("counts", dtype=torch.int64, shape=("classes",), per_class="min_count")

    def check(self) -> None:
        if int(self.classes.min()) < 0:
            raise MessageError(f"Counts has {int(self.classes.min())} training nodes of a class; at least 0 can be.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        _check_nodes(self, self.classes.sum(), items)


class MomentsRequest(Message):
    """Ask how wide features lie along some directions.

    Attributes:
        basis: [d, k] orthonormal.
    """

    basis: Tensor = sends("statistic", shape=("features", "directions"))


class Moments(Message):
    """Sums over one client's training nodes, with rows x of length 1.

    Attributes:
        sums: [d, k] Σ x (xᵀ basis), in steps of 2^-26.
    """

    sums: Tensor = sends("statistic", dtype=torch.int64, shape=("features", "directions"), per_class=False)

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, MomentsRequest)
        if self.sums.shape != request.basis.shape:
            raise MessageError(f"Moments has the shape {tuple(self.sums.shape)}, not that of the directions asked for.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        _check_nodes(self, self.sums.abs() / LARGEST_MOMENT, items)


class DirectionsRequest(Message):
    """What wide features are projected onto.

    Attributes:
        directions: [d, k] the principal ones.
    """

    directions: Tensor = sends("statistic", shape=("features", "directions"))


class CellsRequest(Message):
    """Ask how the numbers of each column lie.

    Attributes:
        cells: [p, q] of each column the cells to count the parts of, -1 for none; q = 0: all cells.
    """

    cells: Tensor = sends("statistic", dtype=torch.int64, shape=("columns", "refined"))


class Cells(Message):
    """One client's training nodes by cell of each column.

    Attributes:
        counts: [p, 2^12], or [p, q · 2^6] parts of the cells that were asked for.
    """

    counts: Tensor = sends("counts", dtype=torch.int32, shape=("columns", "cells"), per_class=False)

    def check(self) -> None:
        if self.counts.numel() and int(self.counts.min()) < 0:
            raise MessageError(f"Cells has {int(self.counts.min())} training nodes in a cell; at least 0 can be.")

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, CellsRequest)
        columns, refined = request.cells.shape
        if tuple(self.counts.shape) != (columns, refined << FINE if refined else 1 << COARSE):
            raise MessageError(f"Cells has the shape {tuple(self.counts.shape)}; {columns} columns were asked about.")

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        _check_nodes(self, self.counts.sum(1), items)


class StartRequest(Message):
    """What all trees have in common.

    Attributes:
        base: [C'] what is said of every node before the first tree.
        edges: [p, bins - 1] between the bins of the columns.
        class_weights: [C].
        scale: Steps of a gradient of 1.
        own: Whether silos have forests of their own beside the common one.
    """

    base: Tensor = sends("model", shape=("outputs",))
    edges: Tensor = sends("statistic", shape=("columns", "edges"))
    class_weights: Tensor = sends("counts", dtype=torch.float64, shape=("classes",))
    scale: int = sends("control")
    own: bool = sends("control")


class HistogramRequest(Message):
    """Ask for the sums of the next level of a tree.

    Attributes:
        step: Trees that there are already.
        columns, thresholds: [C', 2^level - 1] of the one that grows.
        wanted: [W, 2] output and node of each histogram.
        ends: [q] where the bins of each column that was drawn end; the last: B.
        largest: Steps that a gradient of one node has at most.
    """

    step: int = sends("control")
    columns: Tensor = sends("model", shape=("outputs", "nodes"))
    thresholds: Tensor = sends("model", shape=("outputs", "nodes"))
    wanted: Tensor = sends("control", dtype=torch.int64, shape=("wanted", 2))
    ends: Tensor = sends("control", dtype=torch.int64, shape=("drawn",))
    largest: int = sends("control")


class Histograms(Message):
    """Sums over one client's training nodes by node of the tree and bin; the first entry is of all bins.

    Attributes:
        gradients, hessians: [W, B] whole numbers, in steps.
        counts: [W, B] training nodes.
    """

    gradients: Tensor = sends("statistic", dtype=torch.int32, shape=("wanted", "entries"))
    hessians: Tensor = sends("statistic", dtype=torch.int32, shape=("wanted", "entries"))
    counts: Tensor = sends("counts", dtype=torch.int32, shape=("wanted", "entries"), per_class=False)

    def check(self) -> None:
        least = min((int(each.min()) for each in (self.hessians, self.counts) if each.numel()), default=0)
        if least < 0:
            raise MessageError(f"Histograms has {least} as a sum of hessians or a number of nodes; at least 0 can be.")
        if bool((self.counts > self.counts[:, :1]).any()):
            raise MessageError("Histograms has more training nodes in a bin than in all of them.")
        empty = self.counts == 0
        if bool((empty & (self.gradients != 0)).any() or (empty & (self.hessians != 0)).any()):
            raise MessageError("Histograms has a sum over no training node that is not 0.")

    def check_answer(self, request: Message) -> None:
        assert isinstance(request, HistogramRequest)
        size, upto = int(request.ends[-1]), self.counts.cumsum(1)
        if tuple(self.counts.shape) != (len(request.wanted), size):
            raise MessageError(
                f"Histograms has the shape {tuple(self.counts.shape)}; {len(request.wanted)} histograms of {size} "
                f"entries were asked for."
            )
        columns = upto[:, request.ends - 1].diff(dim=1, prepend=self.counts[:, :1])
        if bool((columns > self.counts[:, :1]).any()):
            raise MessageError("Histograms has more training nodes in a column's bins than in all of them.")
        bound = request.largest * self.counts.long()
        if bool(
            (self.gradients.long().abs() > bound).any() or (4 * self.hessians.long() > bound + 4 * self.counts).any()
        ):
            raise MessageError(
                f"Histograms has larger gradients or hessians than its nodes can have: {request.largest} steps each at "
                f"most, and a quarter of that."
            )

    def check_size(self, request: Message, items: float, degrees: float) -> None:
        """Each of its nodes is in one node of an output's tree."""
        assert isinstance(request, HistogramRequest)
        each = torch.zeros(len(request.columns), dtype=torch.int64)
        _check_nodes(self, each.index_add_(0, request.wanted[:, 0], self.counts[:, 0].long()), items)


FORESTS = ("common", "corrected", "alone")
"""The kinds of forests that a silo has: all silos' one, that one corrected towards its own rows, and one of these."""


class AdoptRequest(CandidatesRequest):
    """The common forest, or what a silo lacks of it.

    Attributes:
        forest: ``base``, and ``columns``, ``thresholds`` and ``values`` of the trees from the first one on that is new.
        first: Its number: how many trees the silo has. 0: these are all.
        preferred: Number of the kind of forest that was best before, by all silos' validation nodes together.
    """

    forest: Tensors = sends("model")
    first: int = sends("control")
    preferred: int = sends("control")

    def count_models(self) -> tuple[int, ...]:
        return 0, len(FORESTS)


def _check_nodes(message: Message, each: Tensor, items: float) -> None:
    """Refuse sums of counts that are of more nodes than there are.

    Raises:
        MessageError: One is.
    """
    most = int(each.max()) if each.numel() else 0
    if most > items:
        raise MessageError(f"{type(message).__name__} counts {most} nodes; there are {items:g} at most.")
