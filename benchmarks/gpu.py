"""What a GPU gains: the same runs on the CPU, on CUDA, and on CUDA in bfloat16, in turn. Needs a CUDA device.

Per case: seconds of a round on each (wall time: the machine must be otherwise idle), what CUDA gains over the CPU and
bfloat16 over float32 there, the scores, and what the device held at most in either precision. The first rounds are left
out, as kernels are loaded then. Results go to
``.benchmarks/gpu-COMMIT.json``.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --cases "FedAvg, PubMed" --threads 16
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
WAYS = {"cpu": ("cpu", "float32"), "cuda": ("cuda", "float32"), "bfloat16": ("cuda", "bfloat16")}
"""Device and precision of each column."""

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
    "FedPG, 169,343 nodes": {**LARGE, "method.name": "fedpg", "model.name": "gcn", "method.rounds": 8},
}


def measure(overrides: dict[str, Any], way: str, threads: int, limit: float) -> dict[str, Any]:
    """One run on one device in one precision; seconds of a round are the median after the warm-up."""
    device, precision = WAYS[way]
    given = {**overrides, "run.device": device, "run.precision": precision}
    command = [sys.executable, "-c", CHILD, json.dumps(given)]
    ended = children.execute(command, limit=limit, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    found = ended.json()
    return {**found, "round": statistics.median(found["rounds"][WARM_UP:])}


def main() -> None:
    """Measure every case, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=children.data_root())
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the CPU runs")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a run is stopped")
    options = parser.parse_args()

    import torch

    if not torch.cuda.is_available():
        raise SystemExit(
            "this benchmark compares a CUDA device with the CPU, and torch sees none here. Run it on a machine with an "
            "NVIDIA GPU and a CUDA build of torch."
        )
    table = []
    print(
        f"| case | CPU, {options.threads} threads: s/round | GPU: s/round | gain | GPU, bfloat16: s/round | gain over "
        f"float32 | accuracy, CPU / GPU / bfloat16 | GPU memory, float32 / bfloat16 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in options.cases:
        base = {
            **CASES[name],
            "data.root": options.data_root,
            "run.seeds": [0],
            "evaluation.models": False,
            "evaluation.modes": ["own_local"],
        }
        turns = [
            {way: measure(base, way, options.threads, options.limit) for way in WAYS} for _ in range(options.turns)
        ]
        seconds = {way: statistics.median(turn[way]["round"] for turn in turns) for way in WAYS}
        gain = statistics.median(turn["cpu"]["round"] / turn["cuda"]["round"] for turn in turns)
        lowered = statistics.median(turn["cuda"]["round"] / turn["bfloat16"]["round"] for turn in turns)
        first = turns[0]
        accuracies = " / ".join(f"{first[way]['accuracy']:.4f}" for way in WAYS)
        memory = " / ".join(f"{first[way]['device_bytes'] / 1e6:.0f}" for way in ("cuda", "bfloat16"))
        print(
            f"| {name} | {seconds['cpu']:.4f} | {seconds['cuda']:.4f} | {gain:.1f} | {seconds['bfloat16']:.4f} | "
            f"{lowered:.2f} | {accuracies} | {memory} MB |",
            flush=True,
        )
        table.append(
            {"case": name, "seconds_per_round": seconds, "gain": gain, "gain_of_bfloat16": lowered, "turns": turns}
        )
    machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "threads": options.threads}
    children.write_json(children.RESULTS / f"gpu-{children.commit()}.json", {"machine": machine, "cases": table})


if __name__ == "__main__":
    main()
