"""Silos of tables, and of small graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo

NAMES = ("north", "south", "west")


WORDS = [f"w{number:02}" for number in range(70)]


CLASSES = ["home", "stays", "back"]


SPLIT: dict[str, Any] = {"ratios": [0.4, 0.3, 0.3], "seed": 11}


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def named(silo: Silo, name: str) -> EvaluationSet:
    return next(item for item in silo.evaluations if item.name == name)


def write_tables(
    folder: Path, name: str, *, seed: int, labels: Sequence[str], wide: bool = False, **nodes: Any
) -> Path:
    """A silo of 30 to 32 nodes; ``wide`` spreads a column over 70, which are kept sparse unless others are filled."""
    generator = np.random.default_rng(seed)
    size = 30 + seed
    rows = ["id,age,weight,word,outcome"]
    for row in range(size):
        label = labels[generator.integers(len(labels))] if labels else ""
        rows.append(f"{name}{row},{generator.integers(20, 90)},{generator.normal():.4f},{WORDS[row % 70]},{label}")
    (folder / f"{name}.nodes.csv").write_text("\n".join(rows) + "\n")
    pairs = generator.integers(size, size=(60, 2))
    (folder / f"{name}.edges.csv").write_text("a,b\n" + "".join(f"{name}{a},{name}{b}\n" for a, b in pairs))
    content: dict[str, Any] = {
        "name": name,
        "nodes": {
            "path": f"{name}.nodes.csv",
            "id": "id",
            "label": "outcome",
            "features": ["age", "weight"],
            **({"one_hot": {"word": WORDS}} if wide else {}),
            **nodes,
        },
        "edges": {"path": f"{name}.edges.csv", "source": "a", "target": "b"},
        "classes": CLASSES,
    }
    path = folder / f"{name}.tables.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def write_bank(folder: Path, name: str, accounts: Sequence[tuple[float, str, str, int]], shops: int) -> Path:
    """Tables with two types of nodes: accounts, each with balance, word, verdict and how often it pays, and shops."""
    rows = [f"{name}{k},{balance},{word},{verdict}" for k, (balance, word, verdict, _) in enumerate(accounts)]
    payments = [f"{name}{k},s{time},{100 * time}" for k, (*_, times) in enumerate(accounts) for time in range(times)]
    for table, heading, lines in (
        ("accounts", "id,balance,word,verdict", rows), ("payments", "from,to,amount", payments),
        ("shops", "id,size", [f"s{k},{k}" for k in range(shops)]),
    ):  # fmt: skip
        (folder / f"{name}-{table}.csv").write_text("\n".join([heading, *lines]))
    content = {
        "name": name, "classes": ["ok", "mule"],
        "nodes": {
            "account": {"path": f"{name}-accounts.csv", "id": "id", "label": "verdict", "features": ["balance"],
                        "one_hot": {"word": ["x", "y"]}},
            "shop": {"path": f"{name}-shops.csv", "id": "id", "features": ["size"]},
        },
        "edges": {"payment": {"path": f"{name}-payments.csv", "source": "from", "target": "to", "from": "account",
                              "to": "shop", "features": ["amount"]}},
    }  # fmt: skip
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def write_silo(folder: Path, name: str, **content: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "data": f"{name}.tables.yaml", "split": SPLIT, **content}))
    return path


def graphs_of(client: int, count: int = 16, classes: int = 2) -> Silo:
    """Paths of four nodes, of classes by their features."""
    draw = np.random.default_rng(client)
    first = np.flatnonzero(np.arange(4 * count) % 4 < 3)
    edges = np.stack([np.concatenate([first, first + 1]), np.concatenate([first + 1, first])])
    labels = draw.integers(0, classes, count)
    features = draw.standard_normal((4 * count, 3)) + np.repeat(labels, 4)[:, None]
    union = Graph(features.astype(np.float32), edges, np.full(4 * count, -1), classes)
    whole = GraphCollection(union, np.arange(0, 4 * count + 1, 4), labels.astype(np.int64), classes)
    items = {"train": np.arange(0, count, 2), "val": np.arange(1, count, 4), "test": np.arange(3, count, 4)}
    return Silo(client, whole, items["train"], (EvaluationSet("seen", whole, items),), Schema("graph", 3, classes))


def bipartite(client: int, centres: int) -> Silo:
    """Training nodes that are all joined to four validation nodes and a test node; 16 classes, 16 features, all 0.

    On the wire every tensor starts on 64 bytes: with sixteen of everything nothing is padded.
    """
    leaves = centres + np.arange(5)
    ends = np.stack([np.repeat(np.arange(centres), 5), np.tile(leaves, centres)])
    graph = Graph(
        features=np.zeros((centres + 5, 16), np.float32),
        edges=np.concatenate([ends, ends[::-1]], axis=1).astype(np.int64),
        labels=(np.arange(centres + 5) % 16).astype(np.int64),
        num_classes=16,
    )
    items = {"train": np.arange(centres), "val": leaves[:4], "test": leaves[4:]}
    return Silo(client, graph, items["train"], (EvaluationSet("seen", graph, items),), Schema("node", 16, 16))
