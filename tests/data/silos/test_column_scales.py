"""The scale of columns from sums, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from graphsilo.data.silos.column_scales import scale_of_rows


def test_a_column_of_each_kind():
    """Numbers are centred, one constant becomes 0, truth values stay."""
    rows = np.array([[1.0, 7.0, 0.0], [3.0, 7.0, 1.0]])
    scale = scale_of_rows(rows, "standard")
    assert scale.shift.tolist() == [2.0, 7.0, 0.0]
    assert scale.factor == pytest.approx([1.0, 0.0, 1.0])
