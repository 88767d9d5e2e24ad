"""From a configuration to silos: load, cut, split, perturb."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphsilo import models
from graphsilo.data.graph import Graph, GraphCollection, PublishedSplits, content_hash, describe
from graphsilo.data.partition import Partition, audit, entry, partition_graphs
from graphsilo.data.partition.rule import SplitMode
from graphsilo.data.partition.splits import DEFAULT_RATIOS, check_ratios, refuse_ratios
from graphsilo.data.scales import Scaling
from graphsilo.data.silos.between import check_sides, own_links, side_notes, sides_of, with_cut_links
from graphsilo.data.silos.graph_task import build_graph_silos
from graphsilo.data.silos.parts import detached
from graphsilo.data.silos.perturb import PerturbOptions, perturb
from graphsilo.data.silos.pooling import pool_silos, pooled_silo
from graphsilo.data.silos.scaling import far_apart, lost_values, other_units
from graphsilo.data.silos.scenarios import build_silos, partition_for_scenario
from graphsilo.data.silos.silo import Silo
from graphsilo.data.silos.union import check_finite, dense, own_partition, shared_nodes, truth_of, union
from graphsilo.data.sources import catalog
from graphsilo.data.sources.faults import Faults
from graphsilo.data.sources.plain import settle_classes, signed_note
from graphsilo.data.sources.sizes import require_memory
from graphsilo.data.sources.transforms import is_symmetric
from graphsilo.data.sources.vocabulary import Learned, Vocabulary, share_words
from graphsilo.data.truth import truth_notes
from graphsilo.errors import ConfigError, DataError, UnsupportedError
from graphsilo.experiments.config import OUTPUTS, WITHOUT_EFFECT, ModelConfig, RunConfig
from graphsilo.experiments.doors import RECORDS
from graphsilo.experiments.participants import (
    Participants,
    absent_words,
    left_out,
    selection_metric,
    untrained_words,
)
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.runtime.local.placement import free_memory
from graphsilo.types import ClientId, Task

if TYPE_CHECKING:
    from graphsilo.federation.client import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Simulation(Participants):
    """Everything a run needs of data that was loaded and cut here.

    Attributes:
        graph: The whole data, as loaded.
        partition: Who holds what.
        silos: The clients' data (one pooled silo for centralised training), as it was read: ``scaling`` is still to do.
    """

    graph: Graph | GraphCollection
    partition: Partition
    silos: tuple[Silo, ...]
    has_data = True

    def keep(self, folder: Path) -> None:
        self.partition.save(folder / "partition.npz")


def load_data(
    config: RunConfig, without: Collection[ClientId] = ()
) -> Graph | GraphCollection | list[Graph | GraphCollection]:
    """The data of a configuration: one data set, or a list of them where several are named.

    Args:
        config: The configuration.
        without: Places in a list that are left out: of them nothing is compared with the others. Only where one draw
            divides the items of all are they read, so that the others' splits stay as they are.

    Raises:
        DataError: A data set cannot be had or is named twice, or graphs and collections are mixed.
    """
    chosen = config.data
    names = chosen.names
    present = {place: name for place, name in enumerate(names) if place not in without}
    catalog.check_distinct(present)
    loaded = _loaded(config, present)
    if len({type(item) for item in loaded.values()}) > 1:
        kinds = [
            f"client {client}'s {names[client]} is a "
            f"{'collection' if isinstance(item, GraphCollection) else 'single graph'}"
            for client, item in loaded.items()
        ]
        raise DataError(f"data.name mixes single graphs and collections of graphs ({'; '.join(kinds)}); name one kind.")
    if isinstance(chosen.name, list) and len(names) > 1:
        loaded = _with_shared_words(config, present, loaded)
    loaded = dict(zip(loaded, settle_classes(list(loaded.values())), strict=True))
    if not isinstance(chosen.name, list) or len(names) == 1:
        return loaded[0]
    first = next(iter(loaded.values()))
    counts = isinstance(first, GraphCollection) or config.partition.split == "global"
    absent = _loaded(config, {place: names[place] for place in without}) if counts else {}
    return [loaded[place] if place in loaded else _stand_in(first, absent.get(place)) for place in range(len(names))]


def _stand_in(like: Graph | GraphCollection, item: Graph | GraphCollection | None) -> Graph | GraphCollection:
    """What stands for a client that is left out: as many items as it has, so that a draw over all stays as it is.

    Columns and classes are those of the others, whatever its own are: nobody sees them.
    """
    whole = isinstance(like, GraphCollection)
    labels = item.labels if item is not None and type(item) is type(like) else np.zeros(int(whole), dtype=np.int64)
    n, empty = len(labels), like.union.subgraph(np.zeros(0, dtype=np.int64))
    shape = (n, like.num_features)
    kind, none = PublishedSplits if not empty.has_own_splits else dict, np.zeros(0, dtype=np.int64)
    sparse = sp.csr_matrix((none.astype(np.float32), (none, none)), shape=shape)
    graph = replace(
        empty,
        features=sparse if empty.is_sparse else np.zeros(shape, dtype=np.float32),
        labels=np.full(n, -1) if whole else np.minimum(labels, 0),
        splits=kind({key: np.zeros((n, *mask.shape[1:]), bool) for key, mask in empty.splits.items()}),
        node_ids=None,
        node_names=None,
    )
    return GraphCollection(graph, np.arange(n + 1), labels, like.num_classes, like.name) if whole else graph


def _loaded(config: RunConfig, names: Mapping[ClientId, str]) -> dict[ClientId, Graph | GraphCollection]:
    chosen = config.data
    for name in names.values():
        require_memory(
            catalog.memory_needed(name, chosen.options or None), free_memory(), what=f"the generated graph {name}",
            instead="Ask for fewer nodes, a smaller mean_degree or fewer features (--set data.nodes=...).",
        )  # fmt: skip
    found: dict[ClientId, Graph | GraphCollection] = {}
    faults = Faults("the data")
    for place, name in names.items():
        with faults.collect():
            item = catalog.load(name, root=chosen.root, options=chosen.options or None, seed=chosen.seed)
            check_finite(item)
            found[place] = item
    faults.raise_if_any()
    return found


def _with_shared_words(
    config: RunConfig, names: Mapping[ClientId, str], loaded: dict[ClientId, Graph | GraphCollection]
) -> dict[ClientId, Graph | GraphCollection]:
    """Tables whose one_hot columns declare no words, read again with the words of all: as it is between machines.

    Raises:
        DataError: A word is not declared where words are.
    """
    tables = {place: spec for place, name in names.items() if (spec := catalog.described(name)) is not None}
    if len(tables) < 2 or not any(None in spec.nodes.one_hot.values() for spec in tables.values()):
        return loaded
    read = {place: item for place, item in loaded.items() if isinstance(item, Graph)}
    own = [
        Vocabulary.of(f"client {place} ({names[place]})", spec, read[place].feature_names or ())
        for place, spec in tables.items()
    ]
    found = dict(loaded)
    for place, before, after in zip(tables, own, share_words(own), strict=True):
        if after.names != before.names:
            again = catalog.load(names[place], options=config.data.options or None, learned=Learned(after.names))
            assert isinstance(again, Graph)
            # Whether features are sparse is said before words are shared, and holds for all.
            sparse = read[place].is_sparse
            found[place] = again.with_features(sp.csr_matrix(again.features) if sparse else dense(again.features))
    return found


def task_of(config: RunConfig, graph: Graph | GraphCollection) -> Task:
    """The task asked for, or what the data is made for.

    Raises:
        UnsupportedError: The data cannot serve it.
    """
    natural: Task = "graph" if isinstance(graph, GraphCollection) else "node"
    task = config.task or natural
    if (task == "graph") != (natural == "graph"):
        raise UnsupportedError(
            f"task '{task}' was asked for, but {graph.name} is made for task '{natural}'"
            f"{' (or link)' if natural == 'node' else ''}."
        )
    return task


def _check_backbone(config: RunConfig, task: Task) -> None:
    """Refuse a backbone that was chosen for another task than the data turns out to be for, now that it is read.

    Raises:
        ConfigError: Nobody named one, and the method's is another one.
    """
    usual = registry.usual_model(config.method.name) or {}
    if "name" in usual or config.task is not None or {"model.name", "model.pool"} & set(config.given):
        return
    wanted, taken = (usual.get(each, {}).get("name", ModelConfig().name) for each in (task, "node"))
    if wanted != taken == config.model.name:
        raise ConfigError(
            f"the data is for the task {task}, which is known only once it is read, and there {config.method.name} has "
            f"the model {wanted}, not {config.model.name}. Say the task (--task {task}, task: {task}), or a model."
        )


def prepare(config: RunConfig, method: Method | None = None) -> Simulation:
    """Load, cut, split and perturb as a configuration says.

    A pooled silo is made of the clients' perturbed data: the centralised reference trains on what the clients hold,
    spoilt by the same draws. Edges between clients, where it has them, are as they are in the whole graph.

    Args:
        config: The configuration.
        method: Decides whether all silos are pooled in one place; None means they are not.

    Raises:
        GraphsiloError: As loading, cutting and building silos do.
    """
    without: tuple[ClientId, ...] = ()
    if config.run.without and isinstance(config.data.name, list):
        without = left_out(config.run.without, len(config.data.name), called(config.data.name))
    loaded = load_data(config, without)
    items = loaded if isinstance(loaded, list) else [loaded]
    present = {place: item for place, item in enumerate(items) if place not in without}
    scaling = scaling_of(config, without)
    notes = list(_read_notes(list(present.values()), scaling))
    if isinstance(loaded, list):
        notes += _copy_notes(present, config.data.names)
    graphs = [item for item in items if isinstance(item, Graph)]
    if not graphs:
        made = _prepare_graphs(config, method, [item for item in items if isinstance(item, GraphCollection)])
    elif isinstance(loaded, list):
        single = {place: item for place, item in present.items() if isinstance(item, Graph)}
        graph, sizes, differences = _joined(config, graphs, single, scaling)
        notes += differences
        made = _prepare_graph(config, method, graph, graphs, sizes)
    else:
        made = _prepare_graph(config, method, graphs[0], graphs)
    if isinstance(loaded, list):
        made = _named(made, items)
    return replace(made, notes=(*made.notes, *notes))


def _joined(
    config: RunConfig, graphs: Sequence[Graph], present: Mapping[ClientId, Graph], scaling: Scaling
) -> tuple[Graph, list[int], list[str]]:
    """The graphs of silos as one, how many nodes each has, and what a person should know of their differences.

    Raises:
        DataError: They do not go together.
    """
    if config.partition.split == "auto":
        _check_masks(present, config.data.names)
    _check_directions(present, config)
    own, names = list(present.values()), [config.data.names[place] for place in present]
    check_sides(own)
    notes = list(side_notes({graph.name: sides_of(graph) for graph in own}))
    graph, sizes = union(graphs, names=config.data.names)
    if scaling.is_agreed:  # of columns that are the same everywhere
        notes += other_units(own, names)
    return graph, sizes, [*notes, *truth_notes(truth_of(own, names))]


def _prepare_graph(
    config: RunConfig, method: Method | None, whole: Graph, read: Sequence[Graph], sizes: list[int] | None = None
) -> Simulation:
    """Of one graph; ``read`` are the graphs of single silos that it was made of, with so many nodes each."""
    task = task_of(config, whole)
    _check_backbone(config, task)
    partition, wide = _taking_part(config, cut(config, whole, sizes))
    graph = detached(whole, wide, partition) if partition.absent else whole
    found: list[dict[str, Any]] = [{"fills": item.fills, "estimated": item.estimated} for item in read]
    options = dict(config.scenario.options)
    if any(mode.endswith("_global") for mode in config.evaluation.modes or []):
        options["global_graph"] = True
    asked: dict[str, Any] = {"scenario": config.scenario.name, "options": options, "task": task}
    if task == "link":
        asked["link_ratios"] = config.partition.ratios
    spoil = _spoiler(config)
    if method is not None and method.pooled:
        cross = bool(getattr(config.method_config(), "cross_edges", True))
        pooled = pooled_silo(graph, partition, cross_edges=cross, spoil=spoil, **asked)
        silos = [pooled if sizes else replace(pooled, **found[0])]
    else:
        silos = build_silos(graph, partition, **asked)
        silos = [replace(silo, **found[silo.client if sizes else 0]) for silo in silos]
        if method is not None and method.cut_links and (task, config.scenario.name) == ("node", "seen"):
            if sizes:
                silos = [replace(silo, cut=own_links(graph, partition.nodes[silo.client])) for silo in silos]
            else:
                silos = with_cut_links(silos, graph, partition)
        if spoil is not None:
            silos = [spoil(silo) for silo in silos]
    facts = audit(wide, whole).to_dict()
    return simulated(config, method, whole, wide, partition.absent, silos, task, facts, (whole,))


def _named(made: Simulation, held: Sequence[Graph | GraphCollection]) -> Simulation:
    """The same, where every client holds a data set of its own, with these sets' names for the report."""
    if len(held) != made.num_holders:
        return made
    rows = [{**row, "silo": held[row["client"]].name} for row in made.cut["per_client"]]
    distinct = len({row["silo"] for row in rows}) == len(rows)
    return replace(made, cut={**made.cut, "per_client": rows}) if distinct else made


