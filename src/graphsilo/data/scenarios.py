"""From a graph and a partition to silos: what each client trains on and what it is asked at test time.

- ``seen``: the client's own graph.
- ``unseen``: FedLoG's closed set. Of K + 1 parts the last is a new client; every other client loses all nodes of its
  missing classes, and at test time its graph grows by its h-hop neighbourhood.
- ``open``: FedLoG's open set. A random fifth of all nodes is cropped first and reconnects at test time.
- ``inductive``: training sees only the subgraph between training nodes; the test is on the whole silo graph.

Source: FedLoG (Kim et al., ICLR 2025, appendix F); GraphSAINT-style inductive splits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import Features, Graph, GraphCollection
from graphsilo.data.partition.adjacency import both_directions, positions_inside, undirected_adjacency, undirected_links
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.options import options_dict, parse_options
from graphsilo.data.partition.pairs import PairSpace, pair_keys, sample_unlinked
from graphsilo.data.partition.registry import entry, partition
from graphsilo.data.silo import EvaluationSet, Items, Links, Schema, Silo
from graphsilo.data.splits import GRAPH_RATIOS, check_ratios, cut_points
from graphsilo.errors import ConfigError, DataError, PartitionError, UnsupportedError, nearest
from graphsilo.random import numpy_generator
from graphsilo.types import Mask, NodeIds, Task

Scenario: TypeAlias = Literal["seen", "unseen", "open", "inductive"]
SCENARIOS: Mapping[Scenario, str] = {
    "seen": "train and test on the client's own graph",
    "unseen": "missing classes, unseen nodes and a new client; all nodes belong to the parts (FedLoG's closed set)",
    "open": "the same with a fifth of all nodes cropped before cutting (FedLoG's open set)",
    "inductive": "train on the subgraph of training nodes, test on the client's whole graph",
}


@dataclass(frozen=True)
class ScenarioOptions:
    """Settings of the scenarios.

    Attributes:
        hops: h, how far a client's graph grows at test time.
        edges: ``all`` edges among the grown nodes, or only those ``touching`` the client's own nodes.
        missing: ``smallest_present`` removes, beside the classes without a training node, the class with the fewest
            training nodes; ``absent`` removes only the former.
        min_missing_nodes: Go on to the next smallest class until this many local nodes are removed; one class stays.
        regrow: Which nodes may return in the open set: only the ``cropped`` ones, or ``all``.
        global_graph: Give every silo an evaluation set ``global``: the whole graph with cross-client edges, and the
            union of all clients' validation and test nodes.
    """

    hops: int = 2
    edges: str = "all"
    missing: str = "smallest_present"
    min_missing_nodes: int = 0
    regrow: str = "cropped"
    global_graph: bool = False


def check_scenario(name: str) -> Scenario:
    """The scenario with this name, case-insensitive.

    Raises:
        ConfigError: There is none.
    """
    for known in SCENARIOS:
        if name.lower() == known:
            return known
    raise ConfigError(f"there is no scenario '{name}': {nearest(name, SCENARIOS)}")


def partition_for_scenario(
    graph: Graph,
    rule: str,
    *,
    clients: int,
    seed: int = 2024,
    scenario: str = "seen",
    ratios: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    split: str | None = None,
    split_index: int = 0,
    crop: float = 0.2,
) -> Partition:
    """Cut a graph as a scenario needs it: with a new client, and with nodes cropped beforehand.

    ``unseen`` and ``open`` cut K + 1 parts, the last of which becomes the new client; Metis then cuts k ways unless
    ``recursive`` is given, as the published part sizes show. A stored partition (rule ``files``) that already holds
    a new part is taken as it is.

    Args:
        graph: The whole graph.
        rule, clients, seed, ratios, options, split, split_index: As for ``partition``.
        scenario: A name from ``SCENARIOS``.
        crop: Share of all nodes kept away until test time; used by ``open`` only.

    Raises:
        ConfigError: A name or setting is not known or not possible.
        PartitionError: The graph cannot be cut so.
    """
    chosen = check_scenario(scenario)
    kind = entry(rule)
    settings = dict(options or {})
    if chosen in ("seen", "inductive"):
        return partition(
            graph,
            rule,
            clients=clients,
            seed=seed,
            ratios=ratios,
            options=settings,
            split=split,
            split_index=split_index,
        )
    if kind.name == "files":
        stored = partition(graph, rule, clients=clients, seed=seed, ratios=ratios, options=settings, split=split)
        _require_parts(stored, chosen)
        return stored
    if clients < 1:
        raise ConfigError(f"at least 1 client is needed; got {clients}.")
    cropped: NodeIds | None = None
    rows = np.arange(graph.num_nodes, dtype=np.int64)
    rest = graph
    if chosen == "open":
        if not 0.0 < crop < 1.0:
            raise ConfigError(f"the share of cropped nodes must lie between 0 and 1; got {crop:g}.")
        generator = numpy_generator(seed, "scenario", "crop")
        cropped = np.sort(generator.choice(graph.num_nodes, size=int(crop * graph.num_nodes), replace=False))
        rows = np.setdiff1d(rows, cropped)
        rest = graph.subgraph(rows)
    if kind.name in ("metis", "topology"):
        settings = {"recursive": False, **settings}
    cut = partition(
        rest,
        rule,
        clients=clients + 1,
        seed=seed,
        ratios=ratios,
        options=settings,
        split=split,
        split_index=split_index,
    )
    return replace(
        cut,
        num_nodes=graph.num_nodes,
        nodes=tuple(rows[ids] for ids in cut.nodes[:-1]),
        train=tuple(rows[ids] for ids in cut.train[:-1]),
        val=tuple(rows[ids] for ids in cut.val[:-1]),
        test=tuple(rows[ids] for ids in cut.test[:-1]),
        new_part=rows[cut.nodes[-1]],
        cropped=cropped,
        added_edges=None if cut.added_edges is None else tuple(rows[edges] for edges in cut.added_edges),
    )


def missing_classes(
    labels: NDArray[np.int64],
    nodes: NodeIds,
    train: NodeIds,
    *,
    num_classes: int,
    missing: str = "smallest_present",
    min_missing_nodes: int = 0,
) -> list[int]:
    """Classes that a client loses, ascending.

    Args:
        labels: [N] classes of all nodes.
        nodes, train: Global ids of the client's nodes and training nodes.
        num_classes: C.
        missing: ``smallest_present`` or ``absent``; see ``ScenarioOptions``.
        min_missing_nodes: Smallest number of local nodes to remove, as long as one class stays.

    Source: FedLoG, appendix F, as its published node counts show.
    """
    counts = np.bincount(labels[train], minlength=num_classes)
    own = labels[nodes]
    local = np.bincount(own[own >= 0], minlength=num_classes)
    present = [int(label) for label in np.argsort(counts, kind="stable") if counts[label] > 0]
    lost = np.flatnonzero(counts == 0).tolist()
    if missing == "absent":
        return sorted(lost)
    while len(present) > 1:
        lost.append(present.pop(0))
        if local[lost].sum() >= min_missing_nodes:
            break
    return sorted(lost)


def grow(adjacency: sp.csr_matrix, nodes: NodeIds, *, hops: int, allowed: Mask | None = None) -> NodeIds:
    """Nodes within ``hops`` of ``nodes`` and not among them, ascending; only through and to ``allowed`` nodes."""
    reached = np.zeros(adjacency.shape[0], dtype=bool)
    reached[nodes] = True
    frontier = nodes
    added = [np.zeros(0, dtype=np.int64)]
    for _ in range(hops):
        fresh = np.unique(adjacency[frontier].indices).astype(np.int64)
        fresh = fresh[~reached[fresh]]
        if allowed is not None:
            fresh = fresh[allowed[fresh]]
        reached[fresh] = True
        added.append(fresh)
        frontier = fresh
    return np.sort(np.concatenate(added))


@dataclass(frozen=True, eq=False)
class _Context:
    """What all silos of one build share."""

    graph: Graph
    partition: Partition
    scenario: Scenario
    options: ScenarioOptions
    schema: Schema
    inside: list[NDArray[np.int64]]
    shared: tuple[EvaluationSet, ...]
    adjacency: sp.csr_matrix | None
    cropped: Mask | None

    def induced(self, nodes: NodeIds, columns: NDArray[np.int64] | None = None) -> Graph:
        """The subgraph of ``nodes``; only these columns of the edges are looked at, all of them by default.

        O(nodes of the graph + columns).
        """
        edges, weights = self.graph.edges, self.graph.edge_weights
        if columns is not None:
            edges, weights = edges[:, columns], None if weights is None else weights[columns]
        table = np.full(self.graph.num_nodes, -1, dtype=np.int64)
        table[nodes] = np.arange(len(nodes))
        local = table[edges]
        kept = (local >= 0).all(axis=0)
        return replace(
            self.graph,
            features=self.graph.features[nodes],
            edges=np.ascontiguousarray(local[:, kept]),
            labels=self.graph.labels[nodes],
            splits={},
            node_ids=self.graph.global_ids[nodes],
            edge_weights=None if weights is None else weights[kept],
        )


def build_silos(
    graph: Graph,
    partition: Partition,
    *,
    scenario: str = "seen",
    options: ScenarioOptions | Mapping[str, Any] | None = None,
    task: Task = "node",
    link_ratios: Sequence[float] | None = None,
) -> list[Silo]:
    """One silo per client.

    The first evaluation set is always named ``seen`` and holds ``train``, ``val`` and ``test`` items. Its graph is
    the training graph, except for ``inductive``, where it is the whole silo graph. ``unseen`` and ``open`` add
    ``grown`` (items ``missing_class`` and ``unseen_node``) and ``new_client`` (one graph object shared by all silos).

    Args:
        graph: The whole graph the partition was made for.
        partition: For ``unseen`` and ``open``, made by ``partition_for_scenario``.
        scenario: A name from ``SCENARIOS``.
        options: Settings of the scenario.
        task: ``node``; ``link`` goes on to ``build_link_silos``.
        link_ratios: Shares of training, validation and test links, for the task ``link``.

    Raises:
        ConfigError: A name or setting is not known.
        PartitionError: The partition does not fit the graph or the scenario, or no client has anything to train on.
        UnsupportedError: The task is not one of a single graph, or has no such scenario.
    """
    return [silo for silo, _ in _build(graph, partition, scenario, options, task, link_ratios)]


def pooled_silo(
    graph: Graph,
    partition: Partition,
    *,
    cross_edges: bool,
    scenario: str = "seen",
    options: ScenarioOptions | Mapping[str, Any] | None = None,
    task: Task = "node",
    link_ratios: Sequence[float] | None = None,
) -> Silo:
    """All clients' data in one place, for centralised training.

    Args:
        graph, partition, scenario, options, task, link_ratios: As for ``build_silos``.
        cross_edges: Keep the edges between clients; without them the graph is the disjoint union of the silos.

    Returns:
        A silo that trains on the union of all training nodes. Its evaluation sets ask the same questions as the
        clients' own; ``part`` names the client of each node.

    Raises:
        As ``build_silos``.
    """
    built = _build(graph, partition, scenario, options, task, link_ratios)
    pooled = pool_silos([silo for silo, _ in built])
    if not cross_edges:
        return pooled
    base = _with_added(graph, partition)
    first = pooled.evaluations[0]
    assert isinstance(first.graph, Graph)
    assert first.part is not None
    seen_rows = np.concatenate([rows.seen for _, rows in built])
    train_rows = np.concatenate([rows.train for _, rows in built])
    whole, seen_position = _cross(base, seen_rows)
    items = dict(first.items)
    if task == "node":
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
        message = np.isin(pair_keys(whole.edges, n), pair_keys(seen_position[first.graph.edges], n))
        trained = whole = keep_edges(whole, between | message)
        links = Links(**{name: seen_position[getattr(links, name)] for name in _LINK_FIELDS})
    seen = EvaluationSet("seen", whole, items, part)
    return replace(
        pooled,
        graph=trained,
        train=np.unique(train_position[pooled.train]),
        evaluations=(seen, *pooled.evaluations[1:]),
        links=links,
        facts={**pooled.facts, "nodes": trained.num_nodes, "edges": trained.num_edges},
    )


_SHARED = ("global", "new_client")
_LINK_FIELDS = ("train", "val", "val_negative", "test", "test_negative")


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
    shifts = _shifts(graphs)
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
        offsets = _shifts([item.graph for item in sets])
        names = list(first.items)
        counts = [_num_items(item.graph) for item in sets]
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
                graph=_union([item.graph for item in sets]),
                items=items,
                part=np.repeat(np.array([silo.client for silo in silos], dtype=np.int64), counts),
            )
        )
    noisy = None
    if any(silo.noisy_labels is not None for silo in silos):
        noisy = np.concatenate([silo.labels for silo in silos])
    graph = _union(graphs)
    if evaluations and all(silo.graph is silo.evaluations[0].graph for silo in silos):
        graph = evaluations[0].graph
    train = np.concatenate([silo.train + shift for silo, shift in zip(silos, shifts, strict=True)])
    size = graph.union if isinstance(graph, GraphCollection) else graph
    return Silo(
        client=0,
        graph=graph,
        train=train,
        evaluations=tuple(evaluations),
        schema=silos[0].schema,
        links=links,
        parts=len(silos),
        noisy_labels=noisy,
        facts={"nodes": size.num_nodes, "edges": size.num_edges, "train": len(train)},
    )


def build_link_silos(
    graph: Graph,
    partition: Partition,
    *,
    ratios: Sequence[float] | None = None,
    seed: int | None = None,
    global_graph: bool = False,
) -> list[Silo]:
    """One silo per client for link prediction on its own subgraph.

    Links (undirected, each once) are shuffled and cut by the ratios. Messages pass along the edges of training links
    only, in training and in every evaluation. Validation and test have as many negatives as positives:
    pairs that are linked nowhere in the client's graph, no pair in both. Items of the evaluation set number the
    columns of ``Links``; ``train`` of the silo keeps the partition's labelled nodes, for pre-training an encoder.

    Args:
        graph, partition: As for ``build_silos``.
        ratios: Shares of training, validation and test links; 0.8/0.1/0.1 by default.
        seed: Of the split and the negatives; the partition's by default.
        global_graph: Not available for links.

    Raises:
        ConfigError: The ratios are not possible.
        PartitionError: A client has too few links, or too few unlinked pairs.
    """
    if global_graph:
        raise UnsupportedError("link prediction is scored on each client's own graph; leave global_graph out.")
    partition.check(graph)
    shares = GRAPH_RATIOS if ratios is None else check_ratios(ratios)
    context = _context(graph, partition, "seen", ScenarioOptions(), "link")
    silos = []
    for client, nodes in enumerate(partition.nodes):
        whole = context.induced(nodes, context.inside[client])
        links = undirected_links(whole.edges)
        train_end, val_end = cut_points(links.shape[1], shares)
        if train_end < 1 or val_end <= train_end or val_end >= links.shape[1]:
            raise PartitionError(
                f"client {client} has {links.shape[1]} links: too few for training, validation and test links at "
                f"{shares[0]:g}/{shares[1]:g}/{shares[2]:g}. Ask for fewer clients, or use 'louvain' or 'metis'."
            )
        generator = numpy_generator(partition.seed if seed is None else seed, "links", client)
        links = links[:, generator.permutation(links.shape[1])]
        train, val, test = links[:, :train_end], links[:, train_end:val_end], links[:, val_end:]
        negatives = sample_unlinked(PairSpace(len(nodes)), links, val.shape[1] + test.shape[1], generator)
        message = keep_edges(whole, np.isin(pair_keys(whole.edges, len(nodes)), pair_keys(train, len(nodes))))
        items = {"val": np.arange(val.shape[1]), "test": np.arange(test.shape[1])}
        silos.append(
            Silo(
                client=client,
                graph=message,
                train=_local(nodes, partition.train[client], graph.num_nodes),
                evaluations=(EvaluationSet("seen", message, items),),
                schema=context.schema,
                links=Links(train, val, negatives[:, : val.shape[1]], test, negatives[:, val.shape[1] :]),
                facts={
                    "nodes": len(nodes),
                    "edges": message.num_edges,
                    "train_links": train.shape[1],
                    "val_links": val.shape[1],
                    "test_links": test.shape[1],
                },
            )
        )
    return silos


def build_graph_silos(
    collections: GraphCollection | Sequence[GraphCollection],
    partition: Partition,
    *,
    features: Literal["strict", "degree"] = "strict",
    max_degree: int = 64,
) -> list[Silo]:
    """One silo per client for graph classification; each holds whole graphs.

    Args:
        collections: One collection, or one per client (rule ``domains``).
        partition: Made by ``partition_graphs`` of the same collections.
        features: How collections with different features are brought together: ``strict`` refuses them, ``degree``
            replaces all features by a one-hot degree.
        max_degree: Larger degrees share the last column.

    Raises:
        DataError: Features differ and ``strict`` was asked for.
        PartitionError: The partition does not fit, or no client has a graph to train on.
    """
    given = [collections] if isinstance(collections, GraphCollection) else list(collections)
    if features == "degree":
        given = [_with_degrees(collection, max_degree) for collection in given]
    dimensions = sorted({collection.num_features for collection in given})
    if len(dimensions) > 1:
        raise DataError(
            f"{', '.join(item.name for item in given)} have {', '.join(map(str, dimensions))} features, but clients "
            f"must agree on one number: use degree features for all of them."
        )
    whole = given[0] if len(given) == 1 else _union(given)
    assert isinstance(whole, GraphCollection)
    partition.check(whole)
    schema = Schema("graph", whole.num_features, whole.num_classes)
    silos = []
    for client, graphs in enumerate(partition.nodes):
        held = whole.subset(graphs)
        splits = (partition.train[client], partition.val[client], partition.test[client])
        train, val, test = (_local(graphs, ids, len(whole)) for ids in splits)
        silos.append(
            Silo(
                client=client,
                graph=held,
                train=train,
                evaluations=(EvaluationSet("seen", held, {"train": train, "val": val, "test": test}),),
                schema=schema,
                facts={
                    "graphs": len(held),
                    "nodes": held.union.num_nodes,
                    "edges": held.union.num_edges,
                    "train": len(train),
                },
            )
        )
    _require_training(silos, "graph")
    return silos


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of the whole graph behind a silo's training graph and its first evaluation graph."""

    train: NodeIds
    seen: NodeIds


