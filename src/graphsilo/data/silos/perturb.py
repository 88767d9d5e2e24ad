"""Sparsity and noise in what a client trains on. What it is tested on stays clean.

Centralised training pools silos that are perturbed already (``pooling.pooled_silo``), so that it learns from what the
clients hold: same shares, same draws. A pooled silo is not perturbed again.

Source: FedPG (Wu et al., IV-H) for sparsity; OpenFGL for the rule that evaluation uses clean data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, GraphCollection
from graphsilo.data.partition.adjacency import both_directions, undirected_links
from graphsilo.data.partition.pairs import PairSpace, pair_keys, sample_unlinked
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import UnsupportedError
from graphsilo.random import numpy_generator
from graphsilo.settings import ABOVE_ZERO, Settings, setting
from graphsilo.types import Mask


class PerturbOptions(Settings):
    """How much of a client's training data is taken away or spoiled; 0 changes nothing."""

    section: ClassVar[str] = "perturb"

    feature_sparsity: float = setting(
        0.0, "share of the unlabelled nodes (those not trained on) whose features become 0; for graph classification "
        "the nodes of that share of the unlabelled graphs", ge=0, le=1,
    )  # fmt: skip
    feature_noise: float = setting(
        0.0, "standard deviation of Gaussian noise on all features, in units of the features' own standard deviation; "
        "of a sparse matrix only the stored entries change, so that it stays sparse", ge=0,
    )  # fmt: skip
    edge_sparsity: float = setting(0.0, "share of the links removed, both directions together", ge=0, le=1)
    edge_noise: float = setting(
        0.0, "random new links, as a share of the client's own; never a link that exists, never between graphs; of "
        "weight 1 where edges have weights, and towards later nodes where nodes have times", ge=0,
    )  # fmt: skip
    label_sparsity: float = setting(0.0, "share of the training items that lose their label", ge=0, le=1)
    keep_classes: bool = setting(
        True, "leave at least one training item of every class that has one", when={"label_sparsity": ABOVE_ZERO}
    )
    label_noise: float = setting(
        0.0, "share of the training items whose label changes to another class, drawn uniformly", ge=0, le=1
    )

    @property
    def is_nothing(self) -> bool:
        """Whether these settings leave the data as it is."""
        return not any(value for name, value in self if name != "keep_classes")


def perturb(silo: Silo, options: PerturbOptions | Mapping[str, Any] | None, *, seed: int) -> Silo:
    """Spoil what one client trains on.

    Each kind draws from its own stream, named by the client, so one kind does not move the draws of another, and
    the order of clients plays no part.

    Returns:
        A silo with another training graph, training items or labels and the same evaluation sets.

    Raises:
        ConfigError: A setting is unknown or out of range.
        UnsupportedError: Labels are to be spoiled for link prediction, noise needs a second class or classes at all,
            or tables of links or types of nodes would contradict what is changed.
    """
    settings = PerturbOptions.of(options)
    if settings.is_nothing:
        return silo
    if silo.links is not None and (settings.label_sparsity or settings.label_noise):
        raise UnsupportedError("link prediction has no labels to spoil: use edge_sparsity or edge_noise.")
    inner = silo.graph.union
    if any(part is not None for part in (inner.links, inner.types, inner.targets)):
        from graphsilo.data.silos.typed import refuse_spoiling

        refuse_spoiling(
            inner, edges=settings.edge_sparsity + settings.edge_noise > 0,
            features=settings.feature_sparsity + settings.feature_noise > 0, labels=settings.label_noise > 0,
        )  # fmt: skip

    def stream(kind: str) -> np.random.Generator:
        return numpy_generator(seed, "perturb", kind, silo.client)

    train, labels = silo.train, silo.labels
    if settings.label_sparsity:
        train = thin_labels(
            train, labels, settings.label_sparsity, stream("label_sparsity"), keep_classes=settings.keep_classes
        )
    noisy = silo.noisy_labels
    if settings.label_noise:
        noisy = flip_labels(train, labels, settings.label_noise, silo.schema.num_classes, stream("label_noise"))
    # Where the nodes of each item begin and end.
    pointer = silo.graph.pointer if isinstance(silo.graph, GraphCollection) else np.arange(inner.num_nodes + 1)
    features, edges, weights, links = inner.features, inner.edges, inner.edge_weights, silo.links
    if settings.feature_noise:
        features = add_feature_noise(features, settings.feature_noise, stream("feature_noise"))
    if settings.feature_sparsity:
        features = hide_features(features, pointer, train, settings.feature_sparsity, stream("feature_sparsity"))
    if settings.edge_sparsity:
        kept = thin_edges(edges, settings.edge_sparsity, stream("edge_sparsity"))
        edges, weights = np.ascontiguousarray(edges[:, kept]), None if weights is None else weights[kept]
        if links is not None:
            n = inner.num_nodes
            left = np.isin(pair_keys(links.train, n), pair_keys(edges, n)) if links.train.size else np.zeros(0, bool)
            links = replace(links, train=links.train[:, left])
    if settings.edge_noise:
        # A hidden link must not come back as noise, nor a removed one.
        known = inner.edges if links is None else np.concatenate([inner.edges, links.val, links.test], axis=1)
        span = pointer if isinstance(silo.graph, GraphCollection) else np.array([0, inner.num_nodes], dtype=np.int64)
        own = undirected_links(inner.edges).shape[1]
        new = random_edges(known, span, round(settings.edge_noise * own), stream("edge_noise"))
        if inner.time is not None:
            from graphsilo.data.silos.typed import keep_forward

            new = keep_forward(inner, new, "edge_noise")
        edges = np.concatenate([edges, new], axis=1)
        if weights is not None:
            weights = np.concatenate([weights, np.ones(new.shape[1], dtype=np.float32)])
    changed = replace(inner, features=features, edges=edges, edge_weights=weights)
    graph = replace(silo.graph, union=changed) if isinstance(silo.graph, GraphCollection) else changed
    return replace(
        silo,
        graph=graph,
        train=train,
        noisy_labels=noisy,
        links=links,
        facts={**silo.facts, "edges": int(edges.shape[1]), "train": len(train)},
    )


