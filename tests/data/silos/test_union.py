"""Silos side by side: which of them hold the same nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from graphsilo.data.graph import Graph
from graphsilo.data.silos.union import shared_nodes, union
from graphsilo.errors import DataError

MEASURED = np.arange(20, dtype=np.float32).reshape(10, 2)
WORDS = np.arange(10)[:, None] % 2 * np.ones((1, 2), dtype=np.float32)
"""Two rows that stand there five times each."""


def held(rows: np.ndarray, ids: range, *, sparse: bool = False) -> Graph:
    features = rows.astype(np.float32)
    return Graph(
        features=sp.csr_matrix(features) if sparse else features,
        edges=np.zeros((2, 0), dtype=np.int64),
        labels=np.zeros(len(rows), dtype=np.int64),
        num_classes=2,
        node_names=np.array([f"p{place}" for place in ids]),
    )


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        # Seven of ten stand there in another order, under other ids, as a sparse matrix.
        (held(MEASURED, range(10)), held(MEASURED[:2:-1], range(7), sparse=True), 1.0),
        (held(MEASURED, range(10)), held(np.concatenate([MEASURED[:6], -MEASURED[6:]]), range(10)), 0.6),
        (held(MEASURED, range(10)), held(MEASURED + 1, range(10)), None),
        # Rows that are everywhere: the same ids in the same order have the same rows, others have not.
        (held(WORDS, range(10)), held(WORDS[1:], range(1, 10)), None),  # 1 of 2 by chance
        (held(WORDS, range(10)), held(WORDS, range(10, 20)), None),
        (held(MEASURED[:, :1] // 6, range(10)), held(MEASURED[:9, :1] // 6, range(9)), 1.0),  # 1 of 3 by chance
    ],
)
def test_shared_nodes(one: Graph, other: Graph, share: float | None) -> None:
    assert shared_nodes({3: one, 5: other}) == ({} if share is None else {(3, 5): pytest.approx(share)})


def test_classes_in_another_order_and_rules_of_their_own_are_named() -> None:
    rows = np.eye(2)
    one, other = (replace(held(rows, range(2)), class_names=names) for names in (("ok", "mule"), ("mule", "ok")))
    with pytest.raises(DataError, match="Declare `classes` in the same order in every silo's description"):
        union([one, other])
    one, other = (replace(held(rows, range(2)), feature_names=names) for names in (("a", "t"), ("a", "t:missing")))
    with pytest.raises(DataError, match=r"Write the columns .* and the rules of empty cells \(features\.missing\) al"):
        union([one, other])