def _build(
    graph: Graph,
    partition: Partition,
    scenario: str,
    options: ScenarioOptions | Mapping[str, Any] | None,
    task: Task,
    link_ratios: Sequence[float] | None,
) -> list[tuple[Silo, _Rows]]:
    settings = parse_options(ScenarioOptions, options, owner="the scenario")
    _check_options(settings)
    chosen = check_scenario(scenario)
    if task == "link":
        if chosen != "seen":
            raise UnsupportedError(f"link prediction has the scenario 'seen' only; '{chosen}' was asked for.")
        links = build_link_silos(graph, partition, ratios=link_ratios, global_graph=settings.global_graph)
        return [(silo, _Rows(nodes, nodes)) for silo, nodes in zip(links, partition.nodes, strict=True)]
    if task != "node":
        raise UnsupportedError(
            f"one graph gives silos for the tasks node and link; for '{task}' use build_graph_silos with a collection."
        )
    partition.check(graph)
    _require_parts(partition, chosen)
    context = _context(graph, partition, chosen, settings, task)
    build = {"seen": _seen, "inductive": _inductive, "unseen": _unseen, "open": _unseen}[chosen]
    built = [build(context, client) for client in range(partition.num_clients)]
    _require_training([silo for silo, _ in built], "node")
    return built


