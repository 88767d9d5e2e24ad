"""What the other benchmarks left in ``.benchmarks``, as tables for the page: the newest file of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cost.page import NONE, Section, Table
from graphsilo.report.formats import data_size, duration, integer, percent


def sections(folder: Path) -> list[Section]:
    """Plans beside what came true, large graphs, methods at scale; those that were never measured are left out."""
    return [*_plans(folder), *_large_graphs(folder), *_methods_at_scale(folder)]


def newest(folder: Path, stem: str) -> tuple[Any, str] | None:
    """The latest ``stem-COMMIT.json`` and its commit."""
    found = sorted(folder.glob(f"{stem}-*.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        return None
    return json.loads(found[-1].read_text(encoding="utf-8")), found[-1].stem.removeprefix(f"{stem}-")


def _plans(folder: Path) -> Iterator[Section]:
    kept = newest(folder, "plan-error")
    if kept is None:
        return
    tree, commit = kept
    titles = {"cpu_seed": "CPU of a seed", "cpu_run": "CPU of the run", "memory": "Memory",
              "worker": "Memory of a worker", "up": "Bytes up", "down": "Bytes down"}  # fmt: skip
    rows = [
        [case["case"], *(_ratio(case["ratios"].get(name)) for name in titles)]
        for case in tree["cases"]
        if "ratios" in case
    ]
    text = f"What `graphsilo plan` foretold over what came, at {commit}; 1 is a plan come true."
    yield Section("plans", "Plans and what came", text, [Table(["Run", *titles.values()], rows)] if rows else [])


def _ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _large_graphs(folder: Path) -> Iterator[Section]:
    kept = newest(folder, "large")
    if kept is None:
        return
    tree, commit = kept
    sizes = tree["sizes"]
    titles = [f"{integer(size['nodes'])} nodes, {integer(size['edges'])} links" for size in sizes]
    growth = tree.get("exponents", {})
    rows = []
    for name in dict.fromkeys(name for size in sizes for name in size["phases"]):
        rows.append([name, *(_phase(size["phases"].get(name)) for size in sizes), _ratio(growth.get(name))])
    trained = []
    for name in dict.fromkeys(name for size in sizes for name, found in size.items() if _is_run(found)):
        slope = _ratio(growth.get(f"{name}: later rounds"))
        trained.append([name, *(_model(size.get(name)) for size in sizes), slope])
    text = f"Generated graphs, {sizes[0]['clients']} clients, at {commit}: CPU seconds and most memory of each phase."
    yield Section("large", "Large graphs", text, [
        Table(["Phase", *titles, "Exponent"], rows, "Before training"),
        Table(["Model", *titles, "Exponent"], trained, "Last round, all rounds' memory, accuracy after them"),
    ])  # fmt: skip


def _is_run(found: Any) -> bool:
    return isinstance(found, dict) and "rounds_cpu_seconds" in found


def _phase(found: Mapping[str, Any] | None) -> str:
    return NONE if found is None else f"{duration(found['cpu_seconds'])}, {found['peak_gb']:.1f} GB"


def _model(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NONE
    return (
        f"{duration(found['rounds_cpu_seconds'][-1])}, {found['peak_gb']:.1f} GB, "
        f"{percent(found['test_accuracy'][-1])} %"
    )


def _methods_at_scale(folder: Path) -> Iterator[Section]:
    titles = {"large": "169 000 nodes", "many": "1000 clients", "nodes": "growing graphs", "clients": "more clients"}
    tables = []
    for name, title in titles.items():
        kept = newest(folder, f"methods-{name}")
        if kept is None:
            continue
        tree, commit = kept
        rows = [_scaled(one) for method in tree.values() for one in method]
        columns = [
            "Run",
            "Set-up",
            "First round",
            "Later round",
            "Evaluation",
            "Memory",
            "Bytes, set-up",
            "Bytes, round",
        ]
        tables.append(Table(columns, rows, f"{title[:1].upper()}{title[1:]}, at {commit}; CPU, most memory, bytes"))
    yield Section("scale", "Methods at scale", "CPU seconds with each method's own settings, none cut short.", tables)


def _scaled(found: Mapping[str, Any]) -> list[str]:
    if "parts" not in found:
        return [found["label"], found.get("error", NONE), *[NONE] * 6]
    parts = {row["part"]: row for row in found["parts"]}
    last = max((int(name.split()[1]) for name in parts if name.startswith("round")), default=1)
    empty = {"cpu": None, "up": 0, "down": 0}
    ordered = [parts.get(name, empty) for name in ("set-up", "round 1", f"round {last}", f"evaluation {last}")]
    sent = [row["up"] + row["down"] for row in (ordered[0], ordered[2])]
    memory = max(row["rss"] for row in found["parts"])
    return [found["label"], *(duration(row["cpu"]) for row in ordered), data_size(memory), *map(data_size, sent)]
