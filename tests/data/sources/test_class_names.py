"""Names of classes stand for the classes that they name: by their known sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.sources import catalog
from graphsilo.data.sources.class_names import CLASS_NAMES

SIZES = {
    "Cora": {
        "Neural networks": 818, "Probabilistic methods": 426, "Genetic algorithms": 418, "Theory": 351,
        "Case-based": 298, "Reinforcement learning": 217, "Rule learning": 180,
    },
    # 15 nodes of the usual files have neither words nor a class of their own; they count as the first, AI with 249
    "CiteSeer": {
        "Agents": 596, "AI": 249 + 15, "Databases": 701, "Information retrieval": 668, "Machine learning": 590,
        "HCI": 508,
    },
    "PubMed": {"Diabetes, experimental": 4103, "Diabetes type 1": 7739, "Diabetes type 2": 7875},
}  # fmt: skip
"""Nodes per class, as those who made the data sets say."""


@pytest.mark.data
@pytest.mark.parametrize("name", list(CLASS_NAMES))
def test_names_have_the_sizes_of_their_classes(name: str, data_root: Path) -> None:
    graph = catalog.load(name, root=data_root)
    counts = np.bincount(graph.labels)  # type: ignore[union-attr]
    assert dict(zip(CLASS_NAMES[name], counts.tolist(), strict=True)) == SIZES[name]
