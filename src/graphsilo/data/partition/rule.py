"""What a rule that cuts a graph says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphsilo.data.graph import Graph
from graphsilo.data.partition.cut import Cut
from graphsilo.data.partition.options import PartitionOptions, SplitMode

OPENFGL = "OpenFGL (Li et al., PVLDB 2024/25)"


@dataclass(frozen=True)
class Rule:
    """One way to cut a graph.

    Attributes:
        name: As a user writes it.
        summary: One line.
        options: Class of its settings.
        cut: (graph, clients, seed, options) -> Cut.
        split: How splits are made unless something else is asked for.
        source: Paper or code base.
        counts: Whether ``cut`` can tell the number of clients, and takes None for it.
    """

    name: str
    summary: str
    options: type[PartitionOptions]
    cut: Callable[[Graph, Any, int, Any], Cut]
    split: SplitMode = "stratified"
    source: str = ""
    counts: bool = False
