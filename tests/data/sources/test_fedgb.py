"""Small folders in the schema of FedGB's archives; the archives themselves are not at hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphsilo
from graphsilo.data import load
from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.partition import partition
from graphsilo.data.partition.graphs import partition_graphs
from graphsilo.errors import DataError

FGLGraphDataset = type("FGLGraphDataset", (), {"__module__": "benchmark_data"})
"""Of the benchmark's class only name and fields matter; it is not there when files are read."""


def write(root: Path, level: str, task: str, clients: list[Any], masks: list[list[list[int]]], **said: Any) -> Path:
    """A folder; ``masks`` has the numbers of training, validation and test items of each client."""
    folder = root / "distrib" / "natural" / task / "default_split"
    folder.mkdir(parents=True)
    module = ModuleType("benchmark_data")
    module.FGLGraphDataset = FGLGraphDataset  # type: ignore[attr-defined]
    for number, (content, split) in enumerate(zip(clients, masks, strict=True)):
        if isinstance(content, dict):
            fields, content = content, FGLGraphDataset()
            vars(content).update(fields)
        count = len(content.graphs) if level == "graph" else len(content.x)
        sys.modules["benchmark_data"] = module
        torch.save(content, root / "distrib" / "natural" / f"data_{number}.pt")
        del sys.modules["benchmark_data"]
        for key, chosen in zip(("train", "val", "test"), split, strict=True):
            mask = torch.zeros(count, dtype=torch.bool)
            mask[chosen] = True
            torch.save(mask, folder / f"{key}_{number}.pt")
    manifest = {"schema_version": "1.0", "name": "tiny", "level": level, "task": task, "num_clients": len(clients)}
    (root / "fedgb_manifest.json").write_text(json.dumps(manifest | said))
    return root


def ring(count: int) -> torch.Tensor:
    first = torch.arange(count)
    return torch.stack([torch.cat([first, (first + 1) % count]), torch.cat([(first + 1) % count, first])])


def thirds(count: int) -> list[list[int]]:
    return [list(range(start, count, 3)) for start in range(3)]


def homogeneous(root: Path, sizes: tuple[int, ...] = (24, 30), **more: Any) -> Path:
    torch.manual_seed(0)
    clients = []
    for place, n in enumerate(sizes):
        y = torch.arange(n) // 3 % 2
        x = torch.randn(n, 4) + y[:, None]
        start = 20 * place  # the last nodes of one client are the first of the next
        clients.append(
            Data(x=x, edge_index=ring(n), y=y, global_map={row: np.int64(start + row) for row in range(n)}, **more)
        )
    return write(root, "homo_subgraph", "node_cls", clients, [thirds(n) for n in sizes])


def typed(root: Path) -> Path:
    """Stays and patients; each client numbers the types in its own way."""
    clients = []
    for turned in (False, True):
        n = 12
        stay = torch.arange(2 * n) % 2 == int(turned)
        y = torch.where(stay, torch.arange(2 * n) // 6 % 2, -1)
        x = torch.randn(2 * n, 3) + 1
        x[~stay, 2] = 0
        rows = torch.arange(n)
        ends = torch.stack([2 * rows + int(turned), 2 * rows + 1 - int(turned)])
        names = ["stay", "patient"] if not turned else ["patient", "stay"]
        content = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=y, global_map=torch.arange(2 * n))
        content.node_type = torch.tensor([names.index("stay"), names.index("patient")])[(~stay).long()]
        content.edge_type = torch.arange(2).repeat_interleave(n)
        content.target_node_type = "stay"
        content.hetero_node_types = names
        content.hetero_edge_types = [("stay", "of", "patient"), ("patient", "has", "stay")]
        content.num_global_classes = 3
        clients.append(content)
    return write(root, "hetero_subgraph", "node_cls", clients, [thirds(24)] * 2)


