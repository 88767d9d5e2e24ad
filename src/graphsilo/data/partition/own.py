"""Cuts of a person's own: a client number per node, or a function that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsilo.data.graph import Graph
from graphsilo.data.partition.rule import Cut, CutOptions, PartitionOptions, Rule
from graphsilo.errors import ConfigError, PartitionError, quote, several
from graphsilo.signatures import parameters_of, settings_of

_RESERVED = ("rule", "file", "ratios", "options", *CutOptions.model_fields)
"""Names of a run's ``partition`` settings that stand for something else."""


def rule_of(name: str, function: Callable[..., Any]) -> Rule:
    """The rule that a function is.

    Args:
        name: By which it will be known.
        function: (graph, clients, seed) and settings of its own, which have defaults; returns a client number per
            node, or the nodes of each client.

    Raises:
        ConfigError: It takes something else.
    """
    what = f"partition rule '{name}'"
    given = list(parameters_of(function, what))[:3]
    if len(given) < 3:
        raise ConfigError(f"{what} should take (graph, clients, seed); it takes ({', '.join(given)}).")
    options = settings_of("OwnOptions", PartitionOptions, function, (*given, *_RESERVED), what)

    def cut(graph: Graph, clients: int, seed: int, chosen: PartitionOptions) -> Cut:
        found = function(graph, clients, seed, **dict(chosen))
        if isinstance(found, Cut):
            return found
        cut = cut_of(found, graph.num_nodes, what)
        if len(cut.nodes) != clients:
            raise PartitionError(f"{what} was to make {clients} clients, and made {len(cut.nodes)}.")
        return cut

    summary = (inspect.getdoc(function) or "a rule of your own").splitlines()[0].rstrip(".")
    return Rule(name, summary, options, cut)


def cut_of(found: Any, num_nodes: int, what: str, made_for: str = "the graph") -> Cut:
    """The cut that somebody's array or lists are: one client number per node, -1 for none, or the nodes of each client.

    Raises:
        PartitionError: It does not fit the graph.
    """
    if isinstance(found, list | tuple) and len(found) and not _is_number(found[0]):
        nodes = tuple(
            client_numbers(part, f"{what}: the nodes of client {client}") for client, part in enumerate(found)
        )
        _check_nodes(nodes, num_nodes, what)
        return Cut(tuple(map(np.sort, nodes)))  # which nodes they are says who has what, not their order
    return cut_by_owner(client_numbers(found, f"{what}: a client number per node"), num_nodes, what, made_for)


def cut_by_owner(
    owners: NDArray[np.int64], num_nodes: int, what: str, made_for: str = "the graph", clients: int | None = None
) -> Cut:
    """The cut that a client number per node is.

    Args:
        owners: [n], -1 for a node of no client.
        num_nodes: n.
        what, made_for: Where the numbers come from, and what they should be of, for refusals.
        clients: How many there are to be; None takes the largest number plus one.

    Raises:
        PartitionError: There are more or fewer numbers than nodes, one is no client's, or a client has no node.
    """
    if len(owners) != num_nodes:
        raise PartitionError(
            f"{what} names a client for {len(owners)} nodes, but {made_for} has {num_nodes}: it was made for another "
            f"graph."
        )
    # More clients than nodes leave some without: their numbers are ids, say, and nothing is made as long as they are.
    count = min(int(owners.max(initial=-1)) + 1, num_nodes) if clients is None else clients
    wrong = owners[(owners < -1) | (owners >= count)]
    if len(wrong):
        known = f"{count} clients are numbered 0 to {count - 1}"
        if clients is None:
            known = f"clients are numbered from 0{' without a gap' if wrong[0] > 0 else ''}"
        raise PartitionError(f"{what} names client {int(wrong[0])}, but {known} (-1 for none).")
    if not count:
        raise PartitionError(f"{what} gives no client a node: clients are numbered from 0, and -1 stands for none.")
    there = np.bincount(owners[owners >= 0], minlength=count)
    empty = np.flatnonzero(there == 0)
    if len(empty):
        who = "client" if len(empty) == 1 else "clients"
        raise PartitionError(
            f"{what} gives {who} {several(empty, 3)} of {count} no node: number the clients from 0 without a gap"
            f"{'.' if clients is None else ', or ask for as many clients as there are.'}"
        )
    order = np.argsort(owners, kind="stable")
    return Cut(tuple(np.split(order[np.count_nonzero(owners < 0) :], np.cumsum(there)[:-1])))


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0


def client_numbers(values: Any, what: str) -> NDArray[np.int64]:
    """A vector of whole numbers, of a list, an array or a tensor.

    Raises:
        PartitionError: It is something else.
    """
    if hasattr(values, "detach"):  # torch's
        values = values.detach().cpu()
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):
        found = np.asarray(None)
    if found.ndim == 1 and not found.size:
        found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        got = f"shape {found.shape} of {found.dtype}" if found.ndim else quote(values)
        raise PartitionError(f"{what} should be a list or array [n] of whole numbers; got {got}.")
    return found.astype(np.int64)


def _check_nodes(nodes: tuple[NDArray[np.int64], ...], num_nodes: int, what: str) -> None:
    for client, part in enumerate(nodes):
        if not len(part):
            raise PartitionError(f"{what} gives client {client} of {len(nodes)} no node.")
        if part.min() < 0 or part.max() >= num_nodes:
            bad = int(part.min()) if part.min() < 0 else int(part.max())
            raise PartitionError(
                f"{what} gives client {client} node {bad}, but nodes are numbered 0 to {num_nodes - 1}."
            )
    times = np.bincount(np.concatenate(nodes), minlength=num_nodes)
    twice = np.flatnonzero(times > 1)
    if len(twice):
        holders = [client for client, part in enumerate(nodes) if twice[0] in part]
        raise PartitionError(
            f"{what} gives node {int(twice[0])} to clients {several(holders, 3)}, and {len(twice)} nodes in all more "
            f"than once: what one tests on, another would train on. Give each node to one client, or use the rule "
            f"'overlap'."
        )
