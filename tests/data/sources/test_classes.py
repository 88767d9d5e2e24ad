"""Classes as they are meant."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.sources.classes import SIGNED, settle_classes
from graphsilo.errors import DataError


def small(labels: list[int], num_classes: int, names: tuple[str, ...] | None = None) -> Graph:
    nothing = np.zeros((len(labels), 1), dtype=np.float32)
    return Graph(nothing, np.zeros((2, 0), dtype=np.int64), np.array(labels), num_classes, class_names=names)


def test_classes_that_were_said() -> None:
    with pytest.raises(DataError, match="said to be 1000000000000 classes, and only 2 labels"):
        settle_classes([small([0, 1], 10**12)])
    assert settle_classes([small([0, 6], 7)])[0].num_classes == 7
    one, other = settle_classes([small([0, 1, -1], 2, SIGNED), small([0, 1, -1], 2)])
    assert (one.labels.tolist(), one.class_names) == ([-1, 1, -1], None)
    assert other.labels.tolist() == [0, 1, -1]
    assert settle_classes([small([0, 1], 2, SIGNED)])[0].class_names == SIGNED
