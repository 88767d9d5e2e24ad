"""Runs whose messages are noted, without a folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

import kit
from graphsilo.attacks.recorder import RecordedSeed, Recorder, Repetition
from graphsilo.attacks.views import views
from graphsilo.experiments import runner
from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry

SGD = {"method__optimizer": "sgd", "method__local_epochs": 1}


def recorded(*, train=None, links=True, **settings) -> Repetition:
    """A small run; ``train`` nodes of each silo at most, and without links where asked."""
    config = kit.small_run(run__seeds=[0], **settings)
    method = registry.load(config.method.name)
    simulation = prepare(config, method)
    silos = []
    for silo in simulation.silos:
        if not links:
            graph = replace(silo.graph, edges=np.zeros((2, 0), dtype=np.int64))
            silo = replace(silo, graph=graph)
        silos.append(silo if train is None else replace(silo, train=silo.train[:train]))
    simulation = replace(simulation, silos=tuple(silos))
    recorder = Recorder()
    runner.run(config, simulation=simulation, seed_run=partial(RecordedSeed, recorder=recorder))
    return Repetition(config, method, simulation, 0, recorder, recorder.models())


def cases(repetition, attacker="coordinator"):
    """What an attacker sees of each silo, and the truth."""
    silos = {silo.client: silo for silo in repetition.simulation.silos}
    return [(view, silos[view.target]) for view in views(repetition, attacker, repetition.simulation.clients)]


def outcome(outcomes, part):
    """The one whose figure or attack holds these words."""
    (found,) = [each for each in outcomes if part in f"{each.attack}: {each.figure}"]
    return found
