"""The scale of columns: their means and deviations, of one silo's rows or from sums of all silos'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, GraphCollection
from graphsilo.data.scales import ScaleName
from graphsilo.data.silos.scaling import FeatureScale, wide_blocks
from graphsilo.data.silos.silo import Schema, Silo

if TYPE_CHECKING:
    from graphsilo.data.links import NodeTypes

OTHER_UNIT = 30.0
"""Deviations of one column at two silos so many times apart are taken for a sign of two units, such as EUR and cents,
of which even a hundredfold is less where a few numbers are far from the others."""
_NORMAL_IQR = 1.3489795003921634
"""Distance of the quartiles of a normal distribution with deviation 1."""
_MOSTLY = 0.5
"""Share of entries that are not 0 from which a sparse column is centred: it is filled anyway."""
CONSTANT = 2.0**-44
"""A deviation so small a part of its mean is rounding: the mean of one number over and over need not be that number."""
_COLUMNS = 64
"""Columns whose quantiles are taken at once."""


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """What some rows add to the means of columns.

    Attributes:
        rows: How many they are.
        sums: [d] float64 sum of each column.
        others: [d] int64 entries that are neither 0 nor 1.
        filled: [d] int64 entries that are not 0; [0] of dense features, which need none.
        members: [d] int64 rows of nodes whose type has the column; [0] where all have all columns.
    """

    rows: int
    sums: NDArray[np.float64]
    others: NDArray[np.int64]
    filled: NDArray[np.int64]
    members: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def counted(self) -> NDArray[np.int64] | int:
        """Rows that count, by column where they differ."""
        return self.members if len(self.members) else self.rows

    def centre(self) -> NDArray[np.float64]:
        """[d] what is subtracted from each column: its mean, or 0 where it is mostly 0 and kept sparse."""
        mean = self.sums / np.maximum(self.counted, 1)
        return np.where(self.filled < _MOSTLY * np.asarray(self.counted), 0.0, mean) if len(self.filled) else mean

    def scale(
        self, centre: NDArray[np.float64], squares: NDArray[np.float64], rows: NDArray[np.int64] | int
    ) -> FeatureScale:
        """The scale that follows from a second look.

        Two looks, since Σx² - (Σx)²/n of 250,000 ± 60 has lost most of its digits.

        Args:
            centre: As ``centre`` gives it.
            squares: [d] sum of (x - centre)².
            rows: Over how many rows, by column where they differ.
        """
        return _scale(centre, np.sqrt(squares / np.maximum(rows, 1)), plain=self.others == 0)


def _scale(centre: NDArray[np.float64], spread: NDArray[np.float64], plain: NDArray[np.bool_]) -> FeatureScale:
    varies = spread > CONSTANT * np.abs(centre)
    factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
    return FeatureScale(np.where(plain, 0.0, centre), np.where(plain, 1.0, factor))


def visible_graph(silo: Silo) -> Graph:
    """The nodes and links that count: what training sees; of nodes with times those up to the last training node."""
    graph = silo.graph
    if isinstance(graph, GraphCollection):
        return graph.union if len(silo.train) == len(graph) else graph.subset(silo.train).union
    if graph.time is None:
        return graph
    last = last_learned(silo, graph.time)
    later = graph.time > last
    return graph if last == -np.inf or not later.any() else graph.subgraph(np.flatnonzero(~later))


def last_learned(silo: Silo, times: NDArray[np.float64]) -> float:
    """The time of the last training node; -inf where none has one.

    Args:
        silo: Whose training nodes count.
        times: [n] of the nodes of its training graph.
    """
    learned = times[silo.train]
    return float(learned[~np.isnan(learned)].max(initial=-np.inf))


def fewest_rows(silo: Silo) -> int:
    """How many rows are added up in the column that fewest nodes have."""
    graph = visible_graph(silo)
    members = members_of(graph)
    return int(members[members > 0].min(initial=graph.num_nodes))


def members_of(graph: Graph) -> NDArray[np.int64]:
    """[d] nodes whose type has each column; [0] where nodes have no types."""
    types = graph.types
    return np.zeros(0, dtype=np.int64) if types is None else _count_members(types)


def _count_members(types: NodeTypes) -> NDArray[np.int64]:
    counts = np.append(np.bincount(types.of_node, minlength=len(types.names)), len(types.of_node))
    found: NDArray[np.int64] = counts[types.of_feature]  # the last is of -1, which all have
    return found


def _by_type(features: Features, types: NodeTypes | None) -> Iterator[tuple[Any, Features]]:
    """Which columns, and their rows of the nodes whose type has them."""
    if types is None:
        yield slice(None), features
        return
    for kind in np.unique(types.of_feature).tolist():
        columns = np.flatnonzero(types.of_feature == kind)
        rows = features if kind < 0 else features[np.flatnonzero(types.of_node == kind)]
        yield columns, rows[:, columns]


def only_members(features: Features, types: NodeTypes) -> Features:
    """With 0 where a node's type does not have a column."""
    if isinstance(features, np.ndarray):
        for kind in np.unique(types.of_feature[types.of_feature >= 0]).tolist():
            features[np.ix_(types.of_node != kind, types.of_feature == kind)] = 0.0
        return features
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    kinds = types.of_feature[features.indices]
    features.data[(kinds >= 0) & (kinds != types.of_node[rows])] = 0.0
    features.eliminate_zeros()
    return features


