"""What a run is made of: perturbed data in one place, and whose model stands for all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.silos.pooling import pool_silos
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry

SPOIL = {"edge_sparsity": 0.5, "feature_sparsity": 0.5, "label_noise": 0.4}
POOL = ["gcn", {"name": "mlp", "hidden": 4}]
TEXT = "has one model, the first of model.pool: gcn hidden=8. The clients have 2 different ones."


@pytest.mark.parametrize("cross", [False, True])
def test_the_centralised_reference_trains_on_what_the_clients_hold(
    small: Callable[..., RunConfig], cross: bool
) -> None:
    config = small(perturb=SPOIL, method__name="global", method__cross_edges=cross)
    (pooled,) = prepare(config, registry.load("global")).silos
    silos = prepare(config).silos
    union = pool_silos(silos)
    assert isinstance(pooled.graph, Graph)
    assert isinstance(union.graph, Graph)
    np.testing.assert_array_equal(pooled.graph.features, union.graph.features)
    np.testing.assert_array_equal(pooled.labels, union.labels)
    np.testing.assert_array_equal(np.sort(pooled.train), np.sort(union.train))
    own = union.graph.num_edges
    np.testing.assert_array_equal(pooled.graph.edges[:, :own], union.graph.edges)
    assert (pooled.graph.num_edges > own) == cross
    clean = prepare(small(method__name="global", method__cross_edges=cross), registry.load("global")).silos[0]
    np.testing.assert_array_equal(pooled.seen.graph.edges, clean.seen.graph.edges)
    np.testing.assert_array_equal(pooled.seen.graph.features, clean.seen.graph.features)


def test_shares_of_zero_change_nothing(small: Callable[..., RunConfig]) -> None:
    method = registry.load("global")
    (none,) = prepare(small(method__name="global", perturb={"edge_noise": 0.0}), method).silos
    (clean,) = prepare(small(method__name="global"), method).silos
    assert isinstance(none.graph, Graph)
    np.testing.assert_array_equal(none.graph.edges, clean.graph.edges)
    assert none.seen.graph is none.graph


def test_the_model_of_centralised_training_is_told(small: Callable[..., RunConfig]) -> None:
    config = small(model__pool=POOL, method__name="global")
    simulation = prepare(config, registry.load("global"))
    assert [spec.name for spec in simulation.models.values()] == ["gcn"]
    assert simulation.notes == (f"centralised training (global) {TEXT}",)
    assert simulation.notes[0] in run(config).tree["warnings"]


def test_the_model_of_reference_rows_is_told(small: Callable[..., RunConfig]) -> None:
    config = small(model__pool=POOL, method__name="local", run__references=["local", "global", "global_cut"])
    assert f"centralised training (global, global_cut) {TEXT}" in run(config).tree["warnings"]


@pytest.mark.parametrize(
    "change",
    [
        {"method__name": "local", "model__pool": POOL},
        {"method__name": "local", "model__pool": POOL, "run__references": ["local"]},
        {"method__name": "global", "model__pool": ["gcn", "gcn"]},
        {"method__name": "global", "model__pool": POOL, "partition__clients": 1},
        {"method__name": "global"},
    ],
    ids=str,
)
def test_nothing_is_told_where_there_is_no_choice(small: Callable[..., RunConfig], change: dict) -> None:
    config = small(**change)
    assert prepare(config, registry.load(config.method.name)).notes == ()
