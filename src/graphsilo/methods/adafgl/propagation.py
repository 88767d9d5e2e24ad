"""What AdaFGL's clients train for themselves: modules for links among like nodes, and for links among unlike ones.

No matrix of all pairs of nodes is kept. Likeness of predictions is the product U Uᵀ of unit rows U [n, C], so that what
it does to other rows is computed through C columns; the signs of messages need each entry once, block by block.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsilo.data.sources.sizes import in_words
from graphsilo.errors import UnsupportedError
from graphsilo.models.base import Dense, draw_uniform
from graphsilo.models.dropout import dropout
from graphsilo.models.operators import Operator, SparseOperator
from graphsilo.models.precision import keep_precision, widen
from graphsilo.models.view import GraphTensors
from graphsilo.training.label_propagation import one_hot_rows, propagate_labels, without_loops
from graphsilo.training.prototypes import unit_rows

DROPOUT = 0.5
GAIN = 2**0.5
SLOPE = 0.25
"""Of a PReLU at first, as in torch."""
MOST_NODES = 20_000
"""Of a silo whose pairs of like nodes are listed."""
PAIRS = 1 << 24
"""Entries of a matrix of all pairs that are computed at once."""
TINY = 1e-6


class Mended(NamedTuple):
    """A graph whose links are mixed with the likeness of the extractor's predictions.

    Attributes:
        predicted: [n, C] P̂, the extractor's probabilities.
        unit: [n, C] U, their rows at length 1.
        features: [n, d] X.
        links: [n, n] the sparse part of S = D^-½ (A' + I) D^-½.
        spread: [n, C] Q, of which Q Qᵀ is the rest of S; None where all of it is sparse.
    """

    predicted: Tensor
    unit: Tensor
    features: Operator
    links: SparseOperator
    spread: Tensor | None

    def step(self, rows: Tensor) -> Tensor:
        """S times rows [n, k]."""
        found = self.links @ rows
        return found if self.spread is None else found + widen(self.spread @ widen(self.spread.t() @ rows))


def mend(data: GraphTensors, predicted: Tensor, *, alpha: float, threshold: float | None) -> Mended:
    """A' = αA + (1 − α) R with R_ij the cosine of predictions i ≠ j; or 1 where it is above the threshold, else 0.

    Args:
        data: The graph, A without its loops.
        predicted: [n, C] P̂.
        alpha: α.
        threshold: None takes cosines as they are.

    Raises:
        UnsupportedError: Pairs above a threshold are to be listed, of more than ``MOST_NODES`` nodes.
    """
    unit = unit_rows(predicted)
    links = alpha * without_loops(data.graph.adjacency()).astype(np.float64)
    if threshold is None:
        # U Uᵀ has ones on its diagonal, R + I without (1 − α) of the loops.
        links, rows = links + alpha * sp.eye(data.num_nodes, format="csr"), unit.double()
        degrees = links.sum(1).A1 + (1.0 - alpha) * (rows @ rows.sum(0)).cpu().numpy()
    else:
        links = links + sp.eye(data.num_nodes, format="csr") + (1.0 - alpha) * like_pairs(unit, threshold)
        degrees = links.sum(1).A1
    root = sp.diags(degrees**-0.5)
    operator = SparseOperator(sp.csr_matrix(root @ links @ root), device=data.device, dtype=data.dtype)
    spread = None
    if threshold is None and alpha < 1:
        spread = unit * torch.from_numpy(((1.0 - alpha) / degrees) ** 0.5).to(unit)[:, None]
    return Mended(predicted, unit, data.full.features(), operator, spread)


def like_pairs(unit: Tensor, threshold: float) -> sp.csr_matrix:
    """[n, n] ones where rows i ≠ j of [n, C] unit rows have a cosine above the threshold."""
    count = len(unit)
    if count > MOST_NODES:
        raise UnsupportedError(
            f"AdaFGL with method.mending=threshold lists the pairs of nodes with like predictions: of {count} nodes in "
            f"a silo these can take {in_words(12.0 * count**2)} of memory, and {MOST_NODES} nodes are the most. With "
            f"method.mending=soft memory grows with the nodes alone."
        )
    ends = []
    for block in torch.arange(count, device=unit.device).split(_at_once(unit)):
        found = (unit[block] @ unit.t() > threshold).nonzero()
        ends.append(torch.stack([block[found[:, 0]], found[:, 1]], 1).cpu().numpy())
    row, column = np.concatenate(ends).T
    other = row != column
    return sp.csr_matrix((np.ones(int(other.sum())), (row[other], column[other])), (count, count))


class Propagation(nn.Module):
    """An MLP of two layers and three of three, on propagated features X̄ = [X ‖ SX ‖ … ‖ S^L X] or, one, on X.

    Their first layers are one weight, whose columns are those of X's module, then for X and each S^l X those of the
    three others: S is applied to what a layer gives, not to the features.

    Args:
        inputs: d.
        classes: C.
        hidden: Width of hidden layers.
        steps: L.
    """

    def __init__(self, inputs: int, classes: int, hidden: int, steps: int):
        super().__init__()
        self.hidden, self.steps = hidden, steps
        self.first = nn.Parameter(torch.empty(inputs, (4 + 3 * steps) * hidden))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        self.middle = nn.ModuleList([Dense(hidden, hidden, gain=GAIN) for _ in range(3)])
        self.last = nn.ModuleList([Dense(hidden, classes, gain=GAIN) for _ in range(4)])
        self.slopes = nn.Parameter(torch.empty(3))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all parameters: Xavier-uniform, biases of 0."""
        inputs, hidden = self.first.shape[0], self.hidden
        draw_uniform(self.first[:, :hidden], inputs + hidden, generator, gain=GAIN)
        draw_uniform(self.first[:, hidden:], (self.steps + 1) * inputs + hidden, generator, gain=GAIN)
        for layer in (*self.middle, *self.last):
            layer.initialise(generator)
        nn.init.zeros_(self.bias)
        nn.init.constant_(self.slopes, SLOPE)

    def forward(
        self, graph: Mended, beta: float, dissimilar: Literal["ordered", "released"],
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Logits [n, C] each: of like nodes Z_s; of features Z_o, of propagated ones Z_t, and of messages Z_m.

        Args:
            graph: What S and X are.
            beta: β, share of the extractor's likeness in that which signs messages.
            dissimilar: As for ``exchange_messages``.
            generator: Source of dropout; None for evaluation.
        """
        own, *levels = (graph.features @ self.first).split([self.hidden, *[3 * self.hidden] * (self.steps + 1)], dim=1)
        rows = levels.pop()
        while levels:
            rows = graph.step(rows) + levels.pop()
        # Modules side by side: of features, of like nodes, of propagated features, of messages.
        of_modules = self.slopes[[1, 0, 1, 2]]
        rows = prelu(torch.cat([own, rows], 1) + self.bias, of_modules.repeat_interleave(self.hidden))
        parts = list(dropout(rows, DROPOUT, generator).split(self.hidden, dim=1))
        for place, layer, slope in zip((0, 2, 3), self.middle, (1, 1, 2), strict=True):
            parts[place] = dropout(prelu(layer(parts[place]), self.slopes[slope]), DROPOUT, generator)
        of_features, alike, smooth, rows = (layer(part) for layer, part in zip(self.last, parts, strict=True))
        likeness = (1.0 - beta) ** 0.5 * unit_rows(rows.softmax(1))
        if beta:
            likeness = torch.cat([likeness, beta**0.5 * graph.unit], 1)
        return alike, of_features, smooth, exchange_messages(rows, likeness, self.slopes[2], dissimilar)


def prelu(values: Tensor, slope: Tensor) -> Tensor:
    """values where they are above 0, else slope · values."""
    return torch.where(values > 0, values, slope * values)


def exchange_messages(
    rows: Tensor, unit: Tensor, slope: Tensor, dissimilar: Literal["ordered", "released"]
) -> Tensor:  # fmt: skip
    """½ (softmax(PReLU(w) E) − softmax(PReLU(−w) E) + E): what nodes that are alike say, less what others do.

    Of R = W Wᵀ with a diagonal of 0, of which m is the mean and M the largest entry, w_ij = (R_ij − m) / (M − m) above
    m. Below, down to −1: (R_ij − m) / m where ``ordered``, else −R_ij / m, which says −1 just below the mean and 0 of
    nodes that have nothing in common. w_ii = 1.

    Args:
        rows: [n, C] E.
        unit: [n, q] W.
        slope: Of the PReLU.
        dissimilar: How entries below the mean are scaled.
    """
    count, lengths = len(rows), unit.square().sum(1)
    mean = (unit.sum(0).square().sum() - lengths.sum()) / count**2
    first, second = most_alike(unit)
    peak = unit[first] @ unit[second]
    counted = dissimilar == "released"
    found: Tensor = _Above.apply(unit, mean, rows, counted)  # type: ignore[no-untyped-call]
    # The diagonals of W Wᵀ are no likeness of two nodes.
    own = (lengths - mean)[:, None]
    above = found[:, : rows.shape[1]] - own.relu() * rows
    whole = widen(unit @ widen(unit.t() @ rows)) - lengths[:, None] * rows
    if counted:
        below = mean * (found[:, rows.shape[1] :] - (own > 0) * rows) - (whole - above)
    else:
        below = whole - mean * (rows.sum(0) - rows) - above
    near = above / (peak - mean).clamp_min(TINY) + rows
    far = below / mean.clamp_min(TINY)
    return 0.5 * ((near + slope * far).softmax(1) - (-far - slope * near).softmax(1) + rows)


class _Above(torch.autograd.Function):
    """relu(W Wᵀ − m) E [n, C], beside it [W Wᵀ > m] E if ``counted``, some rows of all pairs at a time."""

    @staticmethod
    def forward(ctx: Any, unit: Tensor, mean: Tensor, rows: Tensor, counted: bool) -> Tensor:
        ctx.save_for_backward(unit, mean, rows)
        ctx.counted, found = counted, []
        with keep_precision(unit):
            for block in unit.split(_at_once(unit)):
                above = (block @ unit.t()).sub_(mean).relu_()
                both = [above @ rows, (above > 0).to(rows.dtype) @ rows] if counted else [above @ rows]
                found.append(torch.cat(both, 1))
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        unit, mean, rows = ctx.saved_tensors
        to_unit, to_rows, to_mean = torch.zeros_like(unit), torch.zeros_like(rows), torch.zeros_like(mean)
        for places in torch.arange(len(unit), device=unit.device).split(_at_once(unit)):
            block, outer = unit[places], gradient[places]
            above = (block @ unit.t()).sub_(mean).relu_()
            is_above = (above > 0).to(rows.dtype)
            inner = (outer[:, : rows.shape[1]] @ rows.t()).mul_(is_above)
            to_unit.addmm_(inner.t(), block).index_add_(0, places, inner @ unit)
            to_mean -= inner.sum()
            to_rows.addmm_(above.t(), outer[:, : rows.shape[1]])
            if ctx.counted:
                to_rows.addmm_(is_above.t(), outer[:, rows.shape[1] :])
        return to_unit, to_mean, to_rows, None


@torch.no_grad()
def most_alike(unit: Tensor) -> tuple[int, int]:
    """Which two different rows of [n, q] have the largest product."""
    best, place, first = -1.0, (0, 0), 0
    for block in unit.split(_at_once(unit)):
        found = block @ unit.t()
        found.diagonal(first).fill_(-1.0)
        value, where = float(found.max()), int(found.argmax())
        if value > best:
            best, place = value, (first + where // len(unit), where % len(unit))
        first += len(block)
    return place


def _at_once(unit: Tensor) -> int:
    """How many rows of a matrix of all pairs are computed at once."""
    return max(1, PAIRS // len(unit))


def homophily_confidence(
    graph: sp.csr_matrix, labels: NDArray[np.int64], train: NDArray[np.int64], classes: int,
    draw: np.random.Generator,
) -> float:  # fmt: skip
    """Share of one half of the training nodes whose labels are found by propagating those of the other half.

    Args:
        graph: [n, n] adjacency.
        labels: [n]; only those of ``train`` are read.
        train: Training nodes with a label.
        classes: C.
        draw: Cuts them into halves.

    Returns:
        0 to 1; ½ where there are not two training nodes. A node that no label reaches counts as not found.

    Source: the authors' code, ten steps with a share of ½ for the neighbours.
    """
    if len(train) < 2:
        return 0.5
    known, hidden = np.array_split(draw.permutation(train), 2)
    start = np.full((len(labels), classes), 1.0 / classes)
    start[known] = one_hot_rows(labels, known, classes)[known]
    scores = propagate_labels(
        graph, start, seed_rows=known, steps=10, alpha=0.5, self_loops=True, rest="keep", clamp=False, add_back=True
    )[hidden]  # fmt: skip
    own = scores[np.arange(len(hidden)), labels[hidden]]
    scores[np.arange(len(hidden)), labels[hidden]] = -np.inf
    return float((own > scores.max(axis=1)).mean())
