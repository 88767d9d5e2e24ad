"""Types of nodes and tables of links, for some of a graph's nodes and for several graphs side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph, content_hash
from graphsilo.data.links import LinkTable, NodeTypes, Owners, Targets
from graphsilo.data.silos.joining import disjoint_union
from graphsilo.data.sources.files import load_graph, save_graph


@pytest.fixture
def shops() -> Graph:
    """Accounts 0, 1 and 3, a shop 2; two transfers from 0 to 1, a payment from 3 to the shop."""
    edges = np.array([[0, 1, 3, 2], [1, 0, 2, 3]])
    return Graph(
        np.arange(8, dtype=np.float32).reshape(4, 2),
        edges,
        np.array([0, 1, -1, 1]),
        2,
        feature_names=("account.age", "shop.size"),
        types=NodeTypes(("account", "shop"), np.array([0, 0, 1, 0], np.int16), np.array([0, 1], np.int16), 0),
        links=LinkTable(
            ("payment", "transfer"),
            np.array([1, 1, 0], np.int16),
            np.array([[0, 0, 3], [1, 1, 2]]),
            np.array([[5.0], [7.0], [np.nan]]),
            ("transfer.amount",),
            np.array([10.0, 11.0, np.nan]),
        ),
        time=np.array([12.0, 12.0, np.nan, 13.0]),
        owners=Owners(("north", "south"), np.array([0, 0, -1, 1])),
    )


def test_some_nodes_keep_the_rows_between_them(shops: Graph) -> None:
    part = shops.subgraph(np.array([3, 2, 0]))
    assert part.types is not None
    assert part.links is not None
    assert part.owners is not None
    assert part.time is not None
    assert part.types.targets.tolist() == [True, False, True]
    assert part.links.ends.tolist() == [[0], [1]]  # the payment; transfers have an end that is gone
    assert part.links.of_link.tolist() == [0]
    assert part.owners.of_node.tolist() == [1, -1, 0]
    assert part.time[[0, 2]].tolist() == [13.0, 12.0]


def test_side_by_side_numbers_run_on(shops: Graph) -> None:
    both = disjoint_union([shops, replace(shops, time=None)]).union
    assert both.links is not None
    assert both.types is not None
    assert both.time is not None
    assert both.links.ends.tolist() == [[0, 0, 3, 4, 4, 7], [1, 1, 2, 5, 5, 6]]
    assert both.types.of_node.tolist() == [0, 0, 1, 0] * 2
    assert np.isnan(both.time).tolist() == [False, False, True, False, True, True, True, True]
    assert both.owners is None  # institutions of two tables are not the same by their numbers


def test_a_file_holds_all_of_it(shops: Graph, tmp_path) -> None:
    again = load_graph(save_graph(tmp_path / "shops.npz", shops))
    assert content_hash([again]) == content_hash([shops])
    assert again.union.links is not None
    assert again.union.links.feature_names == ("transfer.amount",)
    moved = replace(shops, links=replace(shops.links, ends=shops.links.ends[::-1].copy()))
    assert content_hash([moved]) != content_hash([shops])


def test_targets_of_several_graphs_are_numbers_where_one_has_others_than_0_and_1() -> None:
    plain, measured = (
        Targets(np.ones((2, 2), np.float32), "multilabel"),
        Targets(np.full((1, 2), 7.0, np.float32), "regression"),
    )
    assert Targets.join([plain, measured], [0, 2]).task == "regression"
    assert Targets.join([plain, plain], [0, 2]).task == "multilabel"
