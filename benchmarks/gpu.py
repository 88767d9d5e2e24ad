"""What a GPU gains: the same runs on the CPU and on CUDA, in turn. Needs a CUDA device.

Per case: seconds of a round on both (wall time: the machine must be otherwise idle), their ratio, the score on both,
and what the device held at most. The first rounds are left out, as kernels are loaded then. Results go to
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
tree = run(load_config(overrides=json.loads(sys.argv[1]))).tree
seed = tree["seeds"][0]
print(json.dumps({
    "rounds": [row["wall_seconds"] for row in seed["rounds"]],
    "accuracy": seed["test"].get("accuracy"),
    "device_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
}))
"""
WARM_UP = 2
"""Rounds that are not counted."""

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
    "FedAvg, 169,343 nodes": {**LARGE, "method.name": "fedavg", "method.rounds": 12},
    "FedPG, 169,343 nodes": {**LARGE, "method.name": "fedpg", "model.name": "gcn", "method.rounds": 8},
}


def measure(overrides: dict[str, Any], device: str, threads: int, limit: float) -> dict[str, Any]:
    """One run on one device; seconds of a round are the median after the warm-up."""
    command = [sys.executable, "-c", CHILD, json.dumps({**overrides, "run.device": device})]
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
        f"| case | CPU, {options.threads} threads: s/round | GPU: s/round | gain | accuracy, CPU / GPU | GPU memory |"
    )
    print("|---|---|---|---|---|---|")
    for name in options.cases:
        base = {
            **CASES[name],
            "data.root": options.data_root,
            "run.seeds": [0],
            "evaluation.models": False,
            "evaluation.modes": ["own_local"],
        }
        turns = [
            {device: measure(base, device, options.threads, options.limit) for device in ("cpu", "cuda")}
            for _ in range(options.turns)
        ]
        seconds = {device: statistics.median(turn[device]["round"] for turn in turns) for device in ("cpu", "cuda")}
        gain = statistics.median(turn["cpu"]["round"] / turn["cuda"]["round"] for turn in turns)
        cpu, cuda = turns[0]["cpu"], turns[0]["cuda"]
        print(
            f"| {name} | {seconds['cpu']:.4f} | {seconds['cuda']:.4f} | {gain:.1f} | {cpu['accuracy']:.4f} / "
            f"{cuda['accuracy']:.4f} | {cuda['device_bytes'] / 1e6:.0f} MB |",
            flush=True,
        )
        table.append({"case": name, "seconds_per_round": seconds, "gain": gain, "turns": turns})
    machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "threads": options.threads}
    children.write_json(children.RESULTS / f"gpu-{children.commit()}.json", {"machine": machine, "cases": table})


if __name__ == "__main__":
    main()
