"""Small graphs that the model tests share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.models import GraphTensors
from kit.backbones import Dense, typed


def random_graph(
    nodes: int = 30, features: int = 12, seed: int = 0, *, sparse: bool = False, degree: float = 3
) -> Graph:
    """Undirected; nodes 0 and 1 are isolated."""
    draws = np.random.default_rng(seed)
    pairs = draws.integers(min(2, nodes - 1), nodes, size=(2, int(nodes * degree / 2)))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edges = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1).astype(np.int64)
    values = draws.random((nodes, features)).astype(np.float32)
    if sparse:
        values *= draws.random((nodes, features)) < 0.1
    matrix = sp.csr_matrix(values) if sparse else values
    return typed(Graph(matrix, edges, draws.integers(0, 3, nodes), 3))


def random_collection(graphs: int = 6, features: int = 5, seed: int = 0) -> GraphCollection:
    draws = np.random.default_rng(seed)
    sizes = draws.integers(1, 8, graphs)
    pointer = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    edges = []
    for start, size in zip(pointer[:-1], sizes, strict=True):
        path = np.arange(start, start + size)
        edges.append(np.stack([path[:-1], path[1:]]))
    joined = np.concatenate(edges, axis=1)
    both = np.concatenate([joined, joined[::-1]], axis=1)
    nodes = int(pointer[-1])
    union = Graph(draws.random((nodes, features)).astype(np.float32), both, np.full(nodes, -1), 2)
    return typed(GraphCollection(union, pointer, draws.integers(0, 2, graphs), 2))


@pytest.fixture(scope="session")
def make_graph() -> Callable[..., Graph]:
    return random_graph


@pytest.fixture(scope="session")
def make_collection() -> Callable[..., GraphCollection]:
    return random_collection


@pytest.fixture
def setting(make_graph):
    graph = make_graph(nodes=25, features=6)
    return GraphTensors(graph), torch.from_numpy(graph.features), torch.from_numpy(graph.edges)


@pytest.fixture(params=["unweighted", "weighted"])
def weighted(request, make_graph):
    """Data, features, edges and weights; those differ by direction, and two nodes have links to themselves."""
    graph = make_graph(nodes=25, features=6)
    weights = None
    if request.param == "weighted":
        loops = np.array([[1, 7], [1, 7]])
        edges = np.concatenate([graph.edges, loops], axis=1)
        weights = np.random.default_rng(0).uniform(0.1, 5.0, edges.shape[1]).astype(np.float32)
        graph = graph.with_edges(edges, weights)
        weights = torch.from_numpy(weights)
    return GraphTensors(graph), torch.from_numpy(graph.features), torch.from_numpy(graph.edges), weights


@pytest.fixture
def dense(make_graph) -> Dense:
    return Dense(make_graph(nodes=20, features=6))
