"""Ways to say a setting."""

from __future__ import annotations

import pytest

import graphsilo
import graphsilo.data
import graphsilo.errors
from kit.doors import SMALL


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A stored partition of the small graph."""
    path = tmp_path_factory.mktemp("cut") / "p.npz"
    graphsilo.partition(graphsilo.load(**SMALL), "random", clients=3, seed=5, ratios=(0.4, 0.3, 0.3)).save(path)
    return path
