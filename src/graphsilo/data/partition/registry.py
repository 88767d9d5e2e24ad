"""The cutting rules by name, and the one function that applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition import rules as folder
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.rule import Cut, CutOptions, Rule
from graphsilo.data.partition.splits import check_ratios, ratios_for, refuse_ratios, splits_for
from graphsilo.errors import ConfigError, PartitionError, nearest

GROUP = "graphsilo.partitions"
"""Entry points of others' rules, each naming a Rule."""

_ADDED: dict[str, Rule] = {}


def register(rule: Rule) -> Rule:
    """Make a rule known to this process; returns it.

    Raises:
        ConfigError: There is one of its name.
    """
    if rule.name in _rules():
        raise ConfigError(f"there is a partition rule '{rule.name}' already; give yours another name.")
    _ADDED[rule.name] = rule
    _rules.cache_clear()
    return rule


def adopt(name: str, thing: Any) -> str:
    """Make a rule known that a person brought along, in place of one of that name; returns the name it has now.

    Args:
        name: For a function.
        thing: A function (graph, clients, seed) as :func:`graphsilo.data.partition.own.rule_of` takes it, or a Rule,
            which has a name of its own.

    Raises:
        ConfigError: A rule of graphsilo or of an installed package has its name.
    """
    from graphsilo.data.partition.own import rule_of

    rule = thing if isinstance(thing, Rule) else rule_of(name, thing)
    if _ADDED.pop(rule.name, None) is not None:
        _rules.cache_clear()
    return register(rule).name


def list_added() -> tuple[str, ...]:
    """Names of the rules that only this process knows."""
    return tuple(_ADDED)


@cache
def _files() -> tuple[str, ...]:
    """The files in ``rules``."""
    return tuple(found.name for found in iter_modules(folder.__path__))


def _rules_in(file: str) -> Sequence[Rule]:
    found: Sequence[Rule] = import_module(f"{folder.__name__}.{file}").RULES
    return found


@cache
def _rules() -> dict[str, Rule]:
    """All rules by name: those of the files in ``rules``, then those of other packages."""
    own = [rule for file in _files() for rule in _rules_in(file)]
    others = [entry.load() for entry in entry_points(group=GROUP)]
    for rule in others:
        if not isinstance(rule, Rule):
            raise ConfigError(f"an entry point of {GROUP} must name a Rule; {rule!r} is none.")
    # Those of graphsilo win: a package cannot replace a rule that published cuts refer to.
    found = {rule.name: rule for rule in [*others, *_ADDED.values(), *own]}
    return dict(sorted(found.items()))


def rules() -> list[Rule]:
    """Every rule for one big graph, by name."""
    return list(_rules().values())


def entry(rule: str) -> Rule:
    """The rule with this name, case-insensitive.

    Raises:
        ConfigError: There is none.
    """
    name = rule.lower()
    # Most rules are in a file of their own name: no other is read.
    found = next((one for one in _rules_in(name) if one.name == name), None) if name in _files() else None
    found = found or _rules().get(rule) or _rules().get(name)
    if found is None:
        raise ConfigError(f"there is no partition rule '{rule}': {nearest(rule, list(_rules()))}")
    return found


def usual_rule(graph: Graph) -> str:
    """The rule that cuts a graph where nobody names one: by its institutions, where it has some."""
    return "louvain" if graph.owners is None else "natural"


def check_clients(clients: int, items: int, *, rule: str, what: str = "nodes") -> None:
    """Refuse a number of clients that cannot all have an item.

    Raises:
        PartitionError: There are more clients than items.
    """
    if clients > items:
        raise PartitionError(
            f"partition '{rule}' was to give {clients} clients at least one of {items} {what}: ask for at most {items}."
        )


def partition(
    graph: Graph,
    rule: str,
    *,
    clients: int | None = None,
    seed: int = 2024,
    ratios: Sequence[float] | None = None,
    options: Mapping[str, Any] | object | None = None,
    split: str | None = None,
    split_index: int = 0,
    times: Mapping[str, Any] | None = None,
) -> Partition:
    """Cut one graph into clients and split each client's nodes.

    Args:
        graph: The whole graph. Its direction is ignored when cutting.
        rule: A name from ``rules()``.
        clients: K; None takes as many as ``files`` finds, and 10 of any other rule. With K = 1 every rule but ``files``
            gives the graph itself.
        seed: Of the cut, where it draws, and of the splits.
        ratios: Train, val and test shares; the protocol's for this data set by default.
        options: Settings of the rule, by name or as its class.
        split: ``stratified`` (per client and class), ``global`` (once over the graph), ``predefined`` or ``time``. By
            default what a stored cut says, else the masks of the user's own data, else the rule's way.
        split_index: Column, where the data comes with several predefined splits.
        times: Settings of a split by time; see :class:`graphsilo.data.partition.rule.TimeOptions`.

    Returns:
        The partition; ids are rows of ``graph``.

    Raises:
        ConfigError: The rule, a setting or the ratios are not known or not possible.
        PartitionError: The graph cannot be cut so.

    Source: OpenFGL's protocol. Same graph, rule, seed and settings give the same partition; NumPy's global random
    state is neither read nor changed.
    """
    chosen = entry(rule)
    said = {} if clients is None else {"clients": clients}
    common = CutOptions.of({**said, "seed": seed, "split": split, "split_index": split_index, **(times or {})})
    if clients is None and not chosen.counts:
        clients = common.clients
    settings = chosen.options.of(options, owner=chosen.name)
    mode = common.split
    if ratios is not None and common.train_until is not None:
        raise ConfigError(
            "partition.train_until and val_until say how items are divided, and so do partition.ratios. Leave out one."
        )
    shares = ratios_for(graph.name, mode or "stratified") if ratios is None else check_ratios(ratios)
    if clients is not None:
        check_clients(clients, graph.num_nodes, rule=chosen.name)
    if clients == 1 and not chosen.counts:
        cut = Cut((np.arange(graph.num_nodes, dtype=np.int64),))
    else:
        cut = chosen.cut(graph, clients, seed, settings)
    if cut.splits is not None and mode is None and ratios is None:
        splits, label = list(cut.splits), "stored"
    else:
        mode = mode or ("predefined" if graph.has_own_splits else chosen.split)
        if mode == "predefined":
            refuse_ratios(graph, ratios)
        names = graph.owners.names if graph.owners is not None and chosen.name == "natural" else ()
        splits = splits_for(
            graph, cut.nodes, mode=mode, ratios=shares, seed=seed, split_index=split_index, times=common, names=names
        )
        label = mode
    return Partition(
        rule=chosen.name,
        seed=seed,
        data=graph.name,
        num_nodes=graph.num_nodes,
        nodes=cut.nodes,
        train=tuple(part[0] for part in splits),
        val=tuple(part[1] for part in splits),
        test=tuple(part[2] for part in splits),
        options={} if chosen.counts else settings.model_dump(),  # where a cut was stored says nothing of it
        split=label,
        ratios=shares if label in ("stratified", "global", "time") and common.train_until is None else None,
        new_part=cut.new_part,
        cropped=cut.cropped,
        added_edges=cut.added_edges,
    )
