"""What the generated graphs share: settings of a degree-corrected block model, and draws from it.

Nodes belong to a class and a community; a *cell* is one class within one community.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from graphsilo.errors import ConfigError
from graphsilo.random import numpy_generator
from graphsilo.settings import Settings, setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_ABOUT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "nodes": ("n", {"ge": 2}),
    "classes": ("C", {"ge": 1}),
    "features": ("d, words in the vocabulary", {"ge": 1}),
    "homophily": (
        "share of links whose ends have the same class (edge homophily); met exactly, up to rounding",
        {"ge": 0, "le": 1},
    ),
    "mean_degree": ("links per node times two, at most a quarter of the nodes", {"ge": 0}),
    "degree_exponent": (
        "γ of the power law of expected degrees; every node has at least one link as long as mean_degree is at least 2",
        {"gt": 2},
    ),
    "feature_density": ("expected share of words that occur in a node's text", {"gt": 0, "le": 0.5}),
    "class_signal": ("share of words drawn from the class topic; at 0 features say nothing", {"ge": 0, "le": 1}),
    "ambiguity": (
        "share of nodes whose text and links speak of another class than their label; no model classifies them well, "
        "as with interdisciplinary papers",
        {"ge": 0, "le": 1},
    ),
    "class_imbalance": ("s of the class sizes ∝ 1/rank^s; 0 makes them equal", {"ge": 0, "le": 3}),
    "communities": ("B; none takes half the square root of the nodes", {"ge": 1}),
    "locality": ("share of links that stay inside a community", {"ge": 0, "le": 1}),
    "seed": ("same seed and settings, same graph", {"ge": 0}),
}


def about(name: str, default: Any, meaning: str = "") -> Any:
    """A setting of generated data: all kinds of it mean and allow the same, with other defaults."""
    text, bounds = _ABOUT[name]
    return setting(default, meaning or text, **bounds)


class BlockModel(Settings):
    """Settings of every generated graph.

    Raises:
        ConfigError: A setting is of the wrong type or out of range.
    """

    section: ClassVar[str] = "data"
    name: ClassVar[str]

    nodes: int = about("nodes", 2708)
    classes: int = about("classes", 7)
    features: int = about("features", 1433)
    homophily: float = about("homophily", 0.81)
    mean_degree: float = about("mean_degree", 3.9)
    degree_exponent: float = about("degree_exponent", 2.5)
    class_signal: float = about("class_signal", 0.35)
    ambiguity: float = about("ambiguity", 0.2)
    class_imbalance: float = about("class_imbalance", 0.75)
    communities: int | None = about("communities", None)
    locality: float = about("locality", 0.9)
    seed: int = about("seed", 0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self._demand("nodes", self.nodes >= 2 * self.classes, f"at least 2 per class, {2 * self.classes}")
        self._demand("homophily", self.classes > 1 or self.homophily == 1, "1 where there is one class")
        self._demand("mean_degree", self.mean_degree <= self.nodes / 4, "between 0 and a quarter of the nodes")
        self._demand("communities", (self.communities or 1) <= self.nodes, "between 1 and the number of nodes")
        return self

    def _demand(self, key: str, holds: bool, text: str) -> None:
        if not holds:
            raise ConfigError(f"data.{key} must be {text}; got {getattr(self, key)}.")

    @property
    def num_communities(self) -> int:
        return self.communities if self.communities is not None else max(1, round(math.sqrt(self.nodes) / 2))


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


def no_place(settings: BlockModel, left: int, count: int) -> ConfigError:
    """What to say where some of the links cannot be drawn."""
    return ConfigError(
        f"{settings.name}: {left} of {count} links found no place without doubling another; ask for a smaller "
        f"mean_degree, more nodes, or a homophily further from 0 and 1."
    )


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
    """Which values are among ascending ones."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[place] == values)
