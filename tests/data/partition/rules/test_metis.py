from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rules.metis import MetisOptions, cut, membership
from graphsilo.errors import PartitionError


def test_two_triangles_are_cut_at_the_bridge(two_triangles: Graph) -> None:
    found = sorted(part.tolist() for part in cut(two_triangles, 2, 0, MetisOptions()).nodes)
    assert found == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("recursive", [None, True, False])
def test_parts_cover_the_graph_in_ascending_order(blocks: Graph, recursive: bool | None) -> None:
    found = cut(blocks, 4, 0, MetisOptions(recursive=recursive)).nodes
    assert sorted(np.concatenate(found).tolist()) == list(range(80))
    assert all((np.diff(part) > 0).all() for part in found)


def test_direction_and_repeats_of_edges_play_no_part(blocks: Graph) -> None:
    one_way = blocks.with_edges(blocks.edges[:, blocks.edges[0] < blocks.edges[1]])
    twice = blocks.with_edges(np.concatenate([blocks.edges, blocks.edges], axis=1))
    wanted = membership(blocks, 4)
    np.testing.assert_array_equal(membership(one_way, 4), wanted)
    np.testing.assert_array_equal(membership(twice, 4), wanted)


def test_more_parts_than_clients_are_refused(blocks: Graph) -> None:
    with pytest.raises(PartitionError, match="one part per client: 4 clients, but parts = 100"):
        cut(blocks, 4, 0, MetisOptions(parts=100))


def test_an_empty_part_is_refused(two_triangles: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphsilo.data.partition.rules import metis

    monkeypatch.setattr(metis, "membership", lambda *_, **__: np.array([0, 0, 0, 2, 2, 2]))
    with pytest.raises(PartitionError, match="left 1 of 3 parts empty"):
        cut(two_triangles, 3, 0, MetisOptions())


def test_a_cut_seed_gives_another_cut_where_metis_ignores_its_seed() -> None:
    """Metis makes 40 parts of a ring of 400 nodes with each seed alike; a study over cuts must not repeat one cut."""
    ring = np.arange(400)
    edges = np.stack([np.concatenate([ring, np.roll(ring, 1)]), np.concatenate([np.roll(ring, 1), ring])])
    graph = Graph(np.zeros((400, 1), np.float32), edges, np.zeros(400, dtype=np.int64), 1)
    cuts = [membership(graph, 40, recursive=False, cut_seed=seed) for seed in (None, 1, 2, 3, 99)]
    assert len({cut.tobytes() for cut in cuts}) == 5
    assert all(np.bincount(cut, minlength=40).max() <= 11 for cut in cuts)
    np.testing.assert_array_equal(membership(graph, 40, recursive=False, cut_seed=3), cuts[3])
