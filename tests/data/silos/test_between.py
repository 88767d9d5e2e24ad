"""Links between silos, on a ring of six nodes cut in three."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import yaml

from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.between import check_sides, compare_sides, own_links, side_notes, sides_of, with_cut_links
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.silos.store import SiloStore
from graphsilo.data.silos.union import own_partition, union
from graphsilo.data.sources.tables import load_tables
from graphsilo.errors import ConfigError, DataError, UnsupportedError

PARTS = ((4, 0), (1, 2), (3, 5))
"""Whose nodes are whose, in the order of local numbers."""


def ring(directed=False):
    first = np.arange(6)
    edges = np.stack([first, (first + 1) % 6])
    edges = edges if directed else np.concatenate([edges, edges[::-1]], axis=1)
    return Graph(np.eye(6, dtype=np.float32), edges, first % 2, 2, "ring")


def cut_in(parts):
    nodes = tuple(np.array(part) for part in parts)
    empty = tuple(part[:0] for part in nodes)
    return Partition("random", 0, "ring", 6, nodes, nodes, empty, empty)


def test_each_end_knows_the_links_that_were_cut(tmp_path):
    partition = cut_in(PARTS)
    silos = with_cut_links(build_silos(ring(), partition), ring(), "random")
    # 0-1, 2-3, 3-4, 4-5 and 5-0 were cut; 1-2 was not.
    expected = [[(0, 3), (0, 5), (1, 1), (1, 5)], [(0, 0), (1, 3)], [(0, 2), (0, 4), (1, 0), (1, 4)]]
    for silo, links in zip(silos, expected, strict=True):
        assert silo.cut.ids.tolist() == list(PARTS[silo.client])
        assert list(zip(silo.cut.node.tolist(), silo.cut.other.tolist(), strict=True)) == links
        store = SiloStore(tmp_path / str(silo.client))
        store.write(silo)
        again = store.read(silo.client).cut
        assert all(np.array_equal(getattr(again, name), getattr(silo.cut, name)) for name in ("ids", "node", "other"))


def test_who_is_left_out_takes_its_links_along():
    partition = cut_in(PARTS).without([2])
    silos = with_cut_links(build_silos(ring(), partition), ring(), "random")
    assert [silo.client for silo in silos] == [0, 1]
    assert [silo.cut.other.tolist() for silo in silos] == [[1], [0]]


@pytest.mark.parametrize(
    ("graph", "parts", "text"),
    [(ring(), ((0, 1, 2), (2, 3, 4, 5)), "each node to be in one silo only"), (ring(True), PARTS, "have directions")],
    ids=["overlap", "directed"],
)
def test_what_has_no_two_ends_is_refused(graph, parts, text):
    partition = cut_in(parts)
    with pytest.raises(UnsupportedError, match=text):
        with_cut_links(build_silos(graph, partition), graph, "random")


# -- silos with tables of their own: two of three nodes each, a link inside and two between ----------------------------

TO_SOUTH = (("a", "south", "x"), ("b", "south", "x"))
TO_NORTH = (("x", "north", "a"), ("x", "north", "b"))


def own_tables(folder, name, ids, outside, **more):
    """The description of a silo's tables, with a path through its nodes."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.nodes.csv").write_text("id,f\n" + "".join(f"{id},{row}\n" for row, id in enumerate(ids)))
    (folder / f"{name}.edges.csv").write_text("s,t\n" + "".join(f"{a},{b}\n" for a, b in itertools.pairwise(ids)))
    (folder / f"{name}.outside.csv").write_text("own,silo,there\n" + "".join(",".join(row) + "\n" for row in outside))
    tree = {
        "name": name,
        "nodes": {"path": f"{name}.nodes.csv", "id": "id"},
        "edges": {"path": f"{name}.edges.csv", "source": "s", "target": "t"},
        "outside": {"path": f"{name}.outside.csv", "node": "own", "silo": "silo", "other": "there"},
        "classes": ["no", "yes"],
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def graphs_in(tmp_path, north=TO_SOUTH, south=TO_NORTH):
    return [
        load_tables(own_tables(tmp_path, "north", ("a", "b", "c"), north)),
        load_tables(own_tables(tmp_path, "south", ("z", "a", "x"), south)),
    ]


def test_tables_name_links_to_other_silos(tmp_path):
    graphs = graphs_in(tmp_path, north=(*TO_SOUTH, TO_SOUTH[0]))  # twice is once
    whole, sizes = union(graphs)
    partition = own_partition(whole, sizes, mode="stratified", ratios=(0.2, 0.4, 0.4), seed=0)
    north, south = (own_links(whole, nodes) for nodes in partition.nodes)
    assert sorted(north.node.tolist()) == [0, 1]
    assert south.node.tolist() == [2, 2]
    # Both ends call a node the same, and the a of one silo otherwise than the a of the other.
    assert set(north.other.tolist()) == {int(south.ids[2])}
    assert set(south.other.tolist()) == {int(north.ids[0]), int(north.ids[1])}
    assert north.ids[2] == -1
    assert len({*north.ids[:2].tolist(), int(south.ids[2])}) == 3
    alone = own_links(graphs[1], np.arange(3))  # a silo at its own machine
    assert alone.ids.tolist() == south.ids.tolist()
    assert alone.other.tolist() == south.other.tolist()
    check_sides(graphs)
    compare_sides({graph.name: sides_of(graph) for graph in graphs})
    assert sides_of(graphs[0]) == {"south": (2, sides_of(graphs[1])["north"][1])}


def test_a_node_that_is_dropped_takes_its_links_along(tmp_path):
    graph = graphs_in(tmp_path)[0].subgraph(np.array([2, 1]))
    assert graph.outside.node.tolist() == [1]


def test_links_to_other_silos_are_part_of_the_data(tmp_path):
    from graphsilo.data.graph import content_hash

    one, other = graphs_in(tmp_path / "a"), graphs_in(tmp_path / "b", north=TO_SOUTH[:1])
    assert content_hash(one[:1]) != content_hash(other[:1])
    assert content_hash(one[1:]) == content_hash(other[1:])


def test_a_silo_without_such_a_table_says_nothing(tmp_path):
    graphs = graphs_in(tmp_path)
    path = own_tables(tmp_path, "south", ("z", "a", "x"), ())
    tree = yaml.safe_load(path.read_text())
    del tree["outside"]
    path.write_text(yaml.safe_dump(tree))
    graphs[1] = load_tables(path)
    whole, _ = union(graphs)
    assert own_links(whole, np.arange(3)) is None


@pytest.mark.parametrize(
    ("north", "south", "text"),
    [
        (TO_SOUTH, TO_NORTH[:1], r"north and south do not name the same .*\(1 of 2, the first from 'b'\)"),
        (TO_SOUTH[:1], TO_NORTH, r"south has links to north that north does not have .*from 'x'"),
        (TO_SOUTH, (), r"north has links to south that south does not have to north \(2 of 2"),
        ((("a", "south", "x"), ("b", "south", "z")), (("x", "north", "b"), ("z", "north", "a")), r"\(2 of 2"),
    ],
    ids=["north alone", "south alone", "empty", "crossed"],
)
def test_sides_that_disagree_are_refused(tmp_path, north, south, text):
    graphs = graphs_in(tmp_path, north, south)
    with pytest.raises(DataError, match=text):
        check_sides(graphs)
    with pytest.raises(DataError, match="do not name the same links between them"):
        compare_sides({graph.name: sides_of(graph) for graph in graphs})


def test_links_to_a_silo_that_takes_no_part_are_remarked_on(tmp_path):
    graphs = graphs_in(tmp_path)[:1]
    check_sides(graphs)
    sides = {"north": sides_of(graphs[0])}
    compare_sides(sides)
    assert side_notes(sides) == (
        "silo north has 2 links to 'south' (outside), and no silo of that name takes part: nothing comes over them.",
    )


@pytest.mark.parametrize(
    ("outside", "text"),
    [
        ((("q", "south", "x"),), r"column 'own' has one value where the link names an unknown node: row 1 .*'q'"),
        ((("a", "north", "b"),), r"column 'silo' has one value where both ends of a link are at north"),
        ((("a", "", "x"),), r"column 'silo' has one value where a link to another silo is empty"),
        ((("a", "south", ""),), r"column 'there' has one value where a link to another silo is empty"),
    ],
    ids=["own end", "both ends here", "no silo", "no other end"],
)
def test_links_that_cannot_be_are_refused_with_their_rows(tmp_path, outside, text):
    with pytest.raises(DataError, match=text):
        load_tables(own_tables(tmp_path, "north", ("a", "b"), outside))


def test_links_to_other_silos_have_neither_direction_nor_weight(tmp_path):
    path = own_tables(tmp_path, "north", ("a", "b"), (), directed=True)
    with pytest.raises(ConfigError, match="edges have directions here"):
        load_tables(path)


def test_a_silo_has_one_name(tmp_path):
    own_tables(tmp_path, "north", ("a", "b"), ())
    path = tmp_path / "silo.yaml"
    path.write_text(yaml.safe_dump({"name": "nord", "data": "north.yaml"}))
    with pytest.raises(ConfigError, match=r"the silo is 'nord', and north\.yaml calls its graph 'north'.*name: nord"):
        read_silo_file(path)
    path.write_text(yaml.safe_dump({"name": "north", "data": "north.yaml"}))
    assert read_silo_file(path).load(4).cut.node.tolist() == []
