"""Run folders as the runner writes them, with made-up but plausible numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kit import result_tree, round_tree, seed_tree

GROUP_DROPS = {"macro_f1": 0.05, "min_f1": 0.17, "hete_f1": 0.21, "hete_min_f1": 0.33}
REFERENCES = {"local": 0.742, "global": 0.874, "global_cut": 0.851}


def make_run(
    folder: Path,
    *,
    method: str = "fedavg",
    title: str = "FedAvg",
    data: str = "Cora",
    seeds: int = 3,
    clients: int = 10,
    classes: int = 7,
    rounds: int = 60,
    level: float = 0.81,
    payload: int = 92_000,
    partition_hash: str = "sha256:4f1c7a9e02bd6c55",
    settings: dict[str, Any] | None = None,
    class_names: list[str] | None = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write result.json and ledger.parquet; returns the folder."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([clients, classes, len(method), int(1000 * level)])
    labels = _labels(np.random.default_rng(7), clients, classes)
    own = {"name": method, "rounds": rounds, "local_epochs": 3, "optimizer": "adam", "weight_decay": 0.0005}
    config = {
        "task": None,
        "data": {"name": data, "root": None, "seed": 0},
        "partition": {"rule": "louvain", "clients": clients, "seed": 2024, "split": "auto"},
        "scenario": {"name": "seen"},
        "perturb": {},
        "model": {"name": "gcn", "pool": None, "hidden": 64},
        "method": {**own, "mu": 0.01} if method == "fedprox" else own,
        "evaluation": {"modes": None, "every": 1, "select_by": "accuracy"},
        "run": {"seeds": [*range(seeds)], "workers": 1, "device": "cpu", "references": ["local", "global"]},
        **(settings or {}),
    }
    made = [_seed(rng, seed, labels, rounds, level, payload) for seed in range(seeds)]
    ledger = [line for seed in range(seeds) for who in range(clients) for line in _ledger(seed, who, rounds, payload)]
    up, down = (sum(row["bytes"] for row in ledger if row["direction"] == way) / seeds for way in ("up", "down"))
    gap = (np.mean([seed["test"]["accuracy"] for seed in made]) - 0.742) / (0.874 - 0.742)
    references = {
        key: {"accuracy": {"mean": value, "std": 0.006}, "macro_f1": {"mean": value - 0.06, "std": 0.009}}
        for key, value in REFERENCES.items()
    }
    result = result_tree(
        [{}] * seeds,
        graphsilo="0.1.0",
        config=config,
        fingerprint="sha256:" + rng.bytes(32).hex(),
        class_names=class_names,
        seeds=made,
        summary={"test": {}, "upload_bytes": up, "download_bytes": down},
        method={
            "name": method, "title": title, "evaluates": ["own", "aggregate"], "pooled": method == "global",
            "rounds": rounds,
        },
        data={"name": data, "nodes": int(labels.sum()), "edges": 5278, "classes": classes, "hash": data},
        partition=_partition(rng, labels, partition_hash),
        references={**references, "gap_closed": {"accuracy": float(gap)}},
    ) | (extra or {})  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    parquet.write_table(arrow.Table.from_pylist(ledger), folder / "ledger.parquet")
    return folder


def _labels(rng: np.random.Generator, clients: int, classes: int) -> Any:
    sizes = rng.lognormal(5.4, 0.45, clients)
    return rng.poisson(rng.dirichlet(np.full(classes, 0.35), clients) * sizes[:, None])


def _scores(rng: np.random.Generator, accuracy: float, noise: float) -> dict[str, float]:
    drops = {"accuracy": 0.0, **GROUP_DROPS}
    found = {name: float(np.clip(accuracy - drop + rng.normal(0, noise), 0, 1)) for name, drop in drops.items()}
    return {**found, "macro_f1_present": found["macro_f1"]}  # nobody predicts a class that is not there


def _sizes(row: Any) -> dict[str, int]:
    """A client's items, by its labels."""
    size = int(row.sum())
    return {"nodes": size, "train": int(0.2 * size), "val": int(0.4 * size)}


