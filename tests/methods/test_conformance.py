"""Every built-in method against every check of the conformance suite."""

from __future__ import annotations

import pytest

from graphsilo.experiments import conformance
from graphsilo.federation import registry

SHORT = {
    "fedlog": {"generator_epochs": 3, "networks": 2, "prototypes": 2, "embedding_dim": 8},
    "fedpg": {"server_epochs": 5},
    "fedsage_plus": {
        "local_generator_epochs": 2,
        "generator_epochs": 2,
        "generator_hidden": (16, 32),
        "encoder_widths": (8, 16),
    },
    "opfgl": {"surrogate_steps": 100, "stage1_epochs": 60, "stage1_check": 10, "stage2_epochs": 40, "stage2_check": 10},
}
"""Settings that shorten set-up phases; they leave every step in."""


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", registry.names())
def test_conforms(name, check):
    check(registry.load(name), SHORT.get(name, {}))


@pytest.mark.parametrize("name", ["fedavg", "global"])
def test_workers_give_the_same_numbers(name):
    conformance.check_workers(registry.load(name), {})


ONLY_SUMS = {"fedavg", "fedlog", "fedprox", "fedsage", "global", "local", "opfgl"}


@pytest.mark.parametrize("name", registry.names())
def test_needs_only_sums(name):
    assert conformance.needs_only_sums(registry.load(name), SHORT.get(name, {})) is (name in ONLY_SUMS)
