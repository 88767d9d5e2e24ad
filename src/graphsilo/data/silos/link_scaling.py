"""Columns of tables of links in units that a model can learn from, as features of nodes are.

Every silo scales them by its own rows, whatever ``data.scale_by`` says: nothing of them leaves it. A scale belongs to
the silo's model as that of features does. Where ``data.scale`` leaves features as they are, these columns come to mean
0 and deviation 1 all the same: no model takes amounts as they stand in a table.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.scales import ScaleName
from graphsilo.data.silos.column_scales import scale_of_rows
from graphsilo.data.silos.past import past_graph
from graphsilo.data.silos.scaling import FeatureScale
from graphsilo.data.silos.silo import Silo


def add_own_scale(scale: FeatureScale | None, silo: Silo, how: ScaleName) -> FeatureScale:
    """The scale of a silo's features with that of the columns of its links, from the rows that training sees.

    Args:
        scale: Of the features; None leaves them as they are.
        silo: Empty cells do not count. A column without any number is left as it is.
        how: ``robust`` takes medians and quartiles, any other word means and deviations.
    """
    nothing = np.zeros(0)
    found = FeatureScale(nothing, nothing) if scale is None else scale
    links = past_graph(silo).links
    if not links and silo.graph.union.time is None:
        links = silo.graph.union.links
    if links is None:
        return found
    columns = (column[~np.isnan(column), None] for column in links.features.T)
    scales = [scale_of_rows(column, "robust" if how == "robust" else "standard") for column in columns]
    shift, factor = (np.array([getattr(one, key)[0] for one in scales]) for key in ("shift", "factor"))
    return replace(found, links=FeatureScale(shift, factor))


def scale_links(graph: Graph | GraphCollection, scale: FeatureScale) -> Graph | GraphCollection:
    """The graph with the columns of its links scaled; empty cells stay empty."""
    links = graph.union.links
    if links is None:
        return graph
    union = replace(graph.union, links=replace(links, features=(links.features - scale.shift) * scale.factor))
    return replace(graph, union=union) if isinstance(graph, GraphCollection) else union
