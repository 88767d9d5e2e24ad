"""Confusion counts that add up: one integer array says everything later metrics need.

A plan is built once per client and evaluation set; after that a round costs one ``bincount``. Arrays of different
clients, rounds or silos may be added: metrics of the sum are the metrics of the union (``metrics.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.silos.silo import EvaluationSet, Items
from graphsilo.errors import DataError, nearest
from graphsilo.evaluate.groups import Groups, node_groups

Counts: TypeAlias = "NDArray[np.int64]"
"""[..., 4 cells, C true, C predicted] whole numbers; cells as in :attr:`Groups.cell`."""

CELLS = 4
"""Neither group, hete only, minority only, both: disjoint, so every group is a sum of cells."""


class ConfusionPlan:
    """Where each scored item of one evaluation set is counted.

    Every (kind, item) pair gets a code once, from its part, kind, group cell and true label; counting adds the
    predicted class to the code. Items without a label, or of no part, are left out. An item may be of several kinds.

    Args:
        items: Numbers of the scored items by kind, e.g. ``{"val": ..., "test": ...}``; the order is kept.
        labels: [n] true class of every item, -1 where unknown.
        num_classes: C.
        groups: Membership of the n items; without it all are counted in cell 0 and group metrics are missing.
        part: [n] client that each item belongs to, where a pooled set is scored client by client; -1 for nobody.
        num_parts: How many parts there are; by default the largest in ``part`` plus one.
        weighing: [n] which items a part's size counts; by default all.
    Raises:
        DataError: A label, item or part is out of range, or arrays differ in length.

    Attributes:
        kinds: Names along the second axis of :meth:`count`.
        shape: ``(parts, kinds, 4, C, C)``.
        part_sizes: [parts] items of each part, scored or not: the n_k by which the papers weight clients.

    Example:
        >>> plan = ConfusionPlan({"test": np.array([0, 2])}, np.array([1, 0, 1]), num_classes=2)
        >>> plan.count(np.array([1, 1, 0]))[0, 0, 0].tolist()
        [[0, 0], [1, 1]]
    """

    def __init__(
        self,
        items: Mapping[str, Items],
        labels: NDArray[np.int64],
        num_classes: int,
        *,
        groups: Groups | None = None,
        part: NDArray[np.int64] | None = None,
        num_parts: int | None = None,
        weighing: NDArray[np.bool_] | bool = True,
    ) -> None:
        labels = np.asarray(labels, dtype=np.int64)
        n = len(labels)
        if n and labels.max() >= num_classes:
            raise DataError(f"labels must be below {num_classes}, the number of classes; got {int(labels.max())}.")
        for name, array in {
            "part": part,
            "groups.minority": None if groups is None else groups.minority,
            "groups.hete": None if groups is None else groups.hete,
        }.items():
            if array is not None and len(array) != n:
                raise DataError(f"{name} must hold one entry for each of {n} labels; got {len(array)}.")
        owner = np.zeros(n, dtype=np.int64) if part is None else np.asarray(part, dtype=np.int64)
        largest = int(owner.max(initial=-1)) + 1
        parts = num_parts if num_parts is not None else max(largest, 1)
        if largest > parts:
            raise DataError(f"part must name one of {parts} parts, 0 to {parts - 1}; got {largest - 1}.")
        cell = np.zeros(n, dtype=np.int64) if groups is None else groups.cell

        self.kinds = tuple(items)
        self.num_items = n
        self.num_classes = num_classes
        self.shape = (parts, len(self.kinds), CELLS, num_classes, num_classes)
        self.part_sizes = np.bincount(owner[(owner >= 0) & weighing], minlength=parts)
        chosen = [np.asarray(array, dtype=np.int64) for array in items.values()]
        index = np.concatenate([*chosen, np.zeros(0, dtype=np.int64)])
        if index.size and (index.min() < 0 or index.max() >= n):
            bad = int(index.min()) if index.min() < 0 else int(index.max())
            raise DataError(f"items are numbered 0 to {n - 1}; got {bad}.")
        kind = np.repeat(np.arange(len(chosen)), [len(array) for array in chosen])
        counted = (labels[index] >= 0) & (owner[index] >= 0)
        index, kind = index[counted], kind[counted]
        row = ((owner[index] * len(chosen) + kind) * CELLS + cell[index]) * num_classes + labels[index]
        self._index = index
        self._code = row * num_classes
        self._size = int(np.prod(self.shape))

    @classmethod
    def of(
        cls,
        evaluation: EvaluationSet,
        num_classes: int,
        *,
        num_parts: int | None = None,
        together: bool = False,
    ) -> ConfusionPlan:
        """The plan of one evaluation set, with the groups of its own graph.

        Args:
            evaluation: Graph, items by kind and, for a pooled silo, the part of each item.
            num_classes: C, as the schema says.
            num_parts: How many clients ``evaluation.part`` may name (``silo.parts``).
            together: Count all parts as one. The groups stay those of each client, so that a node is in the same
                groups whichever graph it is scored on.
        """
        graph, types = evaluation.graph, evaluation.graph.union.types
        return cls(
            evaluation.items,
            graph.labels,
            num_classes,
            groups=node_groups(graph, part=evaluation.part),
            part=None if together else evaluation.part,
            num_parts=1 if together else num_parts,
            weighing=True if types is None else types.targets,
        )

    def kind(self, name: str) -> int:
        """Place of a kind along the second axis.

        Raises:
            DataError: This set does not score that kind.
        """
        if name not in self.kinds:
            raise DataError(f"this evaluation set does not score '{name}'; {nearest(name, self.kinds)}")
        return self.kinds.index(name)

    def count(self, predicted: Any) -> Counts:
        """Count true against predicted classes of all scored items.

        Args:
            predicted: [n] class numbers of *all* items of the graph (``logits.argmax(1)``): an integer
                numpy array, or a torch tensor on any device.
        Returns:
            [parts, kinds, 4 cells, C true, C predicted] int64.
        Raises:
            DataError: Wrong shape, or a class outside 0 to C - 1.
        """
        array = predicted if isinstance(predicted, np.ndarray) else _to_numpy(predicted)
        if array.shape != (self.num_items,):
            raise DataError(f"predicted must hold one class for each of {self.num_items} items; got {array.shape}.")
        if array.dtype != np.int64:
            if array.dtype.kind not in "iu":
                raise DataError(f"predicted must hold whole class numbers (argmax of the scores); got {array.dtype}.")
            array = array.astype(np.int64)
        picked = array[self._index]
        # Read as unsigned, a negative number is huge: one pass finds both ends out of range.
        if picked.size and picked.view(np.uint64).max() >= self.num_classes:
            low, high = int(picked.min()), int(picked.max())
            raise DataError(f"predicted classes must be 0 to {self.num_classes - 1}; got {low} to {high}.")
        picked += self._code
        return np.bincount(picked, minlength=self._size).reshape(self.shape)


def _to_numpy(values: Any) -> NDArray[Any]:
    """A tensor (brought to the host when it lives on a device) or anything numpy understands."""
    to_numpy = getattr(values, "numpy", None)
    return np.asarray(values) if to_numpy is None else to_numpy(force=True)
