"""From a configuration to silos: load, cut, split, perturb."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphsilo import models
from graphsilo.data.graph import Graph, GraphCollection, content_hash, describe
from graphsilo.data.partition import Partition, audit, entry
from graphsilo.data.partition.registry import usual_rule
from graphsilo.data.partition.rule import SplitMode
from graphsilo.data.scales import Scaling
from graphsilo.data.silos.parts import detach
from graphsilo.data.silos.scaling import find_far_apart, find_lost_values
from graphsilo.data.silos.scenarios import build_silos, partition_for_scenario
from graphsilo.data.silos.silo import CutLinks, Silo
from graphsilo.data.sources import catalog
from graphsilo.data.sources.classes import settle_classes, signed_note
from graphsilo.data.sources.faults import Faults, check_finite
from graphsilo.data.sources.sizes import require_memory
from graphsilo.errors import ConfigError, DataError, UnsupportedError
from graphsilo.experiments.config import OUTPUTS, WITHOUT_EFFECT, ModelConfig, RunConfig, RunReference
from graphsilo.experiments.doors import RECORDS
from graphsilo.experiments.participants import (
    Participants,
    describe_untrained,
    selection_metric,
)
from graphsilo.federation import registry
from graphsilo.federation.registry import Method
from graphsilo.runtime.local.placement import free_memory
from graphsilo.types import CLASS_TASKS, NODE_TASKS, ClientId, Task

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

    @property
    def test_times(self) -> Sequence[Any]:
        sets = [(silo.seen.items["test"], silo.seen.graph.union.time) for silo in self.silos if self.task != "graph"]
        return [times[items] for items, times in sets if times is not None]

    def keep(self, folder: Path) -> None:
        self.partition.save(folder / "partition.npz")

    def with_names(self, names: Sequence[str]) -> Simulation:
        """The same with names of all clients, for the report; as it is where some are missing or called alike."""
        if len(names) != self.num_holders:
            return self
        rows = [{**row, "silo": names[row["client"]]} for row in self.cut["per_client"]]
        distinct = len({row["silo"] for row in rows}) == len(rows)
        return replace(self, cut={**self.cut, "per_client": rows}) if distinct else self


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
    loaded = _load_each(config, present)
    if len({type(item) for item in loaded.values()}) > 1:
        kinds = [
            f"client {client}'s {names[client]} is a "
            f"{'collection' if isinstance(item, GraphCollection) else 'single graph'}"
            for client, item in loaded.items()
        ]
        raise DataError(f"data.name mixes single graphs and collections of graphs ({'; '.join(kinds)}); name one kind.")
    if isinstance(chosen.name, list) and len(names) > 1:
        from graphsilo.experiments.several_data_sets import with_shared_words

        loaded = with_shared_words(config, present, loaded)
    loaded = dict(zip(loaded, settle_classes(list(loaded.values())), strict=True))
    if not isinstance(chosen.name, list) or len(names) == 1:
        return loaded[0]
    first = next(iter(loaded.values()))
    counts = isinstance(first, GraphCollection) or config.partition.split == "global"
    from graphsilo.experiments.several_data_sets import stand_in

    absent = _load_each(config, {place: names[place] for place in without}) if counts else {}
    return [loaded[place] if place in loaded else stand_in(first, absent.get(place)) for place in range(len(names))]


def _load_each(config: RunConfig, names: Mapping[ClientId, str]) -> dict[ClientId, Graph | GraphCollection]:
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
            options, several = chosen.options or None, len(names) > 1
            item = catalog.load(name, root=chosen.root, options=options, seed=chosen.seed, several=several)
            check_finite(item)
            found[place] = item
    faults.raise_if_any()
    return found


def method_of(config: RunConfig) -> Method:
    """What a configuration runs: a method; with ``run.alone`` what every silo makes of it by itself, and with
    ``run.one_place`` what one makes of all data."""
    method = registry.load(config.method.name)
    if method.pooled or not (config.run.one_place or (config.run.alone and not method.alone)):
        return method
    from graphsilo.runtime import alone  # with torch, which a configuration is looked at without

    return alone.put_in_one_place(method) if config.run.one_place else alone.make_alone(method)


def reference_method(config: RunConfig, name: RunReference) -> str:
    """The method that makes a reference row."""
    return config.method.name if name in ("alone", "one_place") else "global" if name == "global_cut" else name


def task_of(config: RunConfig, graph: Graph | GraphCollection) -> Task:
    """The task asked for, or what the data is made for.

    Raises:
        UnsupportedError: The data cannot serve it.
    """
    natural = graph.task
    task = config.task or natural
    if task != natural and (task != "link" or natural == "graph"):
        raise UnsupportedError(
            f"task '{task}' was asked for, but {graph.name} is made for task '{natural}'"
            f"{'' if natural == 'graph' else ' (or link)'}."
        )
    return task


def check_backbone(config: RunConfig, task: Task) -> None:
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
        from graphsilo.experiments.client_names import find_left_out, list_client_names

        without = find_left_out(config.run.without, len(config.data.name), list_client_names(config.data.name))
    loaded = load_data(config, without)
    items = loaded if isinstance(loaded, list) else [loaded]
    present = {place: item for place, item in enumerate(items) if place not in without}
    scaling = scaling_of(config, without)
    notes = list(_read_notes(list(present.values()), scaling))
    graphs = [item for item in items if isinstance(item, Graph)]
    called: Sequence[str] = ()
    if isinstance(loaded, list):
        from graphsilo.experiments import several_data_sets
        from graphsilo.experiments.client_names import alike_notes, tell_apart

        own = [item.name if place in present else "" for place, item in enumerate(items)]  # a stand-in has no name
        called, alike = tell_apart(own), alike_notes(own, config.data.names)
        notes += several_data_sets.copy_notes(present, config.data.names)
    if not graphs:
        from graphsilo.experiments.graph_collections import prepare_graphs

        made = prepare_graphs(config, method, [item for item in items if isinstance(item, GraphCollection)])
    elif isinstance(loaded, list):
        single = {place: item for place, item in present.items() if isinstance(item, Graph)}
        graph, sizes, differences = several_data_sets.join_graphs(config, graphs, single, scaling, called)
        notes += differences
        made = _prepare_graph(config, method, graph, graphs, sizes, called)
    else:
        made = _prepare_graph(config, method, graphs[0], graphs)
    if isinstance(loaded, list):
        notes += alike
        made = made.with_names(called)
    return replace(made, notes=(*made.notes, *notes))


def _prepare_graph(
    config: RunConfig, method: Method | None, whole: Graph, read: Sequence[Graph], sizes: list[int] | None = None,
    called: Sequence[str] = (),
) -> Simulation:  # fmt: skip
    """Of one graph; ``read`` are the graphs of single silos that it was made of, with so many nodes each, and what
    these are called."""
    task = task_of(config, whole)
    check_backbone(config, task)
    named = cut(config, whole, sizes, called)
    names = whole.owners.names if whole.owners is not None and named.rule == "natural" else ()
    partition = wide = named
    if config.run.without:
        from graphsilo.experiments.client_names import leave_out

        partition = leave_out(config, wide, names)
    graph = detach(whole, wide, partition) if partition.absent else whole
    found: list[dict[str, Any]] = [{"fills": item.fills, "estimated": item.estimated} for item in read]
    options = dict(config.scenario.options)
    if any(mode.endswith("_global") for mode in config.evaluation.modes or []):
        options["global_graph"] = True
    asked: dict[str, Any] = {"scenario": config.scenario.name, "options": options, "task": task}
    if task == "link":
        asked["link_ratios"] = config.partition.ratios
    spoil = choose_spoiler(config)
    if method is not None and method.pooled:
        cross = bool(getattr(config.method_config(), "cross_edges", True))
        from graphsilo.data.silos.pooling import pooled_silo

        pooled = pooled_silo(graph, partition, cross_edges=cross, spoil=spoil, **asked)
        if method.cut_links:  # there are none
            pooled = replace(pooled, cut=CutLinks(np.arange(graph.num_nodes), *np.zeros((2, 0), dtype=np.int64)))
        silos = [pooled if sizes else replace(pooled, **found[0])]
    else:
        silos = build_silos(graph, partition, **asked)
        silos = [replace(silo, shares_ids=not sizes, **found[silo.client if sizes else 0]) for silo in silos]
        if method is not None and method.cut_links and task in NODE_TASKS and config.scenario.name != "inductive":
            from graphsilo.data.silos.between import own_links, with_cut_links

            if sizes:
                silos = [replace(silo, cut=own_links(graph, partition.nodes[silo.client])) for silo in silos]
            else:
                silos = with_cut_links(silos, graph, partition.rule)
        if spoil is not None:
            silos = [spoil(silo) for silo in silos]
    facts = audit(wide, whole).to_dict()
    if task == "link" and (method is None or not method.pooled):
        from graphsilo.data.silos.link_task import count_links

        count_links(facts["per_client"], silos)
    if config.scenario.name == "receiver" and (method is None or not method.pooled):
        from graphsilo.data.silos.receiver import count_chosen

        count_chosen(facts["per_client"], silos)
    made = make_simulation(config, method, whole, wide, partition.absent, silos, task, facts, (whole,))
    made = made.with_names(names)
    if whole.time is None or task == "link":
        return made
    from graphsilo.data.partition.time_splits import describe_bounds, time_remarks

    until = describe_bounds(whole, partition)
    notes = (*made.notes, *time_remarks(whole, partition, called or names))
    return replace(made, notes=notes, cut={**made.cut, **({"bounds": until} if until else {})})


def choose_spoiler(config: RunConfig) -> Callable[[Silo], Silo] | None:
    """What is done to a client's training data; None where nothing is."""
    if not config.perturb:
        return None
    from graphsilo.data.silos.perturb import PerturbOptions, perturb

    settings = PerturbOptions.of(config.perturb)
    return None if settings.is_nothing else partial(perturb, options=settings, seed=config.partition.seed)


