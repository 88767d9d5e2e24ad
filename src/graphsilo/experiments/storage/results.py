"""What a run comes to: ``result.json`` and the tables beside it, and ``Result`` for Python."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphsilo.__about__ import __version__
from graphsilo.evaluate.metrics import leading
from graphsilo.evaluate.significance import summarise_seeds
from graphsilo.experiments.cohort import Cohort
from graphsilo.experiments.config import Mode, RunConfig
from graphsilo.experiments.outcome import backbone_warnings, one_class, outcome_warnings, untrained
from graphsilo.experiments.progress import SeedProgress, ViewProgress, first_set, scenarios_of
from graphsilo.experiments.simulation import complete_config
from graphsilo.experiments.storage import disk
from graphsilo.federation.ledger import COLUMNS, Ledger
from graphsilo.federation.registry import Method

FORMAT = 1
"""Version of ``result.json``."""


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
        tree: What ``result.json`` holds.
        out: Its folder, or None when nothing was written.
    """

    tree: Mapping[str, Any]
    out: Path | None

    def __repr__(self) -> str:
        score = self.accuracy()
        shown = "no score" if score is None else f"{score:.3f}"
        return f"Result({self.tree['method']['title']} on {self.tree['data']['name']}: {shown}, out={self.out})"

    @property
    def summary(self) -> Mapping[str, Any]:
        """Mean and standard deviation over seeds."""
        found: Mapping[str, Any] = self.tree["summary"]
        return found

    def accuracy(self) -> float | None:
        """Mean test accuracy at the best validation round (link prediction: AUC)."""
        test = self.summary["test"]
        name = leading(test)
        return None if name is None else test[name]["mean"]


def seed_result(
    seed: int, progress: SeedProgress, modes: Sequence[Mode], simulation: Cohort, peak_rss_bytes: int
) -> dict[str, Any]:
    """What the result says of one seed.

    Args:
        seed: Of training.
        progress: Its rounds and its best and last evaluations.
        modes: What was scored; the first is reported.
        simulation: The data it was trained on.
        peak_rss_bytes: Most memory a process of it used.
    """
    views = {}
    for mode in modes:
        kept = progress.views.get(mode)
        if kept is not None:
            views[mode] = kept.summary(mode)
    first = progress.views[modes[0]]
    main = views[modes[0]]
    last = first.last[first_set(modes[0])]
    tree: dict[str, Any] = {
        "seed": seed,
        "best_round": main["best_round"],
        "last_round": progress.round,
        "validation": main["validation"],
        "test": main["test"],
        "test_last": last.full("test"),
        "scenarios": main["scenarios"],
        "scenarios_last": scenarios_of(first.last),
        "modes": views,
        "rounds": progress.rounds,
        "clients": _clients(first, modes[0], simulation),
        "setup": progress.setup,
    }
    counts = first.best[first_set(modes[0])]
    if counts.counts is not None:
        tree["confusion"] = counts.of("test").sum(axis=(0, 1)).tolist()
        tree["per_class_f1"] = main["test"].get("per_class_f1")
        tree["one_class"] = one_class(counts)
        tree["untrained"] = untrained(counts, len(simulation.clients))
    steps = (progress.setup, *progress.rounds)
    for key in ("cpu_seconds", "wall_seconds"):
        tree[key] = sum(step[key] for step in steps)
        # A step that no checkpoint followed has none of its own.
        tree[f"checkpoint_{key}"] = sum(step.get(f"checkpoint_{key}", 0.0) for step in steps)
    tree["peak_rss_bytes"] = peak_rss_bytes
    if simulation.task == "link":
        tree.pop("confusion", None)
    return tree


