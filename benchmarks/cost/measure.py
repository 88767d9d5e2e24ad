"""Measures one case: its process and its unit's, in turn."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import ChildFailed, data_root, execute

from cost.cases import Case
from cost.store import KEPT

HERE = Path(__file__).resolve().parent

PREPARE = """
import json, sys
from graphsilo.data.sources.files import save_graph
from graphsilo.data.sources.generated import generators
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import cut, load_data
overrides, graph_file, cut_file = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
config = load_config(overrides)
graph = load_data(config)
if config.data.name in generators():
    save_graph(graph_file, graph)
cut(config, graph).save(cut_file)
print("{}")
"""


@dataclass(frozen=True)
class Limits:
    """What one process may use.

    Attributes:
        seconds: Of the clock.
        memory: Bytes.
    """

    seconds: float
    memory: int


def measure(case: Case, limits: Limits, yardstick: str | None) -> dict[str, Any]:
    """Run all turns of a case.

    Returns:
        ``status`` (done, stopped, failed), ``reason``, and per turn what the case and its unit cost.
    """
    turns: list[dict[str, Any]] = []
    try:
        for turn in range(case.turns):
            turns.append(_turn(case, turn, limits, yardstick))
    except ChildFailed as error:
        status = "stopped" if "stopped after" in str(error) else "failed"
        return {"status": status, "reason": str(error), "turns": turns}
    return {"status": "done", "reason": "", "turns": turns}


def _turn(case: Case, turn: int, limits: Limits, yardstick: str | None) -> dict[str, Any]:
    if case.kind == "start":
        return _start(case, limits)
    overrides = _placed(case, case.overrides)
    if case.kind == "yardstick":
        assert yardstick is not None
        seed = 2024 + turn
        ours = run_probe({**overrides, "run.seeds": [seed]}, limits, watched=False)
        return {"case": ours, "unit": _run_yardstick(yardstick, case.facts["data"], overrides, seed, limits)}
    found = {"case": run_probe(overrides, limits)}
    if case.unit is not None and case.unit != case.overrides:
        found["unit"] = run_probe(_placed(case, case.unit), limits)
    return found


def run_probe(overrides: Mapping[str, Any], limits: Limits, *, watched: bool = True) -> dict[str, Any]:
    """What a run costs, measured in a process of its own.

    Raises:
        ChildFailed: It does not come to its end.
    """
    wanted = {
        "overrides": {"data.root": data_root(), **overrides},
        "watched": watched,
        # Workers' processes inherit the limit, and each has its own; the parent's is the one that counts.
        "memory": limits.memory,
    }
    command = [sys.executable, "-P", str(HERE / "probe.py"), json.dumps(wanted)]
    return execute(command, limit=limits.seconds).json()


def _start(case: Case, limits: Limits) -> dict[str, Any]:
    found = {}
    for name, key in (("case", "command"), ("unit", "unit_command")):
        with tempfile.TemporaryDirectory() as folder:
            words = {"{python}": sys.executable, "{out}": f"{folder}/out"}
            ended = execute([words.get(word, word) for word in case.facts[key]], limit=limits.seconds)
        found[name] = {"cpu": ended.cpu_seconds, "wall": ended.wall_seconds}
    return found


def _placed(case: Case, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with data and cut from files that were made once; growth curves measure that, too."""
    if case.kind == "growth":
        return dict(overrides)
    what = {name: value for name, value in overrides.items() if name.startswith(("data.", "partition."))}
    name = f"{what['data.name']}-{hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]}"
    graph, partition = KEPT / "data" / f"{name}.npz", KEPT / "data" / f"{name}.partition.npz"
    if not partition.exists():
        partition.parent.mkdir(parents=True, exist_ok=True)
        settings = json.dumps({"data.root": data_root(), **what})
        execute([sys.executable, "-c", PREPARE, settings, str(graph), str(partition)])
    rest = {key: value for key, value in overrides.items() if key not in what}
    return {**rest, "data.name": str(graph) if graph.exists() else what["data.name"], "partition.file": str(partition)}


def _run_yardstick(command: str, data: str, overrides: Mapping[str, Any], seed: int, limits: Limits) -> dict[str, Any]:
    """Run the yardstick; it prints one JSON object per seed, with ``train_cpu`` and perhaps ``best_test``."""
    words = {
        "raw": str(Path(data_root()) / "planetoid" / data / "raw"),
        "name": data.lower(),
        "partition": overrides["partition.file"],
        "seed": str(seed),
    }
    ended = execute([word.format(**words) for word in shlex.split(command)], limit=limits.seconds)
    rows = [json.loads(line) for line in ended.output.splitlines() if line.startswith("{")]
    return {"cpu": statistics.median(row["train_cpu"] for row in rows), "score": rows[0].get("best_test")}


def import_times(limit: int = 10) -> dict[str, list[tuple[str, float]]]:
    """What importing costs: the modules whose own code takes longest, in milliseconds of the clock.

    Returns:
        For ``graphsilo --help`` and for a run.
    """
    found = {}
    for title, module in (("graphsilo --help", "graphsilo.cli.app"), ("graphsilo run", "graphsilo.experiments.runner")):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", f"import {module}"], capture_output=True, text=True, check=True
        )
        rows = []
        for line in done.stderr.splitlines():
            parts = line.removeprefix("import time:").split("|")
            if len(parts) == 3 and parts[0].strip().isdigit():
                rows.append((parts[2].strip(), int(parts[0]) / 1000))
        total = sum(time for _, time in rows)
        found[title] = [("all modules", total), *sorted(rows, key=lambda row: -row[1])[:limit]]
    return found
