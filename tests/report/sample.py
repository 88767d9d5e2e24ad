"""Run folders as the runner writes them, with made-up but plausible numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

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
    seed_offset: int = 0,
    references: bool = True,
    class_names: list[str] | None = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write result.json and ledger.parquet; returns the folder."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([clients, classes, len(method), int(1000 * level)])
    labels = _labels(np.random.default_rng(7), clients, classes)
    seed_numbers = list(range(seed_offset, seed_offset + seeds))
    config = {
        "task": None,
        "data": {"name": data, "root": None, "seed": 0},
        "partition": {"rule": "louvain", "clients": clients, "seed": 2024, "split": "auto"},
        "scenario": {"name": "seen"},
        "perturb": {},
        "model": {"name": "gcn", "pool": None, "hidden": 64},
        "method": {
            "name": method,
            "rounds": rounds,
            "local_epochs": 3,
            "optimizer": "adam",
            "weight_decay": 0.0005,
            **({"mu": 0.01} if method == "fedprox" else {}),
        },
        "evaluation": {"modes": None, "every": 1, "select_by": "accuracy"},
        "run": {"seeds": seed_numbers, "workers": 1, "device": "cpu", "references": ["local", "global"]},
        **(settings or {}),
    }
    records, ledger = [], []
    for seed in seed_numbers:
        record, lines = _seed(rng, seed, labels, rounds, level, payload)
        records.append(record)
        ledger += lines
    result: dict[str, Any] = {
        "format": 1,
        "graphsilo": "0.1.0",
        "config": config,
        "fingerprint": "sha256:" + rng.bytes(32).hex(),
        "replaces": None,
        "task": "node",
        "class_names": class_names,
        "seeds": records,
        "summary": {
            "test": {},
            "modes": {},
            "upload_bytes": sum(row["bytes"] for row in ledger if row["direction"] == "up") / seeds,
            "download_bytes": sum(row["bytes"] for row in ledger if row["direction"] == "down") / seeds,
        },
        "method": {
            "name": method,
            "title": title,
            "citation": "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017",
            "evaluates": ["own", "aggregate"],
            "pooled": method == "global",
            "backbone": True,
            "rounds": rounds,
        },
        "data": {
            "name": data,
            "nodes": int(labels.sum()),
            "edges": 5278,
            "features": 1433,
            "classes": classes,
            "hash": data,
        },
        "partition": _partition(rng, labels, partition_hash),
        "environment": {
            "python": "3.12.4",
            "torch": "2.13.0",
            "platform": "Linux x86_64, 8 cores",
            "graphsilo": "0.1.0",
            "device": "cpu",
        },
        "warnings": [],
    }
    if references:
        gap = (np.mean([record["test"]["accuracy"] for record in records]) - 0.742) / (0.874 - 0.742)
        result["references"] = {
            key: {"accuracy": {"mean": value, "std": 0.006}, "macro_f1": {"mean": value - 0.06, "std": 0.009}}
            for key, value in REFERENCES.items()
        } | {"gap_closed": {"accuracy": float(gap)}}
    result |= extra or {}
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


def _seed(
    rng: np.random.Generator, seed: int, labels: Any, rounds: int, level: float, payload: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    clients, classes = labels.shape
    offset = rng.normal(0, 0.006)
    rows, ledger = [], []
    for number in range(1, rounds + 1):
        reached = 0.25 + (level + offset - 0.25) * (1 - np.exp(-number / (rounds / 6))) + rng.normal(0, 0.006)
        cpu = float(0.16 + rng.gamma(2, 0.01))
        rows.append(
            {
                "round": number,
                "validation": {
                    k: v for k, v in _scores(rng, reached + 0.01, 0.004).items() if k in ("accuracy", "macro_f1")
                },
                "test": _scores(rng, reached, 0.004),
                "upload_bytes": clients * (payload + 4),
                "download_bytes": clients * payload,
                "cpu_seconds": cpu,
                "wall_seconds": cpu * 1.06,
                "participants": clients,
                "modes": {"aggregate_local": {"validation": {}, "test": _scores(rng, reached + 0.012, 0.003)}},
            }
        )
    for client in range(clients):
        ledger += _ledger(seed, client, rounds, payload)
    best = int(np.argmax([row["validation"]["accuracy"] for row in rows]))
    test = dict(rows[best]["test"])
    each = []
    for client in range(clients):
        own = float(np.clip(test["accuracy"] + rng.normal(0, 0.06), 0.2, 1))
        size = int(labels[client].sum())
        each.append(
            {
                "client": client,
                "nodes": size,
                "train": int(0.2 * size),
                "val": int(0.4 * size),
                "test_items": size - int(0.2 * size) - int(0.4 * size),
                "test": _scores(rng, own, 0.01),
                "missing_classes": np.flatnonzero(labels[client] == 0).tolist(),
            }
        )
    worst = min(each, key=lambda row: row["test"]["accuracy"])
    items = (0.4 * labels.sum(axis=0)).astype(int)
    wrong = rng.dirichlet(np.full(classes, 0.5), classes) * (1 - test["accuracy"])
    confusion = np.round((wrong + np.eye(classes) * test["accuracy"]) * items[:, None]).astype(int)
    record = {
        "seed": seed,
        "best_round": best + 1,
        "last_round": rounds,
        "validation": rows[best]["validation"],
        "test": test
        | {
            "pooled": {name: value + 0.004 for name, value in test.items()},
            "worst_client": {"client": worst["client"], "accuracy": worst["test"]["accuracy"]},
            "spread": {"std": 0.05, "min": 0.6, "max": 0.9},
            "items": int(items.sum()),
        },
        "test_last": dict(rows[-1]["test"]),
        "modes": {
            "own_local": {
                "best_round": best + 1,
                "validation": rows[best]["validation"],
                "test": test,
                "scenarios": {},
            },
            "aggregate_local": {
                "best_round": best + 1,
                "validation": {},
                "test": _scores(rng, test["accuracy"] + 0.012, 0.003),
                "scenarios": {},
            },
        },
        "scenarios": {},
        "scenarios_last": {},
        "per_class_f1": [float(value) for value in np.clip(test["macro_f1"] + rng.normal(0, 0.07, classes), 0, 1)],
        "confusion": confusion.tolist(),
        "clients": each,
        "rounds": rows,
        "setup": {
            "upload_bytes": 28 * clients,
            "download_bytes": 12 * clients,
            "cpu_seconds": 0.02,
            "wall_seconds": 0.02,
        },
        "checkpoint_cpu_seconds": 0.0,
        "checkpoint_wall_seconds": 0.0,
        "cpu_seconds": sum(row["cpu_seconds"] for row in rows),
        "wall_seconds": sum(row["wall_seconds"] for row in rows),
        "peak_rss_bytes": 612_000_000,
    }
    return record, ledger


def _ledger(seed: int, client: int, rounds: int, payload: int) -> list[dict[str, Any]]:
    def line(
        phase: str, number: int, way: str, handler: str, message: str, field: str, kind: str, size: int
    ) -> dict[str, Any]:
        return {
            "seed": seed, "phase": phase, "round": number, "client": client, "direction": way, "handler": handler,
            "message": message, "field": field, "kind": kind, "bytes": size, "messages": 1,
        }  # fmt: skip

    lines = [
        line("setup", 0, "up", "describe", "Description", "label_counts", "counts", 28),
        line("setup", 0, "down", "describe", "DescribeRequest", "classes", "control", 12),
        line("evaluation", rounds, "up", "evaluate", "Confusion", "counts", "counts", 196),
    ]
    for number in range(1, rounds + 1):
        lines += [
            line("round", number, "down", "train", "TrainRequest", "weights", "model", payload),
            line("round", number, "down", "train", "TrainRequest", "round", "control", 8),
            line("round", number, "up", "train", "TrainReply", "weights", "model", payload),
            line("round", number, "up", "train", "TrainReply", "train_nodes", "counts", 8),
            line("round", number, "up", "train", "TrainReply", "prototypes", "prototype", payload // 20),
            line("round", number, "up", "train", "TrainReply", "loss", "score", 4),
        ]
    return lines


def _partition(rng: np.random.Generator, labels: Any, partition_hash: str) -> dict[str, Any]:
    each = []
    for client, row in enumerate(labels):
        size = int(row.sum())
        each.append(
            {
                "client": client,
                "nodes": size,
                "edges": int(1.8 * size),
                "train": int(0.2 * size),
                "val": int(0.4 * size),
                "test": size - int(0.2 * size) - int(0.4 * size),
                "labels": row.tolist(),
                "homophily": float(rng.beta(14, 3)),
                "mean_degree": float(rng.normal(3.7, 0.3)),
                "isolated": int(rng.poisson(1)),
                "missing_classes": np.flatnonzero(row == 0).tolist(),
                "components": int(rng.poisson(3)) + 1,
            }
        )
    return {
        "rule": "louvain",
        "clients": len(labels),
        "without": [],
        "seed": 2024,
        "hash": partition_hash,
        "kept_edges": 4738,
        "cut_edges": 540,
        "kept_share": 4738 / 5278,
        "is_disjoint_cover": True,
        "duplicates": 0,
        "missing": 0,
        "held_out": 0,
        "homophily": 0.81,
        "per_client": each,
    }
