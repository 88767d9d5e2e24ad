"""What graphs with types, times of nodes or rows of links refuse: what hides, or adds, something of which other rows
tell, or lack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.sources.link_columns import has_link_columns
from graphsilo.data.sources.looking_back import may_pass, moments
from graphsilo.errors import UnsupportedError, several
from graphsilo.types import Task


def refuse_hiding(graph: Graph, scenario: str, task: Task) -> None:
    """Refuses what takes links or nodes away, where rows of links and nodes of other types would tell of them.

    Raises:
        UnsupportedError: Says what to do instead.
    """
    if task == "link" and graph.links is not None:
        raise UnsupportedError(
            f"link prediction hides links, and the tables of links of {graph.name} have columns, dates or names: their "
            f"rows, and what is added up over them, would tell of those that are hidden. To classify rows, such as "
            f"transfers, describe their table as one of nodes with keys; to predict links, leave out columns and time "
            f"of the only table of edges."
        )
    if graph.types is None and scenario != "seen" and (scenario != "inductive" or has_link_columns(graph)):
        raise UnsupportedError(
            f"the scenario '{scenario}' takes nodes away, and what is added up over the tables of links of "
            f"{graph.name} would tell of them. Use the scenario 'seen'"
            f"{', or leave out the sums (sums: false, data.sums=false)' if scenario == 'inductive' else ''}."
        )
    if scenario != "seen" and graph.types is not None:
        raise UnsupportedError(
            f"the scenario '{scenario}' takes nodes away by their label or split, and nodes of {graph.name} have "
            f"types ({several(graph.types.names, 6)}), of which only '{graph.types.names[graph.types.target]}' has "
            f"any. Use the scenario 'seen'."
        )


def refuse_spoiling(graph: Graph, *, edges: bool, features: bool, labels: bool) -> None:
    """Refuses to change edges whose rows stay, features that mean nothing at most nodes, and classes that are none.

    Raises:
        UnsupportedError: Says what to leave out.
    """
    if graph.targets is not None and labels:
        raise UnsupportedError(
            "targets are no classes, of which a node could be given another one: use label_sparsity."
        )
    if graph.links is not None and edges:
        raise UnsupportedError(
            f"the tables of links of {graph.name} have columns, dates or names: a link that is taken away or added "
            f"would stay in, or lack, their rows and the sums over them. Leave out perturb.edge_sparsity and "
            f"perturb.edge_noise."
        )
    if graph.types is not None and features:
        raise UnsupportedError(
            f"nodes of {graph.name} have types, and columns of other types than a node's mean nothing: noise there, or "
            f"a node of another type without its columns, is no spoiled measurement. Leave out "
            f"perturb.feature_sparsity and perturb.feature_noise."
        )


def keep_forward(graph: Graph, edges: NDArray[np.int64], who: str) -> NDArray[np.int64]:
    """[2, e] of edges that are added those along which nothing passes back in time.

    Args:
        graph: To which.
        edges: [2, m] both directions of each link.
        who: Adds them, for the text of the error.

    Raises:
        UnsupportedError: The graph has rows of links, which would lack them.
    """
    if graph.links is not None:
        raise UnsupportedError(
            f"{who} adds links, which the tables of links of {graph.name}, and the sums over them, would lack. Choose "
            f"a partition rule that cuts only, such as natural, louvain or metis."
        )
    if graph.time is None:
        return edges
    source, target = edges.astype(np.int64)
    return np.ascontiguousarray(edges[:, may_pass(moments(graph), source, target, None)])
