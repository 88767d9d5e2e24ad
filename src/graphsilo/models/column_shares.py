"""What a score that is split among ``node_columns`` owes to raw features and to nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.link_columns import DIRECTIONS
from graphsilo.models.columns import SCALE, projection, unit_rows
from graphsilo.models.node_columns import relation_sources
from graphsilo.models.relations import relation_matrix
from graphsilo.models.shares import PLACES, Floats, Part, Shares, apportion, name_columns
from graphsilo.models.view import GraphTensors, Matrix


def explain_rows(
    rows: NDArray[np.float32],
    shares: Floats,
    base: float,
    items: NDArray[np.int64],
    usual: NDArray[np.int64],
    against: str,
    described: Described,
) -> list[Shares]:
    """Shares of columns as such of raw features and of nodes.

    Args:
        rows: [n, p] columns of all nodes.
        shares: [m, p] of the items' columns.
        base: The mean score.
        items, usual, against: Numbers of the items, and of the nodes that they are held against; these in words.
        described: What the columns are.
    """
    mean = rows[usual].mean(axis=0, dtype=np.float64)
    return [
        Shares(
            base,
            tuple(described.parts(rows, mean, item, each)),
            *described.nodes(rows, mean, item, each),
            against=against,
        )
        for item, each in zip(items, shares, strict=True)
    ]


@dataclass(frozen=True)
class _Block:
    """Columns that stand side by side: means over the nodes so many links away of others, or these themselves.

    Attributes:
        start: Of the first one.
        source: [n, q] whose means they are.
        names: In words, of the columns, or of the raw features that were projected onto them.
        operator: N; None for columns of the nodes themselves.
        hops: How many links away.
        spread: Whether they are deviations over the neighbours.
        kind: ``features``, ``projected``, or empty for others.
        links: Whether all neighbours made them alike, as a number of links.
        without_self: Whether nothing comes back to a node.
        natural: Makes of its numbers what a person is shown.
        which: Numbers of the raw features, where they are not all of them.
    """

    start: int
    source: NDArray[np.floating[Any]]
    names: Sequence[str]
    operator: sp.csr_matrix | None = None
    hops: int = 0
    spread: bool = False
    kind: str = ""
    links: bool = False
    without_self: bool = False
    natural: Callable[[Floats], Floats] = np.asarray
    which: NDArray[np.int64] | None = None

    @property
    def place(self) -> slice:
        return slice(self.start, self.start + self.source.shape[1])

    def row(self, item: int) -> tuple[NDArray[np.int64], Floats]:
        """The nodes that a node's columns came from, and what each counts."""
        if self.operator is None:
            return np.array([item]), np.ones(1)
        found = self.operator[item]
        for _ in range(self.hops - 1):
            found = found @ self.operator
        nodes, counts = found.indices.astype(np.int64), found.data
        if self.without_self:
            nodes, counts = nodes[nodes != item], counts[nodes != item]
        return (nodes, counts) if len(nodes) else (np.array([item]), np.ones(1))


@dataclass(frozen=True)
class Described:
    """What the columns of nodes are, block after block, and how wide features were projected.

    Attributes:
        blocks: Of all columns.
        features: [n, d] raw features, where these were projected; rows of length 1 count.
        turned: [d, k] by what.
    """

    blocks: Sequence[_Block]
    features: Matrix | None = None
    turned: NDArray[np.floating[Any]] | None = None

    def parts(self, rows: NDArray[np.float32], usual: Floats, item: int, shares: Floats) -> Iterator[Part]:
        """Of columns, or of the raw features behind these."""
        for block in self.blocks:
            mine = shares[block.place]
            if block.kind == "projected":
                yield from self._raw_parts(block, usual[block.place], item, mine)
                continue
            for k in np.flatnonzero(mine).tolist():
                raw = k if block.which is None else int(block.which[k])
                feature = raw if block.kind == "features" else None
                read = partial(_column, rows, block.start + k, block.natural)
                yield Part(block.names[k], float(mine[k]), feature, block.spread, read)

    def _raw_parts(self, block: _Block, usual: Floats, item: int, shares: Floats) -> Iterator[Part]:
        assert self.features is not None
        assert self.turned is not None
        nodes, counts = block.row(item)
        raw = counts @ unit_rows(self.features[nodes]).astype(np.float64)
        found = np.asarray(raw).ravel()
        there = np.flatnonzero(found)
        if not len(there):
            yield Part(f"no feature, {block.names[-1]}", float(shares.sum()))
            return
        # Of what lies away from the usual, all features have as much as makes their sum what it is.
        moved = found[there, None] * self.turned[there] - usual * (found[there] / found[there].sum())[:, None]
        each = apportion(shares, moved, np.abs(found[there]))
        for k, share in zip(there.tolist(), each, strict=True):
            if share:
                read = None if block.operator is not None else partial(_read_raw, self.features, k)
                yield Part(block.names[k], float(share), k, read=read)

    def nodes(self, rows: NDArray[np.float32], usual: Floats, item: int, shares: Floats) -> tuple[Any, Floats]:
        """Numbers of the nodes that the columns came from, and what each adds."""
        found, added = [np.array([item])], [np.zeros(1)]
        for block in self.blocks:
            mine = shares[block.place]
            if not mine.any():
                continue
            nodes, counts = block.row(item)
            values = np.asarray(block.source[nodes], dtype=np.float64)
            if block.links:
                moved = np.ones_like(values)
            elif block.spread:
                moved = counts[:, None] * (values - counts @ values) ** 2
            else:
                moved = counts[:, None] * (values - usual[block.place])
            found.append(nodes)
            added.append(apportion(mine, moved, counts))
        every, place = np.unique(np.concatenate(found), return_inverse=True)
        return every, np.bincount(place, np.concatenate(added), minlength=len(every)).astype(np.float64)


