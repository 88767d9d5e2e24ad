"""Graphs of other libraries with several types of nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import graphsilo
from graphsilo.data.sources import objects
from graphsilo.data.sources.pyg import load_pyg_file
from graphsilo.errors import ConfigError, DataError


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.zeros(2, 3)
    data["author"].x = torch.zeros(2, 3)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0], [1]])
    return data


def test_types_links_and_times_of_a_hetero_data(tmp_path: Path) -> None:
    data = hetero()
    data["paper"].y, data["paper"].train_mask = torch.tensor([1, 0]), torch.tensor([True, False])
    data["paper"].time = torch.tensor([10.0, 20.0])
    data["author"].x = None
    data["author"].num_nodes = 3
    data["author", "writes", "paper"].edge_attr = torch.tensor([0.5])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 0], [1, 1]])
    torch.save(data, tmp_path / "h.pt")
    torch.save(data.to_dict(), tmp_path / "d.pt")
    made = [graphsilo.graph_of(data), *(load_pyg_file(tmp_path / name) for name in ("h.pt", "d.pt"))]
    for graph in made:
        assert graph.types.names == ("author", "paper")
        assert graph.feature_names == ("paper.0", "paper.1", "paper.2", "type=author", "type=paper")
        assert graph.labels.tolist() == [-1, -1, -1, 1, 0]
        assert graph.splits["train"].tolist() == [False, False, False, True, False]
        assert graph.external_ids.tolist() == ["author:0", "author:1", "author:2", "0", "1"]
        assert graph.links.relations == ("cites", "writes")
        assert graph.links.ends.T.tolist() == [[3, 4], [3, 4], [0, 4]]
        assert graph.links.features[2].tolist() == [0.5]
        assert graph.time.tolist()[3:] == [10, 20]
    data["author"].y = torch.tensor([0, 1, 0])
    with pytest.raises(ConfigError, match="nodes of the types paper, author all have labels"):
        graphsilo.graph_of(data)
    assert graphsilo.graph_of(data, target="author").labels.tolist() == [0, 1, 0, -1, -1]
    data["author", "writes", "paper"].edge_index = torch.tensor([[3], [1]])
    with pytest.raises(DataError, match="'author writes paper': a link names node 3 of type 'author', and there are 3"):
        graphsilo.graph_of(data, target="author")


class Store:
    """What DGL has of the nodes or links of a type."""

    def __init__(self, **data: torch.Tensor) -> None:
        self.data = data


class DGLGraph:
    """As much of a heterograph of DGL's as is looked at."""

    is_homogeneous = False
    ntypes = ("user", "item")
    canonical_etypes = (("user", "buys", "item"),)

    def __init__(self) -> None:
        self.nodes = {"user": Store(feat=torch.ones(2, 1), label=torch.tensor([0, 1])), "item": Store()}
        self.edges = Edges()

    def num_nodes(self, kind: str) -> int:
        return {"user": 2, "item": 3}[kind]


class Edges(dict):
    """Ends when called, stores by type."""

    def __init__(self) -> None:
        super().__init__({("user", "buys", "item"): Store(feat=torch.tensor([7.0]))})

    def __call__(self, etype: tuple[str, str, str]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([1]), torch.tensor([2])


def test_a_heterograph_of_dgl() -> None:
    graph = objects._of_dgl(DGLGraph(), objects.Said())
    assert graph.types is not None
    assert graph.types.names == ("item", "user")
    assert graph.links is not None
    assert graph.links.ends.tolist() == [[4], [2]]
    assert graph.links.features.tolist() == [[7]]
    assert np.asarray(graph.labels).tolist() == [-1, -1, -1, 0, 1]
