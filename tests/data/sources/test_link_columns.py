"""What is added up over a node's links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph, content_hash
from graphsilo.data.links import LinkTable, NodeTypes
from graphsilo.data.sources.catalog import apply_options
from graphsilo.data.sources.link_columns import add_link_columns
from graphsilo.data.sources.looking_back import respect_time
from graphsilo.errors import ConfigError, DataError
from kit.link_tables import change_after, dated_graph


def column(graph: Graph, name: str) -> np.ndarray:
    assert graph.feature_names is not None
    return np.asarray(graph.features)[:, graph.feature_names.index(name)]


def test_every_column_is_what_its_name_says() -> None:
    graph = dated_graph(seed=3)
    found = add_link_columns(graph, (30,))
    links, when = graph.links, graph.time
    assert links is not None
    assert links.time is not None
    assert when is not None
    for end, direction in enumerate(("out", "in")):
        for span, last in ((np.inf, ""), (30.0, ", 30 days")):
            for node in range(graph.num_nodes):
                rows = np.flatnonzero(
                    (links.ends[end] == node)
                    & (links.of_link == 0)
                    & (links.time <= when[node])
                    & (links.time > when[node] - span)
                )
                amounts, others = links.features[rows, 0], set(links.ends[1 - end, rows].tolist()) - {node}
                amounts = amounts[~np.isnan(amounts)]
                wanted = {"count": len(rows), "others": len(others), "channel=card, share": 0.0} | dict.fromkeys(
                    ("amount, sum", "amount, mean", "amount, deviation", "amount, largest"), 0.0
                )
                if len(rows):
                    wanted["channel=card, share"] = links.features[rows, 1].mean()
                if len(amounts):
                    parts = amounts.sum(), amounts.mean(), amounts.std(), amounts.max()
                    wanted |= dict(zip(list(wanted)[-4:], parts, strict=True))
                for what, value in wanted.items():
                    name = f"transfer {direction}: {what}{last}"
                    assert column(found, name)[node] == pytest.approx(value, rel=1e-12, abs=1e-12), (name, node)


def test_the_order_of_rows_says_nothing_and_equal_amounts_have_no_deviation() -> None:
    graph = dated_graph(seed=4)
    assert graph.links is not None
    turned = replace(graph, links=graph.links.where(np.arange(len(graph.links))[::-1]))
    assert np.array_equal(add_link_columns(graph, (7, 90)).features, add_link_columns(turned, (7, 90)).features)
    same = replace(graph.links, features=np.full_like(graph.links.features, 0.1))
    assert not column(add_link_columns(replace(graph, links=same)), "transfer out: amount, deviation").any()


def test_columns_are_made_anew_and_known_to_depend_on_other_nodes() -> None:
    graph = dated_graph(seed=5)
    once = add_link_columns(graph, (30,))
    again = add_link_columns(once, (30,))
    assert again.feature_names == once.feature_names
    assert np.array_equal(again.features, once.features)
    assert once.feature_names is not None
    assert once.feature_names[: graph.num_features] == ("age", "fee")
    assert once.estimated == ("sums",)


def test_what_was_loaded_stays_as_it_is() -> None:
    once = apply_options(dated_graph(seed=7), {"sums": {"windows": [30]}})
    assert isinstance(once, Graph)
    again = apply_options(once, {"undirected": False})
    assert isinstance(again, Graph)
    assert content_hash([again]) == content_hash([once])
    other = apply_options(once, {"sums": {"windows": [10]}})
    assert other.union.feature_names is not None
    assert [name for name in other.union.feature_names if name.endswith("30 days")] == []
    assert apply_options(dated_graph(seed=7), {"sums": False}).num_features == 2


def test_each_relation_has_its_own_columns_of_its_own_types() -> None:
    graph = dated_graph(seed=6)
    assert graph.links is not None
    of_node = np.arange(graph.num_nodes, dtype=np.int16) % 2
    names = ("transfer.amount", "transfer.fee.rate")
    ends = np.stack([np.arange(0, 20, 2), np.arange(1, 21, 2)])
    links = LinkTable(
        ("transfer", "transfer.fee"), np.repeat([0, 1], 5).astype(np.int16), ends, np.ones((10, 2)), names
    )
    typed = replace(graph, links=links, types=NodeTypes(("a", "b"), of_node, np.full(2, -1, np.int16), 0))
    found = add_link_columns(typed)
    assert found.types is not None
    assert found.feature_names is not None
    kinds = dict(zip(found.feature_names, found.types.of_feature.tolist(), strict=True))
    assert [kinds[f"transfer.fee {direction}: rate, sum"] for direction in ("out", "in")] == [0, 1]
    assert "transfer out: fee.rate, sum" not in kinds
    assert kinds["age"] == -1
    assert len(kinds) == 2 + 2 * 2 * 6


@pytest.mark.parametrize("seed", range(8))
def test_the_future_changes_no_row_of_the_past(seed: int) -> None:
    generator = np.random.default_rng(seed)
    graph, moment = dated_graph(seed), float(generator.uniform(20, 80))
    one, other = (
        respect_time(add_link_columns(each, (10, 30)), undirected=True)
        for each in (graph, change_after(graph, moment, generator))
    )
    assert other.num_edges != one.num_edges
    assert graph.time is not None
    past = graph.time <= moment
    assert np.array_equal(one.features[past], other.features[past])
    before, after = (
        {(source, target) for source, target in each.edges.T.tolist() if past[target]} for each in (one, other)
    )
    assert before == after
    assert all(past[source] for source, _ in before)
    # Two hops, as methods take them, see no more.
    hops = [each.adjacency() @ (each.adjacency() @ each.features) for each in (one, other)]
    assert np.array_equal(hops[0][past], hops[1][past])


def test_nodes_of_other_types_without_a_time_were_there_from_the_beginning() -> None:
    graph = dated_graph(seed=1)
    assert graph.time is not None
    of_node = np.arange(graph.num_nodes, dtype=np.int16) % 2
    typed = replace(
        graph,
        time=np.where(of_node == 0, graph.time, np.nan),
        types=NodeTypes(("account", "shop"), of_node, np.full(2, -1, np.int16), 0),
    )
    found = respect_time(typed)
    assert not (of_node[found.edges[1]] == 1)[of_node[found.edges[0]] == 0].any()
    assert ((of_node[found.edges[0]] == 1) & (of_node[found.edges[1]] == 0)).any()


def test_what_cannot_be_is_said() -> None:
    graph = dated_graph(seed=2)
    assert graph.links is not None
    with pytest.raises(ConfigError, match=r"days above 0, such as \[7, 30, 90\]; got -7"):
        add_link_columns(graph, (-7,))
    with pytest.raises(ConfigError, match="need links with dates"):
        add_link_columns(replace(graph, links=replace(graph.links, time=None)), (7,))
    with pytest.raises(DataError, match="add up rows of all dates"):
        respect_time(replace(graph, edge_weights=np.ones(graph.num_edges, np.float32)))
    bare = replace(graph, links=None)
    assert add_link_columns(bare) is bare
