"""Weights of edges reach the numbers, or a run is refused before anything trains."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphsilo import models
from graphsilo.data.graph import Graph, content_hash
from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.errors import DataError, UnsupportedError
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ModelSpec, build_model
from graphsilo.models.view import GraphTensors
from graphsilo.random import generator

TAKES = [name for name in models.names() if models.entry(name).edge_weights]
LACKS = [name for name in models.names() if not (entry := models.entry(name)).edge_weights and not entry.relational]


@pytest.fixture(scope="module")
def plain() -> Graph:
    found = catalog.load("citation-sbm", options={"generator": {"nodes": 90, "classes": 3, "features": 12}})
    assert isinstance(found, Graph)
    return found


@pytest.fixture(scope="module")
def weighted(plain: Graph) -> Graph:
    """Each link has one weight, the same in both directions."""
    low, high = np.sort(plain.edges, axis=0)
    return replace(plain, edge_weights=(0.1 + (7 * low + 3 * high) % 11).astype(np.float32))


@pytest.fixture(scope="module")
def file(weighted: Graph, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A file of the graph, with its weights or with others."""
    folder = tmp_path_factory.mktemp("graphs")

    def write(name: str, weights: np.ndarray | None = weighted.edge_weights) -> str:
        return str(save_graph(folder / f"{name}.npz", replace(weighted, edge_weights=weights)))

    return write


def scores(result: Any) -> str:
    """Every number of every seed but what counts time and memory."""
    seeds = [{key: seed[key] for key in ("modes", "clients", "curve") if key in seed} for seed in result.tree["seeds"]]
    return json.dumps(seeds)


def settings(small: Any, name: str, **more: Any) -> Any:
    return small(data__name=name, data__generator={}, **{"method__rounds": 3, "method__lr": 0.05, **more})


@pytest.mark.parametrize("model", TAKES)
def test_every_backbone_that_takes_weights(small, file, model: str) -> None:
    """Untrained, it answers otherwise with weights than without, and as without where all edges weigh 1."""
    silo = prepare(settings(small, file("weighted"))).silos[0]
    graph = silo.graph
    assert graph.edge_weights is not None
    built = build_model(ModelSpec(model, {}), silo.schema, generator(0, "model"), "cpu")
    ones = np.ones(graph.num_edges, dtype=np.float32)
    with_weights, without, equal = (
        built(GraphTensors(replace(graph, edge_weights=weights)).full) for weights in (graph.edge_weights, None, ones)
    )
    assert torch.equal(with_weights, without) is (model == "mlp")  # which sees no edge
    assert torch.equal(equal, without)


def test_a_run_uses_them(small, file, plain: Graph, weighted: Graph) -> None:
    ones = np.ones(weighted.num_edges, dtype=np.float32)
    with_weights, without, equal = (
        scores(run(settings(small, name))) for name in (file("weighted"), file("plain", None), file("ones", ones))
    )
    assert with_weights != without
    assert equal == without


def test_they_are_part_of_the_datas_hash(plain: Graph, weighted: Graph) -> None:
    assert content_hash((plain,)) != content_hash((weighted,))
    assert content_hash((weighted,)) != content_hash((replace(weighted, edge_weights=2 * weighted.edge_weights),))


@pytest.mark.parametrize("model", LACKS)
def test_backbones_that_know_no_weights_are_refused(small, file, model: str) -> None:
    with pytest.raises(
        UnsupportedError, match=f"have weights, and model '{model}' knows none.*take them: appnp, .*gcn"
    ):
        run(settings(small, file("weighted"), model__name=model, model__hidden=8))
    with pytest.raises(UnsupportedError, match=f"model '{model}' knows none"):
        run(settings(small, file("weighted"), method__name="local", model__pool=["gcn", model]))


@pytest.mark.parametrize("method", [name for name in registry.names() if not registry.load(name).edge_weights])
def test_methods_that_know_no_weights_are_refused(small, file, method: str) -> None:
    with pytest.raises(UnsupportedError, match=r"have weights, and the steps of .* know none.*take them: .*fedavg"):
        run(small(data__name=file("weighted"), data__generator={}, method__name=method, model__name="gcn"))


def test_the_list_of_backbones_that_know_none() -> None:
    assert LACKS == ["gat", "gin", "gin_fedstar", "gin_gcfl"]


@pytest.mark.parametrize(
    "more",
    [
        {"scenario__name": "unseen"},
        {"scenario__name": "open"},
        {"scenario__name": "inductive"},
        {"task": "link"},
        {"evaluation__modes": ["own_global"]},
        {"perturb": {"edge_sparsity": 0.3, "edge_noise": 0.2}},
        {"method__name": "global", "perturb": {"edge_sparsity": 0.3, "edge_noise": 0.2}},
        {"method__name": "fedsage"},
    ],
    ids=str,
)
def test_silos_keep_the_weights_of_their_edges(small, file, weighted: Graph, more: dict[str, Any]) -> None:
    """Every edge of every silo that the whole graph has weighs what it weighs there; added ones weigh 1."""
    config = settings(small, file("weighted"), **more)
    method = registry.load(config.method.name)
    weight_of = dict(zip(map(tuple, weighted.edges.T.tolist()), weighted.edge_weights.tolist(), strict=True))
    seen = 0
    for silo in prepare(config, method).silos:
        for graph in {id(item): item for item in (silo.graph, *(held.graph for held in silo.evaluations))}.values():
            assert graph.edge_weights is not None
            ends = graph.global_ids[graph.edges].T.tolist()
            for pair, weight in zip(ends, graph.edge_weights.tolist(), strict=True):
                assert weight == weight_of.get(tuple(pair), 1.0)
                seen += tuple(pair) in weight_of
    assert seen > 50


def test_collections_keep_them(small, molecules: Path, tmp_path: Path) -> None:
    graphs = catalog.load(str(molecules))
    low, high = np.sort(graphs.union.edges, axis=0)
    union = replace(graphs.union, edge_weights=(1 + (low + high) % 5).astype(np.float32))
    path = save_graph(tmp_path / "g.npz", replace(graphs, union=union))
    config = small(data__name=str(path), data__generator={}, partition__rule="random", partition__clients=2)
    silos = prepare(config).silos
    total = sum(float(silo.graph.union.edge_weights.sum()) for silo in silos)
    assert total == pytest.approx(float(union.edge_weights.sum()))


def test_weights_everywhere_or_nowhere(small, file) -> None:
    config = small(data__name=[file("weighted"), file("plain", None)], data__generator={}, partition__rule="auto")
    with pytest.raises(DataError, match=r"weights at client 0 \(.*weighted.npz\) and none at client 1 \(.*plain.npz\)"):
        prepare(config)
