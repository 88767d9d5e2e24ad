"""What tables say of nodes and links beyond features and ends: types, columns and dates of links, targets.

Each part knows how it looks for some of a graph's nodes (``of_nodes``), and side by side with others (``join``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.arrays import pick_rows


@dataclass(frozen=True, eq=False)
class OutsideLinks:
    """Links between nodes of a silo and nodes of other silos, as the silo's own table names them.

    Attributes:
        node: [m] int64 row of the own end.
        name: [m] int64 what the own end is called among silos.
        other: [m] int64 what the other end is called.
        home: [m] name of the own silo.
        silo: [m] name of the other.
    """

    node: NDArray[np.int64]
    name: NDArray[np.int64]
    other: NDArray[np.int64]
    home: NDArray[np.str_]
    silo: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.node)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> OutsideLinks:
        """Some of them."""
        parts = {key: getattr(self, key)[chosen] for key in self.__dataclass_fields__}
        return OutsideLinks(**parts)

    def of_nodes(self, nodes: NDArray[np.int64], table: NDArray[np.signedinteger]) -> OutsideLinks:
        """Of some nodes; as :meth:`LinkTable.of_nodes`."""
        rows = table[self.node].astype(np.int64)
        return replace(self, node=rows).where(rows >= 0)

    @classmethod
    def join(cls, parts: Sequence[Self], shifts: Sequence[int]) -> Self:
        """Of several graphs side by side, by numbers that run on."""
        shifted = [replace(part, node=part.node + shift) for part, shift in zip(parts, shifts, strict=True)]
        return cls(*(np.concatenate([getattr(part, key) for part in shifted]) for key in cls.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class NodeTypes:
    """The types of a graph's nodes.

    Attributes:
        names: What the types are called.
        of_node: [n] int16 number of each node's type.
        of_feature: [d] int16 number of the type whose nodes have a feature, -1 where all have it; nodes of other types
            have 0 there, which means nothing.
        target: Number of the type whose nodes are classified; nodes of others have no label.
    """

    names: tuple[str, ...]
    of_node: NDArray[np.int16]
    of_feature: NDArray[np.int16]
    target: int

    @property
    def targets(self) -> NDArray[np.bool_]:
        """[n] which nodes are of the type that is classified."""
        found: NDArray[np.bool_] = self.of_node == self.target
        return found

    def of_nodes(self, nodes: NDArray[np.int64], table: NDArray[np.signedinteger]) -> NodeTypes:
        """Of some nodes; as :meth:`LinkTable.of_nodes`."""
        return replace(self, of_node=self.of_node[nodes])

    @classmethod
    def join(cls, parts: Sequence[Self], shifts: Sequence[int]) -> Self:
        """Of several graphs side by side, which agree in everything else."""
        return replace(parts[0], of_node=np.concatenate([part.of_node for part in parts]))


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Rows of tables of links as they were exported: each once, in its direction, parallel ones kept.

    Attributes:
        relations: What the tables are called.
        of_link: [r] int16 number of each row's relation.
        ends: [2, r] int64 nodes that it begins and ends at.
        features: [r, k] float64 columns of the rows; NaN where a relation does not have a column.
        feature_names: k of them, each beginning with its relation: ``transfer.amount``.
        time: [r] float64 days since 1970-01-01, NaN where a row has none; None where no table has dates.
        between: [relations, 2] int16 types of the nodes that each relation's rows begin and end at; None where nodes
            have no types, or it is not said.
    """

    relations: tuple[str, ...]
    of_link: NDArray[np.int16]
    ends: NDArray[np.int64]
    features: NDArray[np.float64]
    feature_names: tuple[str, ...] = ()
    time: NDArray[np.float64] | None = None
    between: NDArray[np.int16] | None = None

    def __len__(self) -> int:
        return int(self.ends.shape[1])

    def lead(self, types: NodeTypes | None) -> tuple[tuple[str, str], ...]:
        """Types of the nodes that the rows of each relation begin and end at, where it is said."""
        if types is None or self.between is None:
            return ()
        return tuple((types.names[start], types.names[end]) for start, end in self.between.tolist())

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> LinkTable:
        """Some rows."""
        return replace(
            self,
            of_link=self.of_link[chosen],
            ends=self.ends[:, chosen],
            features=pick_rows(self.features, chosen),
            time=None if self.time is None else self.time[chosen],
        )

    def of_nodes(self, nodes: NDArray[np.int64], table: NDArray[np.signedinteger]) -> LinkTable:
        """The rows with both ends among some nodes.

        Args:
            nodes: Which.
            table: [n] the number that each node has among them, -1 for the others.
        """
        ends = table[self.ends].astype(np.int64)
        return replace(self, ends=ends).where(np.flatnonzero((ends >= 0).all(axis=0)))

    @classmethod
    def join(cls, parts: Sequence[Self], shifts: Sequence[int]) -> Self:
        """Of several graphs side by side, by numbers that run on; they agree in relations and columns."""
        times = [part.time for part in parts if part.time is not None]
        unknown = [np.full(len(part), np.nan) if part.time is None else part.time for part in parts]
        return replace(
            parts[0],
            of_link=np.concatenate([part.of_link for part in parts]),
            ends=np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=True)], axis=1),
            features=np.concatenate([part.features for part in parts]),
            time=np.concatenate(unknown) if times else None,
        )


