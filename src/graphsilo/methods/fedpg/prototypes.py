"""FedPG at a client: who is a neighbour of whom, prototypes per class and hop, and the pull towards received ones.

Prototypes are numbered class by class: row c (L + 1) + h of a [C (L + 1), p] matrix is class c at hop h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsilo.errors import ConfigError
from graphsilo.methods.fedpg import reach
from graphsilo.methods.fedpg.reach import Pairs
from graphsilo.models.base import Dense
from graphsilo.models.operators import SparseOperator

Reduction: TypeAlias = Literal["squared_mean", "norm_sum"]

_BLOCK = 1 << 23
"""Entries of the largest block of an items × items matrix that is looked at at once."""
_ENUMERATED = 4096
"""Most nodes of a graph whose pairs are listed before some are drawn: listing grows with the square of the nodes."""
_MAX_PAIRS = 1 << 28
"""Most pairs that are kept, 4 GB of them."""
UNKNOWN = -1
"""The class of an item that is not annotated."""


def hop_pairs(
    adjacency: sp.csr_matrix,
    hops: int,
    *,
    within: bool = False,
    limit: int = 0,
    draw: np.random.Generator | None = None,
) -> list[Pairs]:
    """Neighbours of every node at 1, 2, … hops.

    Args:
        adjacency: [n, n], row v names the neighbours of v; weights are ignored.
        hops: The largest distance L.
        within: Neighbours at hop h are the nodes at distance 1 to h; otherwise those at distance h exactly.
        limit: From hop 2 on, at most so many neighbours of a node, drawn without replacement; 0 for all.
        draw: Source of these draws; needed where ``most`` is set.

    Returns:
        Pairs (v, j), v ≠ j, per hop 1 to L.

    Raises:
        ConfigError: All neighbours are wanted, and there are more pairs than fit in memory.

    With more than ``_ENUMERATED`` nodes they are drawn without ever being listed: the same distribution, other draws.

    Example:
        >>> path = sp.csr_matrix(np.eye(3, k=1) + np.eye(3, k=-1))
        >>> [(v.tolist(), j.tolist()) for v, j in hop_pairs(path, 2)]
        [([0, 1, 1, 2], [1, 0, 2, 1]), ([0, 2], [2, 0])]
    """
    pattern = sp.csr_matrix(adjacency, dtype=np.float32)
    pattern.data = np.ones_like(pattern.data)
    if pattern.shape[0] > _ENUMERATED and hops > 1:
        if limit and draw is not None:
            return reach.draw_pairs(pattern, hops, within=within, limit=limit, draw=draw)
        pairs = reach.count_pairs(pattern, hops, within=within)
        if pairs > _MAX_PAIRS:
            raise ConfigError(
                f"method.max_neighbours=0 keeps all {pairs:.3g} pairs of nodes at 2 to {hops} hops in a silo of "
                f"{pattern.shape[0]} nodes, which takes {16e-9 * pairs:.0f} GB; set method.max_neighbours (32), or "
                f"fewer method.hops."
            )
    return _enumerate(pattern, hops, within, limit, draw)


def _enumerate(
    pattern: sp.csr_matrix, hops: int, within: bool, limit: int, draw: np.random.Generator | None
) -> list[Pairs]:
    """Lists every pair, then draws from them."""
    n = pattern.shape[0]
    parts: list[list[Pairs]] = [[] for _ in range(hops)]
    # Rows are taken in blocks, so that the many pairs at distance 2 and 3 are never all in memory.
    step = max(1, _BLOCK // max(n, 1))
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        itself = sp.csr_matrix((np.ones(len(rows), np.float32), (np.arange(len(rows)), rows)), shape=(len(rows), n))
        known = frontier = itself
        for hop in range(hops):
            reached = (frontier @ pattern).tocsr()
            reached.data = np.ones_like(reached.data)
            frontier = (reached - reached.multiply(known)).tocsr()
            frontier.eliminate_zeros()
            known = known + frontier
            wanted = sp.csr_matrix(known - itself if within else frontier)
            wanted.eliminate_zeros()
            wanted.sort_indices()
            pairs = np.repeat(rows, np.diff(wanted.indptr)), wanted.indices.astype(np.int64)
            parts[hop].append(sample_pairs(pairs, limit, draw) if limit and hop else pairs)
    return list(map(_join_blocks, parts))


def _join_blocks(parts: Sequence[Pairs]) -> Pairs:
    """Pairs of several blocks of items, one after the other."""
    none = np.empty(0, dtype=np.int64)
    return np.concatenate([none, *(v for v, _ in parts)]), np.concatenate([none, *(j for _, j in parts)])


def sample_pairs(pairs: Pairs, limit: int, draw: np.random.Generator | None) -> Pairs:
    """At most so many neighbours of each item, drawn uniformly without replacement, in the old order.

    Args:
        pairs: Sorted by v.
        limit: How many neighbours an item may keep.
        draw: Source of the draws.

    Raises:
        ValueError: There is something to draw and no source.
    """
    items, neighbours = pairs
    starts = np.flatnonzero(np.diff(items, prepend=UNKNOWN))
    sizes = np.diff(starts, append=len(items))
    if not len(sizes) or sizes.max() <= limit:
        return pairs
    if draw is None:
        raise ValueError("drawing neighbours needs a generator")
    order = np.lexsort((draw.random(len(items)), items))
    rank = np.empty(len(items), dtype=np.int64)
    rank[order] = np.arange(len(items)) - np.repeat(starts, sizes)
    keep = rank < limit
    return items[keep], neighbours[keep]


def similar_pairs(
    embeddings: NDArray[np.float32],
    labels: NDArray[np.int64],
    thresholds: Sequence[float],
    *,
    limit: int = 0,
    draw: np.random.Generator | None = None,
) -> list[Pairs]:
    """Neighbours among graphs: those of the same class whose embeddings point the same way.

    Args:
        embeddings: [g, p].
        labels: [g] annotated class, -1 for none.
        thresholds: τ_h for h = 1, 2, …: smallest cosine of a neighbour at hop h.
        limit: At most so many neighbours per graph and hop, drawn without replacement; 0 for all.
        draw: Source of these draws.

    Returns:
        Pairs (v, j), v ≠ j, per threshold. An embedding of length 0 is similar to nothing.
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = np.divide(embeddings, lengths, out=np.zeros_like(embeddings), where=lengths > 0)
    usable = (labels != UNKNOWN) & (lengths[:, 0] > 0)
    n = len(labels)
    parts: list[list[Pairs]] = [[] for _ in thresholds]
    step = max(1, _BLOCK // max(n, 1))
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        cosine = unit[rows] @ unit.T
        allowed = (labels[rows, None] == labels[None]) & usable[rows, None] & usable[None]
        allowed[np.arange(len(rows)), rows] = False
        for hop, threshold in enumerate(thresholds):
            v, j = np.nonzero(allowed & (cosine >= threshold))
            pairs = rows[v], j.astype(np.int64)
            parts[hop].append(sample_pairs(pairs, limit, draw) if limit else pairs)
    return list(map(_join_blocks, parts))


def annotate(
    probabilities: Tensor, items: NDArray[np.int64], labels: NDArray[np.int64], *, confidence: float | None
) -> NDArray[np.int64]:
    """The class each item counts for: its label where it may be learned from, else what the model predicts.

    Args:
        probabilities: [n, C] soft labels.
        items: Training items.
        labels: [len(items)] their labels; -1 where unknown. No other label is looked at.
        confidence: Smallest probability of a prediction that counts; None to leave all predictions out.

    Returns:
        [n] classes, -1 for an item that counts for none.
    """
    best, found = probabilities.max(1)
    classes = found.cpu().numpy()
    classes = np.full_like(classes, UNKNOWN) if confidence is None else classes
    if confidence:
        classes[(best < confidence).cpu().numpy()] = UNKNOWN
    known = labels >= 0
    classes[items[known]] = labels[known]
    return classes


class Membership:
    """Which items make up each prototype; fixed between two uploads.

    Args:
        labels: [n] annotated classes, -1 for none.
        pairs: Neighbours per hop 1 to L; only pairs of one annotated class are kept.
        num_classes: C.
        device: Where prototypes are computed.

    Attributes:
        counts: [C] annotated items per class.
        present: [C, L + 1] whether there is such a prototype.
    """

    def __init__(
        self, labels: NDArray[np.int64], pairs: Sequence[Pairs], num_classes: int, device: torch.device | str = "cpu"
    ):
        self.labels, self.num_classes, self.levels = labels, num_classes, len(pairs) + 1
        self.device = torch.device(device)
        annotated = labels != UNKNOWN
        self.pairs: list[Pairs] = []
        for v, j in pairs:
            same = (labels[v] == labels[j]) & annotated[v]
            self.pairs.append((v[same], j[same]))
        self.counts: NDArray[np.int64] = np.bincount(labels[annotated], minlength=num_classes)
        # Per hop, the items that have a neighbour of their class, and how many.
        self._neighbours = [np.bincount(v, minlength=len(labels)) for v, _ in self.pairs]
        members = [np.bincount(labels[sizes > 0], minlength=num_classes) for sizes in self._neighbours]
        self._members: NDArray[np.int64] = np.stack([self.counts, *members], axis=1)
        self.present: NDArray[np.bool_] = self._members > 0
        self._operator: SparseOperator | None = None
        self._tensors: tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]] | None = None

    @property
    def mask(self) -> Tensor:
        """``present`` as a tensor."""
        return torch.from_numpy(self.present).to(self.device)

    def mean_operator(self) -> SparseOperator:
        """[C (L + 1), n]: all prototypes with equally weighted neighbours, as one product with the embeddings.

        Row (c, 0) is 1 / n_c over the items of class c. In row (c, h) item j counts Σ_v 1 / (d_v m) over the items v
        it is a neighbour of, d_v being v's neighbours of its class and m the items of class c that have any.
        """
        if self._operator is None:
            n, levels = len(self.labels), self.levels
            weights = np.zeros((levels, n))
            weights[0] = self.labels != UNKNOWN
            for hop, ((v, j), sizes) in enumerate(zip(self.pairs, self._neighbours, strict=True), start=1):
                weights[hop] = np.bincount(j, 1.0 / sizes[v], minlength=n)
            hop_of, item = np.nonzero(weights)
            classes = self.labels[item]
            values = weights[hop_of, item] / self._members[classes, hop_of]
            matrix = sp.csr_matrix(
                (values.astype(np.float32), (classes * levels + hop_of, item)), shape=(self.num_classes * levels, n)
            )
            self._operator = SparseOperator(matrix, device=self.device)
        return self._operator

    def prototypes(self, embeddings: Tensor, scorer: Scorer | None = None) -> Tensor:
        """[C, L + 1, p] from embeddings [n, p], differentiable in them and in the scorer; rows of 0 where absent."""
        shape = (self.num_classes, self.levels, embeddings.shape[1])
        if scorer is None or self.levels == 1:
            return (self.mean_operator() @ embeddings).view(shape)
        labels, sizes, pairs = self._indices()
        counted = (labels >= 0).to(embeddings.dtype)
        weights = [counted]
        for v, j in pairs:
            attention = scatter_softmax(scorer(embeddings, v, j), v, len(labels))
            weights.append(torch.zeros_like(counted).index_add_(0, j, attention))
        # A neighbour has the class of the item, so that its total weight says how often it enters that class's row.
        rows = labels.clamp_min(0)
        columns = [
            embeddings.new_zeros(shape[0], shape[2]).index_add_(0, rows, weight.unsqueeze(1) * embeddings)
            for weight in weights
        ]
        return torch.stack(columns, dim=1) / sizes.clamp_min(1).to(embeddings.dtype).unsqueeze(-1)

    def _indices(self) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        if self._tensors is None:
            self._tensors = (
                torch.from_numpy(self.labels).to(self.device),
                torch.from_numpy(self._members).to(self.device),
                [(torch.from_numpy(v).to(self.device), torch.from_numpy(j).to(self.device)) for v, j in self.pairs],
            )
        return self._tensors

    def restrict(self, items: NDArray[np.int64]) -> Membership:
        """The same among some of the items alone, numbered as in ``items``: the prototypes of a batch."""
        place = np.full(len(self.labels), UNKNOWN, dtype=np.int64)
        place[items] = np.arange(len(items))
        pairs = [(place[v], place[j]) for v, j in self.pairs]
        inside = [(v >= 0) & (j >= 0) for v, j in pairs]
        kept = [(v[both], j[both]) for (v, j), both in zip(pairs, inside, strict=True)]
        return Membership(self.labels[items], kept, self.num_classes, self.device)


