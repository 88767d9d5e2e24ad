"""Shares of columns that are means go to the nodes that made them so."""

from __future__ import annotations

import numpy as np

from graphsilo.models.shares import apportion


def test_nodes_that_moved_a_mean_the_way_it_went_have_its_share():
    # The first column went up by 1: the second node did it, the first went down. The second did not move.
    moved = np.array([[-1.0, 0.0], [2.0, 0.0]])
    assert apportion(np.array([3.0, 4.0]), moved, np.array([1.0, 3.0])).tolist() == [1.0, 6.0]
