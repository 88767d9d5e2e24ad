"""What many tests are made of: small runs, small graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphsilo.data.graph import GraphCollection
from graphsilo.data.sources import catalog
from graphsilo.data.sources.files import save_graph
from graphsilo.evaluate.spread import summarise_seeds
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.experiments.storage.reading import read
from graphsilo.experiments.storage.records import tree_of
from graphsilo.federation import registry
from graphsilo.federation.settings import OneRoundConfig

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
    # What a test says of all methods alike is left out where it would have no effect.
    method = registry.load(str(overrides.get("method.name", "fedavg")))
    one_round = issubclass(method.config, OneRoundConfig)
    if one_round and overrides["method.rounds"] != 1 and "local" not in more.get("run__references", ()):
        del overrides["method.rounds"]
    if method.pooled or (method.alone and one_round):
        overrides.pop("method.participation", None)
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


SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "result.schema.json"


def fits(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, place: str = "$") -> list[str]:
    """Where a value is not as a JSON Schema says, of the words that result.schema.json uses; empty where it is."""
    root = schema if root is None else root
    if "$ref" in schema:
        return fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, place)
    if "anyOf" in schema:
        tried = [fits(value, one, root, place) for one in schema["anyOf"]]
        return [] if not all(tried) else [f"{place}: none of {len(tried)} forms ({min(tried, key=len)[0]})"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place}: {value!r} is not one of {schema['enum']}"]
    kinds = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None),
        "boolean": bool,
    }  # fmt: skip
    wanted = schema.get("type", list(kinds))
    wanted = [wanted] if isinstance(wanted, str) else wanted
    kind = [name for name in wanted if isinstance(value, kinds[name]) and (name == "boolean" or value is not True)]
    if not kind or (isinstance(value, bool) and "boolean" not in kind):
        return [f"{place}: {value!r} is no {' or '.join(wanted)}"]
    if isinstance(value, list):
        short = [f"{place}: too short"] if len(value) < schema.get("minItems", 0) else []
        items = schema.get("items", {})
        return short + [text for at, one in enumerate(value) for text in fits(one, items, root, f"{place}[{at}]")]
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found = [f"{place}: no {name}" for name in schema.get("required", ()) if name not in value]
        for name, one in value.items():
            if name not in known and isinstance(others, bool):
                found += [] if others else [f"{place}: unknown {name}"]
            else:
                found += fits(one, known.get(name, others), root, f"{place}.{name}")
        return found
    return []


def check_result(folder: Path) -> dict[str, Any]:
    """A folder's result.json, which is as its published schema says and loses nothing when it is read as records."""
    tree: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert fits(tree, json.loads(SCHEMA.read_text(encoding="utf-8"))) == []
    assert json.dumps(tree_of(read(folder)), sort_keys=True) == json.dumps(tree, sort_keys=True)
    return tree


COSTS = {"upload_bytes": 1000, "download_bytes": 2000, "cpu_seconds": 0.5, "wall_seconds": 0.5}


def seed_tree(seed: int = 0, scores: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One seed of ``result_tree``: no rounds, no clients, the same scores everywhere."""
    test = dict({"accuracy": 0.5} if scores is None else scores)
    mode = {"best_round": 1, "validation": test, "test": test, "scenarios": {}}
    return {
        "seed": seed, "last_round": 1, **mode, "test_last": test, "scenarios_last": {}, "modes": {"own_local": mode},
        "rounds": [], "clients": [], "setup": COSTS, "cpu_seconds": 1.0, "wall_seconds": 2.0,
        "checkpoint_cpu_seconds": 0.0, "checkpoint_wall_seconds": 0.0, "peak_rss_bytes": 1000, **more,
    }  # fmt: skip


def round_tree(number: int, scores: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One round of ``seed_tree``."""
    found = {"round": number, "participants": 3, **COSTS}
    return {**found, **({} if scores is None else {"validation": scores, "test": scores}), **more}


def result_tree(scores: Sequence[Mapping[str, Any]] = ({"accuracy": 0.5},), **more: Any) -> dict[str, Any]:
    """What result.json holds of a made-up run, complete: a seed for each of the scores; ``more`` goes over sections.

    Example:
        >>> result_tree(method={"title": "Mine"})["method"]["title"]
        'Mine'
    """
    tree: dict[str, Any] = {
        "format": 1, "graphsilo": "0", "fingerprint": "f", "replaces": None, "task": "node", "class_names": None,
        "config": {"scenario": {"name": "seen"}, "model": {"name": "gcn", "pool": None}},
        "method": {
            "name": "fedavg", "title": "FedAvg", "citation": "McMahan et al.", "evaluates": ["own"], "pooled": False,
            "backbone": True, "rounds": 1,
        },
        "data": {"name": "Cora", "nodes": 2708, "edges": 10556, "features": 1433, "classes": 7, "hash": "d"},
        "partition": {"rule": "louvain", "clients": 3, "without": [], "seed": 0, "hash": "p", "per_client": []},
        "seeds": [seed_tree(place, test) for place, test in enumerate(scores)],
        "summary": {
            "test": summarise_seeds(scores), "modes": {}, "upload_bytes": 1000, "download_bytes": 2000,
        },
        "environment": {"graphsilo": "0", "python": "3", "torch": "2", "platform": "x", "device": "cpu"},
        "warnings": [],
    }  # fmt: skip
    for name, value in more.items():
        tree[name] = {**tree[name], **value} if isinstance(tree.get(name), dict) else value
    return tree


def silo_tree(**more: Any) -> dict[str, Any]:
    """What result.json holds at the site of silo north, client 0, of the run of ``result_tree``."""
    tree = result_tree()
    shared = ("format", "graphsilo", "fingerprint", "task", "method", "class_names")
    return {
        **{key: tree[key] for key in shared},
        "schema": {}, "sparse": False, "model": ["gcn", {}], "summary": {"test": {}},
        "seeds": [{"seed": 0, "best_round": 1, "last_round": 1, "client": None}],
        "federation": {"name": "f", "clients": 3, "without": []},
        "silo": "north", "silo_file": "silo.yaml", "client": 0, "silo_data": None, **more,
    }  # fmt: skip
