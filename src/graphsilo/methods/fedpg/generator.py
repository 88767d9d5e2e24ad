"""FedPG at the server: universal prototypes from a small generator, and each client's own mixture of prototypes.

Rows of universal prototypes are numbered r = c (L + 1) + h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphsilo.training.losses import info_nce
from graphsilo.training.prototypes import class_means, unit_rows

if TYPE_CHECKING:
    from graphsilo.methods.fedpg.config import FedPGConfig

Discrepancy: TypeAlias = Literal["one_minus_cosine", "cosine"]

_TINY = 1e-12


class Queries(NamedTuple):
    """What the generator learns from in one round: for each hop up to q of the m uploaded prototypes.

    Attributes:
        values: [m, p] uploaded prototypes, as unit vectors.
        served: [L + 1, q, p] those that serve at each hop, any vectors behind them.
        candidates: [L + 1, 1, q] which do serve.
        positive: [L + 1, C, q] which of them each row is drawn to, none for a row that does not learn; from the others
            it is pushed.
        shift: What the margin adds to the similarity of positives: ∓M.
        margin: M.
    """

    values: Tensor
    served: Tensor
    candidates: Tensor
    positive: Tensor
    shift: float
    margin: float


def choose_queries(
    classes: Tensor, hops: Tensor, shape: tuple[int, int], share: float, draw: torch.Generator
) -> Tensor:
    """Which uploaded prototypes serve at each hop: those of that hop, and some of other hops.

    For every class the number drawn from other hops is ``share`` times the number at the hop itself, rounded half up,
    or all where there are fewer.

    Args:
        classes, hops: [m] of each upload.
        shape: (C, L + 1).
        share: Δs, from 0 to 1.
        draw: Source of the choice.

    Returns:
        [L + 1, m] booleans.
    """
    num_classes, levels = shape
    same = hops.unsqueeze(0) == torch.arange(levels, device=hops.device).unsqueeze(1)
    if share == 0.0 or levels == 1 or len(hops) == 0:
        return same
    one_hot = torch.zeros(len(classes), num_classes, device=classes.device)
    one_hot[torch.arange(len(classes), device=classes.device), classes] = 1.0
    quota = torch.floor(share * (same.to(one_hot.dtype) @ one_hot) + 0.5).long()
    # Sorted by class, and within a class by a random key that puts the hop's own prototypes last.
    keys = torch.rand(same.shape, generator=draw, dtype=torch.float64).to(same.device).masked_fill_(same, 1.0)
    order = (classes.unsqueeze(0) + 0.5 * keys).argsort(dim=1, stable=True)
    totals = one_hot.sum(0).long()
    starts = totals.cumsum(0) - totals
    place = torch.arange(len(classes), device=classes.device).expand(levels, -1)
    rank = torch.empty_like(order).scatter_(1, order, place) - starts[classes]
    return same | (rank < quota[:, classes])


def margin_between(values: Tensor, classes: Tensor, num_classes: int, *, limit: float, by: Discrepancy) -> float:
    """M = min(largest discrepancy between the centres of two classes, ε).

    Args:
        values: [m, p] uploaded prototypes.
        classes: [m] theirs.
        num_classes: C.
        limit: ε; 0 switches the margin off.
        by: ``one_minus_cosine``, or ``cosine`` as printed.

    Returns:
        M; 0 with fewer than two classes.
    """
    centres, counts = class_means(values, classes, num_classes)
    there = counts > 0
    if limit == 0.0 or int(there.sum()) < 2:
        return 0.0
    unit = unit_rows(centres[there])
    cosine = unit @ unit.t()
    discrepancy = 1.0 - cosine if by == "one_minus_cosine" else cosine
    apart = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    return min(float(discrepancy[apart].max()), limit)


def make_queries(prototypes: Tensor, present: Tensor, config: FedPGConfig, draw: torch.Generator) -> Queries:
    """Query sets and margin of a round.

    Args:
        prototypes: [K, C, L + 1, p] of all clients.
        present: [K, C, L + 1].
        config: ``hop_share`` is Δs, ``margin`` ε; its sign and the discrepancy between class centres are used, too.
        draw: Source of the choice of queries.
    """
    _, num_classes, levels, _ = prototypes.shape
    _, classes, hops = present.nonzero(as_tuple=True)
    values = prototypes[present]
    chosen = choose_queries(classes, hops, (num_classes, levels), config.hop_share, draw)
    margin = margin_between(values, classes, num_classes, limit=config.margin, by=config.discrepancy)
    order = chosen.int().argsort(dim=1, descending=True, stable=True)[:, : int(chosen.sum(1).max())]
    candidates, units = chosen.gather(1, order).unsqueeze(1), unit_rows(values)
    # A row without a prototype of its own class and hop has nothing to learn, even if other hops lend it some.
    alive = present.any(0).t().unsqueeze(2)
    own = classes[order].unsqueeze(1) == torch.arange(num_classes, device=classes.device).unsqueeze(1)
    shift = -margin if config.margin_sign == "minus" else margin
    return Queries(units, units[order], candidates, own & candidates & alive, shift, margin)


def contrastive_loss(universal: Tensor, queries: Queries, temperature: float = 1.0) -> Tensor:
    """Mean over rows of −log [Σ_pos e^{(D+s)/T} / (Σ_pos e^{(D+s)/T} + Σ_neg e^{D/T})].

    D is the cosine of a universal prototype and an uploaded one, s the margin's shift.

    Args:
        universal: [R, p] generated prototypes.
        queries: What they are compared with.
        temperature: T.
    """
    unit = universal / universal.norm(dim=1, keepdim=True).clamp_min(_TINY)
    positive, candidates = queries.positive, queries.candidates
    cosines = unit.unflatten(0, (-1, len(positive))).transpose(0, 1) @ queries.served.mT
    losses = info_nce((cosines + queries.shift * positive) / temperature, positive, candidates)
    return losses.sum() / positive.any(2).sum()


def client_similarity(prototypes: Tensor, present: Tensor) -> Tensor:
    """[K, K] cosines of the clients' prototypes over the (class, hop) pairs that both have, laid end to end.

    Args:
        prototypes: [K, C, L + 1, p], 0 where absent.
        present: [K, C, L + 1].

    Returns:
        1 on the diagonal, 0 for two clients that share no class.
    """
    clients = len(prototypes)
    flat, there = prototypes.reshape(clients, -1), present.reshape(clients, -1).to(prototypes.dtype)
    squares = prototypes.square().sum(-1).reshape(clients, -1) @ there.t()
    lengths = (squares * squares.t()).sqrt()
    cosine = torch.where(lengths > 0, (flat @ flat.t()) / lengths.clamp_min(_TINY), 0.0)
    return cosine.fill_diagonal_(1.0)


def personalise(
    prototypes: Tensor,
    present: Tensor,
    counts: Tensor,
    universal: Tensor,
    *,
    alpha: float,
    threshold: float,
) -> tuple[Tensor, Tensor]:
    """Ṗ_i = α P̃ + (1 − α) Σ_j n_j P_j / Σ_j n_j over the clients j similar to i, i itself included.

    n_j counts the items of the class in question; j counts where it has that class at that hop.

    Args:
        prototypes: [K, C, L + 1, p], 0 where absent.
        present: [K, C, L + 1].
        counts: [K, C] items behind each class.
        universal: P̃ [C, L + 1, p].
        alpha: α.
        threshold: λ, the smallest cosine of a similar client.

    Returns:
        Ṗ [K, C, L + 1, p], 0 where i has no such prototype itself, and the [K, K] booleans of who is similar to whom.
    """
    similar = client_similarity(prototypes, present) >= threshold
    similar.fill_diagonal_(True)
    shape = prototypes.shape
    weights = counts.to(prototypes.dtype).unsqueeze(-1) * present.to(prototypes.dtype)
    members = similar.to(prototypes.dtype)
    sums = (members @ (weights.unsqueeze(-1) * prototypes).reshape(shape[0], -1)).view(shape)
    total = (members @ weights.reshape(shape[0], -1)).view(shape[:-1])
    mixed = alpha * universal + (1.0 - alpha) * sums / total.clamp_min(_TINY).unsqueeze(-1)
    return mixed * present.unsqueeze(-1).to(prototypes.dtype), similar
