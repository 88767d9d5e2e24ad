"""How many nodes of a graph are of frequent or rare classes, and of high or low degree, for each bound of degrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.experiments.storage import disk
from graphsilo.report.html import page
from graphsilo.report.plot import Axis, Dots, Figure, Line, Plot
from graphsilo.report.sections import Page, Section, Table
from graphsilo.spreadsheets import csv_text

GROUPS = {
    "HH": "head class, head degree", "HT": "head class, tail degree", "TH": "tail class, head degree",
    "TT": "tail class, tail degree",
}  # fmt: skip
"""FedLoG's names of groups to what is in them."""


def count_groups(graph: Graph, thresholds: Sequence[float]) -> NDArray[np.int64]:
    """[4, len(thresholds)] labelled nodes of each group, in the order of ``GROUPS``.

    A head class has at least the C-th part of the labelled nodes, a head degree is above the threshold.

    Args:
        graph: With classes.
        thresholds: λ.
    """
    known = graph.labels >= 0
    labels = graph.labels[known].astype(np.int64)
    sizes = np.bincount(labels, minlength=graph.num_classes)
    is_frequent = (sizes * graph.num_classes >= len(labels))[labels]
    degrees = np.diff(undirected_adjacency(graph).indptr)[known]
    above = degrees > np.asarray(thresholds)[:, None]
    return np.stack(
        [(of_class & of_degree).sum(1) for of_class in (is_frequent, ~is_frequent) for of_degree in (above, ~above)]
    ).astype(np.int64)


def write_groups(graphs: Mapping[str, Graph], thresholds: Sequence[float], out: Path, title: str) -> tuple[Path, ...]:
    """A page with a curve for each group and the numbers, and CSV.

    Args:
        graphs: By name, a section each.
        thresholds: λ, ascending.
        out: Both files without an ending.
        title: Heading of the page.

    Raises:
        RunError: A file cannot be written.
    """
    sections, lines = [], [["data", "threshold", *GROUPS]]
    for name, graph in graphs.items():
        counts = count_groups(graph, thresholds)
        rows = [[f"{bound:g}", *map(str, column)] for bound, column in zip(thresholds, counts.T.tolist(), strict=True)]
        lines += [[name, *row] for row in rows]
        marks = [
            mark
            for place, (group, line) in enumerate(zip(GROUPS, counts.tolist(), strict=True))
            for mark in (
                Line(group, list(thresholds), line, place),
                Dots("", list(thresholds), line, place, [f"{GROUPS[group]}: {count} nodes" for count in line],
                     small=True),
            )
        ]  # fmt: skip
        plot = Plot(Axis("Degree threshold λ"), Axis("Nodes", low=0), tuple(marks))
        meaning = "; ".join(f"{group}: {said}" for group, said in GROUPS.items())
        said = (
            f"Nodes of each group ({meaning}). A head class has at least 1/{graph.num_classes} of all labelled "
            f"nodes, a head degree is above λ."
        )
        drawn = Figure(f"groups-{name}", said, f"Four curves of counts of nodes on {name}", 330, {"groups": plot})
        table = Table("Nodes of each group.", [("λ", ""), *((group, "") for group in GROUPS)], rows, is_hidden=False)
        sections.append(Section(f"data-{name}", name, [("pair", [drawn]), ("table", table)], name))
    lede = [("lede", "Counted on the whole graph; nothing is trained, and nothing is cut.")]
    texts = {"html": page(Page(title, "graphsilo reproduce", lede, sections)), "csv": csv_text(lines)}
    files = tuple(out.parent / f"{out.name}.{ending}" for ending in texts)
    for path, text in zip(files, texts.values(), strict=True):
        disk.write_text(path, text)
    return files
