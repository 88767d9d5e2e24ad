"""Features in units that a model can learn from: means and deviations, and what is made of them.

A column in years beside one in platelets per microlitre drowns every other. Columns are therefore brought to mean 0 and
deviation 1, by each silo for itself or by numbers that all silos agree on before round 1
(:mod:`graphsilo.federation.scaling`). A silo's scale belongs to its model: whatever the model is asked about, now or
years later, is scaled by it.

Rows that count are those that training sees: all nodes of the training graph, labels aside; of a collection the nodes
of its training graphs. Nodes that appear at test time do not count, and are scaled like the others.

- A column of nothing but 0 and 1 stays as it is: it has no unit.
- A column that is constant becomes 0, also where it varies later: nothing was learned of it.
- Features that are kept sparse stay so: a column that is mostly 0 is divided, by its root mean square, not centred.

Features may come in float64, and are float32 once they are scaled, or left as they are: of times in seconds, or written
as 202401010930, float32 keeps too few digits before their mean is taken off, and enough after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, GraphCollection
from graphsilo.data.scales import ScaleName, Scaling
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import DataError

FAR = 1000.0
"""A column whose range is so many times another's is worth a word where nothing is scaled."""
OTHER_UNIT = 30.0
"""Deviations of one column at two silos so many times apart are taken for a sign of two units, such as EUR and cents,
of which even a hundredfold is less where a few numbers are far from the others."""
_NORMAL_IQR = 1.3489795003921634
"""Distance of the quartiles of a normal distribution with deviation 1."""
_MOSTLY = 0.5
"""Share of entries that are not 0 from which a sparse column is centred: it is filled anyway."""
_CONSTANT = 2.0**-44
"""A deviation so small a part of its mean is rounding: the mean of one number over and over need not be that number."""
_LOST = 0.01
"""Share of a column's distinct values from which it is said that they are lost."""
_LOOKED_AT = 20_000
"""Rows of which this is counted: of many more, numbers at random fall together in float32, too, which is no loss."""
_ROWS = 1 << 14
"""Rows that are widened to float64 at once."""
_COLUMNS = 64
"""Columns whose quantiles are taken at once."""


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """What is done to the columns: x becomes (x - shift) · factor.

    Attributes:
        shift, factor: [d] float64.
    """

    shift: NDArray[np.float64]
    factor: NDArray[np.float64]

    @property
    def digest(self) -> str:
        """Stands for its numbers."""
        return hashlib.sha256(self.shift.tobytes() + self.factor.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """What some rows add to the means of columns.

    Attributes:
        rows: How many they are.
        sums: [d] float64 sum of each column.
        others: [d] int64 entries that are neither 0 nor 1.
        filled: [d] int64 entries that are not 0; [0] of dense features, which need none.
    """

    rows: int
    sums: NDArray[np.float64]
    others: NDArray[np.int64]
    filled: NDArray[np.int64]

    def centre(self) -> NDArray[np.float64]:
        """[d] what is subtracted from each column: its mean, or 0 where it is mostly 0 and kept sparse."""
        mean = self.sums / max(self.rows, 1)
        return np.where(self.filled < _MOSTLY * self.rows, 0.0, mean) if len(self.filled) else mean

    def scale(self, centre: NDArray[np.float64], squares: NDArray[np.float64], rows: int) -> FeatureScale:
        """The scale that follows from a second look.

        Two looks, since Σx² - (Σx)²/n of 250,000 ± 60 has lost most of its digits.

        Args:
            centre: As ``centre`` gives it.
            squares: [d] sum of (x - centre)².
            rows: Over how many rows.
        """
        return _scale(centre, np.sqrt(squares / max(rows, 1)), plain=self.others == 0)


def _scale(centre: NDArray[np.float64], spread: NDArray[np.float64], plain: NDArray[np.bool_]) -> FeatureScale:
    varies = spread > _CONSTANT * np.abs(centre)
    factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
    return FeatureScale(np.where(plain, 0.0, centre), np.where(plain, 1.0, factor))


def visible_rows(silo: Silo) -> Features:
    """[n, d] features of the rows that count: what training sees."""
    graph = silo.graph
    if not isinstance(graph, GraphCollection):
        return graph.features
    if len(silo.train) == len(graph):
        return graph.union.features
    return graph.subset(silo.train).union.features


def sums_of(features: Features) -> ColumnSums:
    """What these rows add to the means."""
    n, d = features.shape
    if isinstance(features, np.ndarray):
        sums, others = np.zeros(d), np.zeros(d, dtype=np.int64)
        # About one of the rows: numbers of float64 that hardly differ would lose in their sum what they differ by.
        about = features[0] if n and features.dtype == np.float64 else np.zeros(d)
        for block in _wide_blocks(features):
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


def squares_of(features: Features, centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """[d] sum of (x - centre)² over these rows."""
    n, d = features.shape
    if isinstance(features, np.ndarray):
        total = np.zeros(d)
        for block in _wide_blocks(features):
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
    rows = visible_rows(silo)
    return scale_of_rows(rows if rows.shape[0] else silo.graph.union.features, how)


def scale_of_rows(rows: Features, how: ScaleName) -> FeatureScale:
    """The scale that some rows alone give; see :func:`own_scale`."""
    found = sums_of(rows)
    if how == "robust":
        return _robust(rows, found)
    centre = found.centre()
    return found.scale(centre, squares_of(rows, centre), found.rows)


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
    deviation: NDArray[np.float64] = np.sqrt(squares_of(rows, middle) / max(n, 1))
    return _scale(middle, np.where(spread > 0, spread, deviation), plain=found.others == 0)


def scaled(silo: Silo, scale: FeatureScale | None, *, clip: bool = False) -> Silo:
    """The silo with everything that its model sees scaled; graphs that were one object stay one.

    Args:
        silo: With features as they were read.
        scale: None leaves them as they are, but for float32.
        clip: Whether numbers that are too large then become the largest ones.

    Raises:
        DataError: A number is too large to be scaled.
    """
    graph = scaled_graph(silo.graph, scale, clip=clip)
    if graph is silo.graph:  # float32 already, and left as it is
        return silo
    sets = tuple(replace(item, graph=scaled_graph(item.graph, scale, clip=clip)) for item in silo.evaluations)
    return replace(silo, graph=graph, evaluations=sets, scale=scale)


def prepared(silo: Silo, scaling: Scaling, agreed: FeatureScale | None = None, *, clip: bool = False) -> Silo:
    """A silo as its client works with it.

    Args:
        silo: With features as they were read.
        scaling: How they are scaled.
        agreed: The scale that the silos agreed on, where they did.
        clip: Whether numbers that are too large for it become the largest ones. Where the scale is somebody else's
            word, a refusal would tell that there is such a number.
    """
    if not scaling.has_columns:
        return scaled(silo, None)
    return scaled(silo, own_scale(silo, scaling.scale) if agreed is None else agreed, clip=clip)


def scaled_graph(
    graph: Graph | GraphCollection, scale: FeatureScale | None, *, clip: bool = False
) -> Graph | GraphCollection:
    """The same graph with scaled features as float32; made once for as long as somebody holds it.

    Raises:
        DataError: Another number of features; or a number is too large to be scaled.
    """
    if scale is None and graph.union.features.dtype == np.float32:
        return graph
    # On the graph itself, as its tensors are: clients share evaluation graphs, and may share a scale.
    kept: WeakValueDictionary[str, Graph | GraphCollection] = graph.__dict__.setdefault(
        "_scaled", WeakValueDictionary()
    )
    digest = "" if scale is None else scale.digest
    found = kept.get(digest)
    if found is None:
        found = kept[digest] = graph.with_features(_apply(graph.union, scale, clip))
    return found


def _apply(graph: Graph, scale: FeatureScale | None, clip: bool) -> Features:
    features = graph.features
    if scale is None:
        return features.astype(np.float32)
    if features.shape[1] != len(scale.shift):
        raise DataError(f"{graph.name} has {features.shape[1]} features, and the scale {len(scale.shift)}.")
    with np.errstate(over="ignore", invalid="ignore"):  # said in words below
        result = _dense(features, scale) if isinstance(features, np.ndarray) else _sparse(features, scale)
    entries = result if isinstance(result, np.ndarray) else result.data
    if clip:
        np.nan_to_num(entries, copy=False)
    bad = ~np.isfinite(entries)
    if bad.any():
        columns = np.flatnonzero(bad.any(axis=0)) if isinstance(result, np.ndarray) else result.indices[bad]
        column = int(columns[0])
        name = f" ('{graph.feature_names[column]}')" if graph.feature_names else ""
        raise DataError(
            f"{graph.name}: feature {column}{name} holds a number that is not finite once it is scaled: it is too far "
            f"from those that the scale was made from. Mend the number, or use scale: none."
        )
    return result


def _dense(features: NDArray[np.floating], scale: FeatureScale) -> NDArray[np.float32]:
    result = np.empty(features.shape, dtype=np.float32)
    start = 0
    for block in _wide_blocks(features):
        block -= scale.shift
        block *= scale.factor
        result[start : start + len(block)] = block
        start += len(block)
    return result


def _sparse(features: sp.csr_matrix, scale: FeatureScale) -> sp.csr_matrix:
    """Entries that are kept, scaled; columns that are centred are filled."""
    columns = features.indices
    centred = np.flatnonzero(scale.shift)
    entries = ((features.data - scale.shift[columns]) * scale.factor[columns]).astype(np.float32)
    if not len(centred):
        return sp.csr_matrix((entries, columns, features.indptr), shape=features.shape)
    n, d = features.shape
    block = features[:, centred].toarray().astype(np.float64)
    block = ((block - scale.shift[centred]) * scale.factor[centred]).astype(np.float32)
    rows = np.repeat(np.arange(n), np.diff(features.indptr))
    others = scale.shift[columns] == 0
    where = np.concatenate([rows[others], np.repeat(np.arange(n), len(centred))])
    which = np.concatenate([columns[others], np.tile(centred, n)])
    values = np.concatenate([entries[others], block.ravel()])
    result = sp.csr_matrix((values, (where, which)), shape=(n, d), dtype=np.float32)
    result.sort_indices()
    return result


def _wide_blocks(features: NDArray[np.floating]) -> Iterator[NDArray[np.float64]]:
    """Some rows at a time as float64, row by row in memory: sums then add in one order, wherever they are made."""
    for start in range(0, len(features), _ROWS):
        yield features[start : start + _ROWS].astype(np.float64, order="C")


def lost_values(graph: Graph, how: ScaleName) -> list[str]:
    """A sentence for each column that keeps fewer distinct values as float32, once it is scaled.

    Args:
        graph: With features as they were read.
        how: As they will be scaled, by these rows alone.
    """
    features = graph.features
    if not isinstance(features, np.ndarray) or features.dtype == np.float32 or not len(features):
        return []
    has_columns = how in ("standard", "robust")
    scale = scale_of_rows(features, how) if has_columns else None
    said = []
    for column in range(features.shape[1]):
        values = np.unique(features[:: -(-len(features) // _LOOKED_AT), column])
        kept = values if scale is None else (values - scale.shift[column]) * scale.factor[column]
        count = 1 + int(np.count_nonzero(np.diff(kept.astype(np.float32))))
        if count < (1 - _LOST) * len(values):
            name = f"'{graph.feature_names[column]}'" if graph.feature_names else f"feature {column}"
            advice = (
                "Make two columns of it, such as the day and the time of day, and mend values that are far from all "
                "others" if has_columns else "Have it scaled (scale: standard), or count from a later beginning"
            )  # fmt: skip
            said.append(
                f"{name}: {len(values)} different values become {count} in the seven digits of float32, in which "
                f"models compute{', scaled though they are' if has_columns else ''}. {advice}"
            )
    return said


def other_units(graphs: Sequence[Graph], names: Sequence[str]) -> list[str]:
    """A sentence for each column whose numbers at some silos range so much further that they may have another unit.

    Args:
        graphs: Of silos whose features are scaled together, as they were read.
        names: What the silos are called.
    """
    factors = np.stack([scale_of_rows(graph.features, "standard").factor for graph in graphs])
    said = []
    for column, name in enumerate(graphs[0].feature_names or ()):
        known = np.flatnonzero(factors[:, column])
        order = known[np.argsort(factors[known, column])]
        usual = order[len(order) // 2] if len(order) else 0
        found = [(names[silo], _times(factors[usual, column], factors[silo, column])) for silo in known.tolist()]
        far = [f"{times} times as far at {silo}" for silo, times in found if times is not None]
        if far:
            said.append(_other_unit(name, f"{' and '.join(far)} as at {names[usual]}"))
    return said


def other_units_here(silo: Silo, agreed: FeatureScale) -> list[str]:
    """As :func:`other_units`, for one silo by what it is told of all."""
    own = own_scale(silo, "standard").factor
    names = silo.schema.feature_names or ()
    found = [(name, _times(agreed.factor[column], own[column])) for column, name in enumerate(names)]
    return [_other_unit(name, f"{times} times as far here as over all silos") for name, times in found if times]


def _times(usual: float, factor: float) -> str | None:
    """How many times further numbers range that are scaled by another factor than usual, where that is conspicuous."""
    ratio = usual / factor if usual and factor else 1.0
    return None if 1 / OTHER_UNIT < ratio < OTHER_UNIT else f"{float(f'{ratio:.1g}'):g}"


def _other_unit(name: str, what: str) -> str:
    return (
        f"the numbers of '{name}' range about {what}: are they in another unit? units: {{{name}: FACTOR}} under nodes "
        f"of a description brings them to the others', and scale_by: silo scales every silo by its own numbers."
    )


def far_apart(graphs: Sequence[Graph | GraphCollection]) -> tuple[str, float, str, float] | None:
    """The columns with the widest and the narrowest range, where they are worlds apart; constant ones aside.

    Returns:
        Name and range of the widest, name and range of the narrowest; None where nothing is to be said.
    """
    low = high = None
    if len({graph.union.num_features for graph in graphs}) > 1:
        return None  # something else takes the place of such features
    for graph in graphs:
        features = graph.union.features
        if not min(features.shape):
            continue
        lowest, highest = (
            (features.min(axis=0), features.max(axis=0))
            if isinstance(features, np.ndarray)
            else (features.min(axis=0).toarray().ravel(), features.max(axis=0).toarray().ravel())
        )
        low = lowest if low is None else np.minimum(low, lowest)
        high = highest if high is None else np.maximum(high, highest)
    if low is None or high is None:
        return None
    span = high.astype(np.float64) - low
    varies = np.flatnonzero(span > 0)
    if not len(varies):
        return None
    wide, narrow = varies[np.argmax(span[varies])], varies[np.argmin(span[varies])]
    if span[wide] < FAR * span[narrow]:
        return None
    names = graphs[0].union.feature_names
    called = [f"'{names[column]}'" if names else f"feature {column}" for column in (wide, narrow)]
    return called[0], float(span[wide]), called[1], float(span[narrow])
