"""Large graphs: CPU seconds and peak memory of every phase, from generating a graph to a round of training.

Each size has a process of its own; each model is trained in a fork of it, so that all start from the same silos. The
growth exponents are fitted over edges. Results go to ``.benchmarks/`` as JSON, one file per commit.

    python benchmarks/large_graph.py --sizes 169000:7 600000:25 2400000:25 --clients 10
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import children

SAMPLED = {"method.fan_out": [10, 5], "method.batch_size": 2000, "method.local_epochs": 1}
RUNS: dict[str, dict[str, Any]] = {
    "gcn": {"model.name": "gcn"},
    "gcn-sampled": {"model.name": "gcn", **SAMPLED},
    "sage-sampled": {"model.name": "sage", **SAMPLED},
    "sgc": {"model.name": "sgc"},
    "sign": {"model.name": "sign"},
    "gamlp": {"model.name": "gamlp"},
    "fedridge": {"method.name": "fedridge"},
}
"""What is trained, by name: settings of a run, with FedAvg unless they name another method."""
T = TypeVar("T")


class Meter:
    """CPU seconds and the peak of resident memory, phase by phase."""

    def __init__(self) -> None:
        self.phases: dict[str, dict[str, float]] = {}

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        """Do the work as a phase of this name."""
        children.reset_peak()
        start = time.process_time()
        result = work()
        self.phases[name] = {"cpu_seconds": round(time.process_time() - start, 3), **memory()}
        print(f"  {name}: {self.phases[name]}", file=sys.stderr, flush=True)
        return result


def memory() -> dict[str, float]:
    """Peak and present resident memory in GB, and what of the latter is not a mapped file."""
    names = {"peak_gb": "VmHWM", "gb": "VmRSS", "anonymous_gb": "RssAnon"}
    return {key: round(children.memory(name) / 1e9, 3) for key, name in names.items()}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Every phase of one size, in this process."""
    import torch

    from graphsilo.data.partition import audit
    from graphsilo.data.silos.scenarios import build_silos
    from graphsilo.data.sources import catalog
    from graphsilo.experiments import simulation
    from graphsilo.experiments.config import load_config

    torch.set_num_threads(1)
    nodes, degree = options.sizes[0].split(":")
    base = {
        "data.name": "product-sbm",
        "data.options": {"nodes": int(nodes), "mean_degree": float(degree), "features": options.features},
        "partition.clients": options.clients,
        "evaluation.modes": ["own_local"],
        "evaluation.models": False,
        "run.resident_clients": options.resident,
    }
    meter = Meter()
    config = load_config(overrides=base)
    graph = meter("generate", lambda: catalog.load("product-sbm", options=config.data.options, seed=config.data.seed))
    part = None
    for rule in options.rules:
        ruled = load_config(overrides={**base, "partition.rule": rule})
        part = meter(f"partition {rule}", lambda ruled=ruled: simulation.cut(ruled, graph))
    silos = meter("cut into silos", lambda: build_silos(graph, part, scenario="seen", options={}, task="node"))
    facts = meter("audit", lambda: audit(part, graph).to_dict())
    meter("hash", lambda: simulation.content_hash((graph,)))
    row: dict[str, Any] = {
        "nodes": graph.num_nodes, "edges": graph.num_edges, "clients": options.clients, "trained_on": part.rule,
        "kept_share": facts["kept_share"], "smallest": min(len(ids) for ids in part.nodes),
        "largest": max(len(ids) for ids in part.nodes),
    }  # fmt: skip
    for name in options.runs:
        settings = {"method.name": "fedavg", **RUNS[name]}
        if settings["method.name"] == "fedavg":
            settings["method.rounds"] = options.rounds
        chosen = load_config(overrides={**base, "partition.rule": part.rule, **settings})
        ready = simulation.make_simulation(chosen, None, graph, part, (), list(silos), "node", facts, (graph,))
        row.update(apart(lambda name=name, chosen=chosen, ready=ready: train(name, chosen, ready)))
    return {**row, "phases": meter.phases}


def train(name: str, config: Any, simulation: Any) -> dict[str, Any]:
    """Rounds of one run; the first makes what later ones use again."""
    from graphsilo.experiments.runner import run

    meter = Meter()
    tree = meter(f"{name}, all rounds", lambda: run(config, simulation=simulation)).tree
    seed = tree["seeds"][0]
    return {
        name: {
            "rounds_cpu_seconds": [round(item["cpu_seconds"], 3) for item in seed["rounds"]],
            "test_accuracy": [round(item["test"]["accuracy"], 4) for item in seed["rounds"]],
            **next(iter(meter.phases.values())),
        }
    }


def apart(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work returns in a fork of this process, whose memory goes with it."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(into, json.dumps(work()).encode())
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out) as stream:
        text = stream.read()
    _, ended = os.waitpid(child, 0)
    if ended:
        print(f"  ended with status {ended}; left out", file=sys.stderr)
    return dict(json.loads(text)) if text else {}


def exponents(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Slope of log CPU seconds over log edges, by phase, where there are at least two sizes."""
    if len(rows) < 2:
        return {}
    points: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        times = {name: phase["cpu_seconds"] for name, phase in row["phases"].items()}
        for name in RUNS:
            if name in row:
                times[f"{name}: first round"] = row[name]["rounds_cpu_seconds"][0]
                times[f"{name}: later rounds"] = row[name]["rounds_cpu_seconds"][-1]
        for name, seconds in times.items():
            points.setdefault(name, []).append((math.log(row["edges"]), math.log(max(seconds, 1e-3))))
    return {name: round(slope(pairs), 2) for name, pairs in points.items() if len(pairs) > 1}


def slope(pairs: list[tuple[float, float]]) -> float:
    """Of the least-squares line."""
    middle = [sum(axis) / len(pairs) for axis in zip(*pairs, strict=True)]
    spread = sum((x - middle[0]) ** 2 for x, _ in pairs)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in pairs) / spread


def main() -> None:
    """Measure every size and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["42000:7", "169000:7"], help="nodes:mean degree")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rules", nargs="+", default=["random", "louvain", "metis"], help="the last one is trained on")
    parser.add_argument("--runs", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--resident", type=int, default=10, help="clients in memory at once")
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options)))
        return
    rows = []
    for size in options.sizes:
        print(f"{size}:", file=sys.stderr)
        command = [
            sys.executable, __file__, "--child", "--sizes", size, "--clients", str(options.clients), "--rounds",
            str(options.rounds), "--rules", *options.rules, "--runs", *options.runs,
            "--features", str(options.features), "--resident", str(options.resident),
        ]  # fmt: skip
        rows.append(children.execute(command).json())
        print(json.dumps(rows[-1], indent=1), file=sys.stderr, flush=True)
    result = {
        "commit": children.commit(), "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(), "sizes": rows, "exponents": exponents(rows),
    }  # fmt: skip
    out = options.out or children.RESULTS / f"large-{children.commit()}.json"
    children.write_json(out, result)
    print(json.dumps(result["exponents"], indent=1))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