def graphs(root: Path, task: str = "graph_cls") -> Path:
    """Triangles and squares; numbers are 7 times as many as there are nodes, and a second target is rarely known."""
    clients: list[Any] = []
    for place, count in enumerate((15, 18)):
        made = []
        for number in range(count):
            n = 3 + number // 3 % 2
            data = Data(x=torch.randn(n, 2), edge_index=ring(n), edge_attr=torch.ones(2 * n, 1) * n)
            if task == "graph_cls":
                data.y = torch.tensor(n - 3)
            else:
                data.y = torch.tensor([[7.0 * n, 1.5]])
                data.y_mask = torch.tensor([[number != 1, number % 4 == 0]])
            made.append(data)
        clients.append({"graphs": made, "client_name": f"lab {place}", "target_names": ["mass, u", "gap, eV"],
                        "num_global_classes": 2 if task == "graph_cls" else None, "num_targets": 2})  # fmt: skip
    return write(root, "graph", task, clients, [thirds(15), thirds(18)])


def test_a_client_of_nodes_is_what_its_file_holds(tmp_path: Path) -> None:
    graph = load(str(homogeneous(tmp_path)))
    assert isinstance(graph, Graph)
    assert graph.owners is not None
    assert graph.name == "tiny"
    assert graph.num_nodes == 54
    assert graph.num_classes == 2
    assert graph.owners.names == ("0", "1")
    cut = partition(graph, "natural")
    assert [len(part) for part in cut.nodes] == [24, 30]
    assert cut.split == "predefined"
    assert cut.train[1].tolist() == list(range(24, 54, 3))
    assert cut.test[0].tolist() == list(range(2, 24, 3))
    assert graph.external_ids[[0, 23, 24]].tolist() == ["0/0", "0/23", "1/20"]
    assert any("4 nodes are at several clients" in note for note in graph.notes)


def test_one_label_and_unknown_ones_are_no_two_classes(tmp_path: Path) -> None:
    root = homogeneous(tmp_path)
    file = root / "distrib" / "natural" / "data_0.pt"
    data = torch.load(file, weights_only=False)
    data.y = torch.where(data.y == 1, 1, -1)
    torch.save(data, file)
    graph = load(str(root))
    assert set(graph.labels[:24].tolist()) == {-1, 1}
    assert not (graph.union.splits["train"] & (graph.labels < 0)).any()


def test_types_agree_by_their_names(tmp_path: Path) -> None:
    graph = load(str(typed(tmp_path)))
    assert isinstance(graph, Graph)
    assert graph.types is not None
    assert graph.links is not None
    assert graph.types.names == ("patient", "stay")
    assert graph.links.relations == ("has", "of")
    stays = graph.types.targets
    assert graph.num_classes == 3
    assert stays.sum() == 24
    assert ((graph.labels >= 0) == stays).all()
    assert graph.owners is not None
    assert np.bincount(graph.owners.of_node).tolist() == [24, 24]
    words = graph.feature_names or ()
    assert "patient.1" in words
    assert "patient.2" not in words
    assert "stay.2" in words
    one, other = graph.owners.of_node[graph.links.ends]
    assert (one == other).all()
    leads = graph.links.lead(graph.types)
    assert dict(zip(graph.links.relations, leads, strict=True))["of"] == ("stay", "patient")


def test_a_client_of_graphs_is_what_its_file_holds(tmp_path: Path) -> None:
    found = load(str(graphs(tmp_path)))
    assert isinstance(found, GraphCollection)
    assert len(found) == 33
    assert found.num_classes == 2
    cut = partition_graphs(found, "natural")
    assert [len(part) for part in cut.nodes] == [15, 18]
    assert cut.split == "predefined"
    assert cut.val[1].tolist() == list(range(16, 33, 3))


