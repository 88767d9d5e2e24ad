"""Every built-in method against every check of the conformance suite."""

from __future__ import annotations

import pytest

from graphsilo.federation import registry
from graphsilo.testing import conformance
from kit.broad import BROAD

LONGEST = {
    conformance.check_resume, conformance.check_failing_client, conformance.check_offloading, conformance.check_liars,
    conformance.check_exaggeration, conformance.check_idle_client,
}  # fmt: skip

CHECKS = [
    pytest.param(
        name, check, id=f"{name}-{check.__name__.removeprefix('check_')}",
        marks=[pytest.mark.slow] if check in LONGEST and name not in BROAD else [],
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
        marks=[pytest.mark.slow] if check in LONGEST and name not in BROAD else [],
    )
    for name in registry.names()
    for what, variant in list(conformance.variants(registry.load(name)).items())[1:]
    for check in (conformance.check_state, conformance.check_offloading, conformance.check_poor_clients,
                  conformance.check_lost_answers)
]  # fmt: skip


@pytest.mark.parametrize(("variant", "check"), ELSEWHERE)
def test_conforms_for_other_tasks_and_with_different_models(variant, check):
    check(variant, variant.quick)


@pytest.mark.parametrize("name", ["fedavg", "global"])
def test_workers_give_the_same_numbers(name):
    conformance.check_workers(registry.load(name), {})


ONLY_SUMS = {
    "auto",
    "dp_fedavg",
    "fedavg",
    "feddc",
    "feded",
    "feddistill",
    "fedlog",
    "fedntd",
    "fednh",
    "fedproto",
    "fedprox",
    "fedridge",
    "fedsage",
    "fedstar",
    "fedtrees",
    "focal",
    "global",
    "local",
    "majority",
    "moon",
    "opfgl",
    "renode",
    "scaffold",
}


@pytest.mark.parametrize("name", registry.names())
def test_needs_only_sums(name):
    method = registry.load(name)
    assert conformance.needs_only_sums(method, method.quick) is (name in ONLY_SUMS)


# -- labels of validation and test nodes in variants that take another path ------------------------------------------

VARIANTS = [
    ("fedlog", {"compat": "release", "pretrain_epochs": 12, "pretrain_patience": 2}),
    ("fedlog", {"compat": "release", "pretrain_epochs": 0}),
    ("fedpg", {"neighbour_weights": "scorer"}),
    ("fedpg", {"annotation": "labelled", "batch_size": 8}),
    ("fairfgl", {"pseudo_labels": True}),
    ("fedgcn", {"hops": 1}),
    ("fedsage", {"fan_out": 2}),
    ("fedsage_plus", {"exchange": "outputs"}),
    ("fedsage_plus", {"neighgen": "shared"}),
    ("fedsage_plus", {"fan_out": 2}),
    ("opfgl", {"condense_at": "clients"}),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_labels_stay_in_variants(name, settings):
    method = registry.load(name)
    conformance.check_labels_stay(method, {**method.quick, **settings})


CHOOSING = {"fedlog": {"compat": "release"}, "auto": {}, "fedridge": {}, "fedtrees": {}, "opfgl": {}}
"""Who chooses by validation inside the client; everybody else is held to the labels of validation nodes, too."""


@pytest.mark.parametrize("name", registry.names())
def test_who_chooses_by_validation(name):
    method = registry.load(name)
    assert method.config().chooses_by_validation is (name in ("auto", "fedridge", "fedtrees", "opfgl"))
    assert method.config(**CHOOSING.get(name, {})).chooses_by_validation is (name in CHOOSING)


@pytest.mark.parametrize("settings", [{}, {"condense_at": "clients"}], ids=str)
def test_epochs_that_validation_chose_stay_at_the_client(settings):
    """O-pFGL picks epochs by validation nodes, but nothing that it sends depends on their labels."""
    method = registry.load("opfgl")
    settings = {**method.quick, **settings}
    before = conformance.traces(method, settings)
    after = conformance.traces(method, settings, hide=conformance.hide_labels)
    assert before["what is sent"] == after["what is sent"]
    assert before["the server's state"] == after["the server's state"]
