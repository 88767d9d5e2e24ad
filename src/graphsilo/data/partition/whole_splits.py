"""Splits of a whole graph: drawn before it is cut, or published with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph
from graphsilo.data.partition.splits import Ratios, Split, cut_points
from graphsilo.errors import DataError
from graphsilo.random import numpy_generator
from graphsilo.types import NodeIds


def global_split(labels: NDArray[np.int64], ratios: Ratios, *, seed: int) -> Split:
    """One unstratified split of all labelled items, drawn before cutting.

    Returns:
        Global ids in three ascending arrays.

    Source: FED-PUB (20/40/40), FedSpray and FedLoG (40/30/30).
    """
    index = np.flatnonzero(labels >= 0)
    index = numpy_generator(seed, "split", "global").permutation(index)
    train_end, val_end = cut_points(len(index), ratios)
    return np.sort(index[:train_end]), np.sort(index[train_end:val_end]), np.sort(index[val_end:])


def predefined_split(graph: Graph, *, split_index: int = 0) -> Split:
    """The split that came with the data.

    Args:
        graph: With masks ``train``, ``val`` and ``test`` in ``splits``.
        split_index: Column, where several splits were published.

    Returns:
        Global ids (rows) in three ascending arrays; unlabelled nodes are left out.

    Raises:
        DataError: The data carries no split, or there is no such column.
    """
    missing = [name for name in SPLITS if name not in graph.splits]
    if missing:
        raise DataError(
            f"{graph.name} carries no predefined {' or '.join(missing)} split: divide its nodes with "
            f"partition.split=stratified or global, or give it all three masks (train, val, test)."
        )
    columns: list[NodeIds] = []
    for name in SPLITS:
        mask = np.asarray(graph.splits[name], dtype=bool)
        if mask.ndim == 2:
            if not 0 <= split_index < mask.shape[1]:
                raise DataError(
                    f"{graph.name} has {mask.shape[1]} predefined splits, numbered 0 to {mask.shape[1] - 1}; "
                    f"number {split_index} was asked for."
                )
            mask = mask[:, split_index]
        elif split_index != 0:
            raise DataError(f"{graph.name} has one predefined split, number 0; number {split_index} was asked for.")
        columns.append(np.flatnonzero(mask & (graph.labels >= 0)))
    return columns[0], columns[1], columns[2]


def map_to_clients(split: Split, clients: Sequence[NodeIds], *, num_items: int) -> list[Split]:
    """A split of the whole graph seen from each client: its own items, in the order of its list."""
    masks = []
    for items in split:
        mask = np.zeros(num_items, dtype=bool)
        mask[items] = True
        masks.append(mask)
    return [(nodes[masks[0][nodes]], nodes[masks[1][nodes]], nodes[masks[2][nodes]]) for nodes in clients]
