"""Small studies, and what they hold."""

from __future__ import annotations

import json

SMALL = {
    "data": {"name": "citation-sbm", "nodes": 200},
    "partition": {"rule": "random", "clients": 2},
    "method": {"name": "fedavg", "rounds": 6},
}
RATES = {"method.lr": {"low": 0.001, "high": 0.5, "log": True}}


def trials_of(out):
    """A study's trials without what they cost: number, settings, state, score, last round; by method."""
    tree = json.loads((out / "tune.json").read_text())
    names = ("trial", "settings", "state", "validation", "round")
    return {
        method["name"]: [tuple(trial.get(name) for name in names) for trial in method["trials"]]
        for method in tree["methods"]
    }
