"""What typed graphs refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.links import Owners
from graphsilo.data.partition.registry import partition
from graphsilo.data.silos.perturb import perturb
from graphsilo.data.silos.scenarios import build_silos, partition_for_scenario
from graphsilo.data.sources import catalog
from graphsilo.data.sources.link_columns import add_link_columns
from graphsilo.data.sources.targets import with_targets
from graphsilo.errors import PartitionError, UnsupportedError
from kit.link_tables import dated_graph

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
    added = replace(cut, added_edges=(np.zeros((2, 0), np.int64),) * 2)
    with pytest.raises(UnsupportedError, match="the rule 'random' adds links, which the tables of links of adler"):
        build_silos(graph, added)


def test_links_that_are_made_up_lead_to_later_nodes_only() -> None:
    """Noise, and what a rule of partition adds: half of it would tell a node of what came later."""
    nodes = 40
    time = np.arange(nodes, dtype=np.float64)
    graph = Graph(np.eye(nodes, dtype=np.float32), np.stack([np.arange(39), np.arange(1, 40)]),
                  np.arange(nodes) % 2, 2, time=time)  # fmt: skip
    cut = partition(graph, "random", clients=1)
    noisy = perturb(build_silos(graph, cut)[0], {"edge_noise": 2.0}, seed=0).graph.union
    whole = build_silos(graph, replace(cut, added_edges=(np.array([[5, 30], [20, 10]]),)))[0].graph.union
    assert noisy.num_edges == 39 + 78
    assert whole.num_edges == 39 + 2
    for found in (noisy, whole):
        assert (time[found.edges[0]] < time[found.edges[1]]).all()
    with pytest.raises(UnsupportedError, match="links of graph are not divided by time"):
        build_silos(graph, replace(cut, split="time"), task="link")
    measured = with_targets(graph, time, ["days"])
    silo = build_silos(measured, partition(measured, "random", clients=1), task="regression")[0]
    assert len(perturb(silo, {"label_sparsity": 0.5}, seed=0).train) < len(silo.train)
    with pytest.raises(UnsupportedError, match="targets are no classes"):
        perturb(silo, {"label_noise": 0.5}, seed=0)


@pytest.mark.parametrize("scenario", ["inductive", "unseen"])
def test_sums_over_links_would_tell_of_nodes_that_a_scenario_takes_away(scenario: str) -> None:
    """They were added up over the whole graph, at nodes of training, too."""
    graph = add_link_columns(dated_graph(seed=1))
    cut = partition_for_scenario(graph, "random", clients=2, scenario=scenario)
    with pytest.raises(UnsupportedError, match=f"'{scenario}' takes nodes away, and what is added up .* tell of them"):
        build_silos(graph, cut, scenario=scenario)
    plain = dated_graph(seed=1)
    if scenario == "inductive":
        silo = build_silos(plain, cut, scenario=scenario)[0]
        links = silo.graph.union.links
        assert links is not None
        assert silo.graph.union.num_nodes == len(silo.train) < silo.seen.graph.union.num_nodes
        assert links.ends.max() < len(silo.train)
    else:
        with pytest.raises(UnsupportedError, match="Use the scenario 'seen'"):
            build_silos(plain, cut, scenario=scenario)


def test_a_new_client_of_institutions_is_refused_in_words_for_every_door() -> None:
    graph = catalog.load(str(BANK)).union
    owned = replace(
        graph, types=None, links=None, feature_names=None, owners=Owners(("a", "b"), np.arange(graph.num_nodes) % 2)
    )
    with pytest.raises(
        PartitionError, match=r"by the rule 'natural', has no new_part: choose one that .*, such as louvain"
    ):
        partition_for_scenario(owned, "natural", scenario="unseen")
