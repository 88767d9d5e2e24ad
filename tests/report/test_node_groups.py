"""A figure that counts nodes of a graph as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import both_directions
from graphsilo.errors import ConfigError
from graphsilo.report.node_groups import count_groups, write_groups
from graphsilo.report.reproduced import reproduce_figures

LINKS = np.array([(0, 1), (0, 2), (0, 3), (0, 5), (1, 2)]).T
GRAPH = Graph(np.zeros((6, 1), dtype=np.float32), both_directions(LINKS), np.array([0, 0, 1, 2, 0, -1]), 3)
"""Degrees 4, 2, 2, 1, 0, 1. Of the five labelled nodes class 0 has three and alone at least a third."""
COUNTS = [[2, 2, 1, 0], [1, 1, 2, 3], [2, 1, 0, 0], [0, 1, 2, 2]]


def test_nodes_are_of_head_or_tail_classes_and_degrees() -> None:
    assert count_groups(GRAPH, [0, 1, 2, 4]).tolist() == COUNTS


def test_the_page_has_a_curve_for_each_group(tmp_path: Path) -> None:
    page, table = write_groups({"star": GRAPH}, [0, 1, 2, 4], tmp_path / "groups", "Groups")
    assert "Groups" in page.read_text()
    assert table.read_text().splitlines()[1:3] == ["star,0,2,1,2,0", "star,1,2,1,1,1"]


def test_what_a_count_cannot_take(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing is run: leave out --clients"):
        list(reproduce_figures("FedLoG", "fig4", out=tmp_path, clients=3, methods=None))
