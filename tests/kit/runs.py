"""Runs and what they came to."""

from __future__ import annotations

from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.testing.conformance import numbers


class Listener(Observer):
    """Notes everything."""

    def __init__(self):
        self.heard, self.first = [], None

    def on_start(self, run):
        self.first = run

    def on_progress(self, progress):
        self.heard.append(progress)


def only(result):
    (seed,) = result.tree["seeds"]
    return seed


def learned(config, out):
    """The numbers of a run, which goes on where it was begun, and every byte of its models."""
    tree = run(config, out=out, resume=out.exists()).tree
    return numbers(tree), [path.read_bytes() for path in sorted((out / "models").iterdir())]


def quick(method):
    """Settings that shorten a run of a method and leave every step in."""
    return {f"method__{key}": value for key, value in registry.load(method).quick.items()}


AROUND = [
    {"run__compression": "int8"},
    {"run__compression": "topk"},
    {"run__secure_sums": True},
    {"evaluation__modes": ["own_local", "own_global", "aggregate_local", "aggregate_global"]},
    {"data__scale": "standard"},
    {"evaluation__auc": True, "evaluation__report": "federation"},
    {"scenario__name": "unseen"},
]
"""Settings, one or two at a time, of what surrounds a method in a run."""
