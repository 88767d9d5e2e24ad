"""Features in units that a model can learn from; :mod:`graphsilo.data.silos.column_scales` finds means and deviations.

A column in years beside one in platelets per microlitre drowns every other. Columns are therefore brought to mean 0 and
deviation 1, by each silo for itself or by numbers that all silos agree on before round 1
(:mod:`graphsilo.federation.scaling`). A silo's scale belongs to its model: whatever the model is asked about, now or
years later, is scaled by it.

Rows that count are those that training sees: all nodes of the training graph, labels aside; of a collection the nodes
of its training graphs; of nodes with times those that are no later than the last training node. Nodes that appear at
test time do not count, and are scaled like the others.

- Where nodes have types, rows of a column are those of nodes whose type has it; others keep their 0.
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
_LOST = 0.01
"""Share of a column's distinct values from which it is said that they are lost."""
_LOOKED_AT = 20_000
"""Rows of which this is counted: of many more, numbers at random fall together in float32, too, which is no loss."""
_ROWS = 1 << 14
"""Rows that are widened to float64 at once."""


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """What is done to the columns: x becomes (x - shift) · factor.

    Attributes:
        shift, factor: [d] float64; [0] where features stay as they are.
        links: What is done to the columns of the tables of links, where they have some.
        targets: The same of numbers that are to be estimated; None where there are none.
    """

    shift: NDArray[np.float64]
    factor: NDArray[np.float64]
    links: FeatureScale | None = None
    targets: FeatureScale | None = None

    @property
    def digest(self) -> str:
        """Stands for its numbers."""
        more = b"" if self.links is None else self.links.digest.encode()
        return hashlib.sha256(self.shift.tobytes() + self.factor.tobytes() + more).hexdigest()


def scale_silo(silo: Silo, scale: FeatureScale | None, *, clip: bool = False) -> Silo:
    """The silo with everything that its model sees scaled; graphs that were one object stay one.

    Args:
        silo: With features as they were read.
        scale: None leaves them as they are, but for float32.
        clip: Whether numbers that are too large then become the largest ones.

    Raises:
        DataError: A number is too large to be scaled.
    """
    graph = scale_graph(silo.graph, scale, clip=clip)
    if graph is silo.graph:  # float32 already, and left as it is
        return silo if scale is None else replace(silo, scale=scale)
    sets = tuple(replace(item, graph=scale_graph(item.graph, scale, clip=clip)) for item in silo.evaluations)
    return replace(silo, graph=graph, evaluations=sets, scale=scale)


def prepare_silo(silo: Silo, scaling: Scaling, agreed: FeatureScale | None = None, *, clip: bool = False) -> Silo:
    """A silo as its client works with it.

    Args:
        silo: With features as they were read.
        scaling: How they are scaled.
        agreed: The scale that the silos agreed on, where they did; of targets alone where features are not scaled
            together.
        clip: Whether numbers that are too large for it become the largest ones. Where the scale is somebody else's
            word, a refusal would tell that there is such a number.
    """
    scale = agreed if scaling.has_columns and agreed is not None and len(agreed.shift) else None
    if scaling.has_columns and scale is None:
        from graphsilo.data.silos.column_scales import own_scale

        scale = own_scale(silo, scaling.scale)
    if silo.schema.link_features:
        from graphsilo.data.silos.link_scaling import add_own_scale

        scale = add_own_scale(scale, silo, scaling.scale)
    if silo.schema.task == "regression":
        from graphsilo.data.silos.targets import with_target_scale

        scale = with_target_scale(silo, scale, agreed)
    return scale_silo(silo, scale, clip=clip)


def scale_graph(
    graph: Graph | GraphCollection, scale: FeatureScale | None, *, clip: bool = False
) -> Graph | GraphCollection:
    """The same graph with scaled features as float32; made once for as long as somebody holds it.

    Raises:
        DataError: Another number of features; or a number is too large to be scaled.
    """
    if scale is not None and not len(scale.shift) and scale.links is None:  # of targets alone
        scale = None
    if scale is None and graph.union.features.dtype == np.float32:
        return graph
    # On the graph itself, as its tensors are: clients share evaluation graphs, and may share a scale.
    kept: WeakValueDictionary[str, Graph | GraphCollection] = graph.__dict__.setdefault(
        "_scaled", WeakValueDictionary()
    )
    digest = "" if scale is None else scale.digest
    found = kept.get(digest)
    if found is None:
        found = graph.with_features(_apply(graph.union, scale, clip))
        if scale is not None and scale.links is not None:
            from graphsilo.data.silos.link_scaling import scale_links

            found = scale_links(found, scale.links)
        kept[digest] = found
    return found


def _apply(graph: Graph, scale: FeatureScale | None, clip: bool) -> Features:
    features = graph.features
    if scale is None or not len(scale.shift):
        return features.astype(np.float32)
    if features.shape[1] != len(scale.shift):
        raise DataError(f"{graph.name} has {features.shape[1]} features, and the scale {len(scale.shift)}.")
    with np.errstate(over="ignore", invalid="ignore"):  # said in words below
        result = _dense(features, scale) if isinstance(features, np.ndarray) else _sparse(features, scale)
    if graph.types is not None:
        from graphsilo.data.silos.column_scales import only_members

        result = only_members(result, graph.types)
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
    for block in wide_blocks(features):
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


def wide_blocks(features: NDArray[np.floating]) -> Iterator[NDArray[np.float64]]:
    """Some rows at a time as float64, row by row in memory: sums then add in one order, wherever they are made."""
    for start in range(0, len(features), _ROWS):
        yield features[start : start + _ROWS].astype(np.float64, order="C")


def find_lost_values(graph: Graph, how: ScaleName) -> list[str]:
    """A sentence for each column that keeps fewer distinct values as float32, once it is scaled.

    Args:
        graph: With features as they were read.
        how: As they will be scaled, by these rows alone.
    """
    features = graph.features
    if not isinstance(features, np.ndarray) or features.dtype == np.float32 or not len(features):
        return []
    from graphsilo.data.silos.column_scales import scale_of_rows
    from graphsilo.data.sources.link_columns import starts_of

    has_columns = how in ("standard", "robust")
    scale = scale_of_rows(graph.features, how, graph.types) if has_columns else None
    said = []
    made, types = starts_of(graph), graph.types
    owners = [-1] * features.shape[1] if types is None else types.of_feature.tolist()
    looked_at: dict[int, NDArray[np.int64]] = {}
    for kind in set(owners):
        rows = np.arange(len(features)) if types is None or kind < 0 else np.flatnonzero(types.of_node == kind)
        looked_at[kind] = rows[:: -(-len(rows) // _LOOKED_AT) or 1]
    for column in range(features.shape[1]):
        if graph.feature_names and graph.feature_names[column].startswith(made):
            continue  # sums over links, of which nobody can make two columns
        values = np.unique(features[looked_at[owners[column]], column])
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


def find_far_apart(graphs: Sequence[Graph | GraphCollection]) -> tuple[str, float, str, float] | None:
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
