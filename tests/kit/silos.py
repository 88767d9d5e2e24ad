"""Silos of tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

NAMES = ("north", "south", "west")


WORDS = [f"w{number:02}" for number in range(70)]


CLASSES = ["home", "stays", "back"]


SPLIT: dict[str, Any] = {"ratios": [0.4, 0.3, 0.3], "seed": 11}


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


def write_silo(folder: Path, name: str, **content: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "data": f"{name}.tables.yaml", "split": SPLIT, **content}))
    return path
