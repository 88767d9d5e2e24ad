"""What one client holds: its private data, what it may train on, and what it is asked at test time.

A Silo never leaves its client. The server sees only a Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph, GraphCollection
from graphsilo.data.sources.directions import has_directions
from graphsilo.types import TARGET_TASKS, ClientId, Task

if TYPE_CHECKING:
    from graphsilo.data.silos.scaling import FeatureScale
    from graphsilo.data.truth import Words

Items: TypeAlias = "NDArray[np.int64]"
"""Local numbers of what is scored: nodes (node task) or graphs (graph task)."""


@dataclass(frozen=True)
class Schema:
    """What all clients of a federation agree on before round 1; public.

    Attributes:
        task: Of the run.
        num_features, num_classes: How many there are.
        feature_names, class_names: What they are called, where that is known.
        booleans: Words of 0 and words of 1, at any of the clients, of each feature that is a truth value.
        directed, weighted: Whether links have directions, and weights.
        types: Of nodes, where there are several.
        relations: What the tables of links are called, where they say more than which nodes are linked.
        link_features: What the columns of these tables are called.
        target: Type of the nodes that are classified, where there are several types.
        ends: Types of the nodes that the rows of each relation begin and end at, where there are several types.
    """

    task: Task
    num_features: int
    num_classes: int
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    booleans: Mapping[str, Words] = field(default_factory=dict, hash=False)
    directed: bool = False
    weighted: bool = False
    types: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    link_features: tuple[str, ...] = ()
    target: str = ""
    ends: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, graph: Graph, task: Task) -> Schema:
        """What a graph says of itself, for a task of nodes or links."""
        return cls(
            task, graph.num_features, graph.num_classes, graph.feature_names, graph.class_names, graph.booleans,
            has_directions(graph), graph.edge_weights is not None,
            () if graph.types is None else graph.types.names, **cls.of_links(graph),
            target="" if graph.types is None else graph.types.names[graph.types.target],
            ends=() if graph.links is None else graph.links.lead(graph.types),
        )  # fmt: skip

    @staticmethod
    def of_links(graph: Graph) -> dict[str, Any]:
        """What a graph says of its tables of links."""
        links = graph.links
        return {} if links is None else {"relations": links.relations, "link_features": links.feature_names}


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of nodes for link prediction; the graph's own edges are what messages may pass along.

    Each value is [2, m] int64, one column per pair. Training negatives are drawn again each epoch.
    """

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    val_negative: NDArray[np.int64]
    test: NDArray[np.int64]
    test_negative: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CutLinks:
    """Links between a silo's nodes and those of other silos: both silos know them, and neither has them as edges.

    Attributes:
        ids: [n] int64 what the silo's own nodes are called among silos, by local number.
        node: [m] int64 the own end of each link, a local number.
        other: [m] int64 what the other end is called.
    """

    ids: NDArray[np.int64]
    node: NDArray[np.int64]
    other: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """One question asked at test time: a graph and the items to be classified on it.

    Attributes:
        name: ``seen`` (the client's own graph), ``grown`` (own graph plus returned nodes), ``new_client``, ``full``
            (the silo's whole graph, inductive), ``receiver`` (the client's own graph again), ``global`` (the pooled
            graph with cross-client edges).
        graph: The graph that the model sees for this question. Clean: no noise, no sparsity.
        items: Numbers of the scored items by kind: ``{"val": ..., "test": ...}`` or
            ``{"missing_class": ..., "unseen_node": ...}``.
        part: [n] int64 or None. Where a pooled graph is scored client by client: the client each item belongs to, by
            its place among those that are pooled.
    """

    name: str
    graph: Graph | GraphCollection
    items: Mapping[str, Items]
    part: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Silo:
    """The private data of one client.

    Attributes:
        client: Number of the client, from 0.
        graph: What training sees, with perturbations applied. Labels of nodes outside ``train`` are there for
            evaluation; a method must not use them (tested by permuting them).
        train: Local numbers of the labelled items that may be learned from.
        evaluations: What is asked at test time; the first is ``seen`` and holds ``val`` and ``test``.
        schema: What is agreed with the others.
        links: Only for link prediction.
        parts: How many original clients this silo pools; 1 except for centralised training.
        noisy_labels: [items] labels after label noise, or None where they are clean.
        facts: Counts for the report that never travel.
        fills: What an empty cell of each feature is filled with, by the feature's name; None where none may be empty.
            Private, and kept with the models, so that rows of a later table are filled alike.
        estimated: As of the graph that it was made of.
        scale: By what all its features were scaled, or None where they are as they were read.
        cut: Links to nodes of other silos that lead to its own; None where it is not known whether there are any.
        shares_ids: Whether it is a part of a graph that was cut, so that a node has one global id at every silo that
            holds it. Ids in tables of the silo's own may be others' ids of other nodes.
    """

    client: ClientId
    graph: Graph | GraphCollection
    train: Items
    evaluations: tuple[EvaluationSet, ...]
    schema: Schema
    links: Links | None = None
    parts: int = 1
    noisy_labels: NDArray[np.int64] | None = None
    facts: Mapping[str, float | int | list[int]] = field(default_factory=dict)
    fills: Mapping[str, float] | None = None
    estimated: tuple[str, ...] = ()
    scale: FeatureScale | None = None
    cut: CutLinks | None = None
    shares_ids: bool = False

    @property
    def num_items(self) -> int:
        """Nodes of the training graph, or graphs of the collection: the n_k of the papers."""
        return self.graph.num_items

    @property
    def labels(self) -> NDArray[np.int64]:
        """Labels to learn from, [items]; only rows in ``train`` may be read by a method."""
        return self.graph.labels if self.noisy_labels is None else self.noisy_labels

    @property
    def has_targets(self) -> bool:
        """Whether it has these, and no classes."""
        return self.schema.task in TARGET_TASKS

    @property
    def seen(self) -> EvaluationSet:
        return self.evaluations[0]

    def train_of_classes(self, least: int) -> NDArray[np.int64]:
        """Training items that are labelled, of a class with so many of them or more; of several targets all known."""
        labels = self.labels[self.train]
        enough = self.class_counts() >= least
        found: NDArray[np.int64] = self.train[(labels >= 0) & enough[np.maximum(labels, 0)]]
        targets = self.graph.union.targets
        return found if targets is None else found[~np.isnan(targets.values[found]).any(axis=1)]

    def labelled_validation(self) -> NDArray[np.int64]:
        """Validation items of the first evaluation set that are labelled."""
        items = np.asarray(self.seen.items["val"], dtype=np.int64)
        return items[self.seen.graph.labels[items] >= 0]

    def class_counts(self) -> NDArray[np.int64]:
        """[classes] number of training items per class."""
        labels = self.labels[self.train]
        return np.bincount(labels[labels >= 0], minlength=self.schema.num_classes)
