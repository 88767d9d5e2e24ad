"""How far ``graphsilo plan`` is from what runs then cost: predicted over measured, for CPU seconds, memory and bytes.

Each configuration is planned first and run afterwards, by the command line, both on one thread. Measured are the
processes' own CPU seconds (of all their children, too), the most memory that each process held (VmHWM, looked at while
it runs), and what result.json says of CPU seconds and bytes. Results go to ``.benchmarks/`` as JSON, one file per
commit, and to stdout as a Markdown table of ratios; 1 is a prediction come true.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import children

CASES: dict[str, list[str]] = {
    "FedAvg, Cora, 10 clients": ["--data", "Cora", "--method", "fedavg"],
    "FedAvg, PubMed, 10 clients": ["--data", "PubMed", "--method", "fedavg"],
    "O-pFGL, Cora, 10 clients": ["--data", "Cora", "--method", "opfgl", "--set", "method.links=learned"],
    "FedPG, Cora, 10 clients, 40 rounds": ["--data", "Cora", "--method", "fedpg", "--rounds", "40"],
    "FairFGL, Cora, 10 clients": ["--data", "Cora", "--method", "fairfgl"],
    "FedLoG, Cora, 3 clients, 10 rounds": [
        "--data", "Cora", "--method", "fedlog", "--clients", "3", "--rounds", "10",
    ],
    "FedSage+, Cora, 3 clients, 20 rounds": [
        "--data", "Cora", "--method", "fedsage_plus", "--clients", "3", "--rounds", "20",
    ],
    "FedAvg, 20 000 generated nodes, 100 clients, 20 rounds": [
        "--data", "citation-sbm", "--set", "data.nodes=20000", "--clients", "100", "--rounds", "20",
    ],
    "FedAvg, PubMed, 10 clients, 2 workers": ["--data", "PubMed", "--method", "fedavg", "--workers", "2"],
}  # fmt: skip
"""Title to flags."""
COLUMNS = {
    "cpu_seed": "CPU of a seed",
    "cpu_run": "CPU of the run",
    "memory": "memory",
    "worker": "memory of a worker",
    "up": "bytes up",
    "down": "bytes down",
}


def main() -> None:
    """Plan, run, compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", default=children.data_root())
    parser.add_argument("--only", default="", help="cases whose title holds this")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a plan's trials")
    options = parser.parse_args()
    environment = {**os.environ, **children.ONE_THREAD, "GRAPHSILO_DATA": options.data_root}
    rows = []
    for title, flags in CASES.items():
        if options.only in title:
            rows.append(compared(title, flags, options.seconds, environment))
            print(f"{title}: {rows[-1]['ratios']}", file=sys.stderr, flush=True)
            write(rows)
    print(markdown(rows))


def compared(title: str, flags: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    """One case: the plan, the run, and the ratios of both."""
    graphsilo = [sys.executable, "-m", "graphsilo"]
    with tempfile.TemporaryDirectory(prefix="graphsilo-plan-error-") as name:
        out = Path(name) / "run"
        planned = subprocess.run(
            [*graphsilo, "plan", *flags, "--json", "--seconds", str(seconds), "--out", str(out)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        plan = json.loads(planned.stdout)
        cpu, peaks = watched([*graphsilo, "run", *flags, "--quiet", "--out", str(out)], environment)
        tree = json.loads((out / "result.json").read_text(encoding="utf-8"))
    seeds = tree["seeds"]
    processes = {process["name"]: process["bytes"] for process in plan["processes"]}
    predicted = {
        "cpu_seed": plan["seed"]["cpu"],
        "cpu_run": plan["run"]["cpu"],
        "memory": processes.get("the run", processes.get("coordinator")),
        "worker": processes.get("worker"),
        "up": plan["seed"]["up"],
        "down": plan["seed"]["down"],
    }
    measured = {
        "cpu_seed": sum(seed["cpu_seconds"] for seed in seeds) / len(seeds),
        "cpu_run": cpu,
        "memory": peaks[0],
        "worker": max(peaks[1:], default=None),
        "up": tree["summary"]["upload_bytes"],
        "down": tree["summary"]["download_bytes"],
    }
    ratios = {
        key: None if measured[key] is None or predicted[key] is None else predicted[key] / measured[key]
        for key in COLUMNS
    }
    return {
        "case": title, "flags": flags, "basis": plan["basis"], "exact": plan["is_steady"],
        "findings": plan["findings"], "predicted": predicted, "measured": measured, "ratios": ratios,
    }  # fmt: skip


def watched(command: list[str], environment: dict[str, str]) -> tuple[float, list[int]]:
    """CPU seconds of a command and its children, and the most memory of each process: its own first."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = {process.pid: 0}
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        for number in [process.pid, *started_by(process.pid)]:
            peaks[number] = max(peaks.get(number, 0), children.memory("VmHWM", number))
        time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}.")
    return usage.ru_utime + usage.ru_stime, list(peaks.values())


def started_by(number: int) -> list[int]:
    """Processes that a process has started and that run Python."""
    try:
        text = Path(f"/proc/{number}/task/{number}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def write(rows: list[dict[str, Any]]) -> None:
    """Put what was found so far into this commit's file."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    children.write_json(children.RESULTS / f"plan-error-{children.commit()}.json", {"machine": machine, "cases": rows})


def markdown(rows: list[dict[str, Any]]) -> str:
    """The ratios as a table."""
    lines = [f"| predicted / measured | {' | '.join(COLUMNS.values())} |", f"|---|{'--:|' * len(COLUMNS)}"]
    for row in rows:
        cells = ["–" if row["ratios"][key] is None else _ratio(row["ratios"][key]) for key in COLUMNS]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return "1" if value == 1 else f"{value:.4f}" if abs(value - 1) < 0.01 else f"{value:.2f}"


if __name__ == "__main__":
    main()
