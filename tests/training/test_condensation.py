"""Class statistics and the surrogate graph, by hand and against autograd."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from graphsilo.errors import ConfigError
from graphsilo.training import condensation
from graphsilo.training.condensation import (
    ClassStatistics,
    CondensationConfig,
    CosineLinks,
    DirectLinks,
    LearnedLinks,
    Moments,
    class_sums,
    condense,
    keep_links,
    pooled_statistics,
    smooth_loss,
    surrogate_labels,
    symmetric_norm,
)

Condensation = partial(CondensationConfig, links="learned")


def pooled(parts, ddof="paper"):
    fields = zip(*parts, strict=True)
    return pooled_statistics(*(torch.from_numpy(np.sum(field, axis=0)) for field in fields), ddof=ddof)


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_sums_by_hand():
    values = np.array([[1.0], [3.0], [7.0], [9.0]], dtype=np.float32)
    sums = class_sums([values], np.array([0, 0, 1, -1]), 3)
    assert sums.counts.tolist() == [2, 0, 0]  # class 1 has one node only
    assert sums.contributors.tolist() == [1, 0, 0]
    assert (sums.totals[0, 0], sums.within[0, 0], sums.squares[0, 0]) == (4.0, 2.0, 8.0)
    assert not sums.totals[1:].any()
    assert all(field.dtype == np.float64 for field in sums)


def test_two_clients_by_hand():
    first = class_sums([np.array([[1.0], [3.0]], dtype=np.float32)], np.array([0, 0]), 2)
    second = class_sums([np.array([[5.0], [5.0], [8.0]], dtype=np.float32)], np.array([0, 0, 0]), 2)
    # 1, 3, 5, 5, 8: sum 22, mean 4.4, squared deviations 11.56 + 1.96 + .36 + .36 + 12.96 = 27.2.
    for ddof, variance in (("paper", 27.2 / 3), ("pooled", 27.2 / 4)):
        found = pooled([first, second], ddof)
        assert found.counts.tolist() == [5, 0]
        assert float(found.mean[0, 0]) == pytest.approx(4.4)
        assert float(found.variance[0, 0]) == pytest.approx(variance)
        assert float(found.mean[1, 0]) == float(found.variance[1, 0]) == 0.0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rows", [3, 4096])
def test_any_partition_gives_the_statistics_of_the_union(sparse, rows, monkeypatch):
    monkeypatch.setattr(condensation, "ROWS", rows)
    numbers = np.random.default_rng(0)
    values = (numbers.standard_normal((60, 5)) + 100.0).astype(np.float32)
    classes = numbers.integers(-1, 3, size=60)
    cut = np.split(numbers.permutation(60), [11, 30])
    parts = []
    for nodes in cut:
        block = values[nodes]
        levels = [sp.csr_matrix(block[:, :2]), sp.csr_matrix(block[:, 2:])] if sparse else [block[:, :2], block[:, 2:]]
        parts.append(class_sums(levels, classes[nodes], 3))
    found = pooled(parts, "pooled")
    again = pooled(parts[::-1], "pooled")
    for number in range(3):
        union = values[classes == number].astype(np.float64)
        assert found.mean[number].numpy() == pytest.approx(union.mean(axis=0), rel=1e-14)
        assert found.variance[number].numpy() == pytest.approx(union.var(axis=0, ddof=1), rel=1e-8)
    torch.testing.assert_close(found.mean, again.mean, rtol=1e-15, atol=0)


def test_variance_is_never_negative():
    same = np.full((4, 3), 1e4 / 3, dtype=np.float32)
    found = pooled([class_sums([same], np.zeros(4, dtype=np.int64), 1) for _ in range(3)])
    assert (found.variance >= 0).all()
    assert found.variance.max() < 1e-6


def test_sizes():
    counts, labelled = torch.tensor([5.0, 0.0, 700.0]), torch.tensor([3.0, 9.0, 700.0])
    assert surrogate_labels(counts, labelled).tolist() == [0, 2]
    assert surrogate_labels(counts, labelled, per_class=2).tolist() == [0, 0, 2, 2]
    # 1 % of 700 is 7 and not 8; 1 % of 3 is rounded up to 1.
    assert surrogate_labels(counts, labelled, percent=1.0).tolist() == [0] + [2] * 7
    assert surrogate_labels(counts, labelled, percent=0.5).tolist() == [0] + [2] * 4


def targets(classes=2, width=4, hops=2, seed=0, counts=(30.0, 10.0)):
    random = draw(seed)
    mean = torch.randn(classes, (hops + 1) * width, generator=random, dtype=torch.float64)
    return ClassStatistics(torch.tensor(counts, dtype=torch.float64), mean, 0.1 + mean.square())


def reference_loss(features, propagation, statistics, labels, settings):
    """The loss as the paper writes it, for autograd."""
    levels = [features]
    for _ in range(settings.hops):
        levels.append(propagation @ levels[-1])
    wide = torch.cat(levels, dim=1)
    present = sorted(set(labels.tolist()))
    share = statistics.counts[present] / statistics.counts.sum()
    total = torch.zeros((), dtype=features.dtype)
    for weight, number in zip(share, present, strict=True):
        rows = wide[torch.from_numpy(labels == number)]
        total = total + weight * F.mse_loss(rows.mean(0), statistics.mean[number])
        if len(rows) > 1:
            found, wanted = rows.var(0), statistics.variance[number]
            if settings.moment == "std":
                found, wanted = found.sqrt(), wanted.sqrt()
            total = total + weight * F.mse_loss(found, wanted)
    return settings.feature_weight * total


@pytest.mark.parametrize("moment", ["std", "variance"])
@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0, 1], [0, 0, 1, 1, 1], [1, 1]], ids=str)
def test_gradients_by_hand_are_autograds(moment, labels):
    settings, statistics = Condensation(moment=moment), targets()
    labels = np.array(labels)
    features = torch.randn(len(labels), 4, generator=draw(1), dtype=torch.float64)
    soft = torch.rand(len(labels), len(labels), generator=draw(2), dtype=torch.float64)
    propagation = symmetric_norm(keep_links(soft + soft.t(), 0.3))
    moments = Moments(statistics, labels, settings, dtype=torch.float64)
    loss, direct, pull = moments(features, propagation)
    leaf, matrix = features.clone().requires_grad_(), propagation.clone().requires_grad_()
    expected = reference_loss(leaf, matrix, statistics, labels, settings)
    wanted = torch.autograd.grad(expected, [leaf, matrix])
    assert float(loss) == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(direct, wanted[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(pull, wanted[1], rtol=1e-9, atol=1e-12)
    alone = moments(features, None)
    same = moments(features, torch.eye(len(labels), dtype=torch.float64))
    torch.testing.assert_close(alone[1], same[1])
    assert alone[2] is None


def test_equal_nodes_give_no_nan():
    """The root of a variance has no slope at 0."""
    moments = Moments(targets(), np.array([0, 0, 1]), Condensation())
    loss, gradient, _ = moments(torch.ones(3, 4), None)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_the_first_layer_is_that_of_the_pairs():
    """W₁ x_i + W₂ x_j is the linear layer on [x_i ‖ x_j]; with and without BatchNorm."""
    features = torch.randn(4, 5, generator=draw(3))
    for norm in (True, False):
        links = LearnedLinks(5, 6, draw(4), norm=norm)
        left, right, bias, weight, inner, last, shift, *scales = links.parameters
        pairs = torch.cat([features.repeat_interleave(4, 0), features.repeat(4, 1)], dim=1)
        hidden = pairs @ torch.cat([left, right]) + bias
        for layer in range(2):
            if norm:
                mean, variance = hidden.mean(0), hidden.var(0, correction=0)
                hidden = (hidden - mean) / (variance + 1e-5).sqrt() * scales[2 * layer] + scales[2 * layer + 1]
            hidden = hidden.relu()
            hidden = hidden @ weight + inner if layer == 0 else hidden @ last + shift
        score = hidden.view(4, 4)
        torch.testing.assert_close(links.soft(features), torch.sigmoid((score + score.t()) / 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("links", [LearnedLinks(5, 8, draw()), DirectLinks(6, draw()), CosineLinks()])
def test_links_are_symmetric_and_thresholded(links):
    soft = links.soft(torch.randn(6, 5, generator=draw(5)))
    kept = keep_links(soft, 0.4)
    assert torch.equal(kept, kept.t())
    assert not kept.diagonal().any()
    assert ((kept == 0) | (kept >= 0.4)).all()
    assert (kept[kept > 0] == soft[kept > 0]).all()


def test_cosine_by_hand():
    features = torch.tensor([[1.0, 0.0], [2.0, 2.0], [-1.0, 0.0]])
    found = keep_links(CosineLinks().soft(features), 0.01)
    assert found.tolist() == [pytest.approx(row, abs=1e-6) for row in ([0, 0.5**0.5, 0], [0.5**0.5, 0, 0], [0, 0, 0])]


def test_smoothness_by_hand():
    # ‖x_0 − x_1‖² = 4, d = 2: exp(−1) for 0–1; nodes 1 and 2 are equal: exp(0). Weights 0.5 and 1.
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    adjacency = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 1.0], [0.0, 1.0, 0.0]])
    value = (0.5 * np.exp(-1.0) + 1.0) / 1.5
    assert float(smooth_loss(adjacency, features, "reward")) == pytest.approx(-value)
    assert float(smooth_loss(adjacency, features, "printed")) == pytest.approx(value)
    assert float(smooth_loss(torch.zeros(3, 3), features, "reward")) == 0.0


def test_one_edgeless_node_per_class_meets_the_mean_of_the_hops():
    statistics = targets()
    found, facts = condense(statistics, np.array([0, 1]), Condensation(links="edgeless", surrogate_steps=2000), draw())
    wanted = statistics.mean.view(2, 3, 4).mean(dim=1).float()
    torch.testing.assert_close(found.features, wanted, atol=2e-3, rtol=0)
    assert facts["links"] == 0
    assert not found.adjacency.any()


@pytest.mark.parametrize(
    "settings", [{"links": "edgeless"}, {"link_threshold": 1.0}, {"links": "direct", "link_threshold": 1.0}]
)
def test_a_threshold_of_one_leaves_no_link(settings):
    options = {"surrogate_steps": 60, **settings}
    found, _ = condense(targets(), np.array([0, 0, 1]), Condensation(**options), draw())
    assert not found.adjacency.any()
    same, _ = condense(targets(), np.array([0, 0, 1]), Condensation(links="edgeless", surrogate_steps=60), draw())
    assert torch.equal(found.features, same.features)


@pytest.mark.parametrize(
    "links", ["cosine", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("learned", "direct"))]
)
def test_every_rule_fits_and_keeps_its_promises(links):
    labels = np.array([0, 0, 0, 1, 1])
    before, start = condense(targets(), labels, Condensation(links=links, surrogate_steps=0), draw())
    found, facts = condense(targets(), labels, Condensation(links=links, surrogate_steps=200, lr_features=4e-2), draw())
    again, _ = condense(targets(), labels, Condensation(links=links, surrogate_steps=200, lr_features=4e-2), draw())
    assert facts["loss"] < 0.5 * start["loss"]
    assert torch.equal(found.features, again.features)
    assert torch.equal(found.adjacency, again.adjacency)
    assert torch.equal(found.adjacency, found.adjacency.t())
    assert ((found.adjacency == 0) | (found.adjacency >= 0.01)).all()
    assert not found.adjacency.diagonal().any()
    assert not torch.equal(found.features, before.features)


@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_an_indicator_keeps_the_same_links_at_weight_one(delta):
    # O-pFGL's eq. 9, A' in {0, 1}: of the same fit, as only the finished surrogate is rounded.
    labels, settings = np.array([0, 0, 0, 1, 1]), {"links": "direct", "surrogate_steps": 60, "link_threshold": delta}
    weighted, _ = condense(targets(), labels, Condensation(**settings), draw())
    found, facts = condense(targets(), labels, Condensation(link_values="indicator", **settings), draw())
    assert torch.equal(found.adjacency, (weighted.adjacency >= delta).float())
    assert torch.equal(found.features, weighted.features)
    assert (facts["links"], facts["link_weight"]) == (float(found.adjacency.sum()) / 2, 1.0)
    assert 0 < weighted.adjacency.max() < 1


def test_the_schedule_moves_one_half_at_a_time():
    labels = np.array([0, 0, 1])

    def after(steps, **settings):
        return condense(targets(), labels, Condensation(links="direct", surrogate_steps=steps, **settings), draw())[0]

    start, by_links, both = after(0), after(10), after(11)
    assert torch.equal(start.features, by_links.features)
    assert not torch.equal(start.adjacency, by_links.adjacency)
    assert torch.equal(by_links.adjacency, both.adjacency)  # a feature step leaves direct links as they are
    assert not torch.equal(by_links.features, both.features)
    assert torch.equal(after(50, link_steps=0).adjacency, start.adjacency)


def test_without_link_steps_the_loss_falls_at_every_look():
    losses = [
        condense(
            targets(), np.array([0, 0, 1]),
            Condensation(links="direct", surrogate_steps=steps, link_steps=0, smooth_weight=0.0, lr_features=1e-3),
            draw(),
        )[1]["loss"]
        for steps in range(0, 60, 10)
    ]  # fmt: skip
    assert all(np.diff(losses) < 0)


def test_a_class_nobody_has_and_no_class_at_all():
    statistics = targets(counts=(30.0, 0.0))
    labels = surrogate_labels(statistics.counts, statistics.counts)
    found, _ = condense(statistics, labels, Condensation(surrogate_steps=20), draw())
    assert found.labels.tolist() == [0]  # a single node: no pair, hence no link
    assert not found.adjacency.any()
    empty, facts = condense(statistics, labels[:0], Condensation(), draw())
    assert empty.features.shape == (0, 4)
    assert facts == {}


def test_moments_differ_only_with_several_nodes():
    def features(labels, moment):
        settings = Condensation(links="edgeless", moment=moment, surrogate_steps=60)
        return condense(targets(), np.array(labels), settings, draw())[0].features

    assert torch.equal(features([0, 1], "std"), features([0, 1], "variance"))
    assert not torch.equal(features([0, 0, 1], "std"), features([0, 0, 1], "variance"))


def test_too_many_pairs_are_refused_with_the_memory_they_would_take():
    condensation.check_pairs(300, Condensation(), "the ratio")
    # 6 values of 4 bytes, 128 wide, for 4000² pairs
    with pytest.raises(ConfigError, match=r"4000 nodes of a synthetic graph, which takes 49 GB.*Lower the ratio"):
        condensation.check_pairs(4000, Condensation(), "the ratio")
    condensation.check_pairs(4000, Condensation(links="cosine"), "the ratio")
    condensation.check_pairs(4000, Condensation(link_threshold=1.0), "the ratio")
