"""From a graph and a partition to silos: what each client trains on and what it is asked at test time.

Source: FedLoG (Kim et al., ICLR 2025, appendix F, and figure 3); GraphSAINT-style inductive splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphsilo.data.graph import SPLITS, Graph
from graphsilo.data.partition.adjacency import positions_inside, undirected_adjacency
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.registry import entry, partition
from graphsilo.data.partition.rule import CutOptions
from graphsilo.data.silos.parts import (
    induce_subgraph,
    require_training,
    split_items,
    with_added_links,
)
from graphsilo.data.silos.silo import EvaluationSet, Items, Schema, Silo
from graphsilo.errors import ConfigError, PartitionError, UnsupportedError, nearest
from graphsilo.random import numpy_generator
from graphsilo.settings import Settings, setting
from graphsilo.types import ClientId, Mask, NodeIds, Task

Scenario: TypeAlias = Literal["seen", "unseen", "open", "inductive", "receiver"]
SCENARIOS: Mapping[Scenario, str] = {
    "seen": "train and test on the client's own graph",
    "unseen": "missing classes, unseen nodes and a new client; all nodes belong to the parts (FedLoG's closed set)",
    "open": "the same with a fifth of all nodes cropped before cutting (FedLoG's open set)",
    "inductive": "train on the subgraph of training nodes, test on the client's whole graph",
    "receiver": "one client trains on no item of a class, the others on chosen ones (FedLoG's figure 3)",
}


class ScenarioOptions(Settings):
    """Settings of the scenarios."""

    section: ClassVar[str] = "scenario"

    hops: int = setting(2, "h, how far a client's graph grows at test time", ge=1)
    edges: Literal["all", "touching"] = setting(
        "all", "all edges among the grown nodes, or only those touching the client's own nodes"
    )
    missing: Literal["smallest_present", "absent"] = setting(
        "smallest_present", "`absent` removes the classes without a training node, `smallest_present` beside them the "
        "class with the fewest training nodes",
    )  # fmt: skip
    min_missing_nodes: int = setting(
        0, "go on to the next smallest class until this many local nodes are removed; one class stays", ge=0
    )
    regrow: Literal["cropped", "all"] = setting(
        "cropped", "which nodes may return in the open set: only the cropped ones, or all"
    )
    crop: float = setting(
        0.2, "share of all nodes that the open set keeps away from everybody until test time", gt=0, lt=1
    )
    receiver: int = setting(
        0, "the client that trains on no item of a class, which is scored there as `missing_class`", ge=0
    )
    target: int = setting(0, "that class, by its number", ge=0)
    links: Literal["all", "many", "half", "few"] = setting(
        "all", "on which nodes the others train: all, or those with more links than `degree`, no more, or half of "
        "each; class by class the same number",
    )  # fmt: skip
    degree: int = setting(3, "links of a node", ge=0, when={"links": ("many", "half", "few")})
    class_rate: float | None = setting(
        None, "r: with m items in its smallest class, another client trains on n = m/2 of the target class and "
        "n + rm/10 of every other; none: on all", ge=-5, le=5,
    )  # fmt: skip
    global_graph: bool = setting(
        False, "give every silo an evaluation set `global`: the whole graph with cross-client edges, and the union of "
        "all clients' validation and test nodes",
    )  # fmt: skip


_GROWN = ("hops", "edges", "missing", "min_missing_nodes")
_OPTIONS_OF: Mapping[Scenario, tuple[str, ...]] = {
    "unseen": _GROWN,
    "open": (*_GROWN, "regrow", "crop"),
    "receiver": ("receiver", "target", "links", "degree", "class_rate"),
}


def options_of(scenario: Scenario) -> tuple[str, ...]:
    """Settings that have an effect in a scenario."""
    return _OPTIONS_OF.get(scenario, ())


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
    clients: int | None = None,
    seed: int = 2024,
    scenario: str = "seen",
    ratios: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    split: str | None = None,
    split_index: int = 0,
    times: Mapping[str, Any] | None = None,
    crop: float | None = None,
) -> Partition:
    """Cut a graph as a scenario needs it: with a new client, and with nodes cropped beforehand.

    ``unseen`` and ``open`` cut K + 1 parts, the last of which becomes the new client; Metis then cuts k ways unless
    ``recursive`` is given. A stored partition (rule ``files``) that already holds a new part is taken as it is.

    Args:
        graph: The whole graph.
        rule, clients, seed, ratios, options, split, split_index, times: As for ``partition``.
        scenario: A name from ``SCENARIOS``.
        crop: Share of all nodes kept away until test time, a fifth by default; used by ``open`` only.

    Raises:
        ConfigError: A name or setting is not known or not possible.
        PartitionError: The graph cannot be cut so.
    """
    chosen = check_scenario(scenario)
    kind = entry(rule)
    settings = dict(options or {})
    make = partial(partition, rule=rule, seed=seed, ratios=ratios, split=split, split_index=split_index, times=times)
    if chosen not in ("unseen", "open") or kind.counts:
        whole = make(graph, clients=clients, options=settings)
        _require_parts(whole, chosen)
        return whole
    clients = CutOptions.of({"seed": seed} | ({} if clients is None else {"clients": clients})).clients
    cropped: NodeIds | None = None
    rows = np.arange(graph.num_nodes, dtype=np.int64)
    rest = graph
    if chosen == "open":
        crop = ScenarioOptions.of({} if crop is None else {"crop": crop}).crop
        generator = numpy_generator(seed, "scenario", "crop")
        cropped = np.sort(generator.choice(graph.num_nodes, size=int(crop * graph.num_nodes), replace=False))
        rows = np.setdiff1d(rows, cropped)
        rest = graph.subgraph(rows)
    cut = make(rest, clients=clients + 1, options={**kind.with_new, **settings})
    moved: dict[str, Any] = {part: tuple(rows[ids] for ids in getattr(cut, part)[:-1]) for part in ("nodes", *SPLITS)}
    return replace(
        cut,
        num_nodes=graph.num_nodes,
        **moved,
        new_part=rows[cut.nodes[-1]],
        cropped=cropped,
        added_edges=None if cut.added_edges is None else tuple(rows[edges] for edges in cut.added_edges),
    )


@dataclass(frozen=True, eq=False)
class Context:
    """What all silos of one build share."""

    graph: Graph
    partition: Partition
    scenario: Scenario
    options: ScenarioOptions
    schema: Schema
    inside: list[NDArray[np.int64]]
    table: NDArray[np.signedinteger]
    shared: tuple[EvaluationSet, ...]
    adjacency: sp.csr_matrix | None
    cropped: Mask | None


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
    ``grown`` (items ``missing_class`` and ``unseen_node``) and ``new_client`` (one graph object shared by all silos),
    ``receiver`` adds ``receiver`` (items ``missing_class``, at one client).

    Args:
        graph: The whole graph the partition was made for.
        partition: For ``unseen`` and ``open``, made by ``partition_for_scenario``.
        scenario: A name from ``SCENARIOS``.
        options: Settings of the scenario.
        task: That of the graph; ``link`` goes on to ``build_link_silos``.
        link_ratios: Shares of training, validation and test links, for the task ``link``.

    Raises:
        ConfigError: A name or setting is not known.
        PartitionError: The partition does not fit the graph or the scenario, or no client has anything to train on.
        UnsupportedError: The task is not one of a single graph, or has no such scenario.
    """
    settings = ScenarioOptions.of(options)
    chosen = check_scenario(scenario)
    if graph.links is not None or graph.types is not None:
        from graphsilo.data.silos.typed import refuse_hiding

        refuse_hiding(graph, chosen, task)
    if task == "link":
        _require_seen(chosen)
        from graphsilo.data.silos.link_task import build_link_silos

        return build_link_silos(graph, partition, ratios=link_ratios, global_graph=settings.global_graph)
    if task != graph.task:
        raise UnsupportedError(
            f"one graph gives silos for the tasks {graph.task} and link; for '{task}' "
            f"{'use build_graph_silos with a collection' if task == 'graph' else 'it would need other labels'}."
        )
    if chosen in _OPTIONS_OF and graph.targets is not None:
        raise UnsupportedError(
            f"the scenario '{chosen}' takes classes away, and targets are none; use seen or inductive."
        )
    partition.check(graph)
    _require_parts(partition, chosen)
    context = _context(graph, partition, chosen, settings)
    build: Callable[[Context, ClientId], Silo] = build_seen if chosen == "seen" else _build_inductive
    if chosen in ("unseen", "open"):
        from graphsilo.data.silos.unseen import build_unseen as build
    elif chosen == "receiver":
        from graphsilo.data.silos.receiver import build_receiver as build
    silos = [replace(build(context, client), shares_ids=True) for client in partition.present]
    require_training(silos, "node", partition.split)
    return silos


