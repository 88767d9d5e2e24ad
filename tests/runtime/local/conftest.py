"""Pools of worker processes."""

from __future__ import annotations

import pytest

from graphsilo.federation.ledger import Ledger
from graphsilo.runtime.local.workers import WorkerPool
from graphsilo.runtime.setup import ClientSetup
from graphsilo.testing import conformance


@pytest.fixture(scope="module")
def pool(troubled, simulation_of):
    """This process and another for the four clients, shared by the tests of this file."""
    pool = WorkerPool(simulation_of.silos, 2)
    yield pool
    pool.close()


@pytest.fixture
def spread(pool, troubled, config_of, simulation_of):
    """A federation over the pool, and a server."""

    def make(**settings):
        typed = config_of(**settings).method_config()
        server, _, _ = conformance.assemble(troubled.METHOD, settings)
        federation = pool.federation(ClientSetup(troubled.METHOD, typed, simulation_of.models, 0), Ledger())
        federation.at("round", 1)
        return server, federation

    return make
