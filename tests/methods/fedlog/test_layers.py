"""FedLoG's network against plain autograd, and numbers worked out by hand."""

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
    normalise,
    normalise_backward,
)

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
    own, _ = normalise(randn(COUNT, WIDTH, generator=draw))
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
def test_all_pairs_are_the_papers_formulas_and_their_gradients(distance, interaction, mixing):
    classifiers, parameters, targets, embedded, labels, trust = problem(
        interp=0, distance=distance, interaction=interaction
    )
    leaves = [value.requires_grad_() for value in (*parameters.values(), *targets[:2], embedded)]
    logits = plainly(parameters, targets, embedded, distance=distance, interaction=interaction)
    alpha = trust.sigmoid()[:, None]
    if mixing == "probabilities":
        mixed = (alpha * logits[0].softmax(1) + (1 - alpha) * logits[1].softmax(1)).log()
    else:
        mixed = alpha * logits[0].log_softmax(1) + (1 - alpha) * logits[1].log_softmax(1)
    wanted_loss = F.nll_loss(mixed, labels)
    wanted = torch.autograd.grad(wanted_loss, leaves, allow_unused=True)
    with torch.no_grad():
        run = classifiers.forward(parameters, targets, embedded)
        loss, gradient = negative_log_likelihood(run.logits, trust, labels, mixing=mixing)
        found, *others = classifiers.backward(parameters, run, gradient)
    assert float(loss) == pytest.approx(wanted_loss.item(), rel=1e-12)
    for mine, reference in zip([*(found[name] for name in parameters), *others], wanted, strict=True):
        reference = torch.zeros_like(mine) if reference is None else reference
        torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("distance", ["both", "embedding"])
def test_interpolation_agrees_with_all_pairs(distance):
    """Float64: 1e-6 on log-probabilities, gradients 1e-4 of their size; with weights of the size of training's."""
    results = []
    for interp in (0, 8):
        classifiers, parameters, targets, embedded, labels, trust = problem(
            interp=interp, distance=distance, strength=10.0
        )
        run = classifiers.forward(parameters, targets, normalise(embedded.view(-1, WIDTH))[0].view_as(embedded))
        _, gradient = negative_log_likelihood(run.logits, trust, labels)
        found, *others = classifiers.backward(parameters, run, gradient)
        results.append((log_probabilities(run.logits, trust), [*found.values(), *others]))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-6)
    for exact, interpolated in zip(results[0][1], results[1][1], strict=True):
        assert float((exact - interpolated).abs().max()) <= 1e-4 * float(exact.abs().max()) + 1e-9


def test_interpolation_in_float32():
    logs = []
    for interp in (0, 8):
        classifiers, parameters, targets, embedded, _, trust = problem(interp=interp, strength=10.0)
        single = {name: value.float() for name, value in parameters.items()}
        targets = BranchTargets(*(value.float() for value in targets))
        embedded = normalise(embedded.view(-1, WIDTH))[0].view_as(embedded).float()
        logs.append(log_probabilities(classifiers.forward(single, targets, embedded).logits, trust.float()))
    torch.testing.assert_close(*logs, rtol=0, atol=1e-4)


def test_equal_prototypes_leave_no_interval_and_stay_finite():
    classifiers, parameters, targets, embedded, labels, trust = problem(interp=8)
    embedded = torch.zeros_like(embedded)
    run = classifiers.forward(parameters, targets, embedded)
    exact = classifiers_of(interp=0).forward(parameters, targets, embedded)
    torch.testing.assert_close(run.logits, exact.logits, rtol=1e-6, atol=1e-8)
    _, gradient = negative_log_likelihood(run.logits, trust, labels)
    found, *others = classifiers.backward(parameters, run, gradient)
    assert all(torch.isfinite(value).all() for value in [*found.values(), *others])


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


def test_normalise_is_layer_norm():
    values = randn(5, 7, generator=drawn()).requires_grad_()
    pushed = randn(5, 7, generator=drawn(1))
    wanted = F.layer_norm(values, (7,))
    reference = torch.autograd.grad((wanted * pushed).sum(), values)[0]
    normal, factor = normalise(values.detach())
    torch.testing.assert_close(normal, wanted.detach())
    torch.testing.assert_close(normalise_backward(pushed, normal, factor), reference)
