"""Graphs that are generated: seeded, in any size, and as learnable as the real ones they imitate.

Links come from a degree-corrected stochastic block model (Karrer and Newman, 2011, "Stochastic blockmodels and
community structure in networks") over cells: a *cell* is one class within one *community*, so that communities hold
several classes in uneven shares, as in citation graphs. Features are a sparse bag of words, where each class has a
topic, a distribution over its own words, mixed with a background that all share; or, for millions of nodes, Gaussian
around one centre per class, as embeddings of product texts are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pydantic import model_validator

from graphsilo.data.graph import Features, Graph, edge_type
from graphsilo.data.sources import scratch
from graphsilo.data.sources.sizes import dense_bytes
from graphsilo.data.sources.transforms import compact_features
from graphsilo.errors import ConfigError
from graphsilo.random import numpy_generator
from graphsilo.settings import Settings, setting

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ATTEMPTS, _BLOCK_ATTEMPTS = 60, 40
"""Rounds of redrawing links that found no place: all at once, and block by block."""
_BLOCK = 1 << 21
"""Links that are drawn, or columns that are converted, at once."""
_ROWS = 1 << 16
"""Rows of features that are drawn at once."""

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


def _about(name: str, default: Any, meaning: str = "") -> Any:
    """A setting of generated data: all kinds of it mean and allow the same, with other defaults."""
    text, bounds = _ABOUT[name]
    return setting(default, meaning or text, **bounds)


class Generated(Settings):
    """Settings of a generated data set, and what makes it of them.

    Raises:
        ConfigError: A setting is of the wrong type or out of range.
    """

    section: ClassVar[str] = "data"
    name: ClassVar[str]

    seed: int = _about("seed", 0)

    def generate(self) -> Graph:
        """The graph.

        Raises:
            ConfigError: So many links do not fit.
        """
        raise NotImplementedError

    @property
    def least_bytes(self) -> int:
        """Bytes that making it takes at the very least."""
        raise NotImplementedError


class BlockModel(Generated):
    """A graph of one type of nodes, whose links come from a block model."""

    ring: ClassVar[bool] = False
    """Whether classes stand in a ring, and links between classes join neighbours on it."""

    nodes: int = _about("nodes", 2708)
    classes: int = _about("classes", 7)
    features: int = _about("features", 1433)
    homophily: float = _about("homophily", 0.81)
    mean_degree: float = _about("mean_degree", 3.9)
    degree_exponent: float = _about("degree_exponent", 2.5)
    class_signal: float = _about("class_signal", 0.35)
    ambiguity: float = _about("ambiguity", 0.2)
    class_imbalance: float = _about("class_imbalance", 0.75)
    communities: int | None = _about("communities", None)
    locality: float = _about("locality", 0.9)

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

    def generate(self) -> Graph:
        """The graph: undirected, with two columns per link, no loops and no duplicates.

        Raises:
            ConfigError: So many links do not fit.
        """
        labels = _draw_labels(self)
        community = _draw_communities(self, labels)
        weight = self._weights()
        mixing = _class_mixing(self, labels, weight)
        features, edges = self._draw(labels, community, weight, mixing)
        return Graph(features, edges, labels, num_classes=self.classes, name=self.name)

    def _weights(self) -> Floats:
        """[n] propensities to link."""
        return _draw_weights(self)

    def _draw(self, labels: Ints, community: Ints, weight: Floats, mixing: Floats) -> tuple[Features, Ints]:
        """[n, d] features and [2, e] edges; ``mixing`` as :func:`_class_mixing` gives it."""
        raise NotImplementedError

    @property
    def num_communities(self) -> int:
        return self.communities if self.communities is not None else max(1, round(math.sqrt(self.nodes) / 2))


class TextModel(BlockModel):
    """A block model whose nodes have texts: CSR features of zeros and ones."""

    feature_density: float = _about("feature_density", 0.0127)

    @model_validator(mode="after")
    def _words(self) -> Self:
        self._demand("features", self.features >= self.classes, f"at least one word per class, {self.classes}")
        return self

    def _draw(self, labels: Ints, community: Ints, weight: Floats, mixing: Floats) -> tuple[Features, Ints]:
        topics = _draw_topics(self, labels, mixing)
        links = _draw_links(self, labels, topics, community, weight, mixing)
        both = np.concatenate([links, links[::-1]], axis=1)
        return _draw_words(self, topics), np.ascontiguousarray(both[:, np.lexsort((both[1], both[0]))])

    @property
    def least_bytes(self) -> int:
        links = self.nodes * self.mean_degree / 2
        return int(32 * links + 8 * self.nodes * self.features * self.feature_density)


class CitationSBM(TextModel):
    """``citation-sbm``, like Cora: homophilous, heavy-tailed, with communities and unequal classes.

    With the default settings and 20 % of the nodes for training, a two-layer GCN reaches an accuracy of about 0.87 and
    a two-layer perceptron about 0.6.
    """

    name: ClassVar[str] = "citation-sbm"


class HeterophilySBM(TextModel):
    """``heterophily-sbm``, like chameleon: most links join different classes, but not at random.

    Classes stand in a ring, and links between classes join neighbours on the ring. What a node's neighbours look like
    therefore tells its class, which a GNN can learn although neighbours rarely share the class. With the default
    settings and 20 % of the nodes for training, a two-layer GCN reaches an accuracy of about 0.72 and a two-layer
    perceptron about 0.4.
    """

    name: ClassVar[str] = "heterophily-sbm"
    ring: ClassVar[bool] = True
    nodes: int = _about("nodes", 2500)
    classes: int = _about("classes", 5)
    features: int = _about("features", 1000)
    homophily: float = _about("homophily", 0.2)
    mean_degree: float = _about("mean_degree", 12.0)
    class_signal: float = _about("class_signal", 0.2)
    ambiguity: float = _about("ambiguity", 0.12)
    class_imbalance: float = _about("class_imbalance", 0.25)
    locality: float = _about("locality", 0.8)
    feature_density: float = _about("feature_density", 0.015)


class ProductSBM(BlockModel):
    """``product-sbm``, like ogbn-products: millions of nodes, heavy-tailed degrees, dense features [n, d], int32 edges.

    The defaults give 30 million links, that is 60 million columns of edges. Everything large is made in blocks, in the
    type in which it is kept, so that the peak is little above the finished graph. Expected degrees end at
    √(n · mean degree), the largest that a graph without double links can have by chance.
    """

    name: ClassVar[str] = "product-sbm"
    nodes: int = _about("nodes", 2_400_000)
    classes: int = _about("classes", 47)
    features: int = _about("features", 100, "d")
    mean_degree: float = _about("mean_degree", 25.0)
    class_signal: float = _about(
        "class_signal", 0.25, "length of a class centre's entries against noise of 1; at 0 features say nothing"
    )
    ambiguity: float = _about(
        "ambiguity", 0.2, "share of cells (classes within a community) whose features are those of another class; "
        "neighbours do not help there, as most of them are of the same cell",
    )  # fmt: skip

    def _weights(self) -> Floats:
        weight = _draw_weights(self)
        return np.asarray(np.minimum(weight, weight.mean() * np.sqrt(self.nodes / max(self.mean_degree, 1.0))))

    def _draw(self, labels: Ints, community: Ints, weight: Floats, mixing: Floats) -> tuple[Features, Ints]:
        features = _draw_features(self, _cell_topics(self, labels, community, mixing))
        # Narrow, as a Graph may be; the declared type is the wide one that small graphs have.
        return features, _columns(_draw_keys(self, labels, community, weight, mixing), self.nodes)

    @property
    def least_bytes(self) -> int:
        links = self.nodes * self.mean_degree / 2
        # One key per link, then one per direction.
        return int(8 * links + 16 * links + dense_bytes(self.nodes, self.features))


_BLOCK_MODELS: Mapping[str, type[Generated]] = {kind.name: kind for kind in (CitationSBM, HeterophilySBM, ProductSBM)}


def generators() -> Mapping[str, type[Generated]]:
    """Generated data sets by name."""
    from graphsilo.data.sources.bank import Bank
    from graphsilo.data.sources.hospital import Hospital

    return {**_BLOCK_MODELS, Bank.name: Bank, Hospital.name: Hospital}


def find_generator(name: str) -> type[Generated]:
    """The one of this name."""
    return _BLOCK_MODELS.get(name) or generators()[name]


def generate(name: str, settings: Mapping[str, Any], *, seed: int = 0) -> Graph:
    """Runs a generator by name; a ``seed`` among the settings wins over the argument.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range, or so many links do not fit.
    """
    return find_generator(name).of({"seed": seed, **settings}, owner=name).generate()


# -- Draws that all share ------------------------------------------------------------------------------------------


def _draw_labels(settings: BlockModel) -> Ints:
    """[n] classes with sizes ∝ 1/rank^s, at least two nodes each, in random order of nodes and of class numbers."""
    rng = numpy_generator(settings.seed, settings.name, "labels")
    share = 1.0 / np.arange(1, settings.classes + 1) ** settings.class_imbalance
    share = rng.permutation(share / share.sum())
    spare = settings.nodes - 2 * settings.classes
    ends = np.floor(np.cumsum(share) * spare + 0.5).astype(np.int64)
    sizes = 2 + np.diff(ends, prepend=0)
    return rng.permutation(np.repeat(np.arange(settings.classes, dtype=np.int64), sizes))


def _draw_communities(settings: BlockModel, labels: Ints) -> Ints:
    """[n] community of each node; each community prefers a few classes (Dirichlet with concentration 0.3)."""
    rng = numpy_generator(settings.seed, settings.name, "communities")
    count = settings.num_communities
    size = rng.gamma(3.0, size=count)
    taste = rng.dirichlet(np.full(settings.classes, 0.3), size=count) if settings.classes > 1 else np.ones((count, 1))
    share = (taste * size[:, None] + 1e-9).T
    return _draw_by_row(rng, share, labels)


def _draw_weights(settings: BlockModel) -> Floats:
    """[n] propensities with a power-law tail, cut where the largest of n draws is expected."""
    rng = numpy_generator(settings.seed, settings.name, "degrees")
    power = 1.0 / (settings.degree_exponent - 1.0)
    weight = (1.0 - rng.random(settings.nodes)) ** -power
    return np.asarray(np.minimum(weight, settings.nodes**power))


def _draw_topics(settings: BlockModel, labels: Ints, mixing: Floats) -> Ints:
    """[n] the class that a node's text and links speak of: its own, or for ambiguous nodes another one."""
    rng = numpy_generator(settings.seed, settings.name, "ambiguity")
    ambiguous = np.flatnonzero(rng.random(settings.nodes) < settings.ambiguity)
    topics = labels.copy()
    if settings.classes > 1:
        topics[ambiguous] = _draw_by_row(rng, mixing, labels[ambiguous])
    return topics


