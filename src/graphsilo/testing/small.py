"""Runs that are small: settings and data for trying a method, and set-up with its first rounds."""

from __future__ import annotations

import atexit
import functools
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.sources.files import save_graph
from graphsilo.data.sources.targets import with_targets
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.federation.interface import Federation
from graphsilo.federation.registry import Method
from graphsilo.types import TARGET_TASKS, Task

SMALL = {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1}

POOLS: Mapping[Task, list[dict[str, Any]]] = {
    "node": [{"name": "gcn", "hidden": 8}, {"name": "mlp", "hidden": 8}, {"name": "sage", "hidden": 8}],
    "graph": [{"name": "gin", "hidden": 8}, {"name": "gcn", "hidden": 8}],
    "link": [{"name": "gcn", "hidden": 8}, {"name": "sage", "hidden": 8}],
    "regression": [{"name": "gcn", "hidden": 8}, {"name": "sage", "hidden": 8}],
    "multilabel": [{"name": "gcn", "hidden": 8}, {"name": "sage", "hidden": 8}],
}
"""Different models of the clients of a small run, by task."""


class ConformanceError(AssertionError):
    """A method breaks a promise; the text says which and how."""


def small_config(
    method: Method, settings: Mapping[str, Any], *, clients: int = 4, run: Mapping[str, Any] | None = None
) -> RunConfig:
    """Three rounds, or as many as the method has, of its first task: on a generated graph of 150 nodes (300 for links),
    or on 40 rings and paths."""
    task = method.tasks[0]
    overrides: dict[str, Any] = {
        "data.name": "citation-sbm",
        "data.generator": dict(SMALL) if task == "node" else {**SMALL, "nodes": 300},
        "partition.rule": "random" if clients > 1 else "louvain",
        "partition.clients": clients,
        "evaluation.models": False,
    }
    if task != "node":
        overrides["task"] = task
    if task == "graph":
        del overrides["data.generator"]
        overrides |= {"data.name": str(rings()), "partition.rule": "dirichlet"}
    if task in TARGET_TASKS:
        del overrides["data.generator"]
        overrides["data.name"] = str(measured(task))
    rounds = {"rounds": min(3, max_rounds_tried(method))} if "rounds" in method.config.model_fields else {}
    overrides.update({f"run.{name}": value for name, value in (run or {}).items()})
    # Said for many runs, in some of which a setting that shortens a step, or a backbone's, has nothing to do.
    pool = (method.model or {}).get("pool")
    model = {"hidden": 8} if pool is None else {"pool": pool}
    several = {"method": {"name": method.name, **rounds, **settings}, "model": model}
    return load_config(several, overrides=overrides)


def max_rounds_tried(method: Method) -> float:
    """The largest number of rounds that the method's settings take."""
    bounds = [getattr(bound, "le", None) for bound in method.config.model_fields["rounds"].metadata]
    return min((bound for bound in bounds if bound is not None), default=math.inf)


@functools.cache
def rings() -> Path:
    """A file with 40 graphs of six nodes, rings and paths, that lasts as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="graphsilo-rings-")
    atexit.register(folder.cleanup)
    count, first = 40, np.arange(240)
    is_ring, is_last = (first // 6) % 2 == 0, first % 6 == 5
    kept = is_ring | ~is_last
    ends = np.stack([first, np.where(is_last, first - 5, first + 1)])[:, kept]
    features = np.random.default_rng(0).standard_normal((240, 5)).astype(np.float32)
    edges = np.concatenate([ends, ends[::-1]], axis=1)
    union = Graph(features, edges, np.full(240, -1, dtype=np.int64), 2, "rings")
    labels = (np.arange(count) % 2).astype(np.int64)
    return save_graph(
        Path(folder.name) / "rings.npz", GraphCollection(union, 6 * np.arange(count + 1), labels, 2, "rings")
    )


@functools.cache
def measured(task: Task) -> Path:
    """A file with a graph of 200 nodes with two targets, one of which is not known of every fifth node."""
    folder = tempfile.TemporaryDirectory(prefix="graphsilo-measured-")
    atexit.register(folder.cleanup)
    draw, ends = np.random.default_rng(0), np.arange(200)
    features = draw.standard_normal((200, 8)).astype(np.float32)
    links = np.stack([ends, (ends + 1) % 200])
    values = features @ draw.standard_normal((8, 2)) + 0.1 * draw.standard_normal((200, 2))
    values = values / values.std(axis=0) if task == "regression" else (values > 0).astype(np.float64)
    values[::5, 1] = np.nan
    graph = Graph(features, np.concatenate([links, links[::-1]], axis=1), np.zeros(200, dtype=np.int64), 1, "measured")
    kind: Any = task
    return save_graph(Path(folder.name) / "measured.npz", with_targets(graph, values, ["one", "other"], task=kind))


def play(server: Any, federation: Federation, rounds: int = 2) -> None:
    """Set-up and the first rounds; one-shot methods have but one."""
    federation.at("setup", 0)
    server.set_up(federation)
    for number in range(1, min(rounds, server.rounds) + 1):
        federation.at("round", number)
        server.round(federation, number)
