"""Links between silos, known to the silos at both of their ends, and edges of neither.

Where a graph is cut they are those that no silo holds. Silos with tables of their own name them themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.links import mix_bits
from graphsilo.data.silos.silo import CutLinks, Silo
from graphsilo.data.sources.directions import is_symmetric
from graphsilo.errors import DataError, UnsupportedError


def with_cut_links(silos: Sequence[Silo], graph: Graph, rule: str) -> list[Silo]:
    """The silos with the links that lead from other silos' nodes to their own, each once.

    Args:
        silos: Each with the graph that it trains on; nodes of none of these have no links here.
        graph: The whole graph that they were cut from.
        rule: What cut it, for the text of errors.

    Raises:
        UnsupportedError: A node is in several silos, so that its links are not between two; or links have directions.
    """
    owner = np.full(graph.num_nodes, -1, dtype=np.int64)
    place = np.zeros(graph.num_nodes, dtype=np.int64)
    held = [silo.graph.global_ids for silo in silos if isinstance(silo.graph, Graph)]
    for number, nodes in enumerate(held):
        if (owner[nodes] >= 0).any():
            raise UnsupportedError(
                f"links between silos need each node to be in one silo only, and {rule} puts some into several. Choose "
                f"another partition rule."
            )
        owner[nodes], place[nodes] = number, np.arange(len(nodes))
    if graph.time is not None:
        raise UnsupportedError(
            f"links between silos are known at both of their ends, and nodes of {graph.name} have times, so that the "
            f"later end alone may be told of the earlier one. Leave out links between silos, or the times of nodes."
        )
    if not is_symmetric(graph):
        raise UnsupportedError(
            f"links between silos are known at both of their ends, and those of {graph.name} have directions. Load it "
            f"without (--set data.undirected=true)."
        )
    source, target = graph.edges
    between = np.flatnonzero((owner[source] != owner[target]) & (owner[source] >= 0) & (owner[target] >= 0))
    links = np.unique(
        np.stack([owner[target[between]], place[target[between]], source[between]]).astype(np.int64), axis=1
    )
    ends = np.searchsorted(links[0], np.arange(len(silos) + 1))
    return [
        replace(silo, cut=CutLinks(held[number], *links[1:, ends[number] : ends[number + 1]]))
        for number, silo in enumerate(silos)
    ]


def own_links(graph: Graph, nodes: NDArray[np.int64]) -> CutLinks | None:
    """The links that a silo's table names; None where it has no such table, or others of the same union have none.

    Args:
        graph: The silo's graph, or several silos' side by side.
        nodes: Rows of the silo's nodes, by their local numbers.
    """
    if graph.outside is None:
        return None
    place = np.full(graph.num_nodes, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    mine = graph.outside.of_nodes(nodes, place)
    ids = np.full(len(nodes), -1, dtype=np.int64)
    ids[mine.node] = mine.name
    return CutLinks(ids, mine.node, mine.other)


def check_sides(graphs: Sequence[Graph]) -> None:
    """Make sure that the tables of two silos name the same links between them.

    Args:
        graphs: Of silos with tables of their own, in one process.

    Raises:
        DataError: A link stands in one table alone; names the first.
    """
    given = [graph for graph in graphs if graph.outside is not None]
    if not given:
        return
    names = [graph.name for graph in graphs]
    listed: dict[tuple[str, str], dict[tuple[int, int], str]] = {}
    for graph in given:
        assert graph.outside is not None
        links, ids = graph.outside, graph.external_ids
        for other in np.unique(links.silo).tolist():
            some = links.where(links.silo == other)
            pairs = zip(some.name.tolist(), some.other.tolist(), strict=True)
            listed[graph.name, other] = dict(zip(pairs, ids[some.node].tolist(), strict=True))
    for (one, other), mine in listed.items():
        theirs = {(far, near) for near, far in listed.get((other, one), {})}
        alone = [word for pair, word in mine.items() if pair not in theirs]
        if alone and other in names:
            raise DataError(_disagreement(one, other, f"{len(alone)} of {len(mine)}, the first from '{alone[0]}'"))


def sides_of(graph: Graph) -> dict[str, tuple[int, str]]:
    """How many links lead to each other silo, and a checksum of them that both of their silos compute alike."""
    links = graph.outside
    if links is None:
        return {}
    # A sum does not depend on which end is whose.
    sums = mix_bits(links.name.astype(np.uint64) + links.other.astype(np.uint64))
    chosen = {str(other): links.silo == other for other in np.unique(links.silo).tolist()}
    return {
        other: (int(these.sum()), f"{int(np.bitwise_xor.reduce(sums[these])):016x}") for other, these in chosen.items()
    }


def compare_sides(sides: Mapping[str, Mapping[str, tuple[int, str]]]) -> None:
    """As ``check_sides``, of silos at machines of their own, by what ``sides_of`` says of each.

    Raises:
        DataError: Two silos do not name the same links.
    """
    for one, others in sides.items():
        for other, (count, checksum) in others.items():
            if other in sides:
                there, theirs = sides[other].get(one, (0, ""))
                if (there, theirs) != (count, checksum):
                    what = "the same number of others" if there == count else f"{there}"
                    raise DataError(_disagreement(one, other, f"{count} in all, and the table of {other} has {what}"))


def side_notes(sides: Mapping[str, Mapping[str, tuple[int, str]]]) -> tuple[str, ...]:
    """What a person should know of links to silos that are not among these."""
    return tuple(
        f"silo {one} has {count} links to '{other}' (outside), and no silo of that name takes part: nothing comes over "
        f"them."
        for one, others in sides.items()
        for other, (count, _) in others.items()
        if other not in sides
    )


def _disagreement(one: str, other: str, which: str) -> str:
    return (
        f"silos {one} and {other} do not name the same links between them: {one} has links to {other} that {other} "
        f"does not have to {one} ({which}). Each link stands in the tables of both silos (outside), its two nodes by "
        f"the ids that they have at their silos: add what lacks, or remove it."
    )
