"""``graphsilo partition``: cut data, store the cut, and say what it did to the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphsilo.cli.terminal import bars, columns, count, is_terminal, say, share, show, table
from graphsilo.data.graph import Graph
from graphsilo.data.partition import Partition, audit
from graphsilo.experiments.config import RunConfig, load_config
from graphsilo.types import Task

WIDEST_BARS = 40
"""Most characters of a histogram: one for each class of the data sets with the most classes."""


def partition_command(overrides: Mapping[str, Any], assignments: Sequence[str], out: Path | None) -> None:
    """Cut, store, and print the audit; an assignment without a section is a setting of the rule."""
    named = [text if _section(text) in RunConfig.model_fields else f"partition.{text}" for text in assignments]
    config = load_config(None, overrides=overrides, assignments=named)
    partition, facts, remarks = cut(config)
    if out is not None:
        partition.save(out.expanduser())
    print_partition(partition, facts)
    for text in remarks:
        say(f"Note: {text}")
    if out is not None:
        say(f"Stored: {out} (sha256 {partition.content_hash[:12]})")


def cut(config: RunConfig) -> tuple[Partition, Mapping[str, Any], list[str]]:
    """The partition of a configuration, its audit, and remarks on settings that were not used."""
    from graphsilo.data.partition.time_splits import describe_bounds, time_remarks
    from graphsilo.experiments import simulation
    from graphsilo.experiments.effects import check_clients, drop_idle

    config = drop_idle(config)
    task: Task
    loaded = simulation.load_data(config)
    if isinstance(loaded, Graph):
        partition = simulation.cut(config, loaded)
        facts, task = audit(partition, loaded).to_dict(), "node"
    else:
        prepared = simulation.prepare(config)
        partition, facts, task = prepared.partition, prepared.cut, prepared.task
    check_clients(config, partition)
    config = drop_idle(config, task=task, partition=partition)
    said = []
    if isinstance(loaded, Graph):
        bounds = describe_bounds(loaded, partition)
        said = [*([f"divided by time: {bounds}"] if bounds else []), *time_remarks(loaded, partition)]
    return partition, facts, [*config.remarks, *said]


def print_partition(partition: Partition, facts: Mapping[str, Any]) -> None:
    """Print an audit: a row per client, then what holds for all of them."""
    items = facts.get("items", "nodes")
    ratios = "" if partition.ratios is None else f" {'/'.join(f'{ratio:g}' for ratio in partition.ratios)}"
    options = ", ".join(f"{name} {value}" for name, value in partition.options.items() if value is not None)
    say(
        f"{partition.data}, {count(partition.num_nodes)} {items}: {partition.rule}"
        f"{f' ({options})' if options else ''}, {partition.num_clients} client"
        f"{'' if partition.num_clients == 1 else 's'}, seed {partition.seed}, split {partition.split}{ratios}"
    )
    say()
    show(_clients(facts, items))
    say()
    for line in conclusions(facts, items):
        say(line)


def _clients(facts: Mapping[str, Any], items: str) -> Any:
    rows = facts["per_client"]
    with_edges = "edges" in rows[0]
    added = any(row.get("added_edges") for row in rows)
    headings = ["client", items, *(["edges"] if with_edges else []), "train", "val", "test"]
    has_classes = bool(rows[0]["labels"])
    headings += ["homophily"] if with_edges and has_classes else []
    headings += ["added"] if added else []
    numbers = range(1, len(headings))
    grid = table(*headings, *(["missing", "labels"] if has_classes else []), numbers=numbers, narrow=True)
    classes = len(rows[0]["labels"])
    space = min(WIDEST_BARS, max(8, columns() - 62)) if is_terminal() else WIDEST_BARS
    grid.columns[-1].no_wrap = True
    for row in rows:
        cells = [str(row["client"]), count(row["nodes"])]
        cells += [count(row["edges"])] if with_edges else []
        cells += [count(row["train"]), count(row["val"]), count(row["test"])]
        cells += [share(row["homophily"])] if with_edges and has_classes else []
        cells += [count(row["added_edges"])] if added else []
        labels = [_numbers(row["missing_classes"], classes), bars(row["labels"], space)] if has_classes else []
        grid.add_row(*cells, *labels)
    return grid


def conclusions(facts: Mapping[str, Any], items: str = "nodes") -> list[str]:
    """What holds for all clients together, in sentences."""
    if facts.get("is_disjoint_cover"):
        found = [f"Every {items[:-1]} is held by exactly one client."]
    else:
        parts = []
        if facts.get("duplicates"):
            parts.append(f"{count(facts['duplicates'])} {items} are held by more than one client")
        missing, held_out = facts.get("missing", 0), facts.get("held_out", 0)
        if held_out:
            parts.append(
                f"{count(held_out)} {items} are held out by the scenario, which after these counts also takes each "
                "client's missing classes away"
            )
        if missing > held_out:
            parts.append(f"{count(missing - held_out)} {items} are held by nobody")
        found = [f"{'; '.join(parts) or f'Not every {items[:-1]} is held by exactly one client'}."]
    if "kept_edges" in facts:
        total = facts["kept_edges"] + facts["cut_edges"]
        found.append(
            f"Edges: {count(facts['kept_edges'])} of {count(total)} kept ({100 * facts['kept_share']:.1f} %), "
            f"{count(facts['cut_edges'])} cut."
            + (f" Edges within a class: {share(facts['homophily'])} of the whole graph." if facts["homophily"] else "")
        )
    if "train_test_overlap" in facts:
        both = facts["train_test_overlap"]
        found.append(
            f"{count(both) if both else 'No'} {items[:-1] if both == 1 or not both else items} "
            f"{'is' if both == 1 or not both else 'are'} trained on at one client and tested at another."
        )
    if any(row["missing_classes"] for row in facts["per_client"]):
        found.append("Missing: classes of which a client has no training item.")
    return found


def _numbers(classes: Sequence[int], total: int) -> str:
    """Class numbers; how many where there are too many to list."""
    if not classes:
        return "–"
    return ", ".join(map(str, classes)) if len(classes) <= 6 else f"{len(classes)} of {total}"


def _section(assignment: str) -> str:
    return assignment.partition("=")[0].partition(".")[0].strip()
