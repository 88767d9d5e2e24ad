"""Metis: K parts of similar size with few edges between them.

Source: Karypis and Kumar (1998); as a federated partition FED-PUB (Baek et al., ICML 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.data.partition.cut import Cut
from graphsilo.errors import PartitionError


@dataclass(frozen=True)
class MetisOptions:
    """Settings of the Metis split.

    Attributes:
        parts: Number of parts; must equal the number of clients, which is the default. (OpenFGL's public default of
            100 with 10 clients drops nine nodes of ten.)
        recursive: True bisects recursively, False cuts k ways at once; the default is pymetis's own choice:
            recursive up to 8 parts, k-way above.
        cut_seed: Seed of Metis, for another cut of the same graph; without it Metis's own default.
    """

    parts: int | None = None
    recursive: bool | None = None
    cut_seed: int | None = None


def membership(
    graph: Graph, parts: int, *, recursive: bool | None = None, cut_seed: int | None = None
) -> NDArray[np.int64]:
    """[n] part number of each node; some parts may be empty.

    The graph goes to Metis as its CSR arrays: no Python list per node is made.
    """
    import pymetis

    if parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int64)
    adjacency = undirected_adjacency(graph)
    options = pymetis.Options() if cut_seed is None else pymetis.Options(seed=cut_seed)
    _, found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        recursive=recursive,
        options=options,
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
    parts = membership(graph, clients, recursive=options.recursive, cut_seed=options.cut_seed)
    sizes = np.bincount(parts, minlength=clients)
    if (sizes == 0).any():
        raise PartitionError(
            f"partition 'metis' left {int((sizes == 0).sum())} of {clients} parts empty on {graph.num_nodes} nodes: "
            f"ask for fewer clients, or use 'random'."
        )
    order = np.argsort(parts, kind="stable")
    return Cut(tuple(np.split(order, np.cumsum(sizes)[:-1])))