def _class_mixing(settings: BlockModel, labels: Ints, weight: Floats) -> Floats:
    """[C, C] share of the other class among links that leave a class; the diagonal is zero.

    The other class is met as often as its nodes' propensities say; on a ring of classes only two neighbours are met.
    """
    mass = np.bincount(labels, weights=weight, minlength=settings.classes)
    mixing: Floats = np.tile(mass, (settings.classes, 1)).astype(np.float64)
    if settings.ring and settings.classes > 3:
        number = np.arange(settings.classes)
        distance = (number[:, None] - number[None, :]) % settings.classes
        mixing *= (distance == 1) | (distance == settings.classes - 1)
    np.fill_diagonal(mixing, 0.0)
    return mixing


def _draw_other_class(rng: np.random.Generator, label: Ints, topic: Ints, mixing: Floats, homophily: float) -> Ints:
    """A class that differs from ``label`` and that nodes of class ``topic`` usually link to."""
    if len(mixing) == 1:
        return label
    usual = mixing / mixing.sum(axis=1, keepdims=True)
    usual = (1.0 - homophily) * usual + homophily * np.eye(len(mixing))
    other = _draw_by_row(rng, usual, topic)
    clash = other == label
    other[clash] = _draw_by_row(rng, mixing, label[clash])
    return other


