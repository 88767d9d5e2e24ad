from __future__ import annotations

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rules.random_nodes import RandomOptions, cut


def test_shares_differ_by_at_most_one_and_depend_on_the_seed(blocks: Graph) -> None:
    first, second, third = (cut(blocks, 3, seed, RandomOptions()).nodes for seed in (0, 0, 1))
    assert [len(part) for part in first] == [27, 27, 26]
    assert sorted(np.concatenate(first).tolist()) == list(range(80))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], third[0])