def called(names: Sequence[str]) -> dict[ClientId, tuple[str, ...]]:
    """What a person may call clients that have data sets or files of their own: as given, by file, or as shown."""
    return {
        client: tuple(dict.fromkeys((name, Path(name).stem, catalog.title(name)))) for client, name in enumerate(names)
    }


def _taking_part(config: RunConfig, partition: Partition) -> tuple[Partition, Partition]:
    """The cut without the clients that are left out, and with them."""
    if not config.run.without:
        return partition, partition
    names = config.data.name
    own = called(names) if isinstance(names, list) and len(names) == partition.num_clients else None
    return partition.without(left_out(config.run.without, partition.num_clients, own)), partition


def _copy_notes(loaded: Mapping[ClientId, Graph | GraphCollection], names: Sequence[str]) -> Iterator[str]:
    """Says so where two files hold the same by other ids, or much of the same.

    Raises:
        DataError: They hold the same by the same ids: a copy, to which a name of its own was given.
    """
    hashes = {client: content_hash([item]) for client, item in loaded.items()}
    shared = shared_nodes({client: item for client, item in loaded.items() if isinstance(item, Graph)})
    for one, other in combinations(loaded, 2):
        pair = f"clients {one} ({names[one]}) and {other} ({names[other]}) hold"
        if hashes[one] == hashes[other]:
            text = f"{pair} the same data under two names: what one of them is tested on, the other has trained on."
            if np.array_equal(loaded[one].external_ids, loaded[other].external_ids):
                raise DataError(f"{text} Leave one of them out.")
            yield text
        elif (one, other) in shared:
            yield (
                f"{pair} much of the same: {100 * shared[one, other]:.0f} % of the nodes of the smaller are at the "
                f"other with the same features and label, so that one may have trained on what the other is tested on. "
                f"Where one is a copy, leave it out."
            )


