"""One matrix for each relation of a graph with several kinds of links, and direction.

A row of a table of links counts where the graph has an edge between its ends: edges that were taken out for training
are gone from every relation, too. Where nodes have times, a row passes nothing to a node that is looked at before it
was made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.links import LinkTable
from graphsilo.data.silos.silo import Schema
from graphsilo.data.sources.looking_back import Rows, passing_rows
from graphsilo.errors import UnsupportedError
from graphsilo.models.operators import Operator, SparseOperator, entries_of, operator
from graphsilo.models.view import GraphTensors, Norm, Relation, View, normalise


def relation_matrix(data: GraphTensors, relation: int, norm: Norm, *, turned: bool = False) -> sp.csr_matrix:
    """The normalised adjacency of one relation, [n, n] CSR of [target, source]; parallel rows are one link.

    Args:
        data: The graph's tensors; they keep what was made.
        relation: Number of the relation; a graph without its links has an empty matrix.
        norm: As of :func:`graphsilo.models.view.normalise`.
        turned: Whether messages pass against the rows' direction.
    """

    def make() -> sp.csr_matrix:
        rows = passing_of(data)
        chosen = rows.kind == 2 * relation + turned
        return normalise(_pattern(rows.target[chosen], rows.source[chosen], data.num_nodes), norm)

    return data.cached(("relation", relation, norm, turned), make)


def passing_of(data: GraphTensors) -> Rows:
    """:func:`graphsilo.data.sources.looking_back.passing_rows`, made once."""
    return data.cached(("passing rows",), lambda: passing_rows(data.graph))


def matrix_of(data: GraphTensors, norm: Norm) -> sp.csr_matrix:
    """The matrix of a relation, or of all of them, for backbones.

    Raises:
        UnsupportedError: The graph has no tables of links, such as one that a method made.
    """
    if data.graph.links is None:
        raise UnsupportedError(
            f"the graph '{data.graph.name}' has no tables of links, which this model reads: it was made by the method, "
            f"and what it links is of no relation. Use --model gcn or --model sage."
        )
    if isinstance(norm, Relation):
        return relation_matrix(data, norm.number, "mean", turned=norm.turned)
    rows = passing_of(data)
    return data.cached(("relations",), lambda: _pattern(rows.target, rows.source, data.num_nodes))


class LinkRows(NamedTuple):
    """Rows of the tables of links between the rows of a layer and those of the next one, m of them.

    Attributes:
        at_source: [m, rows of the layer] picks what is at the end that a message comes from.
        columns: [m, k + 2R] the columns of the tables, 0 where a row has none, and a 1 at ``Rows.kind``.
        to_target: [rows of the next layer, m] adds up what comes to a node.
    """

    at_source: SparseOperator
    columns: Operator
    to_target: SparseOperator


def link_rows(view: View, depth: int) -> list[LinkRows]:
    """Those of each layer, first layer first."""

    def make() -> list[LinkRows]:
        found: dict[int, LinkRows] = {}
        blocks = view.blocks("relations", depth)
        for layer, block in enumerate(blocks):
            if id(block) not in found:
                ends = (view.needed_rows("relations", depth - layer - later) for later in (0, 1))
                found[id(block)] = _rows_of(view.data, block, *ends)
        return [found[id(block)] for block in blocks]

    if view.is_full and depth > 1:
        return link_rows(view, 1) * depth
    return view.cached(("link rows", depth), make)


def _rows_of(
    data: GraphTensors, block: SparseOperator, sources: NDArray[np.int64] | None, targets: NDArray[np.int64] | None
) -> LinkRows:
    """The rows that the entries of a block stand for, whose rows and columns are these nodes, or all."""
    graph, matrix = data.graph, block.matrix
    assert graph.links is not None
    rows, keys, pointer = data.cached(("rows by target",), lambda: _by_target(data))
    to, at = np.repeat(np.arange(block.shape[0]), np.diff(matrix.indptr)), matrix.indices.astype(np.int64)
    end, start = to if targets is None else targets[to], at if sources is None else sources[at]
    taken, sizes = entries_of(pointer, np.searchsorted(keys, end * np.int64(data.num_nodes) + start))
    count, per_target = len(taken), np.bincount(to, weights=sizes, minlength=block.shape[0]).astype(np.int64)
    once, each = np.ones(count, dtype=np.float32), np.arange(count + 1)
    at_source = sp.csr_matrix((once, np.repeat(at, sizes), each), shape=(count, block.shape[1]))
    weights = np.repeat(matrix.data, sizes)
    starts = np.concatenate([[0], np.cumsum(per_target)])
    to_target = sp.csr_matrix((weights, each[:-1], starts), shape=(block.shape[0], count))
    kinds = sp.csr_matrix((once, rows.kind[taken], each), shape=(count, 2 * len(graph.links.relations)))
    values = np.nan_to_num(graph.links.features[rows.row[taken]].astype(np.float32))
    columns = np.concatenate([values, kinds.toarray()], axis=1)
    return LinkRows(
        SparseOperator(at_source, device=data.device, dtype=data.dtype),
        operator(columns, data.device, data.dtype),
        SparseOperator(to_target, device=data.device, dtype=data.dtype),
    )


def _by_target(data: GraphTensors) -> tuple[Rows, NDArray[np.int64], NDArray[np.int64]]:
    """The rows that pass something, entry by entry of the matrix; a number for each entry; where its rows begin."""
    rows = passing_of(data)
    pairs = rows.target * np.int64(data.num_nodes) + rows.source
    order = np.argsort(pairs, kind="stable")
    keys, counts = np.unique(pairs, return_counts=True)
    return Rows(*(part[order] for part in rows)), keys, np.concatenate([[0], np.cumsum(counts)])


def relations_of(schema: Schema) -> list[Relation]:
    """Each relation along its rows and against them, in the order of ``Rows.kind``."""
    return [Relation(number, turned) for number in range(len(schema.relations)) for turned in (False, True)]


def links_of(schema: Schema, ends: NDArray[np.int64]) -> LinkTable | None:
    """Rows [2, r] of the first relation of a schema, without numbers; None where it has none."""
    if not schema.relations:
        return None
    count, names = ends.shape[1], schema.link_features
    nothing = np.full((count, len(names)), np.nan)
    return LinkTable(schema.relations, np.zeros(count, dtype=np.int16), ends, nothing, names)


def _pattern(target: NDArray[np.int64], source: NDArray[np.int64], size: int) -> sp.csr_matrix:
    """[n, n] with 1 where something passes, its columns in order."""
    found = sp.csr_matrix((np.ones(len(source), dtype=np.float32), (target, source)), shape=(size, size))
    found.sum_duplicates()
    found.data[:] = 1.0
    return found