def _no_place(settings: BlockModel, left: int, count: int) -> ConfigError:
    """What to say where some of the links cannot be drawn."""
    return ConfigError(
        f"{settings.name}: {left} of {count} links found no place without doubling another; ask for a smaller "
        f"mean_degree, more nodes, or a homophily further from 0 and 1."
    )


class _Sampler:
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


def _draw_by_row(rng: np.random.Generator, table: Floats, rows: Ints) -> Ints:
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


# -- Texts ---------------------------------------------------------------------------------------------------------


def _draw_links(
    settings: TextModel, labels: Ints, topics: Ints, community: Ints, weight: Floats, mixing: Floats
) -> Ints:
    """[2, m] distinct links without loops, of which round(homophily · m) join nodes of one class.

    Each node is the source of one link, further sources are drawn by propensity. Targets are drawn by propensity from
    a cell (class within community) or a whole class; what collides is redrawn, less and less locally.
    """
    rng = numpy_generator(settings.seed, settings.name, "links")
    n, count = settings.nodes, round(settings.nodes * settings.mean_degree / 2)
    everyone = _Sampler(np.zeros(n, dtype=np.int64), weight, 1)
    first = rng.permutation(n)[:count]
    source = np.concatenate([first, everyone.draw(rng, np.zeros(count - len(first), dtype=np.int64))])
    same = np.zeros(count, dtype=bool)
    stranger = topics[source] != labels[source]
    same[np.argsort(rng.random(count) + 0.7 * stranger)[: round(settings.homophily * count)]] = True

    by_cell = _Sampler(community * settings.classes + labels, weight, settings.num_communities * settings.classes)
    by_class = _Sampler(labels, weight, settings.classes)
    target = np.zeros(count, dtype=np.int64)
    taken = np.zeros(0, dtype=np.int64)
    pending = np.arange(count)
    for attempt in range(_ATTEMPTS):
        if attempt >= _ATTEMPTS // 2:
            # A crowded hub may know its whole class by now: let somebody else ask, and anybody answer.
            by_class = _Sampler(labels, np.ones(n), settings.classes)
            source[pending] = rng.integers(n, size=len(pending))
        start = source[pending]
        other = _draw_other_class(rng, labels[start], topics[start], mixing, settings.homophily)
        wanted = np.where(same[pending], labels[start], other)
        cell = community[start] * settings.classes + wanted
        local = (rng.random(len(pending)) < settings.locality) & by_cell.has(cell) & (attempt < _ATTEMPTS // 4)
        target[pending] = by_class.draw(rng, wanted)
        target[pending[local]] = by_cell.draw(rng, cell[local])
        key = np.minimum(start, target[pending]) * n + np.maximum(start, target[pending])
        fresh = np.zeros(len(pending), dtype=bool)
        fresh[np.unique(key, return_index=True)[1]] = True
        fresh &= (start != target[pending]) & ~contains(taken, key)
        taken = np.sort(np.concatenate([taken, key[fresh]]))
        pending = pending[~fresh]
        if not len(pending):
            return np.stack([source, target])
    raise _no_place(settings, len(pending), count)


def _draw_words(settings: TextModel, topics: Ints) -> Features:
    """[n, d] zeros and ones: which words occur in each node's text."""
    rng = numpy_generator(settings.seed, settings.name, "words")
    d = settings.features
    background = 1.0 / (rng.permutation(d) + 10.0)
    background /= background.sum()
    owner = rng.permutation(d) % settings.classes
    topic = (owner[None, :] == np.arange(settings.classes)[:, None]) * background
    topic /= topic.sum(axis=1, keepdims=True)
    words = (1.0 - settings.class_signal) * background + settings.class_signal * topic
    share = np.bincount(topics, minlength=settings.classes) / len(topics)
    length = _text_length(words, share, settings.feature_density)
    # At least one word each: a text without words cannot be told from any other.
    lengths = np.maximum(rng.poisson(length, size=len(topics)), 1)
    node = np.repeat(np.arange(len(topics)), lengths)
    word = _draw_by_row(rng, words, topics[node])
    occurs = sp.csr_matrix((np.ones(len(node), dtype=np.float32), (node, word)), shape=(len(topics), d))
    occurs.data[:] = 1.0
    return compact_features(occurs)


def _text_length(words: Floats, share: Floats, density: float) -> float:
    """The mean number of draws that gives the density.

    With a Poisson number λ of draws, word w occurs with probability 1 − exp(−λ p_w), independently of the others.
    """
    low, high = 0.0, 1.0

    def density_at(length: float) -> float:
        return float(share @ (1.0 - np.exp(-length * words)).mean(axis=1))

    while density_at(high) < density and high < 1e9:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if density_at(middle) < density else (low, middle)
    return high


# -- Millions of nodes ---------------------------------------------------------------------------------------------


def _cell_topics(model: BlockModel, labels: Ints, community: Ints, mixing: Floats) -> Ints:
    """[n] the class that a node's features speak of: one for all nodes of a cell, mostly their own."""
    rng = numpy_generator(model.seed, model.name, "ambiguity")
    topics = np.tile(np.arange(model.classes), model.num_communities)
    if model.classes > 1:
        ambiguous = np.flatnonzero(rng.random(len(topics)) < model.ambiguity)
        topics[ambiguous] = _draw_by_row(rng, mixing, topics[ambiguous])
    return np.asarray(topics[community * model.classes + labels])


def _draw_features(model: BlockModel, topics: Ints) -> NDArray[np.float32]:
    """[n, d] normal noise around the centre of each node's topic."""
    rng = numpy_generator(model.seed, model.name, "features")
    centres = np.float32(model.class_signal) * rng.standard_normal((model.classes, model.features), dtype=np.float32)
    result = scratch.empty((model.nodes, model.features))
    for start in range(0, model.nodes, _ROWS):
        block = result[start : start + _ROWS]
        rng.standard_normal(out=block, dtype=np.float32)
        block += centres[topics[start : start + _ROWS]]
    return result


def _draw_keys(model: BlockModel, labels: Ints, community: Ints, weight: Floats, mixing: Floats) -> NDArray[np.int64]:
    """[m] smaller · n + larger end of every link, each once, in no order.

    Links within and between classes cannot be equal, so that either kind is drawn by itself until its number is met.
    """
    n, count = model.nodes, round(model.nodes * model.mean_degree / 2)
    draw = _Links(model, labels, community, weight, mixing)
    within = round(model.homophily * count)
    keys = np.empty(count, dtype=np.int64)
    for same, part in ((True, keys[:within]), (False, keys[within:])):
        # Every node is the source of one link of the more frequent kind.
        some = same == (2 * within >= count)
        first = draw.rng.permutation(n)[: len(part)] if some else np.zeros(0, dtype=np.int64)
        found = 0
        for attempt in range(_BLOCK_ATTEMPTS):
            for start in range(found, len(part), _BLOCK):
                end = min(start + _BLOCK, len(part))
                sources = first[start:end] if attempt == 0 else first[:0]
                part[start:end] = draw(end - start, sources, same=same, attempt=attempt)
            found = _settle(part)
            if found == len(part):
                break
        else:
            raise _no_place(model, len(part) - found, count)
    return keys


def _settle(keys: NDArray[np.int64]) -> int:
    """Sort in place and move the distinct non-negative keys to the front; how many they are."""
    keys.sort()
    kept = 0
    last = np.int64(-1)
    for start in range(0, len(keys), _BLOCK):
        block = keys[start : start + _BLOCK]
        fresh = np.empty(len(block), dtype=bool)
        fresh[0] = block[0] != last
        np.not_equal(block[1:], block[:-1], out=fresh[1:])
        fresh &= block >= 0
        last = block[-1].copy()
        chosen = block[fresh]
        keys[kept : kept + len(chosen)] = chosen
        kept += len(chosen)
    return kept


class _Links:
    """Draws links block by block: less and less locally, from the tenth attempt on without regard to propensity."""

    def __init__(self, model: BlockModel, labels: Ints, community: Ints, weight: Floats, mixing: Floats) -> None:
        self.rng = numpy_generator(model.seed, model.name, "links")
        self._model, self._labels, self._community, self._mixing = model, labels, community, mixing
        self._everyone = _Sampler(np.zeros(model.nodes, dtype=np.int64), weight, 1)
        self._by_cell = _Sampler(community * model.classes + labels, weight, model.num_communities * model.classes)
        self._by_class = _Sampler(labels, weight, model.classes)
        self._anybody: _Sampler | None = None

    def __call__(self, count: int, first: Ints, *, same: bool, attempt: int) -> NDArray[np.int64]:
        """[count] keys of links, -1 for a loop; ``first`` are the sources of the first ones."""
        model, rng = self._model, self.rng
        by_class = self._by_class
        if attempt < 10:
            rest = self._everyone.draw(rng, np.zeros(count - len(first), dtype=np.int64), in_order=True)
            # The order of links plays no part, and what follows looks up sources twice as fast in ascending order.
            source = np.concatenate([np.sort(first), rest])
        else:
            self._anybody = self._anybody or _Sampler(self._labels, np.ones(model.nodes), model.classes)
            by_class, source = self._anybody, rng.integers(model.nodes, size=count)
        label = self._labels[source]
        wanted = label if same else _draw_by_row(rng, self._mixing, label)
        target = np.empty(count, dtype=np.int64)
        far = np.ones(count, dtype=bool)
        if attempt == 0:
            cell = self._community[source] * model.classes + wanted
            near = (rng.random(count) < model.locality) & self._by_cell.has(cell)
            target[near] = self._by_cell.draw(rng, cell[near])
            far = ~near
        target[far] = by_class.draw(rng, wanted[far])
        key = np.minimum(source, target) * model.nodes + np.maximum(source, target)
        key[source == target] = -1
        return np.asarray(key)


def _columns(keys: NDArray[np.int64], nodes: int) -> Any:
    """[2, 2m] both directions of each link, sorted by source and then target."""
    both = np.empty(2 * len(keys), dtype=np.int64)
    both[: len(keys)] = keys
    for start in range(0, len(keys), _BLOCK):
        low, high = np.divmod(keys[start : start + _BLOCK], nodes)
        both[len(keys) + start : len(keys) + start + len(low)] = high * nodes + low
    both.sort()
    edges = np.empty((2, len(both)), dtype=edge_type(nodes))
    for start in range(0, len(both), _BLOCK):
        stop = start + _BLOCK
        edges[0, start:stop], edges[1, start:stop] = np.divmod(both[start:stop], nodes)
    return edges
