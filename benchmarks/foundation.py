"""FedAvg on Cora against a yardstick: accuracy, CPU seconds as a ratio, memory, start-up. Run by ``make bench``.

Times mean nothing by themselves on a shared machine, so the yardstick (any program that prints one JSON object per seed
with ``train_cpu``; GRAPHSILO_YARDSTICK names it with its arguments) runs in turn with ours, each pinned to one thread.
Results go to ``.benchmarks/`` as JSON, one file per commit.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SEEDS = (2024, 2025, 2026)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

CHILD = """
import json, resource, sys, time
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
config = load_config(overrides=json.loads(sys.argv[1]))
tree = run(config).tree
print(json.dumps({
    "cpu": [sum(r["cpu_seconds"] for r in s["rounds"]) for s in tree["seeds"]],
    "accuracy": [s["test"]["accuracy"] for s in tree["seeds"]],
    "best_round": [s["best_round"] for s in tree["seeds"]],
    "upload": tree["summary"]["upload_bytes"],
    "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""

SHARE = """
import json, sys, time
from graphsilo.federation import codec, interface, ledger
from graphsilo.runtime import dispatch, in_process
spent, calls = 0.0, 0
def timed(function):
    def wrapper(*arguments, **options):
        global spent, calls
        calls += 1
        start = time.process_time()
        try:
            return function(*arguments, **options)
        finally:
            spent += time.process_time() - start
    return wrapper
for module, name in ((in_process, "encode"), (in_process, "decode"), (dispatch, "encode"), (dispatch, "decode")):
    setattr(module, name, timed(getattr(module, name)))
ledger.Ledger.record = timed(ledger.Ledger.record)
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
tree = run(load_config(overrides=json.loads(sys.argv[1]))).tree
total_calls = calls
nothing = timed(lambda: None)
measured, spent = spent, 0.0
for _ in range(20000):
    nothing()
measured -= total_calls * spent / 20000  # what looking at the clock costs
print(json.dumps({"share": measured / sum(r["cpu_seconds"] for s in tree["seeds"] for r in s["rounds"])}))
"""


def settings(
    data: str, data_root: str, *, method: str = "fedavg", rounds: int = 100, seeds: Any = SEEDS
) -> dict[str, Any]:
    """FedAvg, GCN 64, Louvain with 10 clients, evaluated every round with the clients' own models."""
    return {
        "data.name": data,
        "data.root": data_root,
        "partition.rule": "louvain",
        "partition.clients": 10,
        "partition.seed": 2024,
        "method.name": method,
        "method.rounds": rounds,
        "evaluation.modes": ["own_local"],
        "run.seeds": list(seeds),
    }


def child(code: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Run code in a process of its own, pinned to one thread."""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(overrides)],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def yardstick(command: str) -> dict[str, Any]:
    """Run the yardstick with its arguments."""
    done = subprocess.run(
        shlex.split(command), env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {"cpu": [row["train_cpu"] for row in rows], "accuracy": [row.get("best_test") for row in rows]}


def wall(command: list[str], repeats: int = 5) -> float:
    """Median wall seconds of a command."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **ONE_THREAD})
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure and print; write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default=os.environ.get("GRAPHSILO_DATA", str(ROOT.parent / "shared" / "data")))
    parser.add_argument("--data", default="Cora")
    parser.add_argument("--yardstick", default=os.environ.get("GRAPHSILO_YARDSTICK"))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    data = options.data if Path(options.data_root).is_dir() else "citation-sbm"
    if data == "citation-sbm":
        print("no real graphs found; measuring on generated data")
    config = settings(data, options.data_root)
    ours, theirs, ratios = [], [], []
    for _ in range(options.turns):
        ours.append(child(CHILD, config))
        if options.yardstick:
            theirs.append(yardstick(options.yardstick))
            ratios.append(statistics.median(ours[-1]["cpu"]) / statistics.median(theirs[-1]["cpu"]))
    local = child(CHILD, settings(data, options.data_root, method="local"))
    with tempfile.TemporaryDirectory() as folder:
        whole = [sys.executable, "-m", "graphsilo", "run", "--data", data, "--data-root", options.data_root]
        whole += ["--clients", "10", "--method", "fedavg", "--rounds", "100", "--quiet", "--seeds", "2024"]
        whole += ["--set", "evaluation.modes=[own_local]"]
        start_to_result = statistics.median(wall([*whole, "--out", f"{folder}/{turn}"], repeats=1) for turn in range(3))
    table = {
        "data": data,
        "accuracy": ours[0]["accuracy"],
        "accuracy_mean": statistics.mean(ours[0]["accuracy"]),
        "accuracy_local_only": statistics.mean(local["accuracy"]),
        "cpu_seconds_100_rounds": statistics.median(second for turn in ours for second in turn["cpu"]),
        "ratio_to_yardstick": statistics.median(ratios) if ratios else None,
        "ratios": ratios,
        "codec_and_ledger_share": child(SHARE, settings(data, options.data_root, seeds=SEEDS[:1]))["share"],
        "peak_rss_megabytes": max(turn["rss"] for turn in ours) / 2**20,
        "help_seconds": wall([sys.executable, "-m", "graphsilo", "--help"]),
        "start_to_result_seconds": start_to_result,
        "upload_megabytes": ours[0]["upload"] / 1e6,
    }
    print(json.dumps(table, indent=1))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    place = ROOT / ".benchmarks"
    place.mkdir(exist_ok=True)
    name = f"foundation-{data}-{commit.stdout.strip() or 'unknown'}.json"
    (place / name).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
