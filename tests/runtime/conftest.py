"""The troubled method, known here and to worker processes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from graphsilo.experiments.simulation import prepare
from graphsilo.federation import registry
from graphsilo.testing import conformance
from kit.provisioned import keys

__all__ = ["keys", "troubled"]


@pytest.fixture(scope="session")
def troubled():
    """The module of the troubled method."""
    patch = pytest.MonkeyPatch()
    folder = str(Path(__file__).parent)
    patch.syspath_prepend(folder)
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")])))
    module = importlib.import_module("troubled")
    registry.register(module.METHOD)
    yield module
    del registry._REGISTERED["troubled"]
    patch.undo()


@pytest.fixture
def config_of(troubled):
    """A small configuration of the troubled method."""

    def make(*, clients=4, run=None, **settings):
        return conformance.small_config(troubled.METHOD, settings, clients=clients, run=run)

    return make


@pytest.fixture
def federation_of(troubled, config_of):
    """Server and in-process federation of the troubled method."""

    def make(**settings):
        server, federation, _ = conformance.assemble(troubled.METHOD, settings)
        federation.at("round", 1)
        return server, federation

    return make


@pytest.fixture(scope="session")
def simulation_of(troubled):
    """The silos behind ``config_of``."""
    return prepare(conformance.small_config(troubled.METHOD, {}), troubled.METHOD)