def _context(graph: Graph, partition: Partition, scenario: Scenario, options: ScenarioOptions, task: Task) -> _Context:
    base = _with_added(graph, partition)
    schema = Schema(task, graph.num_features, graph.num_classes, graph.feature_names, graph.class_names)
    context = _Context(
        graph=base,
        partition=partition,
        scenario=scenario,
        options=options,
        schema=schema,
        inside=positions_inside(base.edges, partition.nodes, num_nodes=base.num_nodes),
        shared=(),
        adjacency=None,
        cropped=None,
    )
    shared: list[EvaluationSet] = []
    adjacency, cropped = None, None
    if scenario in ("unseen", "open"):
        assert partition.new_part is not None
        adjacency = undirected_adjacency(base)
        if scenario == "open" and options.regrow == "cropped":
            cropped = np.zeros(base.num_nodes, dtype=bool)
            cropped[partition.cropped] = True
        new = context.induced(partition.new_part)
        shared.append(EvaluationSet("new_client", new, {"new_client": np.flatnonzero(new.labels >= 0)}))
    if options.global_graph:
        owner = np.full(base.num_nodes, -1, dtype=np.int64)
        for client in reversed(range(partition.num_clients)):
            owner[partition.nodes[client]] = client
        items = {
            name: np.unique(np.concatenate(ids)) for name, ids in (("val", partition.val), ("test", partition.test))
        }
        shared.append(EvaluationSet("global", base, items, owner))
    return replace(context, shared=tuple(shared), adjacency=adjacency, cropped=cropped)


