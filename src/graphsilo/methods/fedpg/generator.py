"""FedPG at the server: universal prototypes from a small generator, and each client's own mixture of prototypes.

Everything runs over all (class, hop) pairs at once: rows r = c (L + 1) + h. With R = C (L + 1) rows, m uploaded
prototypes and width p, a step of the generator is a handful of products of [R, p], [p, p] and [R, m] matrices; its
gradient is written out, as autograd's bookkeeping would cost several times the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch import Tensor

from graphsilo.training.prototypes import class_means, unit_rows

if TYPE_CHECKING:
    from graphsilo.methods.fedpg.config import FedPGConfig

Discrepancy: TypeAlias = Literal["one_minus_cosine", "cosine"]

_TINY = 1e-12
_MASKED = 1 << 22
"""Most pairs of a row and an upload that are compared with masks over all of them."""


@dataclass(frozen=True)
class Queries:
    """What the generator learns from in one round.

    Attributes:
        values: [m, p] uploaded prototypes, as unit vectors.
        positive, negative: [R, m] which of them each row is drawn to, and which it is pushed from.
        shift: What the margin adds to the similarity of positives: ∓M.
        margin: M.
    """

    values: Tensor
    positive: Tensor
    negative: Tensor
    shift: float
    margin: float


@dataclass(frozen=True)
class HopQueries:
    """What the rows of one hop learn from.

    Attributes:
        values: [m_h, p] unit vectors.
        classes: [m_h] theirs.
        alive: [C] the rows that learn.
    """

    values: Tensor
    classes: Tensor
    alive: Tensor


@dataclass(frozen=True)
class SplitQueries:
    """The same hop by hop, for many clients: no [R, m] matrix, most of whose entries no row would use.

    Attributes:
        values, shift, margin: As in ``Queries``.
        hops: L + 1 of them.
        rows: How many rows learn.
    """

    values: Tensor
    hops: list[HopQueries]
    rows: int
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


def make_queries(
    prototypes: Tensor, present: Tensor, config: FedPGConfig, draw: torch.Generator
) -> Queries | SplitQueries:
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
    shift = -margin if config.margin_sign == "minus" else margin
    if num_classes * levels * len(values) > _MASKED:
        return _split(unit_rows(values), classes, chosen, present, shift, margin)
    mine = classes.unsqueeze(0) == torch.arange(num_classes, device=classes.device).unsqueeze(1)
    positive = (mine.unsqueeze(1) & chosen.unsqueeze(0)).flatten(0, 1)
    negative = (~mine.unsqueeze(1) & chosen.unsqueeze(0)).flatten(0, 1)
    # A row without a prototype of its own class and hop has nothing to learn, even if other hops lend it some.
    alive = present.any(0).flatten().unsqueeze(1)
    return Queries(unit_rows(values), positive & alive, negative & alive, shift, margin)


def _split(
    values: Tensor, classes: Tensor, chosen: Tensor, present: Tensor, shift: float, margin: float
) -> SplitQueries:
    alive = present.any(0)
    hops = [HopQueries(values[mine], classes[mine], alive[:, level]) for level, mine in enumerate(chosen)]
    return SplitQueries(values, hops, max(int(alive.sum()), 1), shift, margin)


def contrastive_loss(
    universal: Tensor, queries: Queries | SplitQueries, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Mean over rows of −log [Σ_pos e^{(D+s)/T} / (Σ_pos e^{(D+s)/T} + Σ_neg e^{D/T})], and its gradient.

    D is the cosine of a universal prototype and an uploaded one, s the margin's shift. Each term is
    softplus(lse_neg − lse_pos − s/T). Rows without positives are left out, rows without negatives are 0.

    Args:
        universal: [R, p] generated prototypes.
        queries: What they are compared with.
        temperature: T.

    Returns:
        The loss, and its gradient for ``universal`` [R, p].
    """
    lengths = universal.norm(dim=1, keepdim=True).clamp_min(_TINY)
    unit = universal / lengths
    if isinstance(queries, SplitQueries):
        loss, pull = _split_loss(unit, queries, temperature)
        return loss, (pull - unit * (pull * unit).sum(1, keepdim=True)) / lengths
    # Shifted by the largest cosine there is, so that no exponential overflows.
    scores = ((unit @ queries.values.t() - 1.0) / temperature).exp_()
    positive, negative = scores * queries.positive, scores * queries.negative
    attracted, repelled = positive.sum(1), negative.sum(1)
    used = repelled > 0  # a row without positives has no negatives either
    # At a small T these sums lie far below 1: only 0 itself is kept out of the denominators.
    tiny = torch.finfo(scores.dtype).tiny
    ratio = torch.where(used, repelled, 0.0) / attracted.clamp_min(tiny) * math.exp(-queries.shift / temperature)
    rows = max(int(queries.positive.any(1).sum()), 1)
    loss = ratio.log1p().sum() / rows
    force = ratio / (1.0 + ratio) / (temperature * rows)
    negative *= (force / repelled.clamp_min(tiny)).unsqueeze(1)
    negative -= positive * (force / attracted.clamp_min(tiny)).unsqueeze(1)
    pull = negative @ queries.values
    return loss, (pull - unit * (pull * unit).sum(1, keepdim=True)) / lengths


def _split_loss(unit: Tensor, queries: SplitQueries, temperature: float) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient for unit rows, one hop after the other."""
    tiny, levels = torch.finfo(unit.dtype).tiny, len(queries.hops)
    loss, pull = unit.new_zeros(()), torch.zeros_like(unit)
    for level, hop in enumerate(queries.hops):
        scores = torch.mm(unit[level::levels], hop.values.t()).sub_(1.0).div_(temperature).exp_()
        own = hop.classes.unsqueeze(0)
        near = scores.gather(0, own)
        scores.scatter_(0, own, 0.0)  # a class is pushed from the others alone
        attracted = scores.new_zeros(len(scores)).index_add_(0, hop.classes, near[0])
        repelled = scores.sum(1)
        used = (repelled > 0) & hop.alive
        ratio = torch.where(used, repelled, 0.0) / attracted.clamp_min(tiny) * math.exp(-queries.shift / temperature)
        loss = loss + ratio.log1p().sum() / queries.rows
        force = ratio / (1.0 + ratio) / (temperature * queries.rows)
        towards = torch.zeros_like(pull[level::levels]).index_add_(0, hop.classes, near.t() * hop.values)
        away = torch.mm(scores, hop.values)
        pull[level::levels] = away * (force / repelled.clamp_min(tiny)).unsqueeze(1)
        pull[level::levels] -= towards * (force / attracted.clamp_min(tiny)).unsqueeze(1)
    return loss, pull


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