def cut(config: RunConfig, graph: Graph, sizes: list[int] | None = None, names: Sequence[str] = ()) -> Partition:
    """The partition of a configuration.

    Args:
        config: Says rule, clients, seed and splits, or names a stored partition.
        graph: What is cut.
        sizes, names: Nodes of each file, where the graph came from one file per silo, and what silos are called.
    """
    chosen = config.partition
    if chosen.file is not None:
        partition = Partition.load(chosen.file)
        partition.check(graph)
        return partition
    split: SplitMode | None = None if chosen.split == "auto" else chosen.split
    if sizes is not None:
        from graphsilo.experiments.several_data_sets import one_file_per_silo

        return one_file_per_silo(config, graph, sizes, split, names)
    rule = usual_rule(graph) if chosen.rule == "auto" else chosen.rule
    counted = entry(rule).counts and not config.is_given("partition.clients")
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
        times=dict(chosen.times),
        crop=config.scenario.options.get("crop"),
    )


def make_simulation(
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
    replaced: tuple[str, ...] = ()
    if without:
        from graphsilo.experiments.client_names import describe_absent

        replaced = (describe_absent(without, partition.num_clients, config.replaces, {}),)
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
        trained=None
        if task not in CLASS_TASKS
        else tuple(np.sum([silo.class_counts() for silo in silos], axis=0).tolist()),
    )