class Scorer(nn.Module):
    """δ(score) of a pair: Linear(2p → p/2), LeakyReLU, Linear(→ 1) on [f(x_v) ‖ f(x_j)], then δ = LeakyReLU(0.2).

    The first layer's two halves are kept apart, so that they are applied to items instead of pairs.
    """

    def __init__(self, width: int):
        super().__init__()
        inner = max(1, width // 2)
        self.item, self.neighbour = Dense(width, inner), Dense(width, inner, bias=False)
        self.output = Dense(inner, 1)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights."""
        for layer in (self.item, self.neighbour, self.output):
            layer.initialise(generator)

    def forward(self, embeddings: Tensor, items: Tensor, neighbours: Tensor) -> Tensor:
        """[pairs] from embeddings [n, p] and the two ends of each pair."""
        hidden = self.item(embeddings).index_select(0, items)
        hidden = F.leaky_relu(hidden + self.neighbour(embeddings).index_select(0, neighbours))
        scores: Tensor = F.leaky_relu(self.output(hidden).squeeze(1), 0.2)
        return scores


def scatter_softmax(scores: Tensor, groups: Tensor, count: int) -> Tensor:
    """Softmax over the entries of each group; [pairs] scores and group numbers below ``count``.

    Example:
        >>> scatter_softmax(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 1]), 2).tolist()
        [0.5, 0.5, 1.0]
    """
    with torch.no_grad():
        largest = scores.new_full((count,), -torch.inf).scatter_reduce(0, groups, scores, "amax")
    weights = (scores - largest.index_select(0, groups)).exp()
    total = torch.zeros_like(largest).index_add(0, groups, weights)
    return weights / total.index_select(0, groups)


def centre(prototypes: Tensor, present: Tensor) -> Tensor:
    """Each hop's prototypes minus their mean over the classes that are there; rows of 0 stay where none is.

    Args:
        prototypes: [..., C, L + 1, p], 0 where absent.
        present: [..., C, L + 1].
    """
    there = present.unsqueeze(-1).to(prototypes.dtype)
    mean = (prototypes * there).sum(-3, keepdim=True) / there.sum(-3, keepdim=True).clamp_min(1.0)
    return (prototypes - mean) * there


def alignment(
    prototypes: Tensor, targets: Tensor, present: Tensor, *, reduction: Reduction, centred: bool = False
) -> tuple[Tensor, Tensor]:
    """How far prototypes are from their targets, and the gradient of this.

    Args:
        prototypes, targets: [C, L + 1, p].
        present: [C, L + 1] the pairs that both sides have.
        reduction: ``norm_sum``: Σ ‖P − Ṗ‖, the paper's. ``squared_mean``: mean of (P − Ṗ)² over pairs and
            dimensions.
        centred: Compare positions relative to the mean over the classes present, at each hop: where all classes lie
            together then costs nothing.

    Returns:
        The loss, and its gradient for ``prototypes`` [C, L + 1, p]: 0 for absent pairs, and where P = Ṗ.
    """
    difference = (prototypes - targets) * present.unsqueeze(-1).to(prototypes.dtype)
    if centred:
        difference = centre(difference, present)
    if reduction == "norm_sum":
        lengths = difference.norm(dim=-1, keepdim=True)
        gradient = difference / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
        # Centring is a symmetric projection, hence its own transpose.
        return lengths.sum(), centre(gradient, present) if centred else gradient
    share = 1.0 / max(int(present.sum()) * prototypes.shape[-1], 1)
    return difference.square().sum() * share, difference * (2.0 * share)  # centred already


def add_noise(prototypes: Tensor, present: Tensor, share: float, scale: float, draw: torch.Generator) -> Tensor:
    """Gaussian noise on a random share of the dimensions, the same ones for all prototypes.

    Args:
        prototypes: [C, L + 1, p].
        present: [C, L + 1]; absent rows stay 0.
        share: Of the p dimensions, rounded.
        scale: Standard deviation, in root mean squares of the present entries.
        draw: Source of dimensions and noise.
    """
    width = prototypes.shape[-1]
    count = round(share * width)
    if count == 0 or not bool(present.any()):
        return prototypes
    dimensions = torch.randperm(width, generator=draw)[:count].to(prototypes.device)
    noise = torch.randn((*prototypes.shape[:-1], count), generator=draw).to(prototypes)
    spread = prototypes[present].square().mean().sqrt() * scale
    there = present.unsqueeze(-1).to(prototypes.dtype)
    return prototypes.index_add(-1, dimensions, noise * spread * there)
