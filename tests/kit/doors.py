"""Ways to say a setting."""

from __future__ import annotations

import graphsilo
import graphsilo.data
import graphsilo.errors

SMALL = {"name": "citation-sbm", "nodes": 150, "classes": 3, "features": 30}


# -- B: what was said has an effect, or a word is said ---------------------------------------------------------------


def idle(config, **arguments):
    """Run a few seconds' worth of a configuration; returns the result."""
    quick = {"model.hidden": 8, "method.rounds": 1}
    return graphsilo.run(config, report=False, **{**quick, **arguments})