def sums_of(features: Features, types: NodeTypes | None = None) -> ColumnSums:
    """What these rows add to the means: in each column those of nodes whose type has it."""
    n, d = features.shape
    if types is None:
        return _sums_of(features)
    filled = 0 if isinstance(features, np.ndarray) else d
    made = ColumnSums(n, np.zeros(d), np.zeros(d, np.int64), np.zeros(filled, np.int64), _count_members(types))
    for columns, rows in _by_type(features, types):
        found = _sums_of(rows)
        made.sums[columns], made.others[columns] = found.sums, found.others
        if filled:
            made.filled[columns] = found.filled
    return made


def _sums_of(features: Features) -> ColumnSums:
    n, d = features.shape
    if isinstance(features, np.ndarray):
        sums, others = np.zeros(d), np.zeros(d, dtype=np.int64)
        # About one of the rows: numbers of float64 that hardly differ would lose in their sum what they differ by.
        about = features[0] if n and features.dtype == np.float64 else np.zeros(d)
        for block in wide_blocks(features):
            others += ((block != 0) & (block != 1)).sum(axis=0)
            block -= about
            sums += block.sum(axis=0)
        return ColumnSums(n, sums + n * about, others, np.zeros(0, dtype=np.int64))
    data, columns = features.data.astype(np.float64), features.indices
    return ColumnSums(
        n,
        np.asarray(np.bincount(columns, weights=data, minlength=d), dtype=np.float64),
        np.bincount(columns[(data != 0) & (data != 1)], minlength=d),
        np.bincount(columns[data != 0], minlength=d),
    )


def squares_of(features: Features, centre: NDArray[np.float64], types: NodeTypes | None = None) -> NDArray[np.float64]:
    """[d] sum of (x - centre)² over these rows: in each column those of nodes whose type has it."""
    found = np.zeros(features.shape[1])
    for columns, rows in _by_type(features, types):
        found[columns] = _squares_of(rows, centre[columns])
    return found


def _squares_of(features: Features, centre: NDArray[np.float64]) -> NDArray[np.float64]:
    n, d = features.shape
    if isinstance(features, np.ndarray):
        total = np.zeros(d)
        for block in wide_blocks(features):
            block -= centre
            np.square(block, out=block)
            total += block.sum(axis=0)
        return total
    columns = features.indices
    kept = np.bincount(columns, weights=(features.data - centre[columns]) ** 2, minlength=d)
    squares: NDArray[np.float64] = kept + (n - np.bincount(columns, minlength=d)) * centre**2
    return squares


def own_scale(silo: Silo, how: ScaleName) -> FeatureScale:
    """The scale of a silo that is alone.

    Args:
        silo: Its own rows count; where it has no row to train on, as for graph classification, all that it has.
        how: ``standard`` or ``robust``.
    """
    seen = visible_graph(silo)
    graph = seen if seen.num_nodes else silo.graph.union
    return scale_of_rows(graph.features, how, graph.types)


def scale_of_rows(rows: Features, how: ScaleName, types: NodeTypes | None = None) -> FeatureScale:
    """The scale that some rows alone give; see :func:`own_scale`."""
    found = sums_of(rows, types)
    if how == "robust":
        shift, factor = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        for columns, part in _by_type(rows, types):
            robust = _robust(part, _sums_of(part))
            shift[columns], factor[columns] = robust.shift, robust.factor
        return FeatureScale(shift, factor)
    centre = found.centre()
    return found.scale(centre, squares_of(rows, centre, types), found.counted)


def _robust(rows: Features, found: ColumnSums) -> FeatureScale:
    """Median and quartiles; where the quartiles are one, as of a column that is mostly one value, the deviation."""
    n, d = rows.shape
    middle, spread = np.zeros(d), np.zeros(d)
    by_column = rows if isinstance(rows, np.ndarray) else rows.tocsc()
    if n:
        for start in range(0, d, _COLUMNS):
            part = by_column[:, start : start + _COLUMNS]
            block = np.asarray(part if isinstance(part, np.ndarray) else part.toarray(), dtype=np.float64)
            low, middle[start : start + _COLUMNS], high = np.percentile(block, (25, 50, 75), axis=0)
            spread[start : start + _COLUMNS] = (high - low) / _NORMAL_IQR
    if len(found.filled):
        middle = np.where(found.filled < _MOSTLY * n, 0.0, middle)
    deviation: NDArray[np.float64] = np.sqrt(_squares_of(rows, middle) / max(n, 1))
    return _scale(middle, np.where(spread > 0, spread, deviation), plain=found.others == 0)


