"""What FedLoG's clients tell of their classes, and how the server mixes it: by class, weighted by how frequent it is.

Kim et al., "Subgraph Federated Learning for Local Generalization", ICLR 2025, section 4 and appendix.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_SOMETHING = 1e-12
"""Least weight of a client in a class: where nobody has the class, all count alike."""
_KNOWN = 1e-9
"""A class weighs more than this in a round where somebody has it."""
_RARE = 1e-3
"""ε of the tail-class weights 1 / (r + ε)."""


# -- at a client -------------------------------------------------------------------------------------------------------


def class_rates(counts: Tensor, total: int, draw: torch.Generator, *, noise: float, permuted: bool) -> Tensor:
    """[C] share of each class, as the others may learn it.

    Args:
        counts: [C] training nodes of each class; with noise perhaps below 0, which counts as 0.
        total: How many there are.
        draw: Of noise and permutation.
        noise: a: each rate is off by N(0, (a·r)²), and at least 0.
        permuted: Shuffle them among the head and among the tail classes.
    """
    classes = len(counts)
    rates = counts.double().clamp(min=0.0) / max(total, 1)
    if noise:
        error = torch.randn(classes, generator=draw, dtype=torch.float64)
        rates = (rates * (1.0 + noise * error)).clamp_(min=0.0)
    if permuted:
        frequent = rates >= 1.0 / classes
        for group in (frequent, ~frequent):
            places = group.nonzero()[:, 0]
            rates[places] = rates[places[torch.randperm(len(places), generator=draw)]]
    return rates


def class_weights(rates: Tensor, *, rare: bool = False) -> Tensor:
    """[C] float32 what a client counts in the mixture of each class; ``rare``: the more, the rarer it is."""
    weights = 1.0 / (rates + _RARE) if rare else rates
    return weights.clamp(min=_SOMETHING).float()


def permute(nodes: Tensor, classes: int, draw: torch.Generator) -> Tensor:
    """[s·C, d] nodes shuffled within each class."""
    each = len(nodes) // classes
    order = torch.stack([torch.randperm(each, generator=draw) for _ in range(classes)])
    order += each * torch.arange(classes)[:, None]
    return nodes[order.flatten()]


def weigh(weights: Mapping[str, Tensor], rates: Tensor) -> dict[str, Tensor]:
    """[C, ...] r^c NG for every class c: one generator's weights, times the client's rate of the class."""
    return {name: value.cpu()[None] * rates.view(-1, *[1] * value.dim()) for name, value in weights.items()}


# -- at the server -----------------------------------------------------------------------------------------------------


def mix_generators(total: Mapping[str, Tensor], rates: Tensor) -> dict[str, Tensor]:
    """NG^c = Σ_k r_k^c NG_k / Σ_k r_k^c for every class.

    Args:
        total: [C, ...] Σ_k r_k^c NG_k.
        rates: [C] Σ_k r_k^c.
    """
    mixed = {}
    for name, value in total.items():
        weight = rates.clamp(min=_SOMETHING * 1e-3).view(-1, *[1] * (value.dim() - 1))
        mixed[name] = (value / weight).float()
    return mixed


def mix_nodes(total: Tensor, rates: Tensor, old: Tensor | None) -> Tensor | None:
    """x_g^(c,i) = Σ_k r_k^c x_k^(c,i) / Σ_k r_k^c, from the two sums.

    Args:
        total: [s·C, d] Σ_k r_k^c x_k.
        rates: [C] Σ_k r_k^c.
        old: What there was; kept for classes that nobody in this round has.

    Returns:
        [s·C, d], or None as long as nobody contributes.
    """
    if not bool((rates > 0).all()):
        return old
    each = rates.repeat_interleave(len(total) // len(rates))[:, None]
    nodes = (total / each).float()
    return nodes if old is None else torch.where(each > _KNOWN, nodes, old)
