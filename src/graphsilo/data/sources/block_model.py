"""What the generated graphs share: settings of a degree-corrected block model, and draws from it.

Nodes belong to a class and a community; a *cell* is one class within one community.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsilo.errors import ConfigError, shown
from graphsilo.random import numpy_generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BlockModel:
    """What every generated graph is told; :func:`graphsilo.data.sources.generated.citation_sbm` says what it means.

    Raises:
        ConfigError: A setting is of the wrong type or out of range.
    """

    name: str
    nodes: int
    classes: int
    features: int
    homophily: float
    mean_degree: float
    degree_exponent: float
    class_signal: float
    ambiguity: float
    class_imbalance: float
    communities: int | None
    locality: float
    seed: int

    def __post_init__(self) -> None:
        for key in ("nodes", "classes", "features", "communities", "seed"):
            value = getattr(self, key)
            if not _is_int(value) and not (key == "communities" and value is None):
                raise ConfigError(f"{self.name}: {key} must be a whole number; got {shown(value)}.")
        for key in ("homophily", "mean_degree", "degree_exponent", "class_signal", "ambiguity", "class_imbalance",
                    "locality"):  # fmt: skip
            self._demand_number(key)
        self._demand("classes", self.classes >= 1, "at least 1")
        self._demand("nodes", self.nodes >= 2 * self.classes, f"at least 2 per class, {2 * self.classes}")
        self._demand("homophily", 0 <= self.homophily <= 1, "between 0 and 1")
        if self.classes == 1:
            self._demand("homophily", self.homophily == 1, "1 where there is one class")
        self._demand("mean_degree", 0 <= self.mean_degree <= self.nodes / 4, "between 0 and a quarter of the nodes")
        self._demand("degree_exponent", self.degree_exponent > 2, "above 2, or the mean degree has no limit")
        self._demand("features", self.features >= 1, "at least 1")
        self._demand("class_signal", 0 <= self.class_signal <= 1, "between 0 and 1")
        self._demand("ambiguity", 0 <= self.ambiguity <= 1, "between 0 and 1")
        self._demand("class_imbalance", 0 <= self.class_imbalance <= 3, "between 0 and 3")
        if self.communities is not None:
            self._demand("communities", 1 <= self.communities <= self.nodes, "between 1 and the number of nodes")
        self._demand("locality", 0 <= self.locality <= 1, "between 0 and 1")

    def _demand_number(self, key: str) -> None:
        value = getattr(self, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError(f"{self.name}: {key} must be a number; got {shown(value)}.")

    def _demand(self, key: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise ConfigError(f"{self.name}: {key} must be {wanted}; got {getattr(self, key)}.")

    @property
    def num_communities(self) -> int:
        return self.communities if self.communities is not None else max(1, round(math.sqrt(self.nodes) / 2))


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def draw_labels(settings: BlockModel) -> Ints:
    """[n] classes with sizes ∝ 1/rank^s, at least two nodes each, in random order of nodes and of class numbers."""
    rng = numpy_generator(settings.seed, settings.name, "labels")
    share = 1.0 / np.arange(1, settings.classes + 1) ** settings.class_imbalance
    share = rng.permutation(share / share.sum())
    spare = settings.nodes - 2 * settings.classes
    ends = np.floor(np.cumsum(share) * spare + 0.5).astype(np.int64)
    sizes = 2 + np.diff(ends, prepend=0)
    return rng.permutation(np.repeat(np.arange(settings.classes, dtype=np.int64), sizes))


def draw_communities(settings: BlockModel, labels: Ints) -> Ints:
    """[n] community of each node; each community prefers a few classes (Dirichlet with concentration 0.3)."""
    rng = numpy_generator(settings.seed, settings.name, "communities")
    count = settings.num_communities
    size = rng.gamma(3.0, size=count)
    taste = rng.dirichlet(np.full(settings.classes, 0.3), size=count) if settings.classes > 1 else np.ones((count, 1))
    share = (taste * size[:, None] + 1e-9).T
    return draw_by_row(rng, share, labels)


def draw_weights(settings: BlockModel) -> Floats:
    """[n] propensities with a power-law tail, cut where the largest of n draws is expected."""
    rng = numpy_generator(settings.seed, settings.name, "degrees")
    power = 1.0 / (settings.degree_exponent - 1.0)
    weight = (1.0 - rng.random(settings.nodes)) ** -power
    return np.asarray(np.minimum(weight, settings.nodes**power))


def draw_topics(settings: BlockModel, labels: Ints, mixing: Floats) -> Ints:
    """[n] the class that a node's text and links speak of: its own, or for ambiguous nodes another one."""
    rng = numpy_generator(settings.seed, settings.name, "ambiguity")
    ambiguous = np.flatnonzero(rng.random(settings.nodes) < settings.ambiguity)
    topics = labels.copy()
    if settings.classes > 1:
        topics[ambiguous] = draw_by_row(rng, mixing, labels[ambiguous])
    return topics