def test_numbers_of_graphs_are_estimated_at_nodes_that_stand_for_these(tmp_path: Path) -> None:
    graph = load(str(graphs(tmp_path, "graph_reg")), options={"sums": False})
    assert isinstance(graph, Graph)
    assert graph.targets is not None
    assert graph.owners is not None
    assert graph.task == "regression"
    assert graph.class_names == ("mass, u", "gap, eV")
    assert graph.owners.names == ("lab 0", "lab 1")
    assert graph.targets.values[:33, 0].tolist()[:4] == [21.0, pytest.approx(np.nan, nan_ok=True), 21.0, 28.0]
    assert np.isnan(graph.targets.values[33:]).all()
    assert graph.labels[1] == -1
    assert not graph.splits["val"][1]
    assert graph.splits["val"][4]
    own = graph.features[33:36, 2:4].mean(axis=0)
    assert graph.features[0, :2] == pytest.approx(own, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nodes", "typed", "graphs", "numbers"])
def test_each_kind_goes_through_run_compare_and_predict(tmp_path: Path, kind: str) -> None:
    make: dict[str, Callable[[Path], Path]] = {
        "nodes": homogeneous, "typed": typed, "graphs": graphs, "numbers": partial(graphs, task="graph_reg")
    }  # fmt: skip
    root = make[kind](tmp_path / "data")
    model = "gin" if kind == "graphs" else "gcn"
    runs = [
        graphsilo.run(method=method, data=str(root), **more, rounds=2, report=False, out=tmp_path / method)
        for method, more in (("fedavg", {"model": model}), ("auto", {}))
    ]
    assert [row.label for row in graphsilo.compare(*runs).rows] == ["FedAvg", "Auto"]
    for run in runs:
        assert all(np.isfinite(value) for value in run.summary.values() if isinstance(value, float))
        assert len(graphsilo.predict(run, 1).node_ids) > 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lambda root: (root / "fedgb_manifest.json").unlink(), "has no fedgb_manifest.json"),
        (lambda root: (root / "fedgb_manifest.json").write_text("{"), "is damaged"),
        (lambda root: (root / "fedgb_manifest.json").write_text('{"schema_version": "2.0"}'), "reads 1.0"),
        (lambda root: (root / "fedgb_manifest.json").write_text(
            '{"schema_version": "1.0", "level": "graph", "task": "node_cls", "num_clients": 0}'),
         "task of the level graph is graph_cls or graph_reg; got 'node_cls'; num_clients"),
        (lambda root: (root / "distrib" / "natural" / "data_1.pt").unlink(), "lacks 1 of their 8 files"),
        (lambda root: (root / "distrib" / "natural" / "data_1.pt").write_bytes(b"PK no"), "cannot be read"),
        (lambda root: torch.save({"x": torch.ones(2, 2)}, root / "distrib" / "natural" / "data_1.pt"),
         "without x, edge_index, y"),
        (lambda root: torch.save(torch.ones(7), root / "distrib/natural/node_cls/default_split/val_0.pt"),
         "24 truth values"),
        (lambda root: torch.save(torch.ones(24) > 0, root / "distrib/natural/node_cls/default_split/val_0.pt"),
         "is in two of the splits"),
        (lambda root: torch.save(Data(x=torch.ones(30, 3), edge_index=ring(30), y=torch.zeros(30).long()),
                                 root / "distrib/natural/data_1.pt"), "4 features of each node"),
        (lambda root: torch.save(Data(x=torch.ones(30, 4), edge_index=ring(31), y=torch.zeros(30).long()),
                                 root / "distrib/natural/data_1.pt"), "client 1: an edge names node 30"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_in_a_paragraph(tmp_path: Path, fault: Any, told: str) -> None:
    root = homogeneous(tmp_path)
    fault(root)
    with pytest.raises(DataError, match=told) as refused:
        load(str(root))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("target_node_type", "ward", "'stay' in target_node_type, and tiny, client 1 has 'ward'"),
        ("hetero_node_types", None, "names in hetero_node_types, and tiny, client 1 has none"),
        ("node_type", torch.zeros(3).long(), "node_type should hold 24 numbers"),
        ("edge_type", -torch.ones(24).long(), "edge_type should hold 24 numbers"),
    ],
)
def test_clients_that_disagree_on_types_are_refused(tmp_path: Path, field: str, value: Any, told: str) -> None:
    root = typed(tmp_path)
    file = root / "distrib" / "natural" / "data_1.pt"
    data = torch.load(file, weights_only=False)
    data[field] = value
    torch.save(data, file)
    with pytest.raises(DataError, match=told):
        load(str(root))


def test_reading_runs_no_code(tmp_path: Path) -> None:
    root = homogeneous(tmp_path)

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save(Evil(), root / "distrib" / "natural" / "data_1.pt")
    with pytest.raises(DataError, match="cannot be read safely"):
        load(str(root))
    assert not (tmp_path / "ran").exists()
