"""Collections of graphs, for graph classification, from a configuration to silos."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphsilo.data.graph import GraphCollection
from graphsilo.data.partition.artefact import Partition
from graphsilo.data.partition.graphs import partition_graphs
from graphsilo.data.silos.graph_task import build_graph_silos
from graphsilo.data.silos.pooling import pool_silos
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import DataError, UnsupportedError
from graphsilo.experiments.client_names import leave_out
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.simulation import (
    Simulation,
    check_backbone,
    choose_spoiler,
    make_simulation,
    task_of,
)
from graphsilo.federation.registry import Method


def prepare_graphs(config: RunConfig, method: Method | None, collections: list[GraphCollection]) -> Simulation:
    task = task_of(config, collections[0])
    check_backbone(config, task)
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
            alone = "dirichlet" if collections[0].union.owners is None else "natural"
            rule = "domains" if len(collections) > 1 else alone
        counted = rule == "domains" or (rule == "natural" and not config.is_given("partition.clients"))
        partition = partition_graphs(
            collections if len(collections) > 1 else collections[0],
            rule,
            clients=None if counted else chosen.clients,
            seed=chosen.seed,
            ratios=chosen.ratios,
            options=chosen.options,
        )
    owners = collections[0].union.owners
    names = owners.names if owners is not None and partition.rule == "natural" else ()
    wide, partition = partition, leave_out(config, partition, names)
    silos = build_graph_silos(collections if len(collections) > 1 else collections[0], partition, features=features)
    facts = _collection_facts(partition, wide, collections, silos)
    spoil = choose_spoiler(config)
    if spoil is not None:
        silos = [spoil(silo) for silo in silos]
    if method is not None and method.pooled:
        silos = [pool_silos(silos)]
    first = collections[partition.present[0] if len(collections) > 1 else 0]
    made = make_simulation(config, method, first, wide, partition.absent, silos, task, facts, tuple(collections))
    return made.with_names(names)


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
