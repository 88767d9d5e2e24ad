"""Graphs that are generated: seeded, in any size, and as learnable as the real ones they imitate.

Links come from a degree-corrected stochastic block model (Karrer and Newman, 2011) over cells: a *cell* is one class
within one *community*, so that communities hold several classes in uneven shares, as in citation graphs. Features are
a sparse bag of words: each class has a topic, a distribution over its own words, mixed with a background that all
share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from pydantic import model_validator

from graphsilo.data.graph import Features, Graph
from graphsilo.data.sources.block_model import (
    BlockModel,
    Floats,
    Ints,
    Sampler,
    about,
    class_mixing,
    contains,
    draw_by_row,
    draw_communities,
    draw_labels,
    draw_other_class,
    draw_topics,
    draw_weights,
    no_place,
)
from graphsilo.data.sources.generated_products import ProductSBM, product_sbm
from graphsilo.data.sources.sizes import dense_bytes
from graphsilo.data.sources.transforms import compact_features
from graphsilo.random import numpy_generator

_ATTEMPTS = 60


class TextModel(BlockModel):
    """Settings of a block model whose nodes have texts."""

    feature_density: float = about("feature_density", 0.0127)

    @model_validator(mode="after")
    def _words(self) -> Self:
        self._demand("features", self.features >= self.classes, f"at least one word per class, {self.classes}")
        return self


class CitationSBM(TextModel):
    """Settings of ``citation-sbm``."""

    name: ClassVar[str] = "citation-sbm"


class HeterophilySBM(TextModel):
    """Settings of ``heterophily-sbm``."""

    name: ClassVar[str] = "heterophily-sbm"
    nodes: int = about("nodes", 2500)
    classes: int = about("classes", 5)
    features: int = about("features", 1000)
    homophily: float = about("homophily", 0.2)
    mean_degree: float = about("mean_degree", 12.0)
    class_signal: float = about("class_signal", 0.2)
    ambiguity: float = about("ambiguity", 0.12)
    class_imbalance: float = about("class_imbalance", 0.25)
    locality: float = about("locality", 0.8)
    feature_density: float = about("feature_density", 0.015)


def citation_sbm(**settings: Any) -> Graph:
    """A graph like Cora: homophilous, heavy-tailed, with communities, unequal classes and a sparse bag of words.

    With the default settings and 20 % of the nodes for training, a two-layer GCN reaches an accuracy of about 0.87 and
    a two-layer perceptron about 0.6.

    Returns:
        An undirected graph (two columns per link, no loops, no duplicates) with CSR features of zeros and ones.

    Raises:
        ConfigError: A setting is out of range, or so many links do not fit.

    Source: Karrer and Newman (2011), "Stochastic blockmodels and community structure in networks".
    """
    return _generate(CitationSBM.of(settings, owner=CitationSBM.name), ring=False)


def heterophily_sbm(**settings: Any) -> Graph:
    """A graph like chameleon: most links join different classes, but not at random.

    Classes stand in a ring, and links between classes join neighbours on the ring. What a node's neighbours look like
    therefore tells its class, which a GNN can learn although neighbours rarely share the class. With the default
    settings and 20 % of the nodes for training, a two-layer GCN reaches an accuracy of about 0.72 and a two-layer
    perceptron about 0.4.

    Returns, Raises: As for :func:`citation_sbm`.
    """
    return _generate(HeterophilySBM.of(settings, owner=HeterophilySBM.name), ring=True)


GENERATORS: Mapping[str, tuple[type[BlockModel], Callable[..., Graph]]] = {
    "citation-sbm": (CitationSBM, citation_sbm),
    "heterophily-sbm": (HeterophilySBM, heterophily_sbm),
    "product-sbm": (ProductSBM, product_sbm),
}
"""Settings of each generated data set, and what makes it of them."""


def settings_of(name: str) -> type[BlockModel] | None:
    """The settings of a generated data set; None for another name."""
    return GENERATORS[name][0] if name in GENERATORS else None


def generate(name: str, settings: Mapping[str, Any], *, seed: int = 0) -> Graph:
    """Runs a generator by name; a ``seed`` among the settings wins over the argument.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
    """
    return GENERATORS[name][1](**{"seed": seed, **settings})


def memory_needed(name: str, settings: Mapping[str, Any]) -> int:
    """Bytes that a generator takes at the very least: its links while they are sorted, and the features.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
    """
    chosen = GENERATORS[name][0].of(settings, owner=name)
    links = chosen.nodes * chosen.mean_degree / 2
    if not isinstance(chosen, TextModel):
        # One key per link, then one per direction.
        return int(8 * links + 16 * links + dense_bytes(chosen.nodes, chosen.features))
    return int(32 * links + 8 * chosen.nodes * chosen.features * chosen.feature_density)


def _generate(settings: TextModel, *, ring: bool) -> Graph:
    labels = draw_labels(settings)
    community = draw_communities(settings, labels)
    weight = draw_weights(settings)
    mixing = class_mixing(settings, labels, weight, ring=ring)
    topics = draw_topics(settings, labels, mixing)
    links = _draw_links(settings, labels, topics, community, weight, mixing)
    both = np.concatenate([links, links[::-1]], axis=1)
    edges = both[:, np.lexsort((both[1], both[0]))]
    return Graph(
        features=_draw_words(settings, topics),
        edges=np.ascontiguousarray(edges),
        labels=labels,
        num_classes=settings.classes,
        name=settings.name,
    )


def _draw_links(
    settings: TextModel, labels: Ints, topics: Ints, community: Ints, weight: Floats, mixing: Floats
) -> Ints:
    """[2, m] distinct links without loops, of which round(homophily · m) join nodes of one class.

    Each node is the source of one link, further sources are drawn by propensity. Targets are drawn by propensity from
    a cell (class within community) or a whole class; what collides is drawn anew, less and less locally.
    """
    rng = numpy_generator(settings.seed, settings.name, "links")
    n, count = settings.nodes, round(settings.nodes * settings.mean_degree / 2)
    everyone = Sampler(np.zeros(n, dtype=np.int64), weight, 1)
    first = rng.permutation(n)[:count]
    source = np.concatenate([first, everyone.draw(rng, np.zeros(count - len(first), dtype=np.int64))])
    same = np.zeros(count, dtype=bool)
    stranger = topics[source] != labels[source]
    same[np.argsort(rng.random(count) + 0.7 * stranger)[: round(settings.homophily * count)]] = True

    by_cell = Sampler(community * settings.classes + labels, weight, settings.num_communities * settings.classes)
    by_class = Sampler(labels, weight, settings.classes)
    target = np.zeros(count, dtype=np.int64)
    taken = np.zeros(0, dtype=np.int64)
    pending = np.arange(count)
    for attempt in range(_ATTEMPTS):
        if attempt >= _ATTEMPTS // 2:
            # A crowded hub may know its whole class by now: let somebody else ask, and anybody answer.
            by_class = Sampler(labels, np.ones(n), settings.classes)
            source[pending] = rng.integers(n, size=len(pending))
        start = source[pending]
        other = draw_other_class(rng, labels[start], topics[start], mixing, settings.homophily)
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
    raise no_place(settings, len(pending), count)


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
    word = draw_by_row(rng, words, topics[node])
    occurs = sp.csr_matrix((np.ones(len(node), dtype=np.float32), (node, word)), shape=(len(topics), d))
    occurs.data[:] = 1.0
    return compact_features(occurs)


def _text_length(words: Floats, share: Floats, density: float) -> float:
    """The mean number of draws that gives the density.

    With a Poisson number λ of draws, word w occurs with probability 1 − exp(−λ p_w), independently of the others.
    """
    low, high = 0.0, 1.0

    def reached(length: float) -> float:
        return float(share @ (1.0 - np.exp(-length * words)).mean(axis=1))

    while reached(high) < density and high < 1e9:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < density else (low, middle)
    return high