def _spoiler(config: RunConfig) -> Callable[[Silo], Silo] | None:
    """What is done to a client's training data; None where nothing is."""
    settings = PerturbOptions.of(config.perturb)
    return None if settings.is_nothing else partial(perturb, options=settings, seed=config.partition.seed)


def cut(config: RunConfig, graph: Graph, sizes: list[int] | None = None) -> Partition:
    """The partition of a configuration.

    Args:
        config: Says rule, clients, seed and splits, or names a stored partition.
        graph: What is cut.
        sizes: Nodes of each file, where the graph came from one file per silo.
    """
    chosen = config.partition
    if chosen.file is not None:
        partition = Partition.load(chosen.file)
        partition.check(graph)
        return partition
    split: SplitMode | None = None if chosen.split == "auto" else chosen.split
    if sizes is not None:
        return _one_file_per_silo(config, graph, sizes, split)
    rule = "louvain" if chosen.rule == "auto" else chosen.rule
    counted = entry(rule).counts and not config.says("partition.clients")
    # Ratios of links say nothing of nodes, where these have masks.
    of_links = config.task == "link" and (split == "predefined" or (split is None and graph.has_own_splits))
    return partition_for_scenario(
        graph,
        rule,
        clients=None if counted else chosen.clients,
        seed=chosen.seed,
        scenario=config.scenario.name,
        ratios=None if of_links else chosen.ratios,
        options=chosen.options or None,
        split=split,
        split_index=chosen.split_index,
        crop=config.scenario.options.get("crop"),
    )


