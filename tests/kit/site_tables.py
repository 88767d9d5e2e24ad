"""Tables of three small silos, and what of a result must be the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from graphsilo.federation import registry
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.testing.conformance import COSTS

NAMES = ("north", "south", "west")


def write_tables(
    folder: Path, name: str, number: int, *, nodes: int = 60, columns: int = 12, linked: bool = False
) -> Path:
    """A small table pair, its description, and the silo.yaml beside it; every silo lacks another class.

    Where silos are ``linked``, node i of each is, up to the 20th, to node i + 1 of the next of ``NAMES``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(number)
    labels = np.array([label for label in range(4) if label != number])[draw.integers(0, 3, nodes)]
    features = (draw.random((nodes, columns)) < 0.15 + 0.5 * (np.arange(columns) % 4 == labels[:, None])).astype(int)
    # In units of their own: years, and a count per microlitre.
    features = features * np.array([1] * (columns - 2) + [30, 250_000])
    rows = ["id,outcome," + ",".join(f"f{column}" for column in range(columns))]
    rows += [f"{name}{row},c{labels[row]}," + ",".join(map(str, features[row])) for row in range(nodes)]
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    pairs = {tuple(sorted(pair)) for pair in draw.integers(0, nodes, (3 * nodes, 2)).tolist() if pair[0] != pair[1]}
    alike = [pair for pair in sorted(pairs) if labels[pair[0]] == labels[pair[1]] or draw.random() < 0.3]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(f"{name}{a},{name}{b}" for a, b in alike) + "\n")
    tables = {
        "name": name,
        "nodes": {"path": "nodes.csv", "id": "id", "label": "outcome", "features": ["f*"]},
        "edges": {"path": "edges.csv", "source": "source", "target": "target"},
        "classes": ["c0", "c1", "c2", "c3"],
    }
    if linked:
        before, after = NAMES[number - 1], NAMES[(number + 1) % len(NAMES)]
        moved = [f"{name}{i},{after},{after}{i + 1}" for i in range(20)]
        moved += [f"{name}{i + 1},{before},{before}{i}" for i in range(20)]
        (folder / "moved.csv").write_text("own,silo,there\n" + "\n".join(moved) + "\n")
        tables["outside"] = {"path": "moved.csv", "node": "own", "silo": "silo", "other": "there"}
    (folder / "tables.yaml").write_text(yaml.safe_dump(tables))
    (folder / "silo.yaml").write_text(yaml.safe_dump({"name": name, "data": "tables.yaml"}))
    return folder / "silo.yaml"


def short_settings(tables: list[str], overrides: dict[str, Any]) -> dict[str, Any]:
    """Settings of a short run over these tables; no width where the method has no backbone to give it to."""
    given = {"data.name": tables, "method.rounds": 4, "run.checkpoint_every": 1, "model.hidden": [8], **overrides}
    if issubclass(registry.load(str(given.get("method.name", "fedavg"))).config, OneRoundConfig):
        given.pop("method.rounds")  # they would have no effect
    if not registry.load(given.get("method.name", "fedavg")).backbone:
        given.pop("model.hidden")
    return given


def numbers(tree: Any) -> Any:
    """Everything of a result that is measured, without times and places."""
    if isinstance(tree, dict):
        return {key: numbers(value) for key, value in tree.items() if key not in COSTS}
    return [numbers(value) for value in tree] if isinstance(tree, list) else tree


METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"run.seeds": [0, 1]},
    "fedridge": {
        "method.own": False,
    },  # one tensor under two names
    "fedtrees": {"method.min_child": 2},
    "majority": {},
    "opfgl": {},
    "fedgta": {"method.participation": 0.7},
    "fedpg": {},
    "fairfgl": {},
    "fedlog": {"method.rounds": 2},
    "fedsage_plus": {"method.rounds": 2, "method.generator_hidden": [16]},
}
"""The methods that must give the same numbers over sites as in one process, with short settings."""


def assert_same(alone: Any, apart: Any) -> None:
    """Two results hold the same numbers, bit for bit."""
    for mine, theirs in zip(alone["seeds"], apart["seeds"], strict=True):
        for key in ("best_round", "validation", "test", "test_last", "modes", "confusion", "setup", "rounds"):
            assert numbers(mine.get(key)) == numbers(theirs.get(key)), key
    assert alone["summary"] == apart["summary"]
