"""PyTorch Geometric's files: read without running code, and each graph of several checked by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.data import Graph, GraphCollection
from graphsilo.data.sources.pyg import load_pyg_file
from graphsilo.errors import DataError


def pyg_data(nodes: int = 3, label: object = None, **extra: object) -> object:
    import torch
    from torch_geometric.data import Data

    x = torch.arange(2.0 * nodes).reshape(nodes, 2)
    y = torch.tensor([0, 1, 1][:nodes]) if label is None else torch.tensor([label])
    return Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), y=y, **extra)


def test_pyg_data_object(tmp_path: Path) -> None:
    import torch

    mask = torch.tensor([True, False, False])
    torch.save(pyg_data(train_mask=mask), tmp_path / "g.pt")
    graph = load_pyg_file(tmp_path / "g.pt")
    assert isinstance(graph, Graph)
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert graph.edges.tolist() == [[0, 1], [1, 0]]
    assert graph.labels.tolist() == [0, 1, 1]
    assert (graph.num_classes, graph.name) == (2, "g")
    assert {key: value.tolist() for key, value in graph.splits.items()} == {"train": [True, False, False]}


def test_pyg_dictionary_and_processed_file(tmp_path: Path) -> None:
    import torch
    from torch_geometric.data import InMemoryDataset

    data = pyg_data()
    torch.save({"x": data.x, "edge_index": data.edge_index, "y": data.y.view(-1, 1)}, tmp_path / "d.pt")
    assert load_pyg_file(tmp_path / "d.pt").labels.tolist() == [0, 1, 1]
    InMemoryDataset.save([data], str(tmp_path / "one.pt"))
    assert isinstance(load_pyg_file(tmp_path / "one.pt"), Graph)
    InMemoryDataset.save([pyg_data(3, 1), pyg_data(2, 0)], str(tmp_path / "many.pt"))
    torch.save([pyg_data(3, 1), pyg_data(2, 0)], tmp_path / "list.pt")
    for name in ("many.pt", "list.pt"):
        graphs = load_pyg_file(tmp_path / name)
        assert isinstance(graphs, GraphCollection)
        assert graphs.pointer.tolist() == [0, 3, 5]
        assert graphs.labels.tolist() == [1, 0]
        assert graphs.union.edges.tolist() == [[0, 1, 3, 4], [1, 0, 4, 3]]


def test_pyg_float_labels_with_gaps(tmp_path: Path) -> None:
    import torch

    edges = torch.tensor([[0], [1]])
    torch.save({"edge_index": edges, "y": torch.tensor([1.0, float("nan")]), "num_nodes": 2}, tmp_path / "g.pt")
    graph = load_pyg_file(tmp_path / "g.pt")
    assert graph.labels.tolist() == [1, -1]
    assert graph.num_features == 0
    torch.save({"edge_index": edges, "y": torch.tensor([1.5, 0.0]), "num_nodes": 2}, tmp_path / "g.pt")
    assert load_pyg_file(tmp_path / "g.pt").task == "regression"


def test_pyg_edge_weights(tmp_path: Path) -> None:
    import torch

    torch.save(pyg_data(edge_weight=torch.tensor([0.5, 0.5])), tmp_path / "g.pt")
    assert load_pyg_file(tmp_path / "g.pt").edge_weights.tolist() == [0.5, 0.5]
    several = [pyg_data(3, 1, edge_weight=torch.tensor([[1.0], [2.0]])), pyg_data(2, 0, edge_weight=torch.ones(2))]
    torch.save(several, tmp_path / "g.pt")
    assert load_pyg_file(tmp_path / "g.pt").union.edge_weights.tolist() == [1, 2, 1, 1]
    torch.save([several[0], pyg_data(2, 0)], tmp_path / "g.pt")
    with pytest.raises(DataError, match="give them to all or to none"):
        load_pyg_file(tmp_path / "g.pt")
    torch.save(pyg_data(edge_weight=torch.ones(3)), tmp_path / "g.pt")
    with pytest.raises(DataError, match=r"edge_weight must be one number per edge; got shape \[3\]"):
        load_pyg_file(tmp_path / "g.pt")


@pytest.mark.parametrize("content", ["data", "dictionary", "list", "processed"])
def test_pyg_edge_features_are_columns_of_links(tmp_path: Path, content: str) -> None:
    import torch
    from torch_geometric.data import InMemoryDataset

    data = pyg_data(edge_attr=torch.ones(2, 4))
    kinds = {"data": data, "dictionary": data.to_dict(), "list": [pyg_data(3, 1, edge_attr=torch.ones(2, 4))]}
    if content == "processed":
        InMemoryDataset.save([data], str(tmp_path / "g.pt"))
    else:
        torch.save(kinds[content], tmp_path / "g.pt")
    links = load_pyg_file(tmp_path / "g.pt").union.links
    assert links is not None
    assert links.features.shape == (2, 4)


def test_pyg_numbers_that_are_no_numbers_of_nodes_or_classes(tmp_path: Path) -> None:
    import torch

    torch.save(
        {"edge_index": torch.tensor([[0.6], [1.0]]), "y": torch.tensor([0, 1]), "num_nodes": 2}, tmp_path / "g.pt"
    )
    with pytest.raises(DataError, match="edge_index must hold whole node numbers; got float32"):
        load_pyg_file(tmp_path / "g.pt")
    torch.save(
        {"edge_index": torch.tensor([[0], [1]]), "y": torch.tensor([0, -100]), "num_nodes": 2}, tmp_path / "g.pt"
    )
    with pytest.raises(DataError, match=r"label -100 does not fit into 1 classes, .* unknown is -1"):
        load_pyg_file(tmp_path / "g.pt")


class Surprise:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("/tmp/graphsilo-must-not-exist"),))  # type: ignore[return-value]


def test_pyg_file_that_needs_code_is_refused(tmp_path: Path) -> None:
    import torch

    torch.save({"edge_index": Surprise()}, tmp_path / "g.pt")
    with pytest.raises(DataError, match=r"Reading such a file would run code") as caught:
        load_pyg_file(tmp_path / "g.pt")
    assert str(caught.value).isprintable()
    assert not Path("/tmp/graphsilo-must-not-exist").exists()


def test_pyg_files_that_are_no_graphs(tmp_path: Path) -> None:
    import torch

    torch.save(torch.zeros(2), tmp_path / "g.pt")
    with pytest.raises(DataError, match="holds a Tensor"):
        load_pyg_file(tmp_path / "g.pt")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "g.pt")
    with pytest.raises(DataError, match="found: weight"):
        load_pyg_file(tmp_path / "g.pt")
    (tmp_path / "g.pt").write_bytes(b"")
    with pytest.raises(DataError, match=r"g\.pt is empty: write it again"):
        load_pyg_file(tmp_path / "g.pt")
    (tmp_path / "g.pt").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        load_pyg_file(tmp_path / "g.pt")
    with pytest.raises(DataError, match="does not exist"):
        load_pyg_file(tmp_path / "none.pt")


def test_each_of_several_graphs_has_one_label(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "g.pt"
    for labels, found in (([1, 0], [1, 0]), ([-1, 1], [0, 1]), ([0, -1], [0, -1]), ([float("nan"), 2.0], [-1, 2])):
        torch.save(with_labels(labels), path)
        assert load_pyg_file(path).labels.tolist() == found
    torch.save(with_labels([0, [1, 2]]), path)
    with pytest.raises(DataError, match=r"g, graph 1 needs an edge_index and one label y, its class; it has 2 values"):
        load_pyg_file(path)
    torch.save(with_labels([0, 10**12]), path)
    with pytest.raises(DataError, match="numbered 1000000000000"):
        load_pyg_file(path)


def with_labels(labels: list[object]) -> list[object]:
    graphs = [pyg_data(2, 0) for _ in labels]
    for graph, label in zip(graphs, labels, strict=True):
        graph.y = label  # type: ignore[attr-defined]
    return graphs