def _check_masks(graphs: Mapping[ClientId, Graph], names: Sequence[str]) -> None:
    """Refuse silos of which some have masks of their own and some have none."""
    own = {client: graph.has_own_splits for client, graph in graphs.items()}
    if len(set(own.values())) > 1:
        have, lack = (next(client for client, has in own.items() if has == wanted) for wanted in (True, False))
        raise DataError(
            f"client {have} ({names[have]}) has masks that say which nodes train, validate and test, client {lack} "
            f"({names[lack]}) has none. Give them to all, or divide all nodes anew with partition.split=stratified."
        )


def _check_directions(graphs: Mapping[ClientId, Graph], config: RunConfig) -> None:
    """Refuse silos of which some have links with a direction and some have links without."""
    names, symmetrised = list(config.data.name), config.data.options.get("undirected") is True
    # A description says it; of a file that has links the links do.
    weighted = {
        client: not symmetrised and spec.directed if (spec := catalog.described(names[client])) is not None
        else not is_symmetric(graph) if graph.num_edges
        else None
        for client, graph in graphs.items()
    }  # fmt: skip
    if {True, False} <= set(weighted.values()):
        have, lack = (next(client for client, says in weighted.items() if says is wanted) for wanted in (True, False))
        raise DataError(
            f"links have a direction at client {have} ({names[have]}) and none at client {lack} ({names[lack]}): set "
            f"`directed` alike in all descriptions, or drop all directions with data.undirected=true."
        )


