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
from graphsilo.data.sources.looking_back import may_pass, moments
from graphsilo.errors import UnsupportedError
from graphsilo.models.view import GraphTensors, Norm, Relation, normalise


def relation_matrix(data: GraphTensors, relation: int, norm: Norm, *, turned: bool = False) -> sp.csr_matrix:
    """The normalised adjacency of one relation, [n, n] CSR of [target, source]; parallel rows are one link.

    Args:
        data: The graph's tensors; they keep what was made.
        relation: Number of the relation; a graph without its links has an empty matrix.
        norm: As of :func:`graphsilo.models.view.normalise`.
        turned: Whether messages pass against the rows' direction.
    """

    def make() -> sp.csr_matrix:
        rows = passing_rows(data)
        chosen = rows.kind == 2 * relation + turned
        return normalise(_pattern(rows.target[chosen], rows.source[chosen], data.num_nodes), norm)

    return data.cached(("relation", relation, norm, turned), make)


class Rows(NamedTuple):
    """What passes along rows of the tables of links: each row once in its direction and once against it.

    Attributes:
        source, target: [m] nodes.
        kind: [m] 2 · relation along its rows, 2 · relation + 1 against them.
        row: [m] which row of the tables it is.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    kind: NDArray[np.int64]
    row: NDArray[np.int64]


def passing_rows(data: GraphTensors) -> Rows:
    """The rows that pass something; those of a node to itself do not."""

    def make() -> Rows:
        graph, n = data.graph, np.int64(data.num_nodes)
        links = graph.links
        if links is None:
            return Rows(*np.zeros((4, 0), dtype=np.int64))
        linked = np.isin(_pairs(links.ends, n), _pairs(graph.edges.astype(np.int64), n))
        row = np.tile(np.flatnonzero(linked & (links.ends[0] != links.ends[1])), 2)
        once = len(row) // 2
        kind = 2 * links.of_link[row].astype(np.int64)
        kind[once:] += 1
        source, target = links.ends[:, row]
        source[once:], target[once:] = target[once:].copy(), source[once:].copy()
        found = Rows(source, target, kind, row)
        if graph.time is None:
            return found
        kept = may_pass(moments(graph), source, target, None if links.time is None else links.time[row])
        return Rows(*(part[kept] for part in found))

    return data.cached(("passing rows",), make)


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
    rows = passing_rows(data)
    return data.cached(("relations",), lambda: _pattern(rows.target, rows.source, data.num_nodes))


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


def _pairs(ends: NDArray[np.int64], n: np.int64) -> NDArray[np.int64]:
    """[m] a number for each pair of ends, whichever of them comes first."""
    low, high = np.minimum(*ends), np.maximum(*ends)
    return np.asarray(low * n + high)


def _pattern(target: NDArray[np.int64], source: NDArray[np.int64], size: int) -> sp.csr_matrix:
    """[n, n] with 1 where something passes, its columns in order."""
    found = sp.csr_matrix((np.ones(len(source), dtype=np.float32), (target, source)), shape=(size, size))
    found.sum_duplicates()
    found.data[:] = 1.0
    return found
