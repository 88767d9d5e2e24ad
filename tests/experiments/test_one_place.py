"""The reference `one_place`: the run's own method and settings, with all silos' data in one place."""

from __future__ import annotations

import pytest

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.evaluate.significance import gap_closed
from graphsilo.experiments.check_remote import check_remote
from graphsilo.experiments.config import load_config
from graphsilo.experiments.references import reference_config
from graphsilo.experiments.runner import run
from graphsilo.federation import registry
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.testing import conformance
from kit.runs import only
from kit.stopped import Stop, StopAfter

QUICK = ("auto", "fedgcn", "fedpg", "fedsage_plus")
METHODS = [
    method.name if method.name in QUICK else pytest.param(method.name, marks=pytest.mark.slow)
    for method in registry.listings()
    if not method.pooled and "node" in method.tasks
]


def quick(name):
    method = registry.load(name)
    rounds = {} if issubclass(method.config, OneRoundConfig) else {"method__rounds": 2}
    return {"method__name": name, **{f"method__{key}": value for key, value in method.quick.items()}, **rounds}


def test_fedavg_on_all_data_is_centralised_training_to_the_bit(small):
    pooled, central = (only(run(small(**more))) for more in ({"run__one_place": True}, {"method__name": "global"}))
    assert pooled["test"] == central["test"]
    assert [row["test"] for row in pooled["clients"]] == [row["test"] for row in central["clients"]]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_it_and_nothing_is_sent(small, name):
    found = run(small(**quick(name), run__one_place=True))
    assert (found.tree["method"]["name"], found.tree["method"]["pooled"]) == (name, True)
    assert [row["client"] for row in only(found)["clients"]] == [0, 1, 2]
    assert found.record.spent.upload_bytes is None


def test_the_gap_is_of_the_same_method_where_both_ends_are_there(small):
    tree = run(small(method__name="fedridge", run__references=["local", "global", "alone", "one_place"])).tree
    means = [
        place["accuracy"]["mean"]
        for place in (tree["summary"]["test"], tree["references"]["alone"], tree["references"]["one_place"])
    ]
    assert tree["references"]["gap_closed"]["accuracy"] == gap_closed(*means)


def test_the_row_has_the_settings_of_the_method_but_those_of_a_federation():
    said = {"method.name": "fedridge", "method.epsilon": 4.0, "method.dim": 64, "method.min_clients": 2}
    row = reference_config(
        load_config({**said, "run.secure_sums": True, "evaluation.report": "federation"}), "one_place"
    )
    assert row.method.options == {"dim": 64}
    assert (row.run.one_place, row.run.alone, row.run.secure_sums, row.evaluation.report) == (
        True,
        False,
        False,
        "silos",
    )


@pytest.mark.parametrize(
    ("more", "kind", "text"),
    [
        ({"run__alone": True}, UnsupportedError, "has all data in one place, so that no silo can carry it out by"),
        ({"evaluation__report": "federation"}, ConfigError, "there is nothing to sum"),
        ({"run__secure_sums": True}, ConfigError, "no effect: with run.one_place all data is in one place"),
    ],
)
def test_what_does_not_go_with_it_is_refused(small, more, kind, text):
    with pytest.raises(kind, match=text):
        run(small(run__one_place=True, **more))


@pytest.mark.parametrize("said", [{"run.one_place": True}, {"run.references": ["one_place"]}])
def test_between_machines_there_is_no_such_place(said):
    with pytest.raises(UnsupportedError, match="on all data in one place, which silos at other machines do not allow"):
        check_remote(load_config(said))


def test_stopped_and_resumed(small, tmp_path):
    settings = {"method__name": "auto", "method__rounds": 6, "run__one_place": True, "run__checkpoint_every": 1}
    whole = run(small(**settings)).tree
    with pytest.raises(Stop):
        run(small(**settings), out=tmp_path / "run", observer=StopAfter(0, 3))
    again = run(small(**settings), out=tmp_path / "run", resume=True).tree
    assert conformance.numbers(again) == conformance.numbers(whole)
