"""graphsilo trains graph neural networks over graphs that may not leave the place where they are kept.

The calls of the command line, from Python::

    import graphsilo

    result = graphsilo.run(data="Cora", clients=10, method={"name": "fedprox", "mu": 0.1}, seeds=[0, 1, 2])
    print(result.accuracy())

Everything public is imported from here, when it is first used: ``import graphsilo`` alone costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphsilo.__about__ import __version__

if TYPE_CHECKING:
    from graphsilo.api import (
        attack,
        compare,
        export,
        graph_of,
        load,
        partition,
        plan,
        predict,
        reproduce,
        run,
        sweep,
        tune,
        why,
    )  # fmt: skip
    from graphsilo.attacks.record import AttackRecord
    from graphsilo.data.graph import Graph, GraphCollection
    from graphsilo.data.partition.artefact import Partition
    from graphsilo.errors import GraphsiloError
    from graphsilo.experiments.config import RunConfig
    from graphsilo.experiments.export import Export
    from graphsilo.experiments.observer import Observer
    from graphsilo.experiments.predict import Prediction
    from graphsilo.experiments.storage.results import Result
    from graphsilo.experiments.tuning.record import TuneRecord
    from graphsilo.experiments.why import Why
    from graphsilo.planning import Plan
    from graphsilo.report.grid import Grid
    from graphsilo.report.tables import Comparison

__all__ = [
    "AttackRecord",
    "Comparison",
    "Export",
    "Graph",
    "GraphCollection",
    "GraphsiloError",
    "Grid",
    "Observer",
    "Partition",
    "Plan",
    "Prediction",
    "Result",
    "RunConfig",
    "TuneRecord",
    "Why",
    "__version__",
    "attack",
    "compare",
    "export",
    "graph_of",
    "load",
    "partition",
    "plan",
    "predict",
    "reproduce",
    "run",
    "sweep",
    "tune",
    "why",
]

_HOMES = {
    "AttackRecord": "graphsilo.attacks.record",
    "Comparison": "graphsilo.report.tables",
    "Export": "graphsilo.experiments.export",
    "Graph": "graphsilo.data.graph",
    "GraphCollection": "graphsilo.data.graph",
    "GraphsiloError": "graphsilo.errors",
    "Grid": "graphsilo.report.grid",
    "Observer": "graphsilo.experiments.observer",
    "Partition": "graphsilo.data.partition.artefact",
    "Plan": "graphsilo.planning",
    "Prediction": "graphsilo.experiments.predict",
    "Result": "graphsilo.experiments.storage.results",
    "RunConfig": "graphsilo.experiments.config",
    "TuneRecord": "graphsilo.experiments.tuning.record",
    "Why": "graphsilo.experiments.why",
    "attack": "graphsilo.api",
    "compare": "graphsilo.api",
    "export": "graphsilo.api",
    "graph_of": "graphsilo.api",
    "load": "graphsilo.api",
    "partition": "graphsilo.api",
    "plan": "graphsilo.api",
    "predict": "graphsilo.api",
    "reproduce": "graphsilo.api",
    "run": "graphsilo.api",
    "sweep": "graphsilo.api",
    "tune": "graphsilo.api",
    "why": "graphsilo.api",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'graphsilo' has no attribute '{name}'")
    from graphsilo.loading import without_collector  # not above: Python warns where `-m graphsilo.loading` finds it

    with without_collector():
        value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
