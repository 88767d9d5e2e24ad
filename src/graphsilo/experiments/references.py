"""Reference rows under the run's data, cut, model, seeds and schedule: silos alone, all data together, a constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphsilo.evaluate.significance import gap_closed
from graphsilo.experiments.config import RunConfig, RunReference
from graphsilo.federation import registry

_SCHEDULE = {"rounds", "local_epochs", "batch_size", "optimizer", "lr", "weight_decay", "momentum"}
"""Settings of a method that its references share, where they have them."""


def reference_method(name: RunReference) -> str:
    """The method that makes a reference row."""
    return "global" if name == "global_cut" else name


def reference_config(config: RunConfig, name: RunReference) -> RunConfig:
    """The configuration of a reference row.

    Args:
        config: Of the run that it stands beside.
        name: ``local``, ``fedridge``, ``global``, ``majority``, or ``global_cut``: all data in one place without the
            edges between silos.
    """
    method = reference_method(name)
    kind, backbone = registry.load(method).config, registry.load(method).backbone
    shared = config.method_config().model_dump()
    options = {key: value for key, value in shared.items() if key in kind.model_fields and key in _SCHEDULE}
    if name == "global_cut":
        options["cross_edges"] = False
    return config.model_copy(
        update={
            "method": config.method.model_copy(update={"name": method, "options": options}),
            "evaluation": config.evaluation.model_copy(update={"modes": None, "embeddings": False}),
            "run": config.run.model_copy(
                update={"references": [], "precision": config.run.precision if backbone else "float32"}
            ),
            "remarks": [],  # they stand beside the run's own
            "given": [name for name in config.given if backbone or not name.startswith("model.")],
        }
    ).with_explicit(())


def reference_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the result keeps of a reference: its test scores, and those of scenarios where there are any.

    Args:
        summary: Of the reference's own result.
    """
    scenarios = summary.get("scenarios")
    return {**summary["test"], **({"scenarios": scenarios} if scenarios else {})}


def gaps_closed(test: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Per metric, how far from local to global training a run gets.

    Args:
        test: Metric to mean and deviation of the run.
        rows: The same of the references; ``local`` and ``global`` are needed.
    """
    closed = {}
    for metric, value in test.items():
        parts = [value, rows["local"].get(metric), rows["global"].get(metric)]
        means = [part["mean"] for part in parts if isinstance(part, dict) and part.get("mean") is not None]
        if len(means) == len(parts):
            closed[metric] = gap_closed(*means)
    return closed
