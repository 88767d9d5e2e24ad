"""A cut with its splits, as an object and as one file.

The file is an ``.npz`` without pickle: ``nodes_k``, ``train_k``, ``val_k``, ``test_k`` (int64 global ids) for each
client k, optionally ``added_k``, ``new_part`` and ``cropped``, and ``header``, a JSON text that says how the cut was
made and holds a sha256 of the content. Files with the first four alone can be read too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph, GraphCollection
from graphsilo.errors import PartitionError, RunError
from graphsilo.types import ClientId, NodeIds

OptionValue: TypeAlias = str | int | float | bool | None
FORMAT = 1
PARTS = ("nodes", *SPLITS)


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what. All ids are row numbers of the whole graph (or numbers of graphs in a collection).

    Attributes:
        rule: Name of the cutting rule.
        seed: Seed of the cut and its splits.
        data: Name of the data set.
        num_nodes: N, items of the whole data set.
        nodes: Ids of each client, in the order of its local numbers.
        train, val, test: Ids of each client's splits.
        options: Settings of the rule, complete.
        split: How the splits were made: ``stratified``, ``global``, ``predefined`` or ``stored``.
        ratios: Shares asked for, or None.
        kind: What the items are.
        new_part: Nodes of the new client, which never trains (scenarios ``unseen`` and ``open``).
        cropped: Nodes kept away from everyone until test time (scenario ``open``).
        added_edges: [2, m_k] links that a rule added inside each client, each once; where there is a new part, its
            own come last.
        absent: Clients that were left out and hold nothing here; no part of the file.
    """

    rule: str
    seed: int
    data: str
    num_nodes: int
    nodes: tuple[NodeIds, ...]
    train: tuple[NodeIds, ...]
    val: tuple[NodeIds, ...]
    test: tuple[NodeIds, ...]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    split: str = "stratified"
    ratios: tuple[float, float, float] | None = None
    kind: Literal["node", "graph"] = "node"
    new_part: NodeIds | None = None
    cropped: NodeIds | None = None
    added_edges: tuple[NDArray[np.int64], ...] | None = None
    absent: frozenset[ClientId] = frozenset()

    def __post_init__(self) -> None:
        if not self.nodes or not len(self.nodes) == len(self.train) == len(self.val) == len(self.test):
            raise PartitionError(
                f"a partition needs at least one client, and nodes, train, val and test for each; got "
                f"{len(self.nodes)}, {len(self.train)}, {len(self.val)} and {len(self.test)}."
            )

    def __repr__(self) -> str:
        return (
            f"Partition(rule={self.rule!r}, data={self.data!r}, clients={self.num_clients}, {self._items}="
            f"{self.num_nodes}, train={_count(self.train)}, val={_count(self.val)}, test={_count(self.test)})"
        )

    def _repr_html_(self) -> str:
        each = zip(self.nodes, self.train, self.val, self.test, strict=True)
        rows = [[f"client {client}", *map(len, parts)] for client, parts in enumerate(each)]
        every = ["all", _count(self.nodes), _count(self.train), _count(self.val), _count(self.test)]
        title = f"Partition of {self.data} by {self.rule}"
        from graphsilo.notebook import table

        return table(title, ["", self._items, "train", "val", "test"], [every, *rows])

    @property
    def _items(self) -> str:
        return "graphs" if self.kind == "graph" else "nodes"

    @property
    def num_clients(self) -> int:
        return len(self.nodes)

    @property
    def present(self) -> tuple[ClientId, ...]:
        """Numbers of the clients that take part, ascending."""
        return tuple(client for client in range(self.num_clients) if client not in self.absent)

    def without(self, clients: Collection[ClientId]) -> Partition:
        """The same cut with some clients left out: they hold nothing, and the others keep number, items and splits."""

        def clear_absent(parts: tuple[NDArray[np.int64], ...]) -> tuple[NDArray[np.int64], ...]:
            return tuple(part[..., :0] if client in clients else part for client, part in enumerate(parts))

        kept: dict[str, Any] = {part: clear_absent(getattr(self, part)) for part in PARTS}
        return replace(
            self,
            **kept,
            added_edges=None if self.added_edges is None else clear_absent(self.added_edges),
            absent=self.absent | frozenset(clients),
        )

    @property
    def has_splits(self) -> bool:
        """Whether any client has a training, validation or test item."""
        return any(len(part) for parts in (self.train, self.val, self.test) for part in parts)

    @property
    def held_out(self) -> NodeIds | None:
        """Nodes that no client trains on, by scenario: the new part and the cropped nodes; None without a scenario."""
        parts = [part for part in (self.new_part, self.cropped) if part is not None]
        return np.sort(np.concatenate(parts)) if parts else None

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the ids and the header; independent of the file's bytes and time."""
        digest = hashlib.sha256(json.dumps(self._header(), sort_keys=True).encode())
        for name, array in sorted(self._arrays().items()):
            digest.update(f"\x00{name}\x00{array.shape}\x00".encode())
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    def check(self, graph: Graph | GraphCollection) -> None:
        """Make sure that this partition belongs to the data and does not contradict itself.

        Raises:
            PartitionError: It was made for another number of items, an id is out of range or twice in one client, a
                split names an item that the client does not hold, or one client uses an item in two splits.
        """
        size = graph.num_items
        what = "graphs" if self.kind == "graph" else "nodes"
        if size != self.num_nodes:
            raise PartitionError(
                f"the partition was made for {self.num_nodes} {what} ({self.data}), but {graph.name} has {size}: "
                f"use the graph it was made for, or cut again."
            )
        for name, ids in self._arrays().items():
            if ids.size and (ids.min() < 0 or ids.max() >= size):
                bad = int(ids.min()) if ids.min() < 0 else int(ids.max())
                raise PartitionError(f"the partition's {name} names {bad}, but {what} are numbered 0 to {size - 1}.")
        for client in range(self.num_clients):
            held, times = np.unique(self.nodes[client], return_counts=True)
            if (times > 1).any():
                raise PartitionError(f"client {client} holds {what[:-1]} {int(held[times > 1][0])} twice.")
            splits = np.concatenate([self.train[client], self.val[client], self.test[client]])
            foreign = ~np.isin(splits, held)
            if foreign.any():
                bad = int(splits[foreign][0])
                raise PartitionError(f"client {client} has {what[:-1]} {bad} in a split but does not hold it.")
            unique, counts = np.unique(splits, return_counts=True)
            if (counts > 1).any():
                raise PartitionError(
                    f"client {client} uses {what[:-1]} {int(unique[counts > 1][0])} in two of train, val and test."
                )
        held_out = self.held_out
        if held_out is not None and len(np.intersect1d(held_out, np.concatenate(self.nodes))):
            raise PartitionError("the held-out nodes (new part, cropped) overlap with those of the clients.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz: to a temporary file beside it, synchronised, then renamed.

        Raises:
            RunError: The disk is full, or the folder cannot be written; an old file is unharmed.
        """
        target = Path(path)
        header = {**self._header(), "sha256": self.content_hash}
        arrays = {**self._arrays(), "header": np.array(json.dumps(header, sort_keys=True))}
        try:
            from graphsilo.data.sources.atomic import atomic_file

            with atomic_file(target) as stream:
                np.savez_compressed(stream, allow_pickle=False, **arrays)
        except OSError as error:
            raise RunError(
                f"the partition cannot be written to {target} ({error.strerror or error}). What was there before is "
                f"unharmed; free some space or choose another place."
            ) from error

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, num_nodes: int | None = None) -> Partition:
        """Read a partition file.

        Args:
            path: An .npz with ``nodes_k`` and, all or none, ``train_k``, ``val_k``, ``test_k``.
            num_nodes: N for a file without a header; without it, the largest id plus one.

        Raises:
            PartitionError: The file is missing, damaged, of a newer format, or not a partition.
        """
        from graphsilo.data.partition.stored import read

        return read(Path(path), num_nodes)

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "rule": self.rule,
            "seed": self.seed,
            "data": self.data,
            "num_nodes": self.num_nodes,
            "options": dict(self.options),
            "split": self.split,
            "ratios": None if self.ratios is None else list(self.ratios),
            "kind": self.kind,
        }

    def _arrays(self) -> dict[str, NDArray[np.int64]]:
        arrays = {f"{part}_{client}": ids for part in PARTS for client, ids in enumerate(getattr(self, part))}
        if self.new_part is not None:
            arrays["new_part"] = self.new_part
        if self.cropped is not None:
            arrays["cropped"] = self.cropped
        for client, edges in enumerate(self.added_edges or ()):
            arrays[f"added_{client}"] = edges
        return arrays


def _count(parts: tuple[NodeIds, ...]) -> int:
    return sum(map(len, parts))