def other_units(graphs: Sequence[Graph], names: Sequence[str]) -> list[str]:
    """A sentence for each column whose numbers at some silos range so much further that they may have another unit.

    Args:
        graphs: Of silos whose features are scaled together, as they were read.
        names: What the silos are called.
    """
    factors = np.stack([_unit(scale_of_rows(graph.features, "standard", graph.types)) for graph in graphs])
    found: dict[str, str] = {}
    for column, name in enumerate(graphs[0].feature_names or ()):
        known = np.flatnonzero(factors[:, column])
        order = known[np.argsort(factors[known, column])]
        usual = order[len(order) // 2] if len(order) else 0
        each = [(names[silo], _times(factors[usual, column], factors[silo, column])) for silo in known.tolist()]
        far = [f"{times} times as far at {silo}" for silo, times in each if times is not None]
        if far:
            found[name] = f"{' and '.join(far)} as at {names[usual]}"
    links, types = graphs[0].links, graphs[0].types
    return _say_units(found, () if links is None else links.relations, () if types is None else types.names)


def other_units_here(silo: Silo, agreed: FeatureScale) -> list[str]:
    """As :func:`other_units`, for one silo by what it knows of all."""
    own = _unit(own_scale(silo, "standard"))
    names = silo.schema.feature_names or ()
    found = [(name, _times(agreed.factor[column], own[column])) for column, name in enumerate(names)]
    far = {name: f"{times} times as far here as over all silos" for name, times in found if times}
    return _say_units(far, silo.schema.relations, silo.schema.types)


def _unit(scale: FeatureScale) -> NDArray[np.float64]:
    """[d] what columns with a unit are multiplied by; 0 of those that are constant or hold 0 and 1 alone, such as the
    sums over a table without rows, whose unit nobody can see."""
    return np.where((scale.shift == 0) & (scale.factor == 1), 0.0, scale.factor)


def far_columns(graph: Graph, scale: FeatureScale, schema: Schema) -> dict[str, float]:
    """Columns of tables all of whose features lie so much further from 0 than where they were scaled that they may have
    another unit, and how many times at least.

    Args:
        graph: Whose features were scaled.
        scale: By what.
        schema: Of the model.
    """
    if not len(scale.factor) or not graph.num_nodes:
        return {}
    squares = squares_of(graph.features, np.zeros(graph.num_features), graph.types)
    spread = np.sqrt(squares / np.maximum(sums_of(graph.features, graph.types).counted, 1))
    names = graph.feature_names or [f"feature {column}" for column in range(graph.num_features)]
    times: dict[tuple[str, str], float] = {}
    for column in np.flatnonzero((_unit(scale) > 0) & (spread > 0)).tolist():
        place = _unit_of(names[column], schema.relations, schema.types)
        if place is not None:
            times[place] = min(times.get(place, np.inf), float(spread[column]))
    return {f"'{column}' ({table})": least for (column, table), least in times.items() if least > OTHER_UNIT}


def _times(usual: float, factor: float) -> str | None:
    """How many times further numbers range that are scaled by another factor than usual, where that is conspicuous."""
    ratio = usual / factor if usual and factor else 1.0
    return None if 1 / OTHER_UNIT < ratio < OTHER_UNIT else f"{float(f'{ratio:.1g}'):g}"


def _say_units(far: Mapping[str, str], relations: Sequence[str], types: Sequence[str]) -> list[str]:
    """A sentence for each column of a table that features with numbers so far apart are made of; how often something
    was counted has no unit."""
    first: dict[tuple[str, str], str] = {}
    for name in far:
        if (place := _unit_of(name, relations, types)) is not None:
            first.setdefault(place, name)
    return [
        f"the numbers of '{name}' range about {far[name]}: are they in another unit? units: {{{column}: FACTOR}} under "
        f"{table} of a description brings them to the others', and scale_by: silo scales every silo by its own numbers."
        for (column, table), name in first.items()
    ]


def _unit_of(name: str, relations: Sequence[str], types: Sequence[str]) -> tuple[str, str] | None:
    """The column whose unit a feature has, and the key of its table in a description; None of counts and shares."""
    from graphsilo.data.sources.link_columns import DIRECTIONS, start_of
    from graphsilo.data.sources.table_spec import LINK

    for relation in relations:
        for start in (start_of(relation, direction) for direction in DIRECTIONS):
            if name.startswith(start):
                column, _, kind = name.removeprefix(start).partition(", ")
                plain = not kind or kind.startswith("share") or column in ("count", "others")
                return None if plain else (column, "edges" if relation == LINK else f"edges.{relation}")
    kind, _, column = name.partition(".")
    return (column, f"nodes.{kind}") if kind in types else (name, "nodes")
