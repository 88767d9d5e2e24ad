"""Runs that were stopped."""

from __future__ import annotations

import pytest

from graphsilo.experiments.observer import Observer
from graphsilo.experiments.runner import run


class Stop(Exception):
    pass


class StopAfter(Observer):
    def __init__(self, seed, number):
        self.place = (seed, number)

    def on_progress(self, progress):
        if (progress.seed, progress.round) == self.place:
            raise Stop


# -- another run, or other outputs -----------------------------------------------------------------------------------


def stopped(config, folder):
    with pytest.raises(Stop):
        run(config, out=folder, observer=StopAfter(0, 2))