def _column(rows: NDArray[np.float32], column: int, natural: Callable[[Floats], Floats]) -> Floats:
    return natural(rows[:, column].astype(np.float64))


def _share_labelled(columns: Floats) -> Floats:
    return columns / SCALE


def _read_raw(features: Matrix, column: int) -> Floats:
    values = features[:, column]
    return np.asarray(values.toarray() if sp.issparse(values) else values, dtype=np.float64).ravel()


def describe_columns(
    views: Sequence[GraphTensors], rows: NDArray[np.float32], principal: NDArray[np.float32], dim: int, seed: int,
    known: sp.csr_matrix | None, class_names: Sequence[str], schema: Schema,
) -> Described:  # fmt: skip
    """What ``node_columns``, with label columns or those of relations behind them, are.

    Args:
        views: The graph, as ``views_of`` gives it.
        rows: [n, p] the columns.
        principal: [d, k] directions of wide features.
        dim: Most columns of X that are taken as they are.
        seed: Of random directions.
        known: [n, C] classes of the training nodes; None without label columns.
        class_names: Of them.
        schema: Of the federation: which relations there are.
    """
    data = views[0]
    width, names = data.num_features, data.graph.feature_names
    narrow = width <= dim
    own = rows[:, : min(width, dim)]
    kind = "features" if narrow else "projected"
    blocks, at = [_Block(0, own, name_columns(names, width, ""), kind=kind)], own.shape[1]
    for place, view in enumerate(views):
        step, words = view.matrix("mean").astype(np.float64), WAYS[len(views)][place]
        for hops in (1, 2):
            blocks.append(_Block(at, own, name_columns(names, width, PLACES[hops] + words), step, hops, kind=kind))
            at += own.shape[1]
        if narrow:
            said = name_columns(names, width, f"how it varies around it{words}")
            blocks.append(_Block(at, own, said, step, 1, spread=True, kind=kind))
            at += own.shape[1]
        degree = rows[:, at : at + 1]
        blocks.append(_Block(at, degree, [f"number of links{words}"], step, 1, links=True, natural=np.expm1))
        blocks.append(_Block(at + 1, degree, [f"number of links (logarithm), around it{words}"], step, 1))
        at += 2
    for place, view in enumerate(views if known is not None else ()):
        assert known is not None
        step, words = view.matrix("mean").astype(np.float64), WAYS[len(views)][place]
        source = SCALE * known.toarray()
        for hops in (1, 2):
            said = [f"nodes labelled {name}, {PLACES[hops]}{words}" for name in class_names]
            blocks.append(_Block(at, source, said, step, hops, without_self=hops == 2, natural=_share_labelled))
            at += len(class_names)
    for number, turned, which in relation_sources(schema, dim):
        relation = schema.relations[number]
        words = f", {relation} {DIRECTIONS[not turned]}"
        step = relation_matrix(data, number, "mean", turned=turned).astype(np.float64)
        there: NDArray[np.floating[Any]] = own if which is None else own[:, which]
        heard = names if which is None or names is None else [names[column] for column in which.tolist()]
        said = name_columns(heard, width if which is None else len(which), PLACES[1] + words)
        blocks.append(_Block(at, there, said, step, 1, kind=kind, which=which))
        at += there.shape[1]
        degree = rows[:, at : at + 1]
        blocks.append(_Block(at, degree, [f"number of links{words}"], step, 1, links=True, natural=np.expm1))
        at += 1
        if narrow:
            said = name_columns(heard, there.shape[1], f"how it varies around it{words}")
            blocks.append(_Block(at, there, said, step, 1, spread=True, kind=kind, which=which))
            at += there.shape[1]
            blocks.append(_Block(at, degree, [f"number of links (logarithm), around it{words}"], step, 1))
            at += 1
    if narrow:
        return Described(blocks)
    thrown = projection(width, dim - principal.shape[1], seed)
    return Described(blocks, data.graph.features, np.hstack([principal, thrown.toarray()]))


WAYS = {1: ("",), 2: ("", ", by weight"), 3: ("", ", links in", ", links out")}
"""How links are looked at, by the number of views."""