def _seen(context: _Context, client: int) -> tuple[Silo, _Rows]:
    part = context.partition
    nodes = part.nodes[client]
    graph = context.induced(nodes, context.inside[client])
    items = _items(nodes, part, client, context.graph.num_nodes)
    silo = Silo(
        client=client,
        graph=graph,
        train=items["train"],
        evaluations=(EvaluationSet("seen", graph, items), *context.shared),
        schema=context.schema,
        facts=_facts(graph, items["train"]),
    )
    return silo, _Rows(nodes, nodes)


def _inductive(context: _Context, client: int) -> tuple[Silo, _Rows]:
    silo, rows = _seen(context, client)
    if not len(silo.train):
        raise PartitionError(
            f"client {client} has no training node, hence no graph to train on in the scenario 'inductive': ask for "
            f"fewer clients, or raise the training ratio."
        )
    nodes = rows.seen[silo.train]
    graph = context.induced(nodes, context.inside[client])
    train = np.arange(len(nodes), dtype=np.int64)
    return replace(silo, graph=graph, train=train, facts=_facts(graph, train)), _Rows(nodes, rows.seen)


def _unseen(context: _Context, client: int) -> tuple[Silo, _Rows]:
    part, options = context.partition, context.options
    assert context.adjacency is not None
    labels = context.graph.labels
    nodes = part.nodes[client]
    lost = missing_classes(
        labels,
        nodes,
        part.train[client],
        num_classes=context.graph.num_classes,
        missing=options.missing,
        min_missing_nodes=options.min_missing_nodes,
    )
    kept = nodes[~np.isin(labels[nodes], lost)]
    graph = context.induced(kept, context.inside[client])
    items = _items(kept, part, client, context.graph.num_nodes)

    returned = grow(context.adjacency, kept, hops=options.hops, allowed=context.cropped)
    grown = context.induced(np.concatenate([kept, returned]))
    if options.edges == "touching":
        grown = keep_edges(grown, grown.edges.min(axis=0, initial=grown.num_nodes) < len(kept))
    scored = labels[returned] >= 0
    if part.cropped is not None and context.scenario == "open":
        scored &= np.isin(returned, part.cropped)
    lacking = np.isin(labels[returned], lost)
    index = len(kept) + np.arange(len(returned))
    questions = {"missing_class": index[scored & lacking], "unseen_node": index[scored & ~lacking]}
    silo = Silo(
        client=client,
        graph=graph,
        train=items["train"],
        evaluations=(EvaluationSet("seen", graph, items), EvaluationSet("grown", grown, questions), *context.shared),
        schema=context.schema,
        facts={
            **_facts(graph, items["train"]),
            "missing_classes": lost,
            "removed_nodes": len(nodes) - len(kept),
            "returned_nodes": len(returned),
        },
    )
    return silo, _Rows(kept, kept)


