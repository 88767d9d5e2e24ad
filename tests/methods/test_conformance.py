"""Every built-in method against every check of the conformance suite."""

from __future__ import annotations

import pytest

from graphsilo.federation import registry
from graphsilo.testing import conformance
from kit.broad import BROAD

QUICK = {
    conformance.check_registered, conformance.check_messages, conformance.check_state, conformance.check_labels_stay,
}  # fmt: skip
"""What a method breaks most easily; the others are slow tests but for two methods."""

CHECKS = [
    pytest.param(
        name, check, id=f"{name}-{check.__name__.removeprefix('check_')}",
        marks=[] if check in QUICK or name in BROAD else [pytest.mark.slow],
    )
    for name in registry.names()
    for check in conformance.CHECKS
]  # fmt: skip


@pytest.mark.parametrize(("name", "check"), CHECKS)
def test_conforms(name, check):
    check(method := registry.load(name), method.quick)


ELSEWHERE = [
    pytest.param(
        variant, check, id=f"{name}-{what}-{check.__name__.removeprefix('check_')}",
        marks=[] if name == "fedavg" and what != "multilabel" else [pytest.mark.slow],
    )
    for name in registry.names()
    for what, variant in list(conformance.variants(registry.load(name)).items())[1:]
    for check in (conformance.check_state, conformance.check_offloading, conformance.check_poor_clients,
                  conformance.check_lost_answers)
]  # fmt: skip


@pytest.mark.parametrize(("variant", "check"), ELSEWHERE)
def test_conforms_for_other_tasks_and_with_different_models(variant, check):
    check(variant, variant.quick)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "fedavg" else [pytest.mark.slow]) for name in registry.names()]
)
def test_workers_give_the_same_numbers(name):
    method = registry.load(name)
    conformance.check_workers(method, method.quick)


@pytest.mark.parametrize("name", registry.names())
def test_needs_only_sums_where_it_says_so(name):
    method = registry.load(name)
    said = not method.config(**method.quick).single_answers
    assert conformance.needs_only_sums(method, method.quick) is said
