"""Columns of links are scaled by the rows that training sees, and whatever is asked later by these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsilo.data.graph import Graph
from graphsilo.data.links import LinkTable
from graphsilo.data.scales import Scaling
from graphsilo.data.silos.scaling import FeatureScale, prepare_silo
from graphsilo.data.silos.silo import EvaluationSet, Schema, Silo
from graphsilo.federation.model_files import scale_of, scale_tensors

NAN = np.nan


def graph_of(columns: list[list[float]]) -> Graph:
    rows = np.array(columns, dtype=np.float64)
    ends = np.stack([np.arange(len(rows)), np.arange(len(rows)) + 1])
    links = LinkTable(("pays",), np.zeros(len(rows), np.int16), ends, rows, ("pays.amount", "pays.card", "pays.fee"))
    features = np.arange(2.0 * (len(rows) + 1)).reshape(-1, 2)
    return Graph(features, ends, np.zeros(len(rows) + 1, np.int64), 2, links=links)


@pytest.mark.parametrize("scaling", [Scaling(), Scaling("standard"), Scaling("robust")], ids=lambda one: one.scale)
def test_own_rows_scale_whatever_is_asked(scaling: Scaling) -> None:
    graph = graph_of([[100.0, 0, NAN], [300.0, 1, NAN], [NAN, 1, NAN], [200.0, 0, NAN]])
    later = graph_of([[500.0, 1, 7.0]])
    silo = Silo(0, graph, np.array([0]), (EvaluationSet("seen", later, {}),), Schema.of(graph, "node"))
    made = prepare_silo(silo, scaling)
    found, asked = made.graph.union.links, made.seen.graph.union.links
    assert found is not None
    assert asked is not None
    amounts = found.features[:, 0]
    spread = np.std([100, 300, 200]) if scaling.scale != "robust" else 100 / 1.3489795
    np.testing.assert_allclose(amounts, (np.array([100, 300, NAN, 200]) - 200) / spread, rtol=1e-6)
    np.testing.assert_array_equal(found.features[:, 1:], graph.links.features[:, 1:])
    np.testing.assert_allclose(asked.features, [[300 / spread, 1, 7.0]], rtol=1e-6)
    if not scaling.has_columns:
        np.testing.assert_array_equal(made.graph.union.features, graph.features.astype(np.float32))
    assert made.scale is not None
    again = scale_of(scale_tensors(made.scale))
    assert again.digest == made.scale.digest != replace(made.scale, links=None).digest
    assert isinstance(again.links, FeatureScale)