def _check_options(options: ScenarioOptions) -> None:
    choices = {
        "edges": (options.edges, ("all", "touching")),
        "missing": (options.missing, ("smallest_present", "absent")),
        "regrow": (options.regrow, ("cropped", "all")),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise ConfigError(f"the scenario's {name} cannot be '{value}': {nearest(value, known)}")
    if options.hops < 1 or options.min_missing_nodes < 0:
        raise ConfigError(
            f"the scenario needs hops of at least 1 and min_missing_nodes of at least 0; got {options.hops} and "
            f"{options.min_missing_nodes}."
        )


def _require_parts(partition: Partition, scenario: Scenario) -> None:
    wanted = {"unseen": ("new_part",), "open": ("new_part", "cropped")}.get(scenario, ())
    absent = [name for name in wanted if getattr(partition, name) is None]
    if absent:
        raise PartitionError(
            f"the scenario '{scenario}' needs a partition with {' and '.join(wanted)}; {absent[0]} is absent. Cut "
            f"again with this scenario (partition_for_scenario)."
        )


def _require_training(silos: Sequence[Silo], what: str) -> None:
    """One client without training items only receives; a federation in which nobody has any learns nothing."""
    if silos and not any(len(silo.train) for silo in silos):
        raise PartitionError(f"no client has a {what} to train on: ask for fewer clients, or raise the training ratio.")


def _with_added(graph: Graph, partition: Partition) -> Graph:
    """The graph with the links that a rule added, in both directions."""
    if partition.added_edges is None:
        return graph
    added = both_directions(np.concatenate(partition.added_edges, axis=1))
    weights = graph.edge_weights
    if weights is not None:
        weights = np.concatenate([weights, np.ones(added.shape[1], dtype=np.float32)])
    return replace(graph, edges=np.concatenate([graph.edges, added], axis=1), edge_weights=weights)


def keep_edges(graph: Graph, kept: Mask) -> Graph:
    """The graph with only those edges, and their weights, where the mask over columns is true."""
    weights = None if graph.edge_weights is None else graph.edge_weights[kept]
    return replace(graph, edges=np.ascontiguousarray(graph.edges[:, kept]), edge_weights=weights)


def _local(nodes: NodeIds, ids: NodeIds, size: int) -> Items:
    """Ascending local numbers of those ids that are among ``nodes``."""
    wanted = np.zeros(size, dtype=bool)
    wanted[ids] = True
    return np.flatnonzero(wanted[nodes])


def _items(nodes: NodeIds, partition: Partition, client: int, size: int) -> dict[str, Items]:
    splits = {"train": partition.train, "val": partition.val, "test": partition.test}
    return {name: _local(nodes, ids[client], size) for name, ids in splits.items()}


def _facts(graph: Graph, train: Items) -> dict[str, float | int | list[int]]:
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "train": len(train)}


