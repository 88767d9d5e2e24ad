"""Gaussian noise that makes a release differentially private, and how much several releases tell together.

A release is (ε, δ)-private if no event becomes more likely than e^ε times plus δ when one unit (a node, say) joins or
leaves the data. With noise of deviation σ on every number of a vector that one unit moves by at most Δ (the length of
the move), a release is as private as telling a normal distribution of mean 0 from one of mean μ = Δ / σ, and releases
add up as their squares: μ² = μ_1² + μ_2² + … (Dong, Roth and Su, "Gaussian Differential Privacy", JRSS B 2022; the
curve δ(ε) is that of Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018).

Noise is drawn from the operating system and never from a run's seed: whoever knows the seed would take it off again. So
two runs with noise are not alike. What is released lies on a grid, as low bits of sums of floating-point numbers can
tell what noise was added to (Mironov, "On Significance of the Least Significant Bits for Differential Privacy", CCS
2012).

Several silos can share the noise of a sum: each adds 1 / √h of the deviation, and any h of them together have it all. A
sum of rounded normal numbers is not quite a rounded normal number; with a grid of a millionth of σ the difference is
less than e^(-10^12).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-6
"""Share by which rounding to the grid may make a unit's move longer; σ is larger by it."""
LARGEST = 1e9
"""Largest number that is released, as a multiple of how far one unit moves all of them."""
EPSILONS = (1e-6, 1e6)
"""Between which δ(ε) is right to 1e-5 of itself, or too large, for every δ: below, it is a difference of nearly equal
numbers; and with more the noise is nothing."""
LEAST_MU = 1e-6
"""Least μ of a release: with it a quarter of a million numbers are below 2^53 steps of the grid, as messages want."""
LEAST_EPSILON = 1e-9
"""Least ε of noise on counts: with less, the noise is larger than whole numbers of 64 bits."""


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest δ with which a release of this μ is (ε, δ)-private."""
    if mu <= 0:
        return 0.0
    tail = math.exp(epsilon + _log_normal_cdf(-epsilon / mu - mu / 2))
    return max(0.0, _normal_cdf(mu / 2 - epsilon / mu) - tail)


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε with which a release of this μ is (ε, δ)-private; δ above 0."""
    return 0.0 if delta_of(0.0, mu) <= delta else _bisect(lambda epsilon: delta_of(epsilon, mu) > delta)[1]


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ that is (ε, δ)-private: noise of deviation Δ / μ is enough."""
    return _bisect(lambda mu: delta_of(epsilon, mu) <= delta)[0]


def compose(mus: Iterable[float]) -> float:
    """The μ of several releases about the same data, each chosen as one likes after the ones before."""
    return math.sqrt(sum(mu * mu for mu in mus))


def deviation(sensitivity: float, mu: float) -> float:
    """The deviation σ of the noise that :func:`add_noise` adds."""
    return sensitivity * (1 + ROUNDING) / mu


def add_noise(values: Tensor, sensitivity: float, mu: float) -> Tensor:
    """Values on a grid, plus normal noise on that grid from the operating system; float64.

    Args:
        values: Of any shape; up to 10^9 times ``sensitivity`` in size.
        sensitivity: Δ, the length of the longest move that one unit can make all values together do.
        mu: As :func:`mu_of` says.
    """
    return noisy_steps(values, sensitivity, mu) * grid(sensitivity, values.numel())


def noisy_steps(values: Tensor, sensitivity: float, mu: float, sharers: int = 1) -> Tensor:
    """The same in steps of the grid: whole numbers, in float64.

    Args:
        values, sensitivity, mu: As of :func:`add_noise`.
        sharers: h, how many add such noise to one sum: each a share, and all together what one release needs.

    Raises:
        ValueError: Values are not finite, or larger than they may be: no noise would hide them.
    """
    import torch

    if not bool((values.abs() <= LARGEST * sensitivity).all()):
        raise ValueError("what is released with noise must be finite, and at most 10^9 times its sensitivity.")
    step = grid(sensitivity, values.numel())
    steps = np.rint(values.double().numpy() / step)
    sigma = deviation(sensitivity, mu) / math.sqrt(sharers)
    drawn = _normal(values.numel()).reshape(values.shape) * (sigma / step)
    return torch.from_numpy(steps + np.rint(drawn))


def grid(sensitivity: float, count: int) -> float:
    """The step of the grid on which so many numbers are released."""
    # Rounding moves each number by half a step at most, with the unit and without: √count steps in all.
    return 2.0 ** math.floor(math.log2(sensitivity * ROUNDING / math.sqrt(max(count, 1))))


def noisy_counts(counts: Tensor, moves: int, epsilon: float) -> Tensor:
    """Counts plus whole numbers k with probabilities that fall as e^(-|k| ε / moves), from the operating system.

    What is released is (ε, 0)-private. (Ghosh, Roughgarden, Sundararajan, "Universally Utility-Maximizing Privacy
    Mechanisms", SIAM J. Comput. 2012; the discrete Laplace mechanism. Whole numbers have no low bits that tell.)

    Args:
        counts: Whole numbers of any shape.
        moves: By how much one unit can change all of them together, in sizes of the changes added up.
        epsilon: ε, at least ``LEAST_EPSILON`` per move.

    Returns:
        int64; some may be below 0.

    Raises:
        ValueError: ε is less.
    """
    import torch

    if epsilon < LEAST_EPSILON * moves:
        raise ValueError(f"noise on counts needs an ε of {LEAST_EPSILON * moves:g} or more.")
    drawn = np.floor(np.log(_uniform(2 * counts.numel())) / (-epsilon / moves)).astype(np.int64)
    first, second = drawn.reshape(2, -1)
    return counts.long() + torch.from_numpy(first - second).view(counts.shape)


def _uniform(count: int) -> NDArray[np.float64]:
    """Independent numbers between 0 and 1, neither of them included, of 53 bits each of the operating system's."""
    bits = np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


def _normal(count: int) -> NDArray[np.float64]:
    """Independent standard normal numbers, by Box and Muller from 53 random bits each."""
    pairs = (count + 1) // 2
    radius, angle = _uniform(2 * pairs).reshape(2, pairs)
    radius = np.sqrt(-2.0 * np.log(radius))
    return np.concatenate([radius * np.cos(2 * math.pi * angle), radius * np.sin(2 * math.pi * angle)])[:count]


def _normal_cdf(x: float) -> float:
    """How likely a standard normal number is below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _log_normal_cdf(x: float) -> float:
    """Its logarithm, also where it is too small for a number."""
    if x > -30.0:
        return math.log(_normal_cdf(x))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x))


def _bisect(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Two numbers above 0, as near as numbers are, where something ends to hold: the first has it, the second not."""
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
