"""What graphs with types of nodes or rows of links refuse: whatever hides something that other rows tell of."""

from __future__ import annotations

from graphsilo.data.graph import Graph
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
    if scenario != "seen" and graph.types is not None:
        raise UnsupportedError(
            f"the scenario '{scenario}' takes nodes away by their label or split, and nodes of {graph.name} have "
            f"types ({several(graph.types.names, 6)}), of which only '{graph.types.names[graph.types.target]}' has "
            f"any. Use the scenario 'seen'."
        )


def refuse_spoiling(graph: Graph, *, edges: bool, features: bool) -> None:
    """Refuses to change edges whose rows stay, and features that mean nothing at most nodes.

    Raises:
        UnsupportedError: Says what to leave out.
    """
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
