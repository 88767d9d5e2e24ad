"""FedLoG's classifiers against the paper's formulas, pair by pair, and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from graphsilo.methods.fedlog.config import FedLoGConfig
from graphsilo.methods.fedlog.layers import (
    BranchTargets,
    Classifiers,
    log_probabilities,
    negative_log_likelihood,
)
from graphsilo.training.upstream import gradients_of

WIDTH, CLASSES, EACH, COUNT = 6, 3, 4, 9


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, generator):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def classifiers_of(**settings):
    return Classifiers(FedLoGConfig(embedding_dim=WIDTH, prototypes=EACH, **settings), CLASSES)


def problem(*, interp, distance="both", interaction="full", strength=100.0):
    """Classifiers with parameters that matter, targets (one isolated) and prototypes."""
    draw = drawn()
    classifiers = classifiers_of(interp=interp, distance=distance, interaction=interaction)
    parameters = {name: value.double() for name, value in classifiers.draw(draw).items()}
    for name, value in parameters.items():
        if name.endswith("move.2.weight"):
            value *= strength
        if name.startswith("norm."):
            value += 0.3 * randn(*value.shape, generator=draw)
    own = classifiers.normalise(randn(COUNT, WIDTH, generator=draw))
    around, connected = 0.5 * randn(COUNT, WIDTH, generator=draw), torch.ones(COUNT, dtype=torch.float64)
    around[2], connected[2] = 0.0, 0.0
    embedded = randn(2, CLASSES * EACH, WIDTH, generator=draw)
    labels, trust = torch.randint(CLASSES, (COUNT,), generator=draw), randn(COUNT, generator=draw)
    return classifiers, parameters, BranchTargets(own, around, connected), embedded, labels, trust


def plainly(parameters, targets, embedded, *, distance, interaction):
    """The formulas of the paper, pair by pair."""
    logits = []
    for branch in range(2):
        part = {name: value[branch] for name, value in parameters.items()}
        scale, shift = part["norm.weight"], part["norm.bias"]
        hidden = targets.own * scale + shift
        prototypes = embedded[branch]
        if interaction == "full":
            around = targets.around * scale + targets.connected[:, None] * shift
            prototypes = prototypes * scale + shift
            for layer in ("layers.0.", "layers.1."):
                apart = (hidden[:, None] - prototypes).square().sum(2)
                if distance == "both":
                    apart = apart + (around[:, None] - prototypes).square().sum(2)
                each = [value[:, None].expand(-1, len(prototypes), -1) for value in (hidden, around)]
                value = torch.cat([*each, apart[..., None]], dim=2)
                for name in ("message.0", "message.1", "move.0", "move.1"):
                    value = F.silu(value @ part[f"{layer}{name}.weight"] + part[f"{layer}{name}.bias"])
                weight = value @ part[f"{layer}move.2.weight"]
                hidden = hidden + ((hidden[:, None] - prototypes) * weight).mean(1)
        centres = prototypes.view(CLASSES, EACH, WIDTH).mean(1)
        logits.append(-(hidden[:, None] - centres).square().sum(2))
    return torch.stack(logits)


@pytest.mark.parametrize("mixing", ["probabilities", "logarithms"])
@pytest.mark.parametrize(("distance", "interaction"), [("both", "full"), ("embedding", "full"), ("both", "inert")])
def test_all_pairs_are_the_papers_formulas(distance, interaction, mixing):
    classifiers, parameters, targets, embedded, labels, trust = problem(
        interp=0, distance=distance, interaction=interaction
    )
    logits = plainly(parameters, targets, embedded, distance=distance, interaction=interaction)
    alpha = trust.sigmoid()[:, None]
    if mixing == "probabilities":
        mixed = (alpha * logits[0].softmax(1) + (1 - alpha) * logits[1].softmax(1)).log()
    else:
        mixed = alpha * logits[0].log_softmax(1) + (1 - alpha) * logits[1].log_softmax(1)
    found = negative_log_likelihood(classifiers.logits(parameters, targets, embedded), trust, labels, mixing=mixing)
    torch.testing.assert_close(found, F.nll_loss(mixed, labels, reduction="none"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("distance", ["both", "embedding"])
def test_interpolation_agrees_with_all_pairs(distance):
    """Float64: 1e-6 on log-probabilities, gradients 1e-4 of their size; with weights of the size of training's."""
    results = []
    for interp in (0, 8):
        classifiers, parameters, targets, embedded, labels, trust = problem(
            interp=interp, distance=distance, strength=10.0
        )
        leaves = [value.requires_grad_() for value in (*parameters.values(), *targets[:2], embedded)]
        logits = classifiers.logits(parameters, targets, classifiers.normalise(embedded))
        loss = negative_log_likelihood(logits, trust, labels).mean()
        results.append((log_probabilities(logits, trust).detach(), gradients_of(loss, leaves)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-6)
    for exact, interpolated in zip(results[0][1], results[1][1], strict=True):
        assert float((exact - interpolated).abs().max()) <= 1e-4 * float(exact.abs().max()) + 1e-9


def test_interpolation_in_float32():
    logs = []
    for interp in (0, 8):
        classifiers, parameters, targets, embedded, _, trust = problem(interp=interp, strength=10.0)
        single = {name: value.float() for name, value in parameters.items()}
        targets = BranchTargets(*(value.float() for value in targets))
        logits = classifiers.logits(single, targets, classifiers.normalise(embedded).float())
        logs.append(log_probabilities(logits, trust.float()))
    torch.testing.assert_close(*logs, rtol=0, atol=1e-4)


def test_equal_prototypes_leave_no_interval_and_stay_finite():
    classifiers, parameters, targets, embedded, labels, trust = problem(interp=8)
    embedded = torch.zeros_like(embedded, requires_grad=True)
    logits = classifiers.logits(parameters, targets, embedded)
    exact = classifiers_of(interp=0).logits(parameters, targets, embedded)
    torch.testing.assert_close(logits, exact, rtol=1e-6, atol=1e-8)
    assert torch.isfinite(gradients_of(negative_log_likelihood(logits, trust, labels).sum(), [embedded])[0]).all()


def test_few_prototypes_need_no_interpolation():
    found = [Classifiers(FedLoGConfig(prototypes=each, interp=8), 2).interp for each in (4, 5)]
    assert found == [0, 8]


def test_branches_count_alike_at_the_threshold_and_tails_alone_far_below_it():
    logits = torch.tensor([[[2.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    head, tail = logits.softmax(2)[:, 0]
    # deg = λ + 1, hence α = 1/2
    even = log_probabilities(logits, torch.zeros(1, dtype=torch.float64)).exp()[0]
    torch.testing.assert_close(even, 0.5 * head + 0.5 * tail)
    # λ → ∞
    far = log_probabilities(logits, torch.full((1,), -1e4, dtype=torch.float64))[0]
    torch.testing.assert_close(far, tail.log())
    # deg = λ + 2: α = 1 / (1 + e^-1)
    alpha = 1 / (1 + np.exp(-1.0))
    torch.testing.assert_close(
        log_probabilities(logits, torch.ones(1, dtype=torch.float64)).exp()[0], alpha * head + (1 - alpha) * tail
    )
