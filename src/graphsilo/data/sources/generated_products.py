"""A generated graph of millions of nodes with dense features, like a network of products bought together.

Links come from the block model of :mod:`graphsilo.data.sources.generated`; features are Gaussian around one centre per
class, as embeddings of product texts are. Everything large is made in blocks, in the type in which it is kept, so that
the peak is little above the finished graph.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, edge_type
from graphsilo.data.sources import scratch
from graphsilo.data.sources.block_model import (
    BlockModel,
    Floats,
    Ints,
    Sampler,
    about,
    class_mixing,
    draw_by_row,
    draw_communities,
    draw_labels,
    draw_weights,
    no_place,
)
from graphsilo.random import numpy_generator

_BLOCK = 1 << 21
"""Links that are drawn, or columns that are converted, at once."""
_ROWS = 1 << 16
"""Rows of features that are drawn at once."""
_ATTEMPTS = 40


class ProductSBM(BlockModel):
    """Settings of ``product-sbm``; the defaults give 30 million links, that is 60 million columns of edges."""

    name: ClassVar[str] = "product-sbm"
    nodes: int = about("nodes", 2_400_000)
    classes: int = about("classes", 47)
    features: int = about("features", 100, "d")
    mean_degree: float = about("mean_degree", 25.0)
    class_signal: float = about(
        "class_signal", 0.25, "length of a class centre's entries against noise of 1; at 0 features say nothing"
    )
    ambiguity: float = about(
        "ambiguity", 0.2, "share of cells (classes within a community) whose features are those of another class; "
        "neighbours do not help there, as most of them are of the same cell",
    )  # fmt: skip


def product_sbm(**settings: Any) -> Graph:
    """A graph like ogbn-products: millions of nodes, heavy-tailed degrees, dense features.

    Expected degrees end at √(n · mean degree), the largest that a graph without double links can have by chance.

    Returns:
        An undirected graph (two columns per link, no loops, no duplicates, sorted by source, int32) with dense
        features [n, d].

    Raises:
        ConfigError: A setting is out of range, or so many links do not fit.

    Source: Karrer and Newman (2011), "Stochastic blockmodels and community structure in networks".
    """
    model = ProductSBM.of(settings, owner=ProductSBM.name)
    labels = draw_labels(model)
    community = draw_communities(model, labels)
    weight = draw_weights(model)
    weight = np.minimum(weight, weight.mean() * np.sqrt(model.nodes / max(model.mean_degree, 1.0)))
    mixing = class_mixing(model, labels, weight, ring=False)
    return Graph(
        features=_draw_features(model, _topics(model, labels, community, mixing)),
        # Narrow, as a Graph may be; the declared type is the wide one that small graphs have.
        edges=_columns(_draw_keys(model, labels, community, weight, mixing), model.nodes),
        labels=labels,
        num_classes=model.classes,
        name=model.name,
    )


def _topics(model: BlockModel, labels: Ints, community: Ints, mixing: Floats) -> Ints:
    """[n] the class that a node's features speak of: one for all nodes of a cell, mostly their own."""
    rng = numpy_generator(model.seed, model.name, "ambiguity")
    topics = np.tile(np.arange(model.classes), model.num_communities)
    if model.classes > 1:
        ambiguous = np.flatnonzero(rng.random(len(topics)) < model.ambiguity)
        topics[ambiguous] = draw_by_row(rng, mixing, topics[ambiguous])
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
        for attempt in range(_ATTEMPTS):
            for start in range(found, len(part), _BLOCK):
                end = min(start + _BLOCK, len(part))
                sources = first[start:end] if attempt == 0 else first[:0]
                part[start:end] = draw(end - start, sources, same=same, attempt=attempt)
            found = _settle(part)
            if found == len(part):
                break
        else:
            raise no_place(model, len(part) - found, count)
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
        self._everyone = Sampler(np.zeros(model.nodes, dtype=np.int64), weight, 1)
        self._by_cell = Sampler(community * model.classes + labels, weight, model.num_communities * model.classes)
        self._by_class = Sampler(labels, weight, model.classes)
        self._anybody: Sampler | None = None

    def __call__(self, count: int, first: Ints, *, same: bool, attempt: int) -> NDArray[np.int64]:
        """[count] keys of links, -1 for a loop; ``first`` are the sources of the first ones."""
        model, rng = self._model, self.rng
        by_class = self._by_class
        if attempt < 10:
            rest = self._everyone.draw(rng, np.zeros(count - len(first), dtype=np.int64), in_order=True)
            # The order of links plays no part, and what follows looks up sources twice as fast in ascending order.
            source = np.concatenate([np.sort(first), rest])
        else:
            self._anybody = self._anybody or Sampler(self._labels, np.ones(model.nodes), model.classes)
            by_class, source = self._anybody, rng.integers(model.nodes, size=count)
        label = self._labels[source]
        wanted = label if same else draw_by_row(rng, self._mixing, label)
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
