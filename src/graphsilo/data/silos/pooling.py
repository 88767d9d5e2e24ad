"""All clients' data in one place: the silo that the centralised reference trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.pairs import pair_keys
from graphsilo.data.silos.joining import disjoint_union, first_numbers
from graphsilo.data.silos.parts import keep_edges, with_added_links
from graphsilo.data.silos.scenarios import ScenarioOptions, build_silos
from graphsilo.data.silos.silo import EvaluationSet, Links, Silo
from graphsilo.errors import ConfigError
from graphsilo.types import NODE_TASKS, NodeIds, Task

_SHARED = ("global", "new_client")
_LINK_FIELDS = ("train", "val", "val_negative", "test", "test_negative")


def pooled_silo(
    graph: Graph,
    partition: Partition,
    *,
    cross_edges: bool,
    scenario: str = "seen",
    options: ScenarioOptions | Mapping[str, Any] | None = None,
    task: Task = "node",
    link_ratios: Sequence[float] | None = None,
    spoil: Callable[[Silo], Silo] | None = None,
) -> Silo:
    """All clients' data in one place, for centralised training.

    Args:
        graph, partition, scenario, options, task, link_ratios: As for ``scenarios.build_silos``.
        cross_edges: Keep the edges between clients; without them the graph is the disjoint union of the silos.
        spoil: What is done to the training data of each client before pooling, such as ``perturb.perturb``; what the
            silo is tested on stays clean, and so do the edges between clients, which are no client's data. Of a node
            that several clients hold, a client that trains on it is believed, and the first of several.

    Returns:
        A silo that trains on the union of all training nodes. Its evaluation sets ask the same questions as the
        clients' own; ``part`` names the client of each node.

    Raises:
        As ``scenarios.build_silos``.
    """
    silos = build_silos(graph, partition, scenario=scenario, options=options, task=task, link_ratios=link_ratios)
    pooled = pool_silos(silos)
    spoilt = pooled if spoil is None else pool_silos([spoil(silo) for silo in silos])
    if not cross_edges:
        return spoilt
    base = with_added_links(graph, partition)
    first = pooled.evaluations[0]
    assert first.part is not None
    seen_rows = base.rows_of(first.graph.global_ids)
    train_rows = base.rows_of(pooled.graph.global_ids)
    whole, seen_position = _cross(base, seen_rows)
    items = dict(first.items)
    if task in NODE_TASKS:
        items = {name: np.unique(seen_position[ids]) for name, ids in items.items()}
    part = np.empty(whole.num_nodes, dtype=np.int64)
    part[seen_position[::-1]] = first.part[::-1]
    if np.array_equal(seen_rows, train_rows):
        trained, train_position = whole, seen_position
    else:
        trained, train_position = _cross(base, train_rows)
    links = pooled.links
    if links is not None:
        # Validation and test links must stay hidden: only edges between clients are added to the message edges.
        between = part[whole.edges[0]] != part[whole.edges[1]]
        n = whole.num_nodes
        message = np.isin(pair_keys(whole.edges, n), pair_keys(seen_position[first.graph.union.edges], n))
        trained = whole = keep_edges(whole, between | message)
        links = Links(**{name: seen_position[getattr(links, name)] for name in _LINK_FIELDS})
    seen = EvaluationSet("seen", whole, items, part)
    joined = replace(
        pooled,
        graph=trained,
        train=np.unique(train_position[pooled.train]),
        evaluations=(seen, *pooled.evaluations[1:]),
        links=links,
        facts={**pooled.facts, "nodes": trained.num_nodes, "edges": trained.num_edges},
    )
    return joined if spoil is None else _with_spoilt(joined, train_position, before=pooled, after=spoilt)


def _with_spoilt(joined: Silo, position: NDArray[np.int64], *, before: Silo, after: Silo) -> Silo:
    """Put what was spoilt at the clients into the pooled silo with the edges between clients.

    Args:
        joined: That silo, clean.
        position: [n] where each node of the disjoint unions stands in it.
        before, after: Disjoint unions of the clients, clean and spoilt.
    """
    graph, clean, spoilt = joined.graph.union, before.graph.union, after.graph.union
    n = graph.num_nodes
    source = np.empty(n, dtype=np.int64)
    source[position[::-1]] = np.arange(len(position))[::-1]
    source[position[after.train[::-1]]] = after.train[::-1]
    between = ~np.isin(pair_keys(graph.edges, n), pair_keys(position[clean.edges], n))
    inside = position[spoilt.edges]
    kept = np.sort(np.unique(inside[0] * n + inside[1], return_index=True)[1])
    weights = None
    if graph.edge_weights is not None and spoilt.edge_weights is not None:
        weights = np.concatenate([spoilt.edge_weights[kept], graph.edge_weights[between]])
    changed = replace(
        graph,
        features=spoilt.features[source],
        edges=np.concatenate([inside[:, kept], graph.edges[:, between]], axis=1),
        edge_weights=weights,
    )
    train = np.unique(position[after.train])
    links = joined.links
    if links is not None and after.links is not None:
        links = replace(links, train=position[after.links.train])
    return replace(
        joined,
        graph=changed,
        train=train,
        noisy_labels=None if after.noisy_labels is None else after.noisy_labels[source],
        links=links,
        facts={**joined.facts, "edges": changed.num_edges, "train": len(train)},
    )


def pool_silos(silos: Sequence[Silo]) -> Silo:
    """The disjoint union of silos: what a centralised learner would hold if no edge joined them.

    Sets named ``global`` and ``new_client``, which all silos share, stay as they are; of every other set the graphs
    are joined and ``part`` names the client of each item.

    Raises:
        ConfigError: There is no silo.
        UnsupportedError: Some silos hold one graph and others a collection.
    """
    if not silos:
        raise ConfigError("there is no silo to pool: name at least one client.")
    graphs = [silo.graph for silo in silos]
    shifts = first_numbers(graphs)
    links = None
    if all(silo.links is not None for silo in silos):
        links = Links(
            **{
                name: np.concatenate(
                    [getattr(silo.links, name) + shift for silo, shift in zip(silos, shifts, strict=True)], axis=1
                )
                for name in _LINK_FIELDS
            }
        )
    evaluations = []
    for number, first in enumerate(silos[0].evaluations):
        sets = [silo.evaluations[number] for silo in silos]
        if first.name in _SHARED:
            evaluations.append(first)
            continue
        offsets = first_numbers([item.graph for item in sets])
        names = list(first.items)
        counts = [item.graph.num_items for item in sets]
        if links is not None:
            # Items of the link task number the pairs of Links, which run on from client to client.
            items = {name: np.arange(sum(len(item.items[name]) for item in sets)) for name in names}
        else:
            items = {
                name: np.concatenate([item.items[name] + offset for item, offset in zip(sets, offsets, strict=True)])
                for name in names
            }
        evaluations.append(
            EvaluationSet(
                name=first.name,
                graph=disjoint_union([item.graph for item in sets]),
                items=items,
                part=np.repeat(np.arange(len(silos), dtype=np.int64), counts),
            )
        )
    noisy = None
    if any(silo.noisy_labels is not None for silo in silos):
        noisy = np.concatenate([silo.labels for silo in silos])
    graph = disjoint_union(graphs)
    if evaluations and all(silo.graph is silo.evaluations[0].graph for silo in silos):
        graph = evaluations[0].graph
    train = np.concatenate([silo.train + shift for silo, shift in zip(silos, shifts, strict=True)])
    return Silo(
        client=0,
        graph=graph,
        train=train,
        evaluations=tuple(evaluations),
        schema=silos[0].schema,
        links=links,
        parts=len(silos),
        noisy_labels=noisy,
        facts={"nodes": graph.union.num_nodes, "edges": graph.union.num_edges, "train": len(train)},
    )


def _cross(base: Graph, rows: NodeIds) -> tuple[Graph, NDArray[np.int64]]:
    """The subgraph of ``rows`` with all its edges, each row once, and where each entry of ``rows`` went."""
    unique, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(unique), dtype=np.int64)
    rank[order] = np.arange(len(unique))
    return replace(base.subgraph(unique[order]), splits={}), rank[inverse]