def _cross(base: Graph, rows: NodeIds) -> tuple[Graph, NDArray[np.int64]]:
    """The subgraph of ``rows`` with all its edges, each row once, and where each entry of ``rows`` went."""
    unique, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(unique), dtype=np.int64)
    rank[order] = np.arange(len(unique))
    return replace(base.subgraph(unique[order]), splits={}), rank[inverse]


def _num_items(graph: Graph | GraphCollection) -> int:
    return len(graph) if isinstance(graph, GraphCollection) else graph.num_nodes


def _shifts(graphs: Sequence[Graph | GraphCollection]) -> NDArray[np.int64]:
    sizes = np.array([_num_items(graph) for graph in graphs], dtype=np.int64)
    return np.cumsum(sizes) - sizes


def _stack(features: Sequence[Features]) -> Features:
    dense = [block for block in features if isinstance(block, np.ndarray)]
    if len(dense) == len(features):
        return np.concatenate(dense)
    return sp.csr_matrix(sp.vstack([sp.csr_matrix(block) for block in features], format="csr", dtype=np.float32))


def _union(graphs: Sequence[Graph | GraphCollection]) -> Graph | GraphCollection:
    """Disjoint union: numbers run on from one graph to the next."""
    if len(graphs) == 1:
        return graphs[0]
    if all(isinstance(graph, GraphCollection) for graph in graphs):
        many = [graph for graph in graphs if isinstance(graph, GraphCollection)]
        union = _union([collection.union for collection in many])
        assert isinstance(union, Graph)
        sizes = np.concatenate([np.diff(collection.pointer) for collection in many])
        return GraphCollection(
            union=union,
            pointer=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            labels=np.concatenate([collection.labels for collection in many]),
            num_classes=max(collection.num_classes for collection in many),
            name="+".join(dict.fromkeys(collection.name for collection in many)),
            graph_ids=_joined_ids([collection.graph_ids for collection in many]),
        )
    single = [graph for graph in graphs if isinstance(graph, Graph)]
    if len(single) != len(graphs):
        raise UnsupportedError("silos of single graphs and silos of collections cannot be pooled together.")
    shifts = _shifts(single)
    return replace(
        single[0],
        features=_stack([graph.features for graph in single]),
        edges=np.concatenate([graph.edges + shift for graph, shift in zip(single, shifts, strict=True)], axis=1),
        labels=np.concatenate([graph.labels for graph in single]),
        num_classes=max(graph.num_classes for graph in single),
        name="+".join(dict.fromkeys(graph.name for graph in single)),
        splits={},
        node_ids=_joined_ids([graph.node_ids for graph in single]),
        edge_weights=_joined_weights(single),
    )