def _one_file_per_silo(config: RunConfig, graph: Graph, sizes: list[int], split: SplitMode | None) -> Partition:
    if config.scenario.name not in ("seen", "inductive"):
        raise UnsupportedError(
            f"scenario '{config.scenario.name}' cuts the data itself; with one file per silo only 'seen' and "
            f"'inductive' can be asked."
        )
    chosen = config.partition
    mode: SplitMode = split or ("predefined" if graph.has_own_splits else "stratified")
    if mode == "predefined" and config.task != "link":  # where they are the ratios of links
        refuse_ratios(graph, chosen.ratios)
    return own_partition(
        graph,
        sizes,
        mode=mode,
        ratios=check_ratios(chosen.ratios or DEFAULT_RATIOS),
        seed=chosen.seed,
        split_index=chosen.split_index,
    )


def _prepare_graphs(config: RunConfig, method: Method | None, collections: list[GraphCollection]) -> Simulation:
    task = task_of(config, collections[0])
    _check_backbone(config, task)
    if config.scenario.name != "seen":
        raise UnsupportedError(
            f"scenario '{config.scenario.name}' is about nodes; graph classification is asked on 'seen' only."
        )
    if any(mode.endswith("_global") for mode in config.evaluation.modes or []):
        raise UnsupportedError(
            "graphs of different silos have no edges between them: there is no global graph to score."
        )
    chosen = config.partition
    features = chosen.options.get("features", "strict")
    if features == "strict":
        _check_widths(config, collections)
    if chosen.file is not None:
        partition = Partition.load(chosen.file)
    else:
        rule = chosen.rule
        if rule == "auto":
            rule = "domains" if len(collections) > 1 else "dirichlet"
        partition = partition_graphs(
            collections if len(collections) > 1 else collections[0],
            rule,
            clients=None if rule == "domains" else chosen.clients,
            seed=chosen.seed,
            ratios=chosen.ratios,
            options=chosen.options,
        )
    partition, wide = _taking_part(config, partition)
    silos = build_graph_silos(collections if len(collections) > 1 else collections[0], partition, features=features)
    facts = _collection_facts(partition, wide, collections, silos)
    spoil = _spoiler(config)
    if spoil is not None:
        silos = [spoil(silo) for silo in silos]
    if method is not None and method.pooled:
        silos = [pool_silos(silos)]
    first = collections[partition.present[0] if len(collections) > 1 else 0]
    return simulated(config, method, first, wide, partition.absent, silos, task, facts, tuple(collections))