def class_mixing(settings: BlockModel, labels: Ints, weight: Floats, *, ring: bool) -> Floats:
    """[C, C] share of the other class among links that leave a class; the diagonal is zero.

    Without ``ring`` the other class is met as often as its nodes' propensities say; with it only the two neighbours on
    the ring of classes are met.
    """
    mass = np.bincount(labels, weights=weight, minlength=settings.classes)
    mixing: Floats = np.tile(mass, (settings.classes, 1)).astype(np.float64)
    if ring and settings.classes > 3:
        number = np.arange(settings.classes)
        distance = (number[:, None] - number[None, :]) % settings.classes
        mixing *= (distance == 1) | (distance == settings.classes - 1)
    np.fill_diagonal(mixing, 0.0)
    return mixing


def draw_other_class(rng: np.random.Generator, label: Ints, topic: Ints, mixing: Floats, homophily: float) -> Ints:
    """A class that differs from ``label`` and that nodes of class ``topic`` usually link to."""
    if len(mixing) == 1:
        return label
    usual = mixing / mixing.sum(axis=1, keepdims=True)
    usual = (1.0 - homophily) * usual + homophily * np.eye(len(mixing))
    other = draw_by_row(rng, usual, topic)
    clash = other == label
    other[clash] = draw_by_row(rng, mixing, label[clash])
    return other


class Sampler:
    """Draws members of groups in proportion to their weights, all draws at once."""

    def __init__(self, group: Ints, weight: Floats, count: int) -> None:
        self._order = np.argsort(group, kind="stable")
        self._total = np.concatenate([[0.0], np.cumsum(weight[self._order])])
        self._start = np.searchsorted(group[self._order], np.arange(count + 1))

    def has(self, groups: Ints) -> NDArray[np.bool_]:
        """Whether a group has at least two members, so that a member can find another."""
        return np.asarray(self._start[groups + 1] - self._start[groups] >= 2)

    def draw(self, rng: np.random.Generator, groups: Ints, *, in_order: bool = False) -> Ints:
        """One member of each of these groups; ``in_order``: of the same group, by ascending place in it."""
        first, last = self._start[groups], self._start[groups + 1]
        low, high = self._total[first], self._total[last]
        share = rng.random(len(groups))
        if in_order:
            share.sort()
        place = np.searchsorted(self._total, low + share * (high - low), side="right") - 1
        return np.asarray(self._order[np.clip(place, first, last - 1)])


def draw_by_row(rng: np.random.Generator, table: Floats, rows: Ints) -> Ints:
    """One column per entry of ``rows``, drawn in proportion to that row of ``table`` [rows, columns]."""
    columns = table.shape[1]
    share = np.cumsum(table, axis=1)
    flat = (share / share[:, -1:] + np.arange(len(table))[:, None]).ravel()
    place = np.searchsorted(flat, rows + rng.random(len(rows)), side="right") - rows * columns
    return np.asarray(np.clip(place, 0, columns - 1))


def contains(ordered: Ints, values: Ints) -> NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[place] == values)
