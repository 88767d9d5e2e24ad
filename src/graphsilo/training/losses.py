"""Losses that methods train with, as their formulas say, differentiated by autograd.

Each gives a value per item, [b], so that whoever calls it takes the mean, weighs items or leaves some out. Gradients
that a method writes out for speed are tested against these.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def kd(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """T² KL(p ‖ q), p and q being the softmax of the teacher's and the student's logits over T.

    Args:
        student, teacher: [b, C] logits; no gradient goes to the teacher.
        temperature: T.

    Source: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015.
    """
    return divergence(student, teacher.detach(), temperature=temperature)


def divergence(student: Tensor, teacher: Tensor, *, temperature: float = 1.0) -> Tensor:
    """``kd`` with a gradient for the teacher, too."""
    log_q = F.log_softmax(student / temperature, dim=1)
    log_p = F.log_softmax(teacher / temperature, dim=1)
    return temperature**2 * F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1)


def not_true_kd(student: Tensor, teacher: Tensor, labels: Tensor, *, temperature: float = 1.0) -> Tensor:
    """``kd`` over all classes but each item's own; 0 with two classes.

    Source: Lee et al., "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning", NeurIPS
    2022.
    """
    others = F.one_hot(labels, student.shape[1]) == 0
    rows = len(student), student.shape[1] - 1
    return kd(student[others].view(rows), teacher[others].view(rows), temperature=temperature)


def focal(logits: Tensor, labels: Tensor, *, gamma: float, class_weights: Tensor | None = None) -> Tensor:
    """−α_y (1 − p_y)^γ log p_y, softmax form; the factor has a gradient, too.

    Args:
        logits: [b, C].
        labels: [b].
        gamma: γ; 0 is cross-entropy.
        class_weights: [C] α; 1 where None.

    Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017.
    """
    log_true = F.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1)
    each = -(-torch.expm1(log_true)).clamp_min(1e-6).pow(gamma) * log_true
    return each if class_weights is None else class_weights[labels] * each


def sigmoid_focal(logits: Tensor, labels: Tensor, *, gamma: float, class_weights: Tensor | None = None) -> Tensor:
    """−α_y Σ_c (1 − p_c)^γ log p_c, one against the rest: p_c is σ(z_c) for the item's class and σ(−z_c) for others.

    Args:
        logits, labels, gamma, class_weights: As in ``focal``; every summand has the factor of the item's own class.

    Source: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; summed over classes as in the code of Chen
    et al., "Topology-Imbalance Learning for Semi-Supervised Node Classification", NeurIPS 2021.
    """
    turned = torch.where(F.one_hot(labels, logits.shape[1]) == 1, logits, -logits)
    each = -(torch.sigmoid(-turned).clamp_min(1e-6).pow(gamma) * F.logsigmoid(turned)).sum(1)
    return each if class_weights is None else class_weights[labels] * each


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of (z − y)² over an item's known targets.

    Args:
        outputs: [b, m] z.
        targets: [b, m] y, NaN where one is not known.
    """
    return _mean_over_known(targets, (outputs - targets.nan_to_num()).square())


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of |z − y|; otherwise as ``squared``."""
    return _mean_over_known(targets, (outputs - targets.nan_to_num()).abs())


def huber(outputs: Tensor, targets: Tensor, *, delta: float) -> Tensor:
    """Mean of ½ e² where |e| ≤ δ and δ (|e| − ½ δ) beyond, e = z − y; otherwise as ``squared``.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964.
    """
    return _mean_over_known(targets, F.huber_loss(outputs, targets.nan_to_num(), reduction="none", delta=delta))


def binary_focal(outputs: Tensor, targets: Tensor, *, gamma: float) -> Tensor:
    """Mean of −(1 − p)^γ log p over an item's known labels, p being σ(z) of a label that it has, else σ(−z).

    Args:
        outputs, targets: As of ``squared``; targets 1 or 0.
        gamma: γ; 0 is cross-entropy.
    """
    turned = torch.where(targets == 1, outputs, -outputs)
    each = -F.logsigmoid(turned)
    return _mean_over_known(targets, each if gamma == 0 else torch.sigmoid(-turned).clamp_min(1e-6).pow(gamma) * each)


def _mean_over_known(targets: Tensor, each: Tensor) -> Tensor:
    known = ~targets.isnan()
    return torch.where(known, each, 0.0).sum(1) / known.sum(1).clamp_min(1)


def class_factors(counts: Tensor, how: Literal["inverse", "effective"], *, beta: float = 0.9999) -> Tensor:
    """[C] α by how many items a class has, [C]; 0 for a class without any.

    Args:
        counts: n_c.
        how: ``inverse``, mean(n) / n_c over classes that are there; ``effective``, (1 − β) / (1 − β^n_c), scaled to a
            mean of 1 over these.
        beta: β.

    Source: Cui et al., "Class-Balanced Loss Based on Effective Number of Samples", CVPR 2019, for ``effective``.
    """
    present = counts > 0
    n = counts[present].double()
    found = n.mean() / n if how == "inverse" else -1.0 / torch.expm1(n * math.log(beta))
    factors = torch.zeros(len(counts), dtype=torch.float64, device=counts.device)
    factors[present] = found if how == "inverse" else found / found.mean()
    return factors.float()


def calibrated_cross_entropy(logits: Tensor, labels: Tensor, prior: Tensor, *, smallest: float = 1e-9) -> Tensor:
    """−log(π_y e^{z_y} / Σ_c π_c e^{z_c}): classes count in the denominator as often as there are items of them.

    Args:
        logits: [b, C].
        labels: [b].
        prior: [C] shares π of the classes in the training data.
        smallest: Added to them, for classes that are not there.

    Source: Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022.
    """
    return F.cross_entropy(logits + (prior + smallest).log(), labels, reduction="none")


def info_nce(scores: Tensor, positive: Tensor, candidates: Tensor | None = None) -> Tensor:
    """−log(Σ_positive e^s / Σ_candidates e^s) [...]; 0 for an item without positives.

    Args:
        scores: [..., m] similarities over a temperature.
        positive: [..., m] booleans, what an item is drawn to.
        candidates: [..., m] booleans, what it is compared with, positives included; None for all.

    Source: van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018, with any
    number of positives.
    """
    known = scores if candidates is None else scores.masked_fill(~candidates, -torch.inf)
    near = scores.masked_fill(~positive, -torch.inf)
    return (known.logsumexp(-1) - near.logsumexp(-1)).masked_fill(~positive.any(-1), 0.0)


def prototype_mse(rows: Tensor, labels: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Mean over entries of (row − prototype of its class)²; 0 for an item whose class has none.

    Args:
        rows: [b, p].
        labels: [b].
        prototypes: [C, p]; no gradient goes there.
        present: [C] booleans.
    """
    return (rows - prototypes.detach()[labels]).square().mean(1) * present[labels]


def likeness(noise: Tensor, made: Tensor) -> Tensor:
    """exp(− mean_ij mean_d (ε_i − ε_j)² · mean_d |x_i − x_j|): 1 for rows that are all alike, whatever their noise.

    Args:
        noise: [n, noise_dim] ε.
        made: [n, d] x, what a generator makes of it.

    Source: Zhu, Hong and Zhou, "Data-Free Knowledge Distillation for Heterogeneous Federated Learning", ICML 2021.
    """
    far = torch.cdist(noise, noise).square() / noise.shape[1]
    apart = torch.cdist(made, made, p=1.0) / made.shape[1]
    return torch.exp(-(far * apart).mean())
