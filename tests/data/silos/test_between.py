"""Links between silos, on a ring of six nodes cut in three."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.silos.between import with_cut_links
from graphsilo.data.silos.scenarios import build_silos
from graphsilo.data.silos.store import SiloStore
from graphsilo.errors import UnsupportedError

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
    silos = with_cut_links(build_silos(ring(), partition), ring(), partition)
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
    silos = with_cut_links(build_silos(ring(), partition), ring(), partition)
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
        with_cut_links(build_silos(graph, partition), graph, partition)
