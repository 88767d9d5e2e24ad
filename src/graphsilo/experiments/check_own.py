"""Refusals before training of what a person brought along: methods and models of their own."""

from __future__ import annotations

from graphsilo import models
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import RunConfig
from graphsilo.experiments.doors import OWN
from graphsilo.experiments.simulation import Simulation
from graphsilo.federation import own
from graphsilo.federation.client import ModelSpec, build_model
from graphsilo.federation.registry import Method
from graphsilo.models.own import OwnModel
from graphsilo.models.view import tensors_of
from graphsilo.random import generator
from graphsilo.runtime.alone import classes_of


def check_own(config: RunConfig, method: Method, simulation: Simulation) -> None:
    """Refuse what a person brought along where it cannot do its work: before anything is written.

    Raises:
        ConfigError: Other processes cannot find it, or a model gives no numbers.
        UnsupportedError: A model ignores weights of edges, or does not do the task.
    """
    brought = config.find_own("model")
    if config.run.workers > 1:
        check_findable(config, method, f"workers={config.run.workers}")
    tried: set[str] = set()
    for silo in simulation.silos if brought and method.backbone else ():
        spec = simulation.models[silo.client]
        if spec.name in brought and str(spec.wire()) not in tried:
            tried.add(str(spec.wire()))
            try_own(spec, silo, finite=not simulation.scaling.has_columns)


def check_findable(config: RunConfig, method: Method, why: str) -> None:
    """Refuse what other processes could not find.

    Args:
        config, method: The run.
        why: What needs other processes.

    Raises:
        ConfigError: Names it.
    """
    needed = [section for section in OWN if section != "metric"]  # whose code no other process runs
    found = [(section, name, one.place) for section in needed for name, one in config.find_own(section).items()]
    found += [("method", method.name, own.place_of(part)) for part in (*classes_of(method.client), method.config)]
    for section, name, place in found:
        if not own.is_findable(place):
            raise ConfigError(
                f"{why} starts other processes, and {section} '{name}' is defined in a script, a notebook or a "
                f"function ({place}), where they cannot find it. Put it at the top level of a file of its own and say "
                f"{section}='file.py:NAME', or import it from there."
            )
    for name in config.model_names():
        if name in models.registry.list_added() and name not in config.find_own("model"):
            raise ConfigError(
                f"{why} starts other processes, and model '{name}' was registered in this one alone. Say where it is, "
                f"model='file.py', or put it into a package with an entry point."
            )


def try_own(spec: ModelSpec, silo: Silo, *, finite: bool = True) -> None:
    """One pass of a model of the person's own over a client's data, forwards and backwards.

    Args:
        spec, silo: The client's.
        finite: Whether its output must be finite; not where features are still to be scaled.

    Raises:
        ConfigError: It fails, gives what is no finite number, or has no gradient.
        UnsupportedError: It would ignore the weights of edges.
    """
    model = build_model(spec, silo.schema, generator(0, "model"), "cpu")
    if not isinstance(model, OwnModel):
        return
    model.check_weights(silo.graph.union.edge_weights is not None)
    model.check_pass(tensors_of(silo.graph), f"client {silo.client}'s graph", generator(0, "trial"), finite=finite)
