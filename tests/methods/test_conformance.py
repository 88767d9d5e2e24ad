"""Every built-in method against every check of the conformance suite."""

from __future__ import annotations

import pytest

from graphsilo.experiments import conformance
from graphsilo.federation import registry


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", registry.names())
def test_conforms(name, check):
    check(registry.load(name), {})


@pytest.mark.parametrize("name", ["fedavg", "global"])
def test_workers_give_the_same_numbers(name):
    conformance.check_workers(registry.load(name), {})


@pytest.mark.parametrize(("name", "sums"), [("fedavg", True), ("fedprox", True), ("local", True), ("global", True)])
def test_needs_only_sums(name, sums):
    assert conformance.needs_only_sums(registry.load(name)) is sums