def _check_widths(config: RunConfig, collections: list[GraphCollection]) -> None:
    """Refuse collections whose nodes have different numbers of features, and say which setting brings them together."""
    first = collections[0]
    for client, other in enumerate(collections):
        if other.num_features != first.num_features:
            names = config.data.name
            raise DataError(
                f"all silos must describe nodes by as many features: client 0 ({names[0]}) has {first.num_features}, "
                f"client {client} ({names[client]}) has {other.num_features}. partition.features=degree gives the "
                f"nodes of all of them a one-hot degree in place of their features. Where data.degree_features made "
                f"the columns, because the data has none, data.max_degree=64 makes them as many everywhere."
            )


def _collection_facts(
    partition: Partition, whole: Partition, collections: list[GraphCollection], silos: list[Silo]
) -> dict[str, Any]:
    """What an audit says of graphs: nothing is cut, so there are only counts."""
    total = sum(len(collection) for collection in collections)
    held = np.concatenate(whole.nodes)
    rows = []
    for silo in silos:
        client = silo.client
        trained = silo.labels[silo.train]
        counts = np.bincount(trained[trained >= 0], minlength=silo.schema.num_classes)
        labels = np.bincount(silo.graph.labels[silo.graph.labels >= 0], minlength=silo.schema.num_classes)
        rows.append(
            {
                "client": client,
                "nodes": silo.num_items,
                "train": len(partition.train[client]),
                "val": len(partition.val[client]),
                "test": len(partition.test[client]),
                "labels": labels.tolist(),
                "missing_classes": np.flatnonzero(counts == 0).tolist(),
            }
        )
    return {
        "items": "graphs",
        "is_disjoint_cover": len(held) == len(np.unique(held)) == total,
        "per_client": rows,
    }


def simulated(
    config: RunConfig,
    method: Method | None,
    graph: Graph | GraphCollection,
    partition: Partition,
    absent: Collection[ClientId],
    silos: list[Silo],
    task: Task,
    facts: dict[str, Any],
    loaded: tuple[Graph | GraphCollection, ...],
) -> Simulation:
    without = tuple(sorted(absent))
    scaling = scaling_of(config, without)
    rows = [row for row in facts["per_client"] if row["client"] not in absent]
    replaced = (absent_words(without, partition.num_clients, config.replaces, {}),) if without else ()
    return Simulation(
        clients=tuple(silo.client for silo in silos),
        graph=graph,
        partition=partition,
        silos=tuple(silos),
        task=task,
        schema=silos[0].schema,
        models=model_specs(config, [silo.client for silo in silos]),
        rule=partition.rule,
        num_holders=partition.num_clients,
        data=describe(graph),
        data_hash=content_hash(loaded),
        cut={**facts, "per_client": rows},
        cut_hash=partition.content_hash,
        cut_seed=partition.seed,
        has_edge_weights=graph.union.edge_weights is not None,
        notes=(
            *replaced,
            *_pool_notes(config, method, partition.num_clients),
            *_sign_notes(config, silos[0]),
            *_class_notes(silos),
            *(_unit_notes(loaded) if scaling.scale == "none" else ()),
        ),
        scaling=scaling,
        without=without,
        trained=None if task == "link" else tuple(np.sum([silo.class_counts() for silo in silos], axis=0).tolist()),
    )


