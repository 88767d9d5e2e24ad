"""Noise of known deviation, and what releases with it tell: against published and hand-worked numbers."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from scipy import stats

from graphsilo.federation import noise

LEAST = 1e-12
"""Least p of a test of fit: noise is new every time, and no run in 10^9 may fail by chance."""


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    # Balle and Wang's calibration for Δ = 1.
    [(1.0, 1e-5, 3.730632), (0.5, 1e-5, 7.031827), (4.0, 1e-5, 1.081162), (8.0, 1e-5, 0.600229), (1.0, 1e-6, 4.224679)],
)
def test_the_deviation_for_an_epsilon_is_the_published_one(epsilon, delta, sigma):
    mu = noise.mu_of(epsilon, delta)
    assert 1 / mu == pytest.approx(sigma, rel=1e-5)
    assert noise.epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
    assert noise.delta_of(epsilon, mu) <= delta


def test_delta_at_epsilon_0_is_the_distance_of_two_normals():
    # Total variation of N(0, 1) and N(1, 1) is 2 Φ(1/2) - 1.
    assert noise.delta_of(0.0, 1.0) == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-12)
    assert noise.epsilon_of(1e-6, 1e-5) == 0.0
    assert noise.delta_of(3.0, 0.0) == 0.0


@pytest.mark.parametrize(
    ("releases", "mu", "epsilon"),
    [(1, 0.5, 1.9930914), (3, 1.0, 8.3854189), (20, 0.35, 7.4206509), (100, 0.1, 4.3771781)],
)
def test_several_releases_come_to_what_another_accountant_counts(releases, mu, epsilon):
    """By the accountant of privacy losses of dp-accounting 0.6.0 (Google), δ = 1e-5, which rounds up by 1e-8."""
    assert noise.epsilon_of(noise.compose([mu] * releases), 1e-5) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize("epsilon", [*noise.EPSILONS, 1e-3, 1.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-16, 1e-5, 0.5])
def test_the_accountant_is_right_between_its_bounds(epsilon, delta):
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 80
    mu = mp.mpf(noise.mu_of(epsilon, delta))

    def below(x):
        return mp.erfc(-x / mp.sqrt(2)) / 2

    exact = below(mu / 2 - epsilon / mu) - mp.exp(epsilon) * below(-mu / 2 - epsilon / mu)
    assert float(exact / delta) == pytest.approx(1.0, abs=2e-5)


def test_far_from_the_middle_no_number_overflows():
    assert noise.epsilon_of(100.0, 1e-12) == pytest.approx(100**2 / 2 + 100 * -stats.norm.ppf(1e-12), rel=0.01)
    assert noise.delta_of(0.001, 1e-4) >= 0.0


def test_four_releases_tell_as_much_as_one_with_half_the_noise():
    assert noise.compose([0.5] * 4) == 1.0
    assert noise.compose([3.0, 4.0]) == 5.0


def test_noise_is_normal_and_differs_every_time():
    drawn = noise.add_noise(torch.zeros(20_000), 3.0, 2.0).numpy()
    sigma = noise.deviation(3.0, 2.0)
    assert sigma == pytest.approx(1.5, rel=1e-5)
    assert stats.kstest(drawn, "norm", args=(0, sigma)).pvalue > LEAST
    assert abs(drawn.std() / sigma - 1) < 6.5 / math.sqrt(2 * len(drawn))
    assert abs(np.corrcoef(drawn[:10_000], drawn[10_000:])[0, 1]) < 0.065
    assert not np.array_equal(drawn, noise.add_noise(torch.zeros(20_000), 3.0, 2.0).numpy())


def test_what_is_released_lies_on_a_grid_whatever_the_values(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(256)) * (count // 256 + 1))
    monkeypatch.setattr(noise, "_normal", lambda count: np.linspace(-3, 3, count))
    values = torch.linspace(0, 1, 101, dtype=torch.float64) ** 3
    grid = 2.0 ** math.floor(math.log2(1e-6 / math.sqrt(101)))
    steps = noise.add_noise(values, 1.0, 1.0) / grid
    assert torch.equal(steps, steps.round())
    # Rounded twice, the value and the noise: never more than a step off.
    exact = values + torch.from_numpy(np.linspace(-3, 3, 101)) * noise.deviation(1.0, 1.0)
    assert float((steps * grid - exact).abs().max()) <= grid


def test_shares_of_noise_add_up_to_the_noise_of_one_release():
    shares = [noise.noisy_steps(torch.zeros(20_000), 3.0, 2.0, sharers=4) for _ in range(4)]
    assert all(torch.equal(share, share.round()) for share in shares)
    step = noise.grid(3.0, 20_000)
    sigma = noise.deviation(3.0, 2.0)
    assert abs((shares[0] * step).std().item() / (sigma / 2) - 1) < 6.5 / math.sqrt(40_000)
    together = (sum(shares) * step).numpy()
    assert stats.kstest(together, "norm", args=(0, sigma)).pvalue > LEAST
    assert abs(together.std() / sigma - 1) < 6.5 / math.sqrt(40_000)


def test_an_odd_number_of_values_and_none_at_all():
    assert noise.add_noise(torch.zeros(3, 3), 1.0, 1.0).shape == (3, 3)
    assert noise.add_noise(torch.zeros(0), 1.0, 1.0).shape == (0,)


def test_noise_on_counts_falls_by_the_same_factor_with_every_step():
    # One node that changes its class moves two counts by 1: at ε = 2 each step is e^(-2 / 2) times as likely.
    drawn = noise.noisy_counts(torch.full((40_000,), 7), moves=2, epsilon=2.0).numpy() - 7
    alpha = math.exp(-1.0)
    zero = (1 - alpha) / (1 + alpha)
    expected = np.array([zero * alpha ** abs(k) for k in range(-4, 5)])
    found = np.array([(drawn == k).sum() for k in range(-4, 5)])
    rest = [len(drawn) - found.sum()], [1 - expected.sum()]
    chances = np.append(expected, rest[1]) * len(drawn)
    assert stats.chisquare(np.append(found, rest[0]), chances).pvalue > LEAST


def test_counts_with_noise_are_whole_and_keep_their_shape():
    found = noise.noisy_counts(torch.tensor([[3, 0], [1, 9]]), moves=2, epsilon=1e3)
    assert torch.equal(found, torch.tensor([[3, 0], [1, 9]]))
    assert noise.noisy_counts(torch.zeros(0, dtype=torch.int64), moves=2, epsilon=1.0).shape == (0,)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3.1e9], ids=str)
def test_numbers_that_no_noise_would_hide_are_not_released(value):
    with pytest.raises(ValueError, match="must be finite, and at most"):
        noise.noisy_steps(torch.tensor([0.0, value]), 3.0, 1.0)
    assert noise.noisy_steps(torch.tensor([2.9e9]), 3.0, 1.0).isfinite().all()


def test_noise_on_counts_that_has_no_place_in_whole_numbers_is_refused():
    with pytest.raises(ValueError, match="needs an ε of 2e-09 or more"):
        noise.noisy_counts(torch.tensor([3]), moves=2, epsilon=1e-20)
    assert int(noise.noisy_counts(torch.full((64,), 3), moves=2, epsilon=2e-9).abs().max()) > 10**7
