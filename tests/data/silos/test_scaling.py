"""Scales of features: hand-made numbers, numpy's in float64, and what is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Features, Graph, GraphCollection
from graphsilo.data.links import NodeTypes
from graphsilo.data.scales import ScaleName, Scaling
from graphsilo.data.silos.column_scales import (
    ColumnSums,
    _say_units,
    other_units,
    other_units_here,
    own_scale,
    scale_of_rows,
    squares_of,
    sums_of,
    visible_graph,
)
from graphsilo.data.silos.scaling import (
    FeatureScale,
    find_far_apart,
    find_lost_values,
    prepare_silo,
    scale_graph,
    scale_silo,
)
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.errors import ConfigError, DataError

NO_EDGES = np.zeros((2, 0), dtype=np.int64)


def graph_of(features: Features, names: tuple[str, ...] | None = None) -> Graph:
    rows = features.shape[0]
    return Graph(features, NO_EDGES, np.zeros(rows, dtype=np.int64), 2, feature_names=names)


def silo_of(features: Features, *others: Graph) -> Silo:
    graph = graph_of(features)
    sets = [EvaluationSet("seen", graph, {}), *(EvaluationSet("grown", other, {}) for other in others)]
    schema = Schema("node", graph.num_features, 2)
    return Silo(0, graph, np.arange(1), tuple(sets), schema)


def test_scaling_by_hand() -> None:
    # Means 2 and 0.5, deviations 1 and 0; the third has only 0 and 1.
    rows = np.array([[1, 0.5, 0], [3, 0.5, 1], [1, 0.5, 1], [3, 0.5, 1]], dtype=np.float32)
    found = scale_silo(silo_of(rows), own_scale(silo_of(rows), "standard"))
    assert found.graph.features.tolist() == [[-1, 0, 0], [1, 0, 1], [-1, 0, 1], [1, 0, 1]]
    assert found.graph.features.dtype == np.float32
    assert found.seen.graph is found.graph


def test_constant_column_is_0_wherever_it_varies_later() -> None:
    rows = np.full((3, 1), 7, dtype=np.float32)
    grown = graph_of(np.array([[7], [9000]], dtype=np.float32))
    found = prepare_silo(silo_of(rows, grown), Scaling("standard", "silo"))
    assert found.evaluations[1].graph.features.tolist() == [[0], [0]]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("parts", [1, 3])
def test_means_and_deviations_of_large_offsets_are_those_of_numpy(form: Callable[..., Features], parts: int) -> None:
    draw = np.random.default_rng(3)
    rows = np.stack(
        [250_000 + 60 * draw.standard_normal(40_000), 1e-6 * draw.random(40_000), 1e7 + draw.random(40_000)], axis=1
    ).astype(np.float32)
    split = [form(part) for part in np.array_split(rows, parts)]
    found = [sums_of(part) for part in split]
    total = ColumnSums(
        sum(one.rows for one in found),
        np.sum([one.sums for one in found], axis=0),
        np.sum([one.others for one in found], axis=0),
        np.sum([one.filled for one in found], axis=0),
    )
    centre = total.centre()
    scale = total.scale(centre, np.sum([squares_of(part, centre) for part in split], axis=0), total.rows)
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(scale.shift, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(1 / scale.factor, wide.std(axis=0), rtol=1e-12)


def test_robust_is_median_and_quartiles() -> None:
    # Quartiles 2 and 4 about 3; in the second column they are one, and the deviation about 0 is sqrt(100/5).
    rows = np.array([[1, 0], [2, 0], [3, 0], [4, 0], [1000, 10]], dtype=np.float32)
    found = own_scale(silo_of(rows), "robust")
    assert found.shift.tolist() == [3, 0]
    np.testing.assert_allclose(1 / found.factor, [2 / 1.3489795003921634, np.sqrt(20)])


def test_sparse_features_stay_sparse() -> None:
    # Ages are there in every row and centred; counts are mostly 0 and divided by their root mean square, 4; words are
    # 0 and 1 and stay.
    rows = np.array([[30, 0, 1], [50, 0, 0], [30, 8, 0], [50, 0, 0]], dtype=np.float32)
    silo = silo_of(sp.csr_matrix(rows))
    found = prepare_silo(silo, Scaling("standard", "silo")).graph.features
    assert sp.issparse(found)
    assert found.toarray().tolist() == [[-1, 0, 1], [1, 0, 0], [-1, 2, 0], [1, 0, 0]]
    words = sp.random_array((50, 300), density=0.02, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    counts = sp.csr_matrix(words)
    assert prepare_silo(silo_of(counts), Scaling("standard", "silo")).graph.features.nnz == counts.nnz


def test_what_counts_is_what_training_sees() -> None:
    union = graph_of(np.array([[1], [3], [100], [200]], dtype=np.float32))
    collection = GraphCollection(union, np.array([0, 2, 3, 4]), np.zeros(3, dtype=np.int64), 2)
    silo = replace(silo_of(union.features), graph=collection, train=np.array([0]))
    assert visible_graph(silo).features.tolist() == [[1], [3]]
    # Without a graph to train on, a silo alone takes what it has.
    assert own_scale(replace(silo, train=np.zeros(0, dtype=np.int64)), "standard").shift.tolist() == [76]


def test_a_graph_is_scaled_once() -> None:
    graph, scale = graph_of(np.ones((2, 1), dtype=np.float32)), FeatureScale(np.array([0.5]), np.array([2.0]))
    one = scale_graph(graph, scale)
    assert scale_graph(graph, FeatureScale(scale.shift.copy(), scale.factor.copy())) is one
    assert scale_graph(graph, FeatureScale(scale.shift, np.array([4.0]))) is not one
    assert graph.features.tolist() == [[1], [1]]


def test_numbers_that_cannot_be_scaled_are_named() -> None:
    far = graph_of(np.array([[0, 3e38]], dtype=np.float32), ("age", "platelets"))
    with pytest.raises(DataError, match=r"feature 1 \('platelets'\) holds a number that is not finite once it is scal"):
        scale_graph(far, FeatureScale(np.zeros(2), np.array([1.0, 1e10])))
    with pytest.raises(DataError, match="2 features, and the scale 1"):
        scale_graph(far, FeatureScale(np.zeros(1), np.ones(1)))


def test_the_usual_scaling() -> None:
    assert Scaling.of(None, None, own_tables=True) == Scaling("standard", "federation")
    assert Scaling.of(None, None, own_tables=False) == Scaling("none", "silo")
    assert Scaling.of("robust", None, own_tables=False) == Scaling("robust", "silo")
    assert Scaling.of(None, "silo", own_tables=True) == Scaling("standard", "silo")
    sent = {**Scaling("robust", "silo").tree(), "graphsilo": "0.1"}
    assert Scaling.from_tree(sent) == Scaling("robust", "silo")  # whatever else stands in the header
    assert Scaling("standard", "federation").alone == Scaling("standard", "silo")
    with pytest.raises(ConfigError, match="scale: none has none"):
        Scaling.of(None, "silo", own_tables=False)


def test_columns_that_are_worlds_apart() -> None:
    rows = np.array([[20, 150_000, 5], [90, 400_000, 5]], dtype=np.float32)
    assert find_far_apart([graph_of(rows, ("age", "platelets", "same"))]) == ("'platelets'", 250_000, "'age'", 70)
    assert find_far_apart([graph_of(rows[:, :1])]) is None
    assert find_far_apart([graph_of(sp.csr_matrix(rows))]) == ("feature 1", 250_000, "feature 0", 70)
    # In one silo each is constant; over both they vary.
    assert find_far_apart([graph_of(rows[:1]), graph_of(rows[1:])]) == ("feature 1", 250_000, "feature 0", 70)


TIMES = [1_700_000_000, 202_401_010_000]
"""Seconds since 1970, and a moment written as yyyymmddHHMM: float32 tells neither from those 60 later."""


@pytest.mark.parametrize("how", ["standard", "robust"])
@pytest.mark.parametrize("start", TIMES)
def test_times_keep_their_digits(start: int, how: ScaleName) -> None:
    """Scaled as the numbers without their beginning are; of which float32 loses nothing."""
    late = np.random.default_rng(0).permutation(300)[:, None]
    found = scale_silo(silo_of((start + late).astype(np.float64)), own_scale(silo_of((start + late) * 1.0), how))
    small = silo_of(late.astype(np.float32))
    wanted = scale_silo(small, own_scale(small, how)).graph.features
    assert found.graph.features.dtype == np.float32
    np.testing.assert_allclose(found.graph.features, wanted, atol=1e-6)
    assert len(np.unique(found.graph.features)) == 300
    assert find_lost_values(graph_of((start + late).astype(np.float64)), how) == []


def test_constant_columns_of_float64_are_0_in_several_silos() -> None:
    """The mean of 0.1 over and over need not be 0.1; what numbers differ by that vary little is more than that."""
    rows = np.stack([np.full(40_000, 0.1), np.full(40_000, 1 / 3), 2e11 + np.arange(40_000) % 2], axis=1)
    parts = [rows[:7], rows[7:20_000], rows[20_000:]]
    found = [sums_of(part) for part in parts]
    total = ColumnSums(
        sum(one.rows for one in found),
        np.sum([one.sums for one in found], axis=0),
        np.sum([one.others for one in found], axis=0),
        np.zeros(0, dtype=np.int64),
    )
    centre = total.centre()
    scale = total.scale(centre, np.sum([squares_of(part, centre) for part in parts], axis=0), total.rows)
    np.testing.assert_allclose(scale.factor, [0, 0, 2], rtol=1e-6)
    assert scale.shift[2] == 2e11 + 0.5


def test_what_is_not_scaled_is_float32_for_models() -> None:
    wide = silo_of(np.array([[0.1, 1.0], [0.2, 2.0]]), graph_of(np.array([[0.3, 3.0]])))
    found = prepare_silo(wide, Scaling("none", "silo"))
    assert [graph.features.dtype for graph in (found.graph, found.evaluations[1].graph)] == [np.float32] * 2
    assert found.seen.graph is found.graph
    assert found.graph.features.tolist() == np.array([[0.1, 1.0], [0.2, 2.0]], dtype=np.float32).tolist()
    assert prepare_silo(found, Scaling("none", "silo")) is found


def test_lost_values_are_said() -> None:
    """100 seconds of 1.7 billion are two numbers of float32; beside a value far out they are so even when scaled."""
    seconds = 1_700_000_000 + np.arange(100.0)
    rows = np.stack([seconds, np.append(np.arange(99.0), 1e12)], axis=1)
    graph = graph_of(rows, ("when", "amount"))
    (said,) = find_lost_values(graph, "none")
    assert said.startswith("'when': 100 different values become 2 in the seven digits of float32")
    assert "scale: standard" in said
    (said,) = find_lost_values(graph, "standard")
    assert said.startswith("'amount': 100 different values become 2 in")
    assert "Make two columns of it" in said
    assert find_lost_values(graph_of(rows.astype(np.float32)), "none") == []
    kinds = np.arange(100, dtype=np.int16) % 2
    constant = np.where(kinds == 1, 0.1, 0.0)[:, None]
    typed = replace(graph_of(constant, ("b.rate",)), types=NodeTypes(("a", "b"), kinds, np.array([1], np.int16), 0))
    assert find_lost_values(typed, "standard") == []  # 0.1 alone: other types have no such column


def test_another_unit_is_that_of_a_column_of_a_table() -> None:
    names = ("account.balance", "transfer in: amount, sum", "transfer out: amount, mean", "transfer in: count, 30 days")
    said = _say_units(dict.fromkeys(names, "far"), ["transfer"], ["account"])
    assert [text.partition("units: ")[2].partition(" of a")[0] for text in said] == [
        "{balance: FACTOR} under nodes.account", "{amount: FACTOR} under edges.transfer",
    ]  # fmt: skip


def test_another_unit_is_said() -> None:
    """North has EUR, south cents, west thousands; ages and words are the same everywhere."""
    draw = np.random.default_rng(1)
    rows = [np.stack([unit * 40 * draw.random(200), 20 + 60 * draw.random(200), draw.integers(0, 2, 200)], axis=1)
            for unit in (1, 100, 0.001)]  # fmt: skip
    graphs = [graph_of(part, ("balance", "age", "ward=icu")) for part in rows]
    (said,) = other_units(graphs, ["north", "south", "west"])
    assert "'balance' range about 100 times as far at south and 0.001 times as far at west as at north" in said
    assert "units: {balance: FACTOR}" in said
    assert other_units(graphs[:1] * 2, ["north", "copy"]) == []
    for other in (np.zeros((3, 3)), np.eye(3)):  # no row of a table, say, and none but one of 1
        assert other_units([graphs[1], graph_of(other, graphs[0].feature_names)], ["south", "none"]) == []


def test_a_silo_sees_by_the_agreed_scale_that_its_unit_is_another() -> None:
    draw = np.random.default_rng(1)
    rows = np.stack([draw.random(200), 20 + 60 * draw.random(200)], axis=1)
    graph = graph_of(rows, ("balance", "age"))
    silo = replace(silo_of(rows), graph=graph, schema=Schema("node", 2, 2, feature_names=("balance", "age")))
    own = own_scale(silo, "standard")
    assert other_units_here(silo, own) == []
    (said,) = other_units_here(silo, FeatureScale(own.shift, own.factor * [0.01, 1]))
    assert "'balance' range about 0.01 times as far here as over all silos" in said


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_rows_of_a_column_are_those_of_the_nodes_that_have_it(form: Callable[..., Features]) -> None:
    draw = np.random.default_rng(4)
    kinds = draw.integers(2, size=90).astype(np.int16)
    types = NodeTypes(("account", "merchant"), kinds, np.array([0, 1, 1, -1], dtype=np.int16), 0)
    rows = np.column_stack([1e9 + draw.random(90), 5 + draw.random(90), kinds == 1, draw.random(90) + 3]).astype(
        np.float64
    )
    rows[:, 0] *= kinds == 0
    rows[:, 1] *= kinds == 1
    whole = replace(graph_of(form(rows)), types=types)
    parts = [whole.subgraph(nodes) for nodes in (np.arange(20), np.arange(20, 90))]
    found = [sums_of(part.features, part.types) for part in parts]
    total = ColumnSums(
        90, *(sum(getattr(one, key) for one in found) for key in ("sums", "others", "filled", "members"))
    )  # fmt: skip
    centre = total.centre()
    squares = sum(squares_of(part.features, centre, part.types) for part in parts)
    scale = total.scale(centre, squares, total.counted)
    for column, mine in ((0, kinds == 0), (1, kinds == 1), (3, kinds >= 0)):
        np.testing.assert_allclose(scale.shift[column], rows[mine, column].mean(), rtol=1e-12)
        np.testing.assert_allclose(1 / scale.factor[column], rows[mine, column].std(), rtol=1e-6)
    assert (scale.shift[2], scale.factor[2]) == (0, 1)
    for how in (scale, *(scale_of_rows(whole.features, each, whole.types) for each in ("standard", "robust"))):
        scaled = scale_graph(whole, how).union.features
        scaled = scaled if isinstance(scaled, np.ndarray) else scaled.toarray()
        assert not scaled[kinds == 1, 0].any()
        assert not scaled[kinds == 0, 1].any()
        assert np.abs(scaled[kinds == 0, 0]).max() < 4
