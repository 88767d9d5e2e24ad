"""What typed graphs refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphsilo.data.partition.registry import partition
from graphsilo.data.silos.perturb import perturb
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.sources import catalog
from graphsilo.errors import UnsupportedError

BANK = Path(__file__).parents[3] / "examples" / "tables" / "bank.yaml"


def test_what_hides_or_spoils_rows_that_tell_of_it_is_refused() -> None:
    graph = catalog.load(str(BANK)).union
    cut = partition(graph, "random", clients=2)
    with pytest.raises(UnsupportedError, match="link prediction hides links, and the tables of links of adler have"):
        build_silos(graph, cut, task="link")
    with pytest.raises(UnsupportedError, match="of which only 'account' has any"):
        build_silos(graph, cut, scenario="inductive")
    silo = build_silos(graph, cut)[0]
    assert perturb(silo, {"label_noise": 0.5}, seed=0).noisy_labels is not None
    for name, text in (("edge_sparsity", "would stay in, or lack, their rows"), ("feature_noise", "is no spoiled")):
        with pytest.raises(UnsupportedError, match=text):
            perturb(silo, {name: 0.5}, seed=0)