def _joined_weights(graphs: Sequence[Graph]) -> NDArray[np.float32] | None:
    """[edges] weights of all graphs, 1 for the edges of a graph without weights; None if none has weights."""
    if all(graph.edge_weights is None for graph in graphs):
        return None
    ones = [np.ones(graph.num_edges, dtype=np.float32) for graph in graphs]
    return np.concatenate(
        [one if g.edge_weights is None else g.edge_weights for g, one in zip(graphs, ones, strict=True)]
    )


def _joined_ids(ids: Sequence[NodeIds | None]) -> NodeIds | None:
    known = [part for part in ids if part is not None]
    return np.concatenate(known) if len(known) == len(ids) else None


def _with_degrees(collection: GraphCollection, max_degree: int) -> GraphCollection:
    """The collection with a one-hot degree, [nodes, max_degree + 1] CSR, for features."""
    n = collection.union.num_nodes
    degree = np.minimum(np.bincount(collection.union.edges[1], minlength=n), max_degree)
    ones = np.ones(n, dtype=np.float32)
    features = sp.csr_matrix((ones, degree, np.arange(n + 1)), shape=(n, max_degree + 1), dtype=np.float32)
    return replace(collection, union=replace(collection.union, features=features, feature_names=None))


def scenario_facts(options: ScenarioOptions | Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings of a scenario as a plain mapping, defaults written out; for the configuration of a run."""
    return options_dict(parse_options(ScenarioOptions, options, owner="the scenario"))