def build_silo(
    graph: Graph,
    partition: Partition,
    *,
    client: ClientId,
    scenario: str = "seen",
    task: Task = "node",
    link_ratios: Sequence[float] | None = None,
) -> Silo:
    """The silo of one client whose federation is elsewhere: ``build_silos`` of all of them gives the same.

    Unlike there, a silo without anything to train on is no error: others may have something.

    Args:
        graph: The client's own graph.
        partition: Of it, with one part: all of it.
        client: Number of the client in its federation.
        scenario: ``seen`` or ``inductive``: the others are about nodes of other clients.
        task, link_ratios: As for ``build_silos``.

    Raises:
        ConfigError, PartitionError, UnsupportedError: As ``build_silos``.
    """
    chosen = check_scenario(scenario)
    if chosen not in ("seen", "inductive"):
        raise UnsupportedError(
            f"scenario '{chosen}' is made of all clients' data; a silo with its own data can be asked for 'seen' and "
            "'inductive'."
        )
    if graph.links is not None or graph.types is not None:
        from graphsilo.data.silos.typed import refuse_hiding

        refuse_hiding(graph, chosen, task)
    if task == "link":
        _require_seen(chosen)
        from graphsilo.data.silos.link_task import build_link_silos

        return build_link_silos(graph, partition, ratios=link_ratios, first_client=client)[0]
    if task != graph.task:
        raise UnsupportedError(f"a graph from tables serves the tasks {graph.task} and link; '{task}' was asked for.")
    partition.check(graph)
    context = _context(graph, partition, chosen, ScenarioOptions())
    if chosen == "inductive" and not len(partition.train[0]):
        raise PartitionError(
            f"client {client} has no training node, hence no graph to train on in the scenario 'inductive'."
        )
    return replace((build_seen if chosen == "seen" else _build_inductive)(context, 0), client=client)


