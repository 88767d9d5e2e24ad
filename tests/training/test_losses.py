"""Losses, worked out by hand, and the gradients that methods write out for speed."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from graphsilo.methods.opfgl import stages
from graphsilo.random import generator
from graphsilo.training.losses import (
    calibrated_cross_entropy,
    class_factors,
    focal,
    info_nce,
    kd,
    likeness,
    not_true_kd,
    prototype_mse,
    sigmoid_focal,
)

DOUBLE = torch.float64
LOG = math.log


def logits(*rows):
    """Logits whose softmax is these rows."""
    return torch.tensor(rows, dtype=DOUBLE).log()


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=DOUBLE)


def slope(value, leaf):
    return torch.autograd.grad(value, leaf)[0]


def test_kd_by_hand():
    """KL((3/4, 1/4) ‖ (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2; with T = 2 the odds are 1 and √3, times 4."""
    student, teacher = logits([0.5, 0.5]), logits([0.75, 0.25])
    assert float(kd(student, teacher)) == pytest.approx(0.75 * LOG(1.5) + 0.25 * LOG(0.5))
    p = math.sqrt(3) / (1 + math.sqrt(3))
    expected = 4 * (p * LOG(2 * p) + (1 - p) * LOG(2 * (1 - p)))
    assert float(kd(student, teacher, temperature=2.0)) == pytest.approx(expected)
    assert kd(teacher, teacher).tolist() == [0.0]


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_kd_gradient_by_hand(temperature):
    """T (q − p) for the student, none for the teacher."""
    student, teacher = drawn(4, 3).requires_grad_(), drawn(4, 3, seed=1).requires_grad_()
    kd(student, teacher, temperature=temperature).sum().backward()
    q, p = (torch.softmax(one.detach() / temperature, 1) for one in (student, teacher))
    torch.testing.assert_close(student.grad, temperature * (q - p))
    assert teacher.grad is None


def test_kd_over_the_other_classes_by_hand():
    """Without class 1: (1/2, 1/4, 1/4) and (1/8, 1/2, 3/8) become (2/3, 1/3) and (1/4, 3/4)."""
    student, teacher = logits([0.5, 0.25, 0.25]), logits([0.125, 0.5, 0.375])
    expected = 0.25 * LOG(0.25 * 3 / 2) + 0.75 * LOG(0.75 * 3)
    leaf = student.clone().requires_grad_()
    found = not_true_kd(leaf, teacher, torch.tensor([1]))
    assert float(found.detach()) == pytest.approx(expected)
    assert slope(found.sum(), leaf).tolist()[0] == pytest.approx([2 / 3 - 1 / 4, 0.0, 1 / 3 - 3 / 4])
    two = drawn(5, 2)
    assert not_true_kd(two, -two, torch.tensor([0, 1, 0, 1, 0])).tolist() == [0.0] * 5


def test_focal_by_hand():
    """(1 − 3/4)² log 4/3 and, twice as heavy, (1 − 1/4)² log 4; γ = 0 is cross-entropy."""
    rows, labels = logits([0.75, 0.25], [0.75, 0.25]), torch.tensor([0, 1])
    found = focal(rows, labels, gamma=2.0, class_weights=torch.tensor([1.0, 2.0]))
    assert found.tolist() == pytest.approx([LOG(4 / 3) / 16, 2 * 9 / 16 * LOG(4)])
    torch.testing.assert_close(focal(rows, labels, gamma=0.0), F.cross_entropy(rows, labels, reduction="none"))


def test_focal_of_the_specification_and_at_its_ends():
    """Falling in p_y; loss and slope finite, and 0 where an item is surely right."""
    rows, labels = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 0.5, 1.0, 1.5]], dtype=DOUBLE), torch.tensor([0, 3])
    for form in (focal, sigmoid_focal):
        for gamma in (0.0, 0.5, 1.0, 2.0, 5.0):
            far = torch.tensor([[100.0, -100.0], [-100.0, 100.0]], dtype=DOUBLE).requires_grad_()
            value = form(far, torch.tensor([0, 0]), gamma=gamma)
            found = slope(value.sum(), far)
            assert bool(found.isfinite().all())
            assert float(value.detach()[0]) == pytest.approx(0.0, abs=1e-9)
            assert found[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
            assert float(value.detach()[1]) > 100
    assert float(focal(rows, labels, gamma=0.0).mean()) == pytest.approx(0.6137642, abs=1e-6)
    assert float(focal(rows, labels, gamma=2.0).mean()) == pytest.approx(0.1448137, abs=1e-6)
    torch.testing.assert_close(focal(rows + 7.0, labels, gamma=2.0), focal(rows, labels, gamma=2.0))


def test_sigmoid_focal_by_hand():
    """σ = 3/4 and 1/3; of class 0: (1/4)² log 4/3 + (1/3)² log 3/2, of class 1 twice (3/4)² log 4 + (2/3)² log 3."""
    rows = torch.tensor([[LOG(3), LOG(1 / 2)]] * 2, dtype=DOUBLE)
    found = sigmoid_focal(rows, torch.tensor([0, 1]), gamma=2.0, class_weights=torch.tensor([1.0, 2.0]))
    first, second = LOG(4 / 3) / 16 + LOG(3 / 2) / 9, 9 / 16 * LOG(4) + 4 / 9 * LOG(3)
    assert found.tolist() == pytest.approx([first, 2 * second])


def test_class_factors_by_hand():
    """1, 3 and no items: mean(1, 3) / n = 2 and 2/3; with β = 1/2 the effective numbers are 1 and 7/4."""
    counts = torch.tensor([1, 3, 0])
    assert class_factors(counts, "inverse").tolist() == pytest.approx([2.0, 2 / 3, 0.0])
    mean = (1 + 4 / 7) / 2
    found = class_factors(counts, "effective", beta=0.5)
    assert found.tolist() == pytest.approx([1 / mean, 4 / 7 / mean, 0.0])
    assert class_factors(torch.zeros(2, dtype=torch.int64), "effective").tolist() == [0.0, 0.0]


def test_calibrated_cross_entropy_by_hand():
    """Prior (3/4, 1/4, 0), equal logits: class 1 has 1/4. With an even prior it is cross-entropy."""
    found = calibrated_cross_entropy(torch.zeros(1, 3), torch.tensor([1]), torch.tensor([0.75, 0.25, 0.0]))
    assert float(found) == pytest.approx(LOG(4), rel=1e-6)
    rows, labels = drawn(4, 3), torch.tensor([0, 1, 2, 1])
    even = calibrated_cross_entropy(rows, labels, torch.full((3,), 1 / 3, dtype=DOUBLE))
    torch.testing.assert_close(even, F.cross_entropy(rows, labels, reduction="none"))


def test_info_nce_by_hand():
    """Scores log 1, log 2, log 5 of which the first two are positive: −log(3 / 8); without the third, 0."""
    scores = torch.tensor([[1.0, 2.0, 5.0]] * 3, dtype=DOUBLE).log().requires_grad_()
    positive = torch.tensor([[True, True, False], [True, True, False], [False] * 3])
    candidates = torch.tensor([[True, True, True], [True, True, False], [True] * 3])
    found = info_nce(scores, positive, candidates)
    assert found.tolist() == pytest.approx([-LOG(3 / 8), 0.0, 0.0])
    # share among candidates less share among positives
    assert slope(found.sum(), scores)[0].tolist() == pytest.approx([1 / 8 - 1 / 3, 2 / 8 - 2 / 3, 5 / 8])
    assert info_nce(scores, positive)[:2].tolist() == pytest.approx([-LOG(3 / 8)] * 2)


def test_one_positive_is_cross_entropy():
    scores, labels = drawn(4, 5), torch.tensor([0, 3, 1, 4])
    found = info_nce(scores, F.one_hot(labels, 5) == 1)
    torch.testing.assert_close(found, F.cross_entropy(scores, labels, reduction="none"))


ROWS = [[1.0, 2.0], [3.0, 0.0], [5.0, 5.0], [0.0, 1.0]]
LABELS = torch.tensor([0, 0, 2, 1])
PROTOTYPES = torch.tensor([[1.0, 0.0], [1.0, 1.0], [9.0, 9.0]])
PRESENT = torch.tensor([True, True, False])


def test_prototype_mse_by_hand():
    """Mean squares per item: (0 + 4) / 2, (4 + 0) / 2, absent, (1 + 0) / 2; gradient 2 (z − P) / p."""
    rows, prototypes = torch.tensor(ROWS, requires_grad=True), PROTOTYPES.clone().requires_grad_()
    found = prototype_mse(rows, LABELS, prototypes, PRESENT)
    assert found.tolist() == [2.0, 2.0, 0.0, 0.5]
    found.sum().backward()
    assert rows.grad.tolist() == [[0.0, 2.0], [2.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]
    assert prototypes.grad is None
    assert prototype_mse(PROTOTYPES[LABELS], LABELS, PROTOTYPES, PRESENT).tolist() == [0.0] * 4


# -- gradients that are written out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_opfgl_focal(gamma):
    rows, labels = drawn(6, 4).requires_grad_(), torch.tensor([0, 1, 2, 3, 1, 1])
    mine = stages.focal(labels, 4, gamma)(rows.detach().clone())
    torch.testing.assert_close(mine, slope(focal(rows, labels, gamma=gamma).mean(), rows), check_dtype=False)


@pytest.mark.parametrize("mean", [True, False])
def test_opfgl_distil(mean):
    """Cross-entropy of labelled rows and, of all, weighted KL to a teacher; and the first alone."""
    rows, teacher, weights = drawn(6, 4).float(), drawn(6, 4, seed=1).float(), drawn(6, seed=2).abs().float()
    rows.requires_grad_()
    labels, labelled = torch.tensor([2, 0]), torch.tensor([4, 1])
    hard = F.cross_entropy(rows[labelled], labels)
    soft = (weights * kd(rows, teacher)).sum() / (6 if mean else 1)
    mine = stages.distil(labels, labelled, torch.softmax(teacher, 1), weights, mean=mean)(rows.detach().clone())
    torch.testing.assert_close(mine, slope(hard + soft, rows))
    whole = torch.tensor([0, 1, 2, 3, 1, 1])
    mine = stages.cross_entropy(whole, 4)(rows.detach().clone())
    torch.testing.assert_close(mine, slope(F.cross_entropy(rows, whole), rows), check_dtype=False)


def test_what_keeps_made_rows_apart_by_hand():
    """Noise (0, 0) and (1, 1), rows (0, 2) and (2, 0): two of four pairs have 1 · 2, so e^-1."""
    noise = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert float(likeness(noise, torch.tensor([[0.0, 2.0], [2.0, 0.0]]))) == pytest.approx(math.exp(-1))
    assert float(likeness(noise, torch.ones(2, 2))) == 1.0
