"""The cutting rules by name, and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphsilo.data.graph import Graph
from graphsilo.data.partition import dirichlet, files, label_imbalance, louvain, metis, overlap, random_nodes, topology
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.cut import Cut
from graphsilo.data.partition.options import CutOptions, PartitionOptions, SplitMode
from graphsilo.data.partition.splits import check_ratios, ratios_for, refuse_ratios, splits_for
from graphsilo.errors import ConfigError, PartitionError, nearest


@dataclass(frozen=True)
class Rule:
    """One way to cut a graph.

    Attributes:
        name: As a user writes it.
        summary: One line.
        options: Class of its settings.
        cut: (graph, clients, seed, options) -> Cut.
        split: How splits are made unless something else is asked for.
        source: Paper or code base.
    """

    name: str
    summary: str
    options: type[PartitionOptions]
    cut: Callable[[Graph, int, int, Any], Cut]
    split: SplitMode = "stratified"
    source: str = ""


_OPENFGL = "OpenFGL (Li et al., PVLDB 2024/25)"
_RULES = (
    Rule(
        "louvain",
        "communities cut to similar size and dealt out to clients",
        louvain.LouvainOptions,
        louvain.cut,
        source="FedSage (Zhang et al., NeurIPS 2021)",
    ),
    Rule(
        "metis",
        "parts of equal size with few edges between them",
        metis.MetisOptions,
        metis.cut,
        source="FED-PUB (Baek et al., ICML 2023)",
    ),
    Rule(
        "louvain+",
        "label imbalance: 100 balanced communities joined by the similarity of their labels",
        label_imbalance.LouvainPlusOptions,
        label_imbalance.cut_louvain_plus,
        source="O-pFGL (Yan et al., arXiv 2411.11304)",
    ),
    Rule(
        "louvain+plain",
        "label imbalance: plain communities joined by the similarity of their labels",
        label_imbalance.LouvainPlainOptions,
        label_imbalance.cut_louvain_plain,
        source=_OPENFGL,
    ),
    Rule(
        "metis+",
        "label imbalance: 100 Metis parts joined by the similarity of their labels, empty parts dropped",
        label_imbalance.MetisPlusOptions,
        label_imbalance.cut_metis_plus,
        source=_OPENFGL,
    ),
    Rule(
        "metis+plain",
        "label imbalance: 100 Metis parts joined by the similarity of their labels, empty parts refused",
        label_imbalance.MetisPlusOptions,
        label_imbalance.cut_metis_plain,
        source=_OPENFGL,
    ),
    Rule(
        "dirichlet",
        "label skew: every class shared out by Dirichlet proportions, edges ignored",
        dirichlet.DirichletOptions,
        dirichlet.cut,
        source=_OPENFGL,
    ),
    Rule(
        "topology",
        "structure skew: Metis parts with links added between like or unlike nodes",
        topology.TopologyOptions,
        topology.cut,
        source="AdaFGL (structure Non-iid)",
    ),
    Rule(
        "overlap",
        "five clients per Metis part, each with a random half of its nodes",
        overlap.OverlapOptions,
        overlap.cut,
        split="global",
        source="FED-PUB (Baek et al., ICML 2023)",
    ),
    Rule("random", "nodes dealt out at random in equal shares", random_nodes.RandomOptions, random_nodes.cut),
    Rule("files", "a stored partition, or a table with one client number per node", files.FilesOptions, files.cut),
)


def rules() -> list[Rule]:
    """Every rule for one big graph, in the order of the documentation."""
    return list(_RULES)


def entry(rule: str) -> Rule:
    """The rule with this name, case-insensitive.

    Raises:
        ConfigError: There is none.
    """
    for candidate in _RULES:
        if candidate.name == rule.lower():
            return candidate
    raise ConfigError(f"there is no partition rule '{rule}': {nearest(rule, [known.name for known in _RULES])}")


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
    clients: int,
    seed: int = 2024,
    ratios: Sequence[float] | None = None,
    options: Mapping[str, Any] | object | None = None,
    split: str | None = None,
    split_index: int = 0,
) -> Partition:
    """Cut one graph into clients and split each client's nodes.

    Args:
        graph: The whole graph. Its direction is ignored when cutting.
        rule: A name from ``rules()``.
        clients: K. With K = 1 every rule but ``files`` gives the graph itself.
        seed: Of the cut, where it draws, and of the splits.
        ratios: Train, val and test shares; the protocol's for this data set by default.
        options: Settings of the rule, by name or as its class.
        split: ``stratified`` (per client and class), ``global`` (once over the graph) or ``predefined``. By default
            what a stored cut says, else the masks of the user's own data, else the rule's way.
        split_index: Column, where the data comes with several predefined splits.

    Returns:
        The partition; ids are rows of ``graph``.

    Raises:
        ConfigError: The rule, a setting or the ratios are not known or not possible.
        PartitionError: The graph cannot be cut so.

    Source: OpenFGL's protocol. Same graph, rule, seed and settings give the same partition; NumPy's global random
    state is neither read nor changed.
    """
    chosen = entry(rule)
    told = CutOptions.of({"clients": clients, "seed": seed, "split": split, "split_index": split_index})
    settings = chosen.options.of(options, owner=chosen.name)
    shares = ratios_for(graph.name) if ratios is None else check_ratios(ratios)
    mode = told.split
    check_clients(clients, graph.num_nodes, rule=chosen.name)
    if clients == 1 and chosen.name != "files":
        cut = Cut((np.arange(graph.num_nodes, dtype=np.int64),))
    else:
        cut = chosen.cut(graph, clients, seed, settings)
    if cut.splits is not None and mode is None and ratios is None:
        splits, label = list(cut.splits), "stored"
    else:
        mode = mode or ("predefined" if graph.has_own_splits else chosen.split)
        if mode == "predefined":
            refuse_ratios(graph, ratios)
        splits = splits_for(graph, cut.nodes, mode=mode, ratios=shares, seed=seed, split_index=split_index)
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
        options=settings.model_dump(),
        split=label,
        ratios=shares if label in ("stratified", "global") else None,
        new_part=cut.new_part,
        cropped=cut.cropped,
        added_edges=cut.added_edges,
    )
