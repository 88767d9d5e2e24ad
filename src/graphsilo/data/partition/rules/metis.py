"""Metis: K parts of similar size with few edges between them.

Source: Karypis and Kumar (1998); as a federated partition FED-PUB (Baek et al., ICML 2023).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import members, undirected_adjacency
from graphsilo.data.partition.rule import Cut, PartitionOptions, Rule, Seed
from graphsilo.errors import PartitionError
from graphsilo.random import numpy_generator
from graphsilo.settings import setting
from graphsilo.types import NodeIds


class PartOptions(PartitionOptions):
    """Settings of every rule that begins with Metis."""

    recursive: bool | None = setting(
        None, "true bisects recursively, false cuts k ways at once; the default is pymetis's own choice: recursive up "
        "to 8 parts, k-way above",
    )  # fmt: skip
    cut_seed: Seed | None = setting(
        None, "for another cut of the same graph: seed of Metis, and of the order of nodes where that has no effect"
    )


class MetisOptions(PartOptions):
    """Settings of the Metis split."""

    parts: int | None = setting(
        None, "number of parts; must equal the number of clients, which is the default (OpenFGL's public default of "
        "100 with 10 clients drops nine nodes of ten)", ge=1,
    )  # fmt: skip


def membership(
    graph: Graph, parts: int, *, recursive: bool | None = None, cut_seed: int | None = None
) -> NDArray[np.int64]:
    """[n] part number of each node; some parts may be empty.

    Metis ignores its seed where it makes many parts at once (100 of Cora, say). Where ``cut_seed`` leaves the default
    cut as it is, Metis gets the nodes in an order that this seed shuffles.
    """
    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    adjacency = undirected_adjacency(graph)
    usual = _metis(adjacency, parts, recursive, None)
    if cut_seed is None:
        return usual
    found = _metis(adjacency, parts, recursive, cut_seed)
    if not np.array_equal(found, usual):
        return found
    order = numpy_generator(cut_seed, "metis").permutation(graph.num_nodes)
    found = np.empty_like(usual)
    found[order] = _metis(adjacency[order][:, order], parts, recursive, cut_seed)
    return found


def _metis(adjacency: sp.csr_matrix, parts: int, recursive: bool | None, seed: int | None) -> NDArray[np.int64]:
    """The graph goes to Metis as its CSR arrays: no Python list per node is made."""
    import pymetis

    _, found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        recursive=recursive,
        options=pymetis.Options() if seed is None else pymetis.Options(seed=seed),
    )
    return np.asarray(found, dtype=np.int64)


def cut(graph: Graph, clients: int, seed: int, options: MetisOptions) -> Cut:
    """Cut a graph into K parts; client i is part i, nodes ascending. The seed plays no part: see ``cut_seed``.

    Raises:
        PartitionError: ``parts`` differs from the number of clients, or a part is empty.
    """
    if options.parts is not None and options.parts != clients:
        raise PartitionError(
            f"partition 'metis' makes one part per client: {clients} clients, but parts = {options.parts}. Nodes of "
            f"other parts would vanish; leave parts out, or use 'metis+', which joins many parts into clients."
        )
    return Cut(tuple(filled_parts(graph, clients, options)))


def filled_parts(graph: Graph, count: int, options: PartOptions) -> list[NodeIds]:
    """Ascending nodes of each part.

    Raises:
        PartitionError: A part is empty.
    """
    nodes = members(membership(graph, count, recursive=options.recursive, cut_seed=options.cut_seed), count)
    empty = sum(not len(part) for part in nodes)
    if empty:
        raise PartitionError(
            f"partition 'metis' left {empty} of {count} parts empty on {graph.num_nodes} nodes: "
            f"ask for fewer clients, or use 'random'."
        )
    return nodes


RULES = (
    Rule(
        "metis",
        "parts of equal size with few edges between them",
        MetisOptions,
        cut,
        source="FED-PUB (Baek et al., ICML 2023)",
        with_new={"recursive": False},  # as the published part sizes show
    ),
)