@dataclass(frozen=True, eq=False)
class Owners:
    """Which institution each node is at, where the data says so.

    Attributes:
        names: Of the institutions.
        of_node: [n] int64 number of each node's, -1 where it is at none.
    """

    names: tuple[str, ...]
    of_node: NDArray[np.int64]

    def of_nodes(self, nodes: NDArray[np.int64], table: NDArray[np.signedinteger]) -> Owners:
        """Of some nodes."""
        return replace(self, of_node=self.of_node[nodes])


@dataclass(frozen=True, eq=False)
class Targets:
    """What is predicted of nodes where that is no class.

    Attributes:
        values: [n, m] float32 numbers, or of labels 1 where a node has one and 0 where not; NaN where it is not known.
        task: ``regression`` for numbers, ``multilabel`` for labels.
    """

    values: NDArray[np.float32]
    task: Literal["regression", "multilabel"]

    @property
    def known(self) -> NDArray[np.bool_]:
        """[n] which nodes have one or more that are known."""
        return np.asarray((~np.isnan(self.values)).any(axis=1))

    def of_nodes(self, nodes: NDArray[np.int64], table: NDArray[np.signedinteger]) -> Targets:
        """Of some nodes; as :meth:`LinkTable.of_nodes`."""
        return replace(self, values=self.values[nodes])

    @classmethod
    def join(cls, parts: Sequence[Self], shifts: Sequence[int]) -> Self:
        """Of several graphs side by side, which have the same targets: numbers, where one of them has other than 0
        and 1."""
        measured = next((part for part in parts if part.task == "regression"), parts[0])
        return replace(measured, values=np.concatenate([part.values for part in parts]))


class HasParts(Protocol):
    """A graph, as far as its parts go."""

    @property
    def num_nodes(self) -> int: ...

    @property
    def time(self) -> NDArray[np.float64] | None: ...


def join_parts(graphs: Sequence[HasParts], shifts: Sequence[int]) -> dict[str, Any]:
    """What graphs side by side have of these parts, and the times of their nodes; None unless all have it."""
    found: dict[str, Any] = {}
    for key in ("outside", "types", "links", "targets"):
        parts = [getattr(graph, key) for graph in graphs]
        found[key] = None if any(part is None for part in parts) else type(parts[0]).join(parts, shifts)
    times = [np.full(graph.num_nodes, np.nan) if graph.time is None else graph.time for graph in graphs]
    known = any(graph.time is not None for graph in graphs)
    return {**found, "time": np.concatenate(times) if known else None}


def names_among_silos(silos: NDArray[np.str_], ids: NDArray[np.str_]) -> NDArray[np.int64]:
    """[n] int64, 0 to 2^53: what nodes of these silos with these ids are called wherever silos speak of them.

    Both ends of a link compute the same without having spoken: FNV-1a over silo and id, mixed (as in SplitMix64), of
    which 53 bits fit into a message. Two of 100,000 nodes share a name with a probability of 6e-7.
    """
    state = np.full(len(ids), 0xCBF29CE484222325, dtype=np.uint64)
    for words in (silos, ids):
        width = words.dtype.itemsize // 4
        for column in np.ascontiguousarray(words).view(np.uint32).reshape(len(words), width).T if width else ():
            # Shorter words are padded with zeros, of which how many there are must not matter.
            state = np.where(column > 0, (state ^ column.astype(np.uint64)) * np.uint64(0x100000001B3), state)
        state = mix_bits(state)
    return (state >> np.uint64(11)).astype(np.int64)


def mix_bits(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele et al. 2014): every bit of the result depends on every bit."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    found: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return found
