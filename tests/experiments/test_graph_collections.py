"""Collections of graphs in a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.silos.pooling import pool_silos
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry


def test_graphs_are_spoilt_at_the_clients_too(small: Callable[..., RunConfig], molecules: Path) -> None:
    config = small(
        data__name=str(molecules), data__generator=None, partition__rule="auto", perturb={"edge_sparsity": 0.5}
    )
    (pooled,) = prepare(config, registry.load("global")).silos
    union = pool_silos(prepare(config).silos)
    np.testing.assert_array_equal(pooled.graph.union.edges, union.graph.union.edges)


@pytest.mark.parametrize("method", ["gcfl", "gcfl_plus", "fedgen", "fedpg"])
def test_a_file_of_graphs_has_the_methods_model_for_graphs(molecules: Path, method: str) -> None:
    """Which task a file is for is known only once it is read: asked for, or else refused."""
    said = {"data.name": str(molecules), "partition.rule": "random", "partition.clients": 2, "method.name": method}
    with pytest.raises(ConfigError, match=r"for the task graph, which is known only once it is read.*--task graph"):
        prepare(load_config(overrides=said))
    wanted = "gin_gcfl" if method.startswith("gcfl") else "gin"
    asked = {**said, "task": "graph"}
    assert load_config(overrides=asked).model.name == wanted
    prepare(load_config(overrides=asked))
    prepare(load_config(overrides={**said, "model.name": "gcn"}))  # named: taken as it is
