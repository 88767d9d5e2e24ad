"""Which items of each client are trained on, validated on and tested on.

Four ways: ``stratified`` (per client and per class, the protocol's default), ``global`` (once over the whole
graph, unstratified, before cutting, as FED-PUB and FedLoG do), ``predefined`` (masks that come with the data) and
``time`` (earlier ones are trained on, later ones tested on).
Items without a label (-1) are in no split.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import SplitMode, TimeOptions
from graphsilo.data.sources.entries import find
from graphsilo.errors import ConfigError
from graphsilo.random import derive_seed
from graphsilo.types import ClientId, NodeIds

Ratios: TypeAlias = tuple[float, float, float]
"""Shares of training, validation and test items; they add up to 1."""
Split: TypeAlias = tuple[NodeIds, NodeIds, NodeIds]
"""Training, validation and test items."""
DEFAULT_RATIOS: Ratios = (0.2, 0.4, 0.4)
GRAPH_RATIOS: Ratios = (0.8, 0.1, 0.1)
"""For graph classification and for links, where no table of the protocol says otherwise."""


TIME_RATIOS: Ratios = (0.6, 0.2, 0.2)
"""Where items are divided by time: ours."""


def ratios_for(data_name: str, mode: SplitMode = "stratified") -> Ratios:
    """The protocol's train/val/test shares for a data set; 0.2/0.4/0.4 for one that it does not list.

    A split by time, which no protocol has, takes 0.6/0.2/0.2.

    Example:
        >>> ratios_for("Chameleon")
        (0.48, 0.32, 0.2)
    """
    if mode == "time":
        return TIME_RATIOS
    known = find(data_name)
    return DEFAULT_RATIOS if known is None else known.split_ratios or DEFAULT_RATIOS


def check_ratios(ratios: Sequence[float], name: str = "partition.ratios") -> Ratios:
    """Three shares, each at least 0 and training above 0, that add up to 1; ``name`` is the setting, for errors.

    Raises:
        ConfigError: They are not.
    """
    values = tuple(float(value) for value in ratios)
    if len(values) != 3 or not all(0.0 <= value <= 1.0 for value in values) or abs(sum(values) - 1.0) > 1e-6:
        raise ConfigError(
            f"{name} must be three shares (train, val, test) from 0 to 1 that add up to 1; got "
            f"{', '.join(f'{value:g}' for value in values)}. An example is 0.2, 0.4, 0.4."
        )
    if values[0] == 0.0:
        raise ConfigError(f"{name} must leave something to train on; the training share is 0.")
    return values[0], values[1], values[2]


def cut_points(count: int, ratios: Ratios) -> tuple[int, int]:
    """Where training and validation end among ``count`` items: floor(r1·m) and floor((r1 + r2)·m).

    Shares are read as the decimals that a person wrote, so (0.4 + 0.3)·90 is 63 and not 62.

    Example:
        >>> cut_points(90, (0.4, 0.3, 0.3))
        (36, 63)
    """
    first, second = Fraction(repr(ratios[0])), Fraction(repr(ratios[1]))
    return int(first * count), min(int((first + second) * count), count)


def stratified_split(labels: NDArray[np.int64], ratios: Ratios, generator: np.random.RandomState) -> Split:
    """Split one client's items class by class, in ascending class order.

    Args:
        labels: [n] classes of the client's items, -1 where unknown.
        ratios: Shares of training, validation and test items.
        generator: NumPy's legacy generator; one shuffle per class is drawn from it.

    Returns:
        Local numbers in three ascending arrays. A class with fewer than 1/r1 items has no training item.

    Source: OpenFGL's protocol, which draws from NumPy's legacy global state; here the state is an argument.
    """
    parts: tuple[list[NodeIds], list[NodeIds], list[NodeIds]] = ([], [], [])
    order = np.argsort(labels, kind="stable")
    classes, counts = np.unique(labels, return_counts=True)
    for label, index in zip(classes.tolist(), np.split(order, np.cumsum(counts)), strict=False):
        if label < 0:
            continue
        generator.shuffle(index)
        train_end, val_end = cut_points(len(index), ratios)
        parts[0].append(index[:train_end])
        parts[1].append(index[train_end:val_end])
        parts[2].append(index[val_end:])
    train, val, test = (np.sort(np.concatenate(part)) if part else np.zeros(0, dtype=np.int64) for part in parts)
    return train, val, test


def stratified_splits(
    labels: NDArray[np.int64],
    clients: Sequence[NodeIds],
    ratios: Ratios,
    *,
    seed: int,
) -> list[Split]:
    """The protocol's splits of all clients, in client order from one stream.

    Args:
        labels: [N] classes of all items.
        clients: Global ids of each client's items.
        ratios: Shares of training, validation and test items.
        seed: Seed of the one legacy stream that all clients share.

    Returns:
        Global ids, in the order of the client's own list.
    """
    # The legacy generator is the only one that reproduces published partitions; it is private to this call.
    generator = np.random.RandomState(seed)
    result: list[Split] = []
    for nodes in clients:
        train, val, test = stratified_split(labels[nodes], ratios, generator)
        result.append((nodes[train], nodes[val], nodes[test]))
    return result


def own_split(labels: NDArray[np.int64], ratios: Ratios, *, seed: int, client: ClientId) -> Split:
    """The stratified split of a client that holds its own data: nobody else's labels have a part in it.

    A silo draws the same alone, at its own machine, as in one process with all others.

    Args:
        labels: [n] classes of the client's items, -1 where unknown.
        ratios: Shares of training, validation and test items.
        seed: Of the splits.
        client: Number of the client; each has a stream of its own.

    Returns:
        Local numbers in three ascending arrays.
    """
    # The legacy generator's stream never changes between releases of NumPy, which sites need not have in common.
    generator = np.random.RandomState(derive_seed(seed, "split", "client", client) % 2**32)
    return stratified_split(labels, ratios, generator)


def refuse_ratios(graph: Graph, ratios: Sequence[float] | None) -> None:
    """Refuse shares beside masks, which divide the nodes already.

    Raises:
        ConfigError: Shares are given.
    """
    if ratios is not None:
        raise ConfigError(
            f"{graph.name} brings masks that say which nodes train, validate and test, and ratios of "
            f"{', '.join(f'{value:g}' for value in ratios)} are asked for, too. Leave out the ratios "
            f"(partition.ratios), or divide the nodes again with partition.split=stratified."
        )


def splits_for(
    graph: Graph,
    clients: Sequence[NodeIds],
    *,
    mode: SplitMode,
    ratios: Ratios,
    seed: int,
    split_index: int = 0,
    times: TimeOptions | None = None,
    names: Sequence[str] = (),
) -> list[Split]:
    """Splits of every client of one graph in the mode asked for, as global ids.

    Args:
        graph: What was cut.
        clients: Global ids of each client's items.
        mode: How.
        ratios: Shares of training, validation and test items.
        seed: Of ``stratified`` and ``global``.
        split_index: Column, where there are several predefined splits.
        times: Of ``time``; None leaves all to the ratios.
        names: Of the clients, for errors, where they have some.

    Raises:
        DataError: ``predefined`` or ``time`` is asked for, and the data has no such split, or no times.
    """
    if mode == "stratified":
        return stratified_splits(graph.labels, clients, ratios, seed=seed)
    if mode == "time":
        from graphsilo.data.partition.time_splits import time_splits

        return time_splits(graph, clients, ratios, times or TimeOptions(), names)
    from graphsilo.data.partition.whole_splits import global_split, map_to_clients, predefined_split

    if mode == "global":
        split = global_split(graph.labels, ratios, seed=seed)
    else:
        split = predefined_split(graph, split_index=split_index)
    return map_to_clients(split, clients, num_items=graph.num_nodes)
