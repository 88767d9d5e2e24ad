"""The catalogue's entries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data import entry, load, names
from graphsilo.errors import ConfigError


def test_names() -> None:
    entries = names()
    assert entries[0].name == "citation-sbm"
    assert len({item.name.lower() for item in entries}) == len(entries) == 31
    assert [item.name for item in entries if item.generated] == [
        "citation-sbm",
        "heterophily-sbm",
        "product-sbm",
        "bank",
        "hospital",
    ]
    assert all((item.pyg_class is None) == item.generated for item in entries)
    assert all(item.citation for item in entries)


def test_entry_ignores_case() -> None:
    assert entry("cora") is entry("CORA")
    assert entry("MSAcademic") is entry("MS-Academic") is entry("CS")
    assert entry("imdb_binary").name == "IMDB-BINARY"
    assert entry("OGBN-Arxiv").split_ratios == (0.6, 0.2, 0.2)
    assert entry("Reddit2").split_ratios == (0.65, 0.1, 0.25)
    assert entry("squirrel").split_ratios == (0.48, 0.32, 0.2)
    assert entry("MUTAG").split_ratios is None
    for item in names():
        assert item.split_ratios is None or sum(item.split_ratios) == pytest.approx(1)
    with pytest.raises(ConfigError, match="no data set is called 'Corra'; did you mean 'Cora'"):
        entry("Corra")


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
@pytest.mark.parametrize("name", [item.name for item in names() if item.class_names])
def test_names_of_classes_have_the_sizes_of_their_classes(name: str, data_root: Path) -> None:
    counts = np.bincount(load(name, root=data_root).labels)
    assert dict(zip(entry(name).class_names, counts.tolist(), strict=True)) == SIZES[name]
