"""What many tests are made of: small runs, small graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.graph import GraphCollection
from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.experiments.config import RunConfig, load_config

SMALL = {"nodes": 150, "classes": 3, "features": 40, "feature_density": 0.1}


def small_run(**more: Any) -> RunConfig:
    """Three clients, three rounds, 150 nodes; ``partition__rule="metis"`` sets ``partition.rule``."""
    overrides = {
        "data.name": "citation-sbm", "data.generator": dict(SMALL), "partition.rule": "random", "partition.clients": 3,
        "method.rounds": 3, "evaluation.models": False,
    }  # fmt: skip
    if "partition__file" in more:  # a stored partition decides itself
        del overrides["partition.rule"], overrides["partition.clients"]
    for name, value in more.items():
        overrides[name.replace("__", ".")] = value
    return load_config({"model": {"hidden": 8}}, overrides=overrides)


def molecules(path: Path) -> Path:
    """Writes a file with 40 small graphs: rings are one class, paths the other."""
    whole = catalog.load("citation-sbm", options={"generator": {"nodes": 240, "classes": 2, "features": 8}})
    pointer = np.arange(0, 241, 6)
    first = np.arange(240)
    ring = (np.arange(40) % 2 == 0)[first // 6]
    last = first % 6 == 5
    target = np.where(last, first - 5, first + 1)
    keep = ring | ~last
    ends = np.stack([first[keep], target[keep]])
    union = replace(
        whole.with_edges(np.concatenate([ends, ends[::-1]], axis=1)), labels=np.full(240, -1, dtype=np.int64), splits={}
    )
    graphs = GraphCollection(union, pointer, (np.arange(40) % 2).astype(np.int64), 2, "rings")
    return save_graph(path, graphs)