def scaling_of(config: RunConfig, without: Collection[ClientId] = ()) -> Scaling:
    """How a configuration has features scaled; what of a list is left out has no say."""
    names = config.data.names
    present = [name for place, name in enumerate(names) if len(names) == 1 or place not in without]
    return catalog.scaling_of(present, config.data.options or None)


def _unit_notes(graphs: Sequence[Graph | GraphCollection]) -> tuple[str, ...]:
    """Says so where one feature drowns another."""
    found = far_apart(graphs)
    if found is None:
        return ()
    wide, most, narrow, least = found
    return (
        f"features are not scaled (data.scale is none), and {wide} ranges over {most:g} where {narrow} ranges over "
        f"{least:g}: the model hardly sees {narrow}. data.scale=standard brings all to one unit.",
    )


def _read_notes(graphs: Sequence[Graph | GraphCollection], scaling: Scaling) -> Iterator[str]:
    """What is to be said of each graph as it was read, and what is lost of it on its way to a model."""
    for item in graphs:
        graph = item.union
        yield from (f"{graph.name}: {text}." for text in (*graph.notes, *lost_values(graph, scaling.scale)))


def _sign_notes(config: RunConfig, silo: Silo) -> tuple[str, ...]:
    """Says so where labels -1 are a class that nobody has declared."""
    declared = any(spec is not None and spec.classes is not None for spec in map(catalog.described, config.data.names))
    return () if declared else signed_note(silo.schema.class_names)


def _class_notes(silos: Sequence[Silo]) -> tuple[str, ...]:
    """Names the classes that are asked for and that nobody trains on."""
    schema = silos[0].schema
    if schema.task == "link":
        return ()
    trained = np.sum([silo.class_counts() for silo in silos], axis=0)
    asked = np.zeros(schema.num_classes, dtype=np.int64)
    seen: set[int] = set()
    for silo in silos:
        for question in silo.evaluations:
            if id(question.graph) in seen and question.name in ("global", "new_client"):
                continue  # all silos share it
            seen.add(id(question.graph))
            for kind, items in question.items.items():
                if kind not in ("train", "val"):
                    labels = question.graph.labels[items]
                    asked += np.bincount(labels[labels >= 0], minlength=schema.num_classes)
    lost = np.flatnonzero((trained == 0) & (asked > 0))
    if not len(lost):
        return ()
    return (untrained_words([[int(label), int(asked[label])] for label in lost], schema.class_names),)


def _pool_notes(config: RunConfig, method: Method | None, clients: int) -> tuple[str, ...]:
    """Says which of several models centralised training takes, where this run has such a row."""
    pooled: list[str] = [name for name in config.run.references if name != "local"]
    if method is not None and method.pooled:
        pooled = [method.name]
    described = [
        " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
        for name, settings in model_entries(config)[:clients]
    ]
    if not pooled or len(set(described)) < 2:
        return ()
    return (
        f"centralised training ({', '.join(pooled)}) has one model, the first of model.pool: {described[0]}. The "
        f"clients have {len(set(described))} different ones.",
    )


def model_specs(config: RunConfig, clients: list[ClientId]) -> dict[ClientId, ModelSpec]:
    """The backbone of every client: client k runs entry k modulo the length of ``model.pool``.

    Centralised training is client 0 alone, hence takes the first entry; ``Simulation.notes`` says so.

    Raises:
        ConfigError: An unknown model, pool or setting.
    """
    from graphsilo.federation.client import ModelSpec  # imports torch, which cutting data does not need

    entries = model_entries(config)
    for name, settings in entries:
        models.resolve(name, settings)
    return {client: ModelSpec(*entries[client % len(entries)], config.run.precision) for client in clients}