def scaling_of(config: RunConfig, without: Collection[ClientId] = ()) -> Scaling:
    """How a configuration has features scaled; what of a list is left out has no say."""
    names = config.data.names
    present = [name for place, name in enumerate(names) if len(names) == 1 or place not in without]
    return catalog.scaling_of(present, config.data.options or None)


def _unit_notes(graphs: Sequence[Graph | GraphCollection]) -> tuple[str, ...]:
    """Says so where one feature drowns another."""
    found = find_far_apart(graphs)
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
        yield from (f"{graph.name}: {text}." for text in (*graph.notes, *find_lost_values(graph, scaling.scale)))


def _sign_notes(config: RunConfig, silo: Silo) -> tuple[str, ...]:
    """Says so where labels -1 are a class that nobody has declared."""
    declared = any(
        spec is not None and spec.classes is not None for spec in map(catalog.find_description, config.data.names)
    )
    return () if declared else signed_note(silo.schema.class_names)


def _class_notes(silos: Sequence[Silo]) -> tuple[str, ...]:
    """Names the classes that are asked for and that nobody trains on."""
    schema = silos[0].schema
    if schema.task not in CLASS_TASKS:
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
    return (describe_untrained([[int(label), int(asked[label])] for label in lost], schema.class_names),)


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
    brought = {name: one.sha256 for section in ("method", "model") for name, one in config.find_own(section).items()}
    if brought:
        parts.append(json.dumps(brought, sort_keys=True))
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()