def _clients(kept: ViewProgress, mode: Mode, simulation: Cohort) -> list[dict[str, Any]]:
    scores = kept.best[first_set(mode)]
    if scores.counts is not None:
        from graphsilo.evaluate.metrics import per_client

        each = per_client(scores.of("test"), clients=scores.clients)
    else:
        each = [{"client": client} for client in scores.clients]
    for name, pairs in scores.scores.items():
        kind, _, metric = name.partition("/")
        if kind == "test":
            for row, value in zip(each, pairs[:, 0].tolist(), strict=True):
                row[metric] = None if value != value else value
    cut = simulation.cut["per_client"]
    # A client that failed was not scored, and one score for all clients pooled is nobody's own.
    pooled = len(simulation.clients) == 1 and len(each) < len(cut)
    found = {} if pooled else {scored["client"]: scored for scored in each}
    rows = []
    for facts in cut:
        row = {key: facts[key] for key in ("client", "nodes", "train", "val", "missing_classes") if key in facts}
        row["test_items"] = facts.get("test")
        scored = found.get(facts["client"], {})
        if facts["client"] in kept.rounds:
            row["best_round"] = kept.rounds[facts["client"]][0]
        row["test"] = {key: value for key, value in scored.items() if key not in ("client", "items")}
        rows.append(row)
    return rows


def assemble(
    config: RunConfig, method: Method, simulation: Cohort, seeds: list[dict[str, Any]], run_fingerprint: str
) -> dict[str, Any]:
    """What ``result.json`` holds, but for the references.

    Args:
        config: What was run.
        method: By which method.
        simulation: On which data.
        seeds: Each seed's result, as ``seed_result`` gives it.
        run_fingerprint: The run's fingerprint.
    """
    keys = ("validation", "test", "test_last", "scenarios", "scenarios_last")
    summary: dict[str, Any] = {
        key: summarise_seeds([seed[key] for seed in seeds]) for key in keys if any(seed.get(key) for seed in seeds)
    }
    summary["modes"] = {
        mode: {part: summarise_seeds([seed["modes"][mode][part] for seed in seeds]) for part in ("validation", "test")}
        for mode in seeds[0]["modes"]
    }
    for key in ("upload_bytes", "download_bytes"):
        totals = [seed["setup"][key] + sum(row[key] for row in seed["rounds"]) for seed in seeds]
        summary[key] = sum(totals) / len(totals) if len(set(totals)) > 1 else totals[0]
    return {
        "format": FORMAT,
        "graphsilo": __version__,
        "config": complete_config(config, simulation),
        "fingerprint": run_fingerprint,
        "replaces": config.replaces or None,
        "task": simulation.task,
        "method": {
            "name": method.name,
            "title": method.title,
            "citation": method.citation,
            "evaluates": list(method.evaluates),
            "pooled": method.pooled,
            "backbone": method.backbone,
            "rounds": config.method_config().total_rounds,
        },
        "data": {**simulation.describe(), "hash": simulation.data_hash},
        "partition": simulation.cut_facts,
        "class_names": list(simulation.schema.class_names) if simulation.schema.class_names else None,
        "seeds": seeds,
        "summary": summary,
        "environment": {
            "graphsilo": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "device": config.run.device,
        },
        "warnings": [*first_warnings(config, method, simulation), *outcome_warnings(seeds, method, simulation)],
    }


def first_warnings(config: RunConfig, method: Method, simulation: Cohort) -> list[str]:
    """What is known before anything is trained."""
    return [*simulation.warnings(), *backbone_warnings(method, simulation), *config.remarks]


def write(folder: Path, tree: dict[str, Any], ledgers: list[tuple[int, Ledger]]) -> None:
    """The tables, then ``result.json``: where it stands, the run is complete."""
    rounds: dict[str, list[Any]] = {"seed": []}
    flat = [(seed["seed"], _flatten(row)) for seed in tree["seeds"] for row in seed["rounds"]]
    names = list(dict.fromkeys(name for _, row in flat for name in row))
    rounds.update({name: [] for name in names})
    for seed, row in flat:
        rounds["seed"].append(seed)
        for name in names:
            rounds[name].append(row.get(name))
    disk.write_parquet(folder / "rounds.parquet", rounds)
    rows = [(seed, *row) for seed, ledger in ledgers for row in ledger.rows()]
    columns = ("seed", *COLUMNS)
    disk.write_parquet(
        folder / "ledger.parquet", {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    )
    write_tree(folder, tree)


def write_tree(folder: Path, tree: dict[str, Any]) -> None:
    """``result.json`` alone, in place of the one that is there."""
    disk.write_json(folder / "result.json", tree)


def _flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{name}."))
        elif isinstance(value, list):
            flat[prefix + name] = "; ".join(str(item) for item in value)
        else:
            flat[prefix + name] = value
    return flat
