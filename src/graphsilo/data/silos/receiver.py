"""One client that cannot learn a class, and others that train on chosen nodes (scenario ``receiver``).

What a client learns of the class from the others' models depends on which nodes they have of it: with many links or
with few, many or few beside those of other classes.

Source: FedLoG (Kim et al., ICLR 2025, figure 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.adjacency import undirected_adjacency
from graphsilo.data.silos.scenarios import Context, ScenarioOptions, build_seen, facts_of
from graphsilo.data.silos.silo import EvaluationSet, Items, Silo
from graphsilo.errors import ConfigError
from graphsilo.random import numpy_generator


def build_receiver(context: Context, client: int) -> Silo:
    """The silo of the receiver or of another client.

    Raises:
        ConfigError: There is no such client or class.
    """
    options, silo = context.options, build_seen(context, client)
    if options.receiver in context.partition.absent:
        raise ConfigError(
            f"scenario.receiver={options.receiver} is left out of this run: choose a client that takes part."
        )
    for name, count, what in (
        ("receiver", context.partition.num_clients, "clients"),
        ("target", context.graph.num_classes, "classes"),
    ):
        if getattr(options, name) >= count:
            raise ConfigError(
                f"scenario.{name}={getattr(options, name)}: there are {count} {what}, numbered from 0; choose one."
            )
    graph, test = silo.graph.union, silo.seen.items["test"]
    asked = test[:0]
    if client == options.receiver:
        train = silo.train[graph.labels[silo.train] != options.target]
        asked = test[graph.labels[test] == options.target]
    else:
        generator = numpy_generator(context.partition.seed, "scenario", "receiver", client)
        train = choose_by_links(silo.train, graph, options, generator)
        train = choose_by_class(train, graph.labels, options, generator)
    seen = replace(silo.seen, items={**silo.seen.items, "train": train})
    question = EvaluationSet("receiver", graph, {"missing_class": asked})
    return replace(
        silo,
        train=train,
        evaluations=(seen, question, *context.shared),
        facts=facts_of(graph, train),
    )


def count_chosen(rows: Sequence[dict[str, Any]], silos: Sequence[Silo]) -> None:
    """Write into the audit's rows what clients are left to train on; who is left out keeps its row."""
    held = {silo.client: silo for silo in silos}
    for row in rows:
        if (silo := held.get(row["client"])) is not None:
            row.update(train=len(silo.train), missing_classes=np.flatnonzero(silo.class_counts() == 0).tolist())


def choose_by_links(train: Items, graph: Graph, options: ScenarioOptions, generator: np.random.Generator) -> Items:
    """Training items with more links in the silo than ``scenario.degree``, with no more, or of both half; ascending.

    Args:
        train: To choose from.
        graph: The silo's.
        options: Says which; each choice has as many nodes of a class: as the lesser of the two groups has.
        generator: Draws them.
    """
    if options.links == "all":
        return train
    labels, links = graph.labels, np.diff(undirected_adjacency(graph).indptr)
    chosen = []
    for label in np.unique(labels[train]):
        mine = train[labels[train] == label]
        groups = [mine[links[mine] > options.degree], mine[links[mine] <= options.degree]]
        count = min(map(len, groups))
        most = {"many": count, "few": 0, "half": (count + 1) // 2}[options.links]
        chosen += [
            generator.permutation(group)[:size] for group, size in zip(groups, (most, count - most), strict=True)
        ]
    return np.sort(np.concatenate(chosen, dtype=np.int64)) if chosen else train


def choose_by_class(
    train: Items, labels: NDArray[np.int64], options: ScenarioOptions, generator: np.random.Generator
) -> Items:
    """Training items, n of the target class and n + r / 10 · m of every other one, as far as there are; ascending.

    Args:
        train: To choose from.
        labels: [n] classes.
        options: ``class_rate`` is r, none takes all. m is the number of items of the smallest class that has any, and n
            half of it, rounded up.
        generator: Draws them.
    """
    if options.class_rate is None or not len(train):
        return train
    present, counts = np.unique(labels[train], return_counts=True)
    smallest = int(counts.min())
    half = (smallest + 1) // 2
    other = round(half + options.class_rate / 10 * smallest)
    chosen = [
        generator.permutation(train[labels[train] == label])[: half if label == options.target else other]
        for label in present
    ]
    return np.sort(np.concatenate(chosen))