def _context(graph: Graph, partition: Partition, scenario: Scenario, options: ScenarioOptions) -> Context:
    base = with_added_links(graph, partition)
    shared: list[EvaluationSet] = []
    adjacency, cropped = None, None
    if scenario in ("unseen", "open"):
        assert partition.new_part is not None
        adjacency = undirected_adjacency(base)
        if scenario == "open" and options.regrow == "cropped":
            cropped = np.zeros(base.num_nodes, dtype=bool)
            cropped[partition.cropped] = True
        new = induce_subgraph(base, partition.new_part)
        shared.append(EvaluationSet("new_client", new, {"new_client": np.flatnonzero(new.labels >= 0)}))
    if options.global_graph:
        owner = np.full(base.num_nodes, -1, dtype=np.int64)
        for client in reversed(range(partition.num_clients)):
            owner[partition.nodes[client]] = client
        items = {
            name: np.unique(np.concatenate(ids)) for name, ids in (("val", partition.val), ("test", partition.test))
        }
        shared.append(EvaluationSet("global", base, items, owner))
    return Context(
        graph=base,
        partition=partition,
        scenario=scenario,
        options=options,
        schema=Schema.of(graph, graph.task),
        inside=positions_inside(base.edges, partition.nodes, num_nodes=base.num_nodes),
        table=base.number_table(),
        shared=tuple(shared),
        adjacency=adjacency,
        cropped=cropped,
    )


def build_seen(context: Context, client: int) -> Silo:
    """The client's own graph with its splits."""
    part = context.partition
    nodes = part.nodes[client]
    graph = induce_subgraph(context.graph, nodes, context.inside[client], context.table)
    items = split_items(nodes, part, client)
    return Silo(
        client=client,
        graph=graph,
        train=items["train"],
        evaluations=(EvaluationSet("seen", graph, items), *context.shared),
        schema=context.schema,
        facts=facts_of(graph, items["train"]),
    )


def _build_inductive(context: Context, client: int) -> Silo:
    silo = build_seen(context, client)
    if not len(silo.train):
        raise PartitionError(
            f"client {client} has no training node, hence no graph to train on in the scenario 'inductive': ask for "
            f"fewer clients, or raise the training ratio."
        )
    nodes = context.partition.nodes[client][silo.train]
    graph = induce_subgraph(context.graph, nodes, context.inside[client], context.table)
    train = np.arange(len(nodes), dtype=np.int64)
    return replace(silo, graph=graph, train=train, facts=facts_of(graph, train))


def _require_seen(scenario: Scenario) -> None:
    if scenario != "seen":
        raise UnsupportedError(f"link prediction has the scenario 'seen' only; '{scenario}' was asked for.")


def _require_parts(partition: Partition, scenario: Scenario) -> None:
    wanted = {"unseen": ("new_part",), "open": ("new_part", "cropped")}.get(scenario, ())
    absent = [name for name in wanted if getattr(partition, name) is None]
    if absent:
        raise PartitionError(
            f"the scenario '{scenario}' needs a partition with {' and '.join(wanted)}, and this one, by the rule "
            f"'{partition.rule}', has no {absent[0]}: choose one that makes any number of parts, such as louvain."
        )


def facts_of(graph: Graph, train: Items) -> dict[str, float | int | list[int]]:
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "train": len(train)}
