"""A graph of which the first propagation is given: what others' nodes add to it is known only as a sum."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.errors import UnsupportedError
from graphsilo.models.operators import Operator, operator
from graphsilo.models.view import GraphTensors, Matrix, Norm, View


class GivenTensors(GraphTensors):
    """Own nodes and, behind them, some of others': Â between all of them, and rows of ÂX, but no features.

    For models whose layers are Â H W. The first layer takes the rows as they are, the others propagate along the links.

    Args:
        matrix: [m, m] Â; rows of others' nodes may be incomplete, which two layers do not read beside their rows of ÂX.
        rows: [m, d] ÂX.
        own: How many of them come first and are the client's own; ``full`` means these.
        num_classes: C.
    """

    def __init__(self, matrix: sp.csr_matrix, rows: Matrix, own: int, num_classes: int, device: torch.device | str):
        size = int(matrix.shape[0])
        start = np.zeros(size + 1, dtype=np.int64)
        nothing = sp.csr_matrix((np.zeros(0, np.float32), start[:0], start), (size, rows.shape[1]))
        no_edges = np.zeros((2, 0), dtype=np.int64)
        graph = Graph(nothing, no_edges, np.full(size, -1, dtype=np.int64), num_classes, "given sums")
        super().__init__(graph, device=device)
        self.own, self.rows, self._matrix = own, rows, matrix

    def matrix(self, norm: Norm) -> sp.csr_matrix:
        if norm != "gcn":
            raise UnsupportedError(
                "given sums of neighbours serve graph convolutions (gcn) only: other layers weigh neighbours otherwise."
            )
        return self._matrix

    @property
    def full(self) -> View:
        return self.kept_view(np.arange(self.own))

    def view(self, items: NDArray[np.int64] | None) -> View:
        return self.full if items is None else _GivenView(self, np.asarray(items, dtype=np.int64))

    def kept_view(self, items: NDArray[np.int64]) -> View:
        items = np.asarray(items, dtype=np.int64)
        return self.cached(("view", items.tobytes()), lambda: _GivenView(self, items, kept=True))


class _GivenView(View):
    data: GivenTensors

    def first_layer(self, norm: Norm, depth: int) -> Operator:
        def make() -> Operator:
            rows = self._frontier(norm, depth)[1]
            assert rows is not None
            return operator(self.data.rows[rows], self.data.device, self.data.dtype)

        return self.cached(("first", norm, depth), make)

    def features(self, norm: Norm = "gcn", depth: int = 0) -> Operator:
        raise UnsupportedError("of others' nodes the sums of their neighbours are known, and no features.")
