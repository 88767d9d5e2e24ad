"""What a GPU gains: the same runs on the CPU and on CUDA, in turn. Needs a CUDA device.

Per case: seconds of a round (wall time: the machine must be otherwise idle) in one process on the CPU, in as many as
``--workers`` says, in one process on CUDA in float32 and in bfloat16, and in four on CUDA; the scores; and what the
device held at most. The first rounds are left out, as kernels are loaded then. Results go to
``.benchmarks/gpu-COMMIT.json``.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --cases "FedAvg, PubMed" --workers 10
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from typing import Any

import children

CHILD = """
import json, sys, torch
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
tree = run(load_config(json.loads(sys.argv[1]))).tree
seed = tree["seeds"][0]
print(json.dumps({
    "rounds": [row["wall_seconds"] for row in seed["rounds"]],
    "accuracy": seed["test"].get("accuracy"),
    "device_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
}))
"""
WARM_UP = 2
"""Rounds that are not counted."""
ON_GPU = 4
"""Processes of the last column."""


def ways(workers: int) -> dict[str, dict[str, Any]]:
    """The settings of each column."""
    return {
        "CPU, one process": {"run.device": "cpu"},
        f"CPU, {workers} processes": {"run.device": "cpu", "run.workers": workers},
        "GPU": {"run.device": "cuda"},
        "GPU, bfloat16": {"run.device": "cuda", "run.precision": "bfloat16"},
        f"GPU, {ON_GPU} processes": {"run.device": "cuda", "run.workers": ON_GPU},
    }


LARGE = {
    "data.name": "citation-sbm",
    "data.options": {"nodes": 169_343, "classes": 40, "features": 128, "mean_degree": 13.8, "feature_density": 0.45},
    "partition.rule": "metis",
    "partition.clients": 10,
}
CASES: dict[str, dict[str, Any]] = {
    "FedAvg, PubMed": {
        "data.name": "PubMed",
        "partition.rule": "louvain",
        "partition.clients": 10,
        "method.name": "fedavg",
        "method.rounds": 22,
    },
    "FedAvg with SIGN, PubMed": {
        "data.name": "PubMed",
        "partition.rule": "louvain",
        "partition.clients": 10,
        "method.name": "fedavg",
        "model.name": "sign",
        "method.rounds": 22,
    },
    "FedAvg, 169,343 nodes": {**LARGE, "method.name": "fedavg", "method.rounds": 12},
    "FedPG, 169,343 nodes": {**LARGE, "method.name": "fedpg", "model.name": "gcn", "method.rounds": 6},
    "FedLoG, PubMed": {
        "data.name": "PubMed",
        "partition.rule": "louvain",
        "partition.clients": 10,
        "method.name": "fedlog",
        "method.generator_epochs": 2,
        "method.rounds": 5,
    },
    "FedAvg, 600,000 nodes": {
        "data.name": "product-sbm",
        "data.options": {"nodes": 600_000, "mean_degree": 25.0},
        "partition.rule": "metis",
        "partition.clients": 10,
        "method.name": "fedavg",
        "method.rounds": 6,
    },
}


def measure(overrides: dict[str, Any], way: dict[str, Any], limit: float) -> dict[str, Any]:
    """One run in one way; seconds of a round are the median after the warm-up."""
    ended = children.execute([sys.executable, "-c", CHILD, json.dumps({**overrides, **way})], limit=limit)
    found = ended.json()
    return {**found, "round": statistics.median(found["rounds"][WARM_UP:]), "process": ended.wall_seconds}


def main() -> None:
    """Measure every case, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=children.data_root())
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--workers", type=int, default=min(10, os.cpu_count() or 1), help="processes on the CPU")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a run is stopped")
    options = parser.parse_args()

    import torch

    if not torch.cuda.is_available():
        raise SystemExit(
            "this benchmark compares a CUDA device with the CPU, and torch sees none here. Run it on a machine with an "
            "NVIDIA GPU and a CUDA build of torch."
        )
    columns, table = ways(options.workers), []
    print(f"| case | {' | '.join(f'{name}: ms a round' for name in columns)} | accuracy | GPU memory |")
    print("|---|" + "--:|" * len(columns) + "---|--:|")
    for name in options.cases:
        base = {
            **CASES[name],
            "data.root": options.data_root,
            "run.seeds": [0],
            "evaluation.models": False,
            "evaluation.modes": ["own_local"],
        }
        turns = [
            {way: measure(base, settings, options.limit) for way, settings in columns.items()}
            for _ in range(options.turns)
        ]
        seconds = {way: [turn[way]["round"] for turn in turns] for way in columns}
        cells = [f"{1000 * statistics.median(each):.1f}" for each in seconds.values()]
        scores = [f"{turns[0][way]['accuracy']:.4f}" for way in columns]
        print(
            f"| {name} | {' | '.join(cells)} | {', '.join(scores)} | {turns[0]['GPU']['device_bytes'] / 1e6:.0f} MB |",
            flush=True,
        )
        table.append({"case": name, "seconds_per_round": seconds, "turns": turns})
        machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "workers": options.workers}
        children.write_json(children.RESULTS / f"gpu-{children.commit()}.json", {"machine": machine, "cases": table})


if __name__ == "__main__":
    main()