def _seed(rng: np.random.Generator, seed: int, labels: Any, rounds: int, level: float, payload: int) -> dict[str, Any]:
    clients, classes = labels.shape
    offset = rng.normal(0, 0.006)
    rows = []
    for number in range(1, rounds + 1):
        reached = 0.25 + (level + offset - 0.25) * (1 - np.exp(-number / (rounds / 6))) + rng.normal(0, 0.006)
        cpu = float(0.16 + rng.gamma(2, 0.01))
        valid = _scores(rng, reached + 0.01, 0.004)
        row = round_tree(
            number, validation={name: valid[name] for name in ("accuracy", "macro_f1")},
            test=_scores(rng, reached, 0.004), upload_bytes=clients * (payload + 4), download_bytes=clients * payload,
            cpu_seconds=cpu, wall_seconds=cpu * 1.06, participants=clients,
        )  # fmt: skip
        other = {"validation": {}, "test": _scores(rng, reached + 0.012, 0.003)}
        rows.append({**row, "modes": {"aggregate_local": other}})
    best = int(np.argmax([row["validation"]["accuracy"] for row in rows]))
    test = dict(rows[best]["test"])
    each = []
    for client in range(clients):
        own = float(np.clip(test["accuracy"] + rng.normal(0, 0.06), 0.2, 1))
        sizes = _sizes(labels[client])
        each.append({
            "client": client, **sizes, "test_items": sizes["nodes"] - sizes["train"] - sizes["val"],
            "test": _scores(rng, own, 0.01), "missing_classes": np.flatnonzero(labels[client] == 0).tolist(),
        })  # fmt: skip
    worst = min(each, key=lambda row: row["test"]["accuracy"])
    items = (0.4 * labels.sum(axis=0)).astype(int)
    wrong = rng.dirichlet(np.full(classes, 0.5), classes) * (1 - test["accuracy"])
    confusion = np.round((wrong + np.eye(classes) * test["accuracy"]) * items[:, None]).astype(int)
    beside = {
        "pooled": {name: value + 0.004 for name, value in test.items()},
        "worst_client": {"client": worst["client"], "accuracy": worst["test"]["accuracy"]},
        "spread": {"std": 0.05, "min": 0.6, "max": 0.9},
        "items": int(items.sum()),
    }
    mode = {"best_round": best + 1, "validation": rows[best]["validation"], "test": test, "scenarios": {}}
    other = {**mode, "validation": {}, "test": _scores(rng, test["accuracy"] + 0.012, 0.003)}
    return seed_tree(
        seed, **{**mode, "test": test | beside}, last_round=rounds, test_last=dict(rows[-1]["test"]),
        modes={"own_local": mode, "aggregate_local": other}, confusion=confusion.tolist(), clients=each, rounds=rows,
        per_class_f1=np.clip(test["macro_f1"] + rng.normal(0, 0.07, classes), 0, 1).tolist(),
        setup={"upload_bytes": 28 * clients, "download_bytes": 12 * clients, "cpu_seconds": 0.02, "wall_seconds": 0.02},
        cpu_seconds=sum(row["cpu_seconds"] for row in rows), wall_seconds=sum(row["wall_seconds"] for row in rows),
        peak_rss_bytes=612_000_000,
    )  # fmt: skip


def _ledger(seed: int, client: int, rounds: int, payload: int) -> list[dict[str, Any]]:
    names = ("phase", "round", "direction", "handler", "message", "field", "kind", "bytes")
    lines: list[tuple[Any, ...]] = [
        ("setup", 0, "up", "describe", "Description", "label_counts", "counts", 28),
        ("setup", 0, "down", "describe", "DescribeRequest", "classes", "control", 12),
        ("evaluation", rounds, "up", "evaluate", "Confusion", "counts", "counts", 196),
    ]
    for number in range(1, rounds + 1):
        lines += [
            ("round", number, "down", "train", "TrainRequest", "weights", "model", payload),
            ("round", number, "down", "train", "TrainRequest", "round", "control", 8),
            ("round", number, "up", "train", "TrainReply", "weights", "model", payload),
            ("round", number, "up", "train", "TrainReply", "train_nodes", "counts", 8),
            ("round", number, "up", "train", "TrainReply", "prototypes", "prototype", payload // 20),
            ("round", number, "up", "train", "TrainReply", "loss", "score", 4),
        ]
    shared = {"seed": seed, "client": client, "messages": 1}
    return [{**shared, **dict(zip(names, line, strict=True))} for line in lines]


def _partition(rng: np.random.Generator, labels: Any, partition_hash: str) -> dict[str, Any]:
    each = []
    for client, row in enumerate(labels):
        sizes = _sizes(row)
        each.append({
            "client": client, **sizes, "edges": int(1.8 * sizes["nodes"]),
            "test": sizes["nodes"] - sizes["train"] - sizes["val"], "labels": row.tolist(),
            "homophily": float(rng.beta(14, 3)), "mean_degree": float(rng.normal(3.7, 0.3)),
            "isolated": int(rng.poisson(1)), "missing_classes": np.flatnonzero(row == 0).tolist(),
            "components": int(rng.poisson(3)) + 1,
        })  # fmt: skip
    return {
        "rule": "louvain", "clients": len(labels), "seed": 2024, "hash": partition_hash, "kept_edges": 4738,
        "cut_edges": 540, "kept_share": 4738 / 5278, "is_disjoint_cover": True, "duplicates": 0, "missing": 0,
        "held_out": 0, "homophily": 0.81, "per_client": each,
    }  # fmt: skip
