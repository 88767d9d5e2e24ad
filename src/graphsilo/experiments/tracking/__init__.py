"""Trackers: observers that keep what a run reports in a store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphsilo.errors import ConfigError, nearest
from graphsilo.experiments.tracking.base import Tracker
from graphsilo.experiments.tracking.files import CSV, JSONLines

if TYPE_CHECKING:
    from graphsilo.experiments.tracking.mlflow import MLflow
    from graphsilo.experiments.tracking.tensorboard import TensorBoard
    from graphsilo.experiments.tracking.wandb import WandB

__all__ = ["CSV", "KINDS", "JSONLines", "MLflow", "TensorBoard", "Tracker", "WandB", "tracker"]

KINDS = {"csv": "CSV", "jsonl": "JSONLines", "mlflow": "MLflow", "tensorboard": "TensorBoard", "wandb": "WandB"}
"""Trackers by what the command line calls them."""


def __getattr__(name: str) -> Any:
    """A tracker that needs a library, which is imported with it."""
    if name not in KINDS.values():
        raise AttributeError(f"module 'graphsilo.experiments.tracking' has no attribute '{name}'")
    return getattr(import_module(f"graphsilo.experiments.tracking.{name.lower()}"), name)


def tracker(text: str) -> Tracker:
    """A tracker as the command line names it: ``csv``, or with its place ``csv:rounds.csv``.

    Raises:
        ConfigError: There is no such tracker.
        UnsupportedError: Its library is not installed.
    """
    kind, _, where = text.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"--track names a tracker, which '{kind}' is not; {nearest(kind, KINDS)}")
    made: type[Any] = globals().get(KINDS[kind]) or __getattr__(KINDS[kind])
    found: Tracker = made(where or None)
    return found
