"""Masks that a user gives say which nodes train; those of a public data set only where they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphsilo
from graphsilo.data.graph import Graph, PublishedSplits
from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import load_graph, save_graph
from graphsilo.errors import ConfigError, DataError
from graphsilo.experiments.simulation import prepare


@pytest.fixture(scope="module")
def masked() -> Graph:
    """150 nodes, of which 60 train, 20 validate, 40 test and 30 do nothing."""
    graph = catalog.load("citation-sbm", options={"generator": {"nodes": 150, "classes": 3, "features": 8}})
    assert isinstance(graph, Graph)
    turn = np.random.default_rng(0).permutation(150)
    masks = {"train": turn < 60, "val": (turn >= 60) & (turn < 80), "test": (turn >= 80) & (turn < 120)}
    return replace(graph, splits=masks)


def tables(folder: Path, graph: Graph) -> Path:
    """The same graph as own tables."""
    words = np.full(graph.num_nodes, "", dtype="U5")
    for name, mask in graph.splits.items():
        words[mask] = name
    rows = [f"n{row},{graph.labels[row]},{words[row]},{row}" for row in range(graph.num_nodes)]
    (folder / "n.csv").write_text("\n".join(["id,y,split,x", *rows]) + "\n")
    (folder / "e.csv").write_text("a,b\n" + "".join(f"n{a},n{b}\n" for a, b in graph.edges.T.tolist()))
    (folder / "t.yaml").write_text(
        "nodes: {path: n.csv, id: id, label: y, features: [x], split: split}\n"
        "edges: {path: e.csv, source: a, target: b}\n"
    )
    return folder / "t.yaml"


def pt_file(folder: Path, graph: Graph) -> Path:
    masks = {f"{name}_mask": torch.from_numpy(mask) for name, mask in graph.splits.items()}
    parts = {"x": graph.features, "edge_index": graph.edges, "y": graph.labels}
    torch.save({**{key: torch.from_numpy(array) for key, array in parts.items()}, **masks}, folder / "g.pt")
    return folder / "g.pt"


@pytest.fixture(params=["npz", "pt", "tables"])
def own_file(request: Any, masked: Graph, tmp_path: Path) -> str:
    if request.param == "npz":
        return str(save_graph(tmp_path / "g.npz", masked))
    return str(pt_file(tmp_path, masked) if request.param == "pt" else tables(tmp_path, masked))


def sizes(partition: Any) -> tuple[int, int, int]:
    train, val, test = (sum(map(len, part)) for part in (partition.train, partition.val, partition.test))
    return train, val, test


def own(small: Any, name: Any, **more: Any) -> Any:
    return small(data__name=name, data__generator={}, **more)


def test_masks_of_a_file_are_used(small: Any, own_file: str, masked: Graph) -> None:
    found = prepare(own(small, own_file)).partition
    assert (sizes(found), found.split) == ((60, 20, 40), "predefined")
    np.testing.assert_array_equal(np.sort(np.concatenate(found.train)), np.flatnonzero(masked.splits["train"]))
    anew = prepare(own(small, own_file, partition__split="stratified")).partition
    assert sizes(anew)[0] < 40  # 0.2 of 150 at most, class by class


def test_masks_of_a_graph_in_memory_are_used(masked: Graph) -> None:
    result = graphsilo.run(
        data=masked, partition="random", clients=2, rounds=1, **{"model.hidden": 4, "evaluation.models": False}
    )
    assert [row["train"] for row in result.tree["partition"]["per_client"]] != [0, 0]
    assert sum(row["train"] for row in result.tree["partition"]["per_client"]) == 60
    assert sizes(graphsilo.partition(masked, "random", clients=2)) == (60, 20, 40)
    assert graphsilo.partition(masked, "overlap", clients=5).split == "predefined"


@pytest.mark.parametrize("scenario", ["unseen", "open", "inductive"])
def test_masks_are_used_in_every_scenario(masked: Graph, scenario: str) -> None:
    assert graphsilo.partition(masked, "random", clients=2, scenario=scenario).split == "predefined"


def test_shares_beside_masks_are_refused(small: Any, own_file: str, masked: Graph) -> None:
    with pytest.raises(ConfigError, match=r"brings masks .* and ratios of 0.5, 0.2, 0.3 are asked for, too"):
        prepare(own(small, own_file, partition__ratios=[0.5, 0.2, 0.3]))
    with pytest.raises(ConfigError, match="brings masks"):
        graphsilo.partition(masked, "random", clients=2, ratios=(0.5, 0.2, 0.3), split="predefined")
    found = prepare(own(small, own_file, partition__ratios=[0.5, 0.2, 0.3], partition__split="stratified")).partition
    assert sizes(found)[0] > 70


def test_shares_of_links_go_with_masks_of_nodes(small: Any, masked: Graph, tmp_path: Path) -> None:
    name = str(save_graph(tmp_path / "g.npz", masked))
    simulation = prepare(own(small, name, task="link", partition__ratios=[0.5, 0.2, 0.3]))
    assert simulation.partition.split == "predefined"
    links = simulation.silos[0].links
    assert links is not None
    count = sum(part.shape[1] for part in (links.train, links.val, links.test))
    assert links.train.shape[1] == count // 2


def test_masks_that_lack_one_are_refused(masked: Graph) -> None:
    lacking = replace(masked, splits={key: masked.splits[key] for key in ("train", "test")})
    with pytest.raises(DataError, match="carries no predefined val split"):
        graphsilo.partition(lacking, "random", clients=2)
    assert graphsilo.partition(lacking, "random", clients=2, split="stratified").split == "stratified"


def test_silos_with_and_without_masks(small: Any, masked: Graph, tmp_path: Path) -> None:
    bare = replace(masked, splits={}, features=masked.features * 2)
    names = [str(save_graph(tmp_path / f"{name}.npz", graph)) for name, graph in (("a", masked), ("b", bare))]
    with pytest.raises(DataError, match=r"client 0 \(.*a.npz\) has masks .*, client 1 \(.*b.npz\) has none"):
        prepare(own(small, names, partition__rule="auto"))
    assert prepare(own(small, names, partition__rule="auto", partition__split="stratified")).partition.num_clients == 2


def test_a_benchmarks_masks_wait_until_they_are_asked_for(masked: Graph, tmp_path: Path) -> None:
    published = replace(masked, splits=PublishedSplits(masked.splits))
    assert graphsilo.partition(published, "random", clients=2).split == "stratified"
    assert sizes(graphsilo.partition(published, "random", clients=2, split="predefined")) == (60, 20, 40)
    back = load_graph(save_graph(tmp_path / "g.npz", published))
    assert isinstance(back, Graph)
    assert not back.has_own_splits
    assert not back.subgraph(np.arange(100)).has_own_splits
    assert masked.subgraph(np.arange(100)).has_own_splits
    assert replace(back, splits=dict(masked.splits)).has_own_splits


@pytest.mark.data
def test_coras_masks_are_a_benchmarks(data_root: str) -> None:
    cora = graphsilo.load("Cora", root=data_root)
    assert int(cora.splits["train"].sum()) == 140
    found = graphsilo.partition(cora, "louvain", clients=3)
    assert found.split == "stratified"
    assert sizes(found)[0] > 400
