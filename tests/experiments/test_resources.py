"""What cannot fit is refused before it is begun, with the memory it would need."""

from __future__ import annotations

from typing import Any

import pytest

from graphsilo.errors import UnsupportedError
from graphsilo.experiments import checks, simulation
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run

TINY = {
    "data.name": "product-sbm",
    "data.options": {"nodes": 300, "classes": 3, "features": 4, "mean_degree": 6.0},
    "partition.rule": "random",
    "partition.clients": 3,
    "model.name": "gamlp",
    "method.name": "fedavg",
    "method.rounds": 1,
}


def test_a_graph_that_does_not_fit_is_not_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "free_memory", lambda: 2_000_000_000)
    config = load_config(overrides={"data.name": "product-sbm", "data.options": {"features": 1000}})
    # 30 million links of 24 bytes and 2.4 million rows of 1000 float32: 0.72 + 9.6 GB
    wanted = "the generated graph product-sbm needs 10.3 GB of memory, and 2 GB are there. Ask for fewer nodes"
    with pytest.raises(UnsupportedError, match=wanted):
        simulation.load_data(config)


def test_propagated_features_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(overrides=TINY)
    assert run(config).tree["seeds"][0]["best_round"] == 1
    monkeypatch.setattr(checks, "free_memory", lambda: 1000)
    monkeypatch.setattr(checks, "free_disk", lambda folder: 3000)
    # 100 nodes, 4 features, 3 hops: 3 · 100 · 4 · 4 bytes
    with pytest.raises(UnsupportedError, match=r"client 0's.*'gamlp'.* needs 4\.8 kB of memory, and 4 kB are there"):
        run(config)
    assert run(load_config(overrides={**TINY, "model.name": "gcn"})).tree["seeds"][0]["best_round"] == 1


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({}, True),
        ({"method.batch_size": 8}, False),
        ({"partition.ratios": [0.02, 0.38, 0.6]}, False),
        ({"model.name": "ssgc"}, False),
    ],
    ids=str,
)
def test_wide_sparse_features_need_room_where_they_are_multiplied_out(
    settings: dict[str, Any], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"nodes": 300, "classes": 3, "features": 2000, "feature_density": 0.02, "mean_degree": 6.0}
    config = load_config(
        overrides={
            **TINY, "data.name": "citation-sbm", "data.options": text, "partition.clients": 1, "model.name": "sgc",
            "model.hops": 3, **settings,
        }
    )  # fmt: skip
    monkeypatch.setattr(checks, "free_memory", lambda: 1000)
    monkeypatch.setattr(checks, "free_disk", lambda folder: 3000)
    if fits:
        assert run(config).tree["seeds"][0]["best_round"] == 1
    else:  # 300 · 2000 · 4 bytes
        with pytest.raises(UnsupportedError, match=r"needs 2\.4 MB of memory"):
            run(config)