def model_entries(config: RunConfig) -> list[tuple[str, dict[str, Any]]]:
    """(model, settings) of the pool, or of the one model."""
    chosen = config.model
    if chosen.pool is None:
        return [(chosen.name, dict(chosen.options))]
    if isinstance(chosen.pool, str):
        return [(name, {**chosen.options, **dict(extra)}) for name, extra in models.pool(chosen.pool)]
    entries: list[tuple[str, dict[str, Any]]] = []
    for item in chosen.pool:
        settings = {"name": item} if isinstance(item, str) else dict(item)
        if "name" not in settings:
            raise ConfigError(f"every entry of model.pool needs a name; got {item}.")
        entries.append((str(settings.pop("name")), {**chosen.options, **settings}))
    if not entries:
        raise ConfigError("model.pool must name at least one model.")
    return entries


def complete_config(config: RunConfig, simulation: Participants) -> dict[str, Any]:
    """The configuration with every default written out, the chosen rule and its settings included."""
    tree = config.complete()
    tree["evaluation"]["select_by"] = selection_metric(config.evaluation, simulation).name
    if not isinstance(simulation, Simulation):
        # The silos hold their data: what the configuration says of data and cuts was not used.
        tree["data"], tree["partition"] = {"name": simulation.data["name"]}, {"clients": simulation.num_holders}
        tree["task"] = simulation.task
        return {key: value for key, value in tree.items() if key not in ("scenario", "perturb")}
    if simulation.scaling.has_columns:
        tree["data"].update(simulation.scaling.tree())
    if tree["partition"]["file"] is None:
        tree["partition"]["rule"] = simulation.rule
        tree["partition"].update(
            {
                key: value
                for key, value in simulation.partition.options.items()
                if value is not None and key not in config.partition.options
            }
        )
    else:
        tree["partition"]["file"] = str(Path(tree["partition"]["file"]).resolve())
    if path := tree["partition"].get("path"):
        tree["partition"]["path"] = str(Path(path).resolve())
    tree["partition"]["clients"] = simulation.num_holders
    names = tree["data"]["name"]
    absolute = [_absolute(name) for name in (names if isinstance(names, list) else [names])]
    tree["data"]["name"] = absolute if isinstance(names, list) else absolute[0]
    tree["task"] = simulation.task
    return tree


def _absolute(name: str) -> str:
    """A file's whole path, so that a run can be continued from any folder; names of data sets as they are."""
    return str(Path(name).resolve()) if catalog.is_file(name) else name


def fingerprint(config: RunConfig, simulation: Participants) -> str:
    """sha256 of everything that decides a run's numbers: configuration, data, partition."""
    tree = {name: value for name, value in config.complete().items() if name not in RECORDS}
    tree["data"].pop("root")
    if isinstance(simulation, Simulation) and simulation.scaling.has_columns:
        tree["data"].update(simulation.scaling.tree())  # as config.yaml says it, said or not
    tree["data"]["name"] = [_absolute(name) for name in config.data.names]
    # How the partition came about does not matter, only what it is: its hash stands for the whole section. The
    # ratios of links are drawn later, hence named.
    tree["partition"] = config.partition.ratios if simulation.task == "link" else None
    tree["task"] = simulation.task
    tree["evaluation"]["select_by"] = selection_metric(config.evaluation, simulation).name
    tree["run"] = {key: value for key, value in tree["run"].items() if key not in WITHOUT_EFFECT}
    tree["evaluation"] = {key: value for key, value in tree["evaluation"].items() if key not in OUTPUTS}
    text = json.dumps(tree, sort_keys=True, default=str)
    parts = [text, simulation.data_hash, simulation.cut_hash]
    brought = {name: one.sha256 for section in ("method", "model") for name, one in config.brought(section).items()}
    if brought:
        parts.append(json.dumps(brought, sort_keys=True))
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()