def hide_features(
    features: Features,
    pointer: NDArray[np.int64],
    train: NDArray[np.int64],
    share: float,
    generator: np.random.Generator,
) -> Features:
    """Set the features of a share of the unlabelled items to 0.

    Args:
        features: [n, d].
        pointer: [items + 1] the nodes of each item; one node each in node classification.
        train: Items that keep their features.
        share: Of the other items, rounded to whole ones.
        generator: Source of randomness.
    """
    unlabelled = np.setdiff1d(np.arange(len(pointer) - 1), train)
    chosen = generator.choice(unlabelled, size=round(share * len(unlabelled)), replace=False)
    hidden = np.zeros(len(pointer) - 1, dtype=bool)
    hidden[chosen] = True
    rows = np.repeat(hidden, np.diff(pointer))
    if sp.issparse(features):
        return sp.csr_matrix(sp.diags((~rows).astype(np.float32)) @ features, dtype=features.dtype)
    changed = np.array(features)
    changed[rows] = 0.0
    return changed


def add_feature_noise(features: Features, deviation: float, generator: np.random.Generator) -> Features:
    """Add Gaussian noise of ``deviation`` times the standard deviation of all entries (stored entries if sparse)."""
    if sp.issparse(features):
        changed = features.copy()
        scale = deviation * _deviation(features)
        changed.data = changed.data + scale * generator.standard_normal(len(changed.data), dtype=np.float32)
        return changed
    scale = deviation * float(np.std(features))
    return np.asarray(features + np.float32(scale) * generator.standard_normal(features.shape, dtype=np.float32))


def thin_edges(edges: NDArray[np.int64], share: float, generator: np.random.Generator) -> Mask:
    """[e] which edges stay when a share of the links, rounded to whole ones, goes in both directions; loops stay."""
    if not edges.size:
        return np.ones(0, dtype=bool)
    proper = edges[0] != edges[1]
    links, numbers = np.unique(pair_keys(edges[:, proper], int(edges.max()) + 1), return_inverse=True)
    stays = np.ones(len(links), dtype=bool)
    stays[generator.choice(len(links), size=round(share * len(links)), replace=False)] = False
    kept = np.ones(edges.shape[1], dtype=bool)
    kept[proper] = stays[numbers]
    return kept


def random_edges(
    known: NDArray[np.int64],
    pointer: NDArray[np.int64],
    count: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Random links between nodes of one graph, [2, 2 · links]: both directions of each.

    Args:
        known: [2, m] pairs that must not be drawn.
        pointer: [graphs + 1] the nodes of each graph.
        count: New links; fewer where not enough pairs are free.
        generator: Source of randomness.
    """
    owner = np.repeat(np.arange(len(pointer) - 1), np.diff(pointer))
    links = sample_unlinked(PairSpace(len(owner), "same", owner), known, count, generator, at_most=True)
    return both_directions(links)


def thin_labels(
    train: NDArray[np.int64],
    labels: NDArray[np.int64],
    share: float,
    generator: np.random.Generator,
    *,
    keep_classes: bool,
) -> NDArray[np.int64]:
    """Drop a share of the training items, rounded to whole ones; the order of the others stays.

    With ``keep_classes`` the first drawn item of every class stays, whatever the share; without it at least one
    training item stays.
    """
    order = generator.permutation(len(train))
    if keep_classes:
        spared = order[np.sort(np.unique(labels[train[order]], return_index=True)[1])]
    else:
        spared = order[:1]
    is_spared = np.zeros(len(train), dtype=bool)
    is_spared[spared] = True
    removable = order[~is_spared[order]]
    keep = np.ones(len(train), dtype=bool)
    keep[removable[: round(share * len(train))]] = False
    return train[keep]


def flip_labels(
    train: NDArray[np.int64],
    labels: NDArray[np.int64],
    share: float,
    num_classes: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """[items] labels in which a share of the training items, rounded to whole ones, has another class.

    Raises:
        UnsupportedError: There is only one class.
    """
    if num_classes < 2:
        raise UnsupportedError("label noise needs at least two classes; there is one.")
    chosen = generator.choice(train, size=round(share * len(train)), replace=False)
    changed = labels.copy()
    changed[chosen] = (labels[chosen] + generator.integers(1, num_classes, size=len(chosen))) % num_classes
    return changed


def _deviation(features: sp.csr_matrix) -> float:
    """Standard deviation of all entries of a sparse matrix, zeros included."""
    size = features.shape[0] * features.shape[1]
    mean = float(features.data.sum(dtype=np.float64)) / max(size, 1)
    square = float(np.square(features.data, dtype=np.float64).sum()) / max(size, 1)
    return float(np.sqrt(max(square - mean * mean, 0.0)))
