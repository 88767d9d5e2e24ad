"""Federations whose silos know the links between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphsilo.data.graph import Graph
from graphsilo.data.silos.silo import Silo
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.federation.client import ClientContext
from graphsilo.federation.server import ServerBase, ServerContext
from graphsilo.runtime.local.in_process import InProcess


def cut_of(method: str, **settings: Any) -> Any:
    """A method, its configuration, and a generated graph of 90 nodes cut in four at random."""
    config = load_config(
        overrides={
            "data.name": "citation-sbm", "data.generator": {"nodes": 90, "features": 12},
            "partition.rule": "random", "partition.clients": 4, "method.name": method, "model.name": "gcn",
            "model.hidden": 5, "evaluation.modes": ["aggregate_local", "aggregate_global"], **settings,
        }
    )  # fmt: skip
    loaded = registry.load(method)
    return loaded, config, prepare(config, loaded)


def set_up(
    cut: Any, silos: Sequence[Silo] | None = None, kind: type[InProcess] = InProcess
) -> tuple[ServerBase[Any], InProcess, Graph]:
    """Its federation after set-up, and the graph that was cut; ``silos`` take the place of its own."""
    loaded, config, simulation = cut
    by_client = {silo.client: silo for silo in silos or simulation.silos}
    typed, models = config.method_config(), simulation.models
    federation = kind(
        list(by_client),
        lambda client: loaded.client(ClientContext(client, by_client[client], typed, models[client], 0)),
    )
    server = loaded.server(ServerContext(typed, simulation.schema, models, 0, federation.clients))
    federation.at("setup", 0)
    server.set_up(federation)
    return server, federation, next(each.graph for each in simulation.silos[0].evaluations if each.name == "global")
