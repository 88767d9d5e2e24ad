"""The reference `alone`: the run's own method and settings, every silo in a federation of one."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.references import reference_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.simulation import method_of
from graphsilo.federation import registry
from graphsilo.federation.settings import OneRoundConfig
from graphsilo.planning import plan
from graphsilo.testing import conformance
from kit.runs import only
from kit.stopped import Stop, StopAfter

QUICK = ("fedavg", "fedgcn", "fedpg", "fedridge", "fedsage_plus", "scaffold")
METHODS = [
    method.name if method.name in QUICK else pytest.param(method.name, marks=pytest.mark.slow)
    for method in registry.listings()
    if not (method.alone or method.pooled)
]
CLIENTS = range(2)


def scores(result):
    return {row["client"]: (row["best_round"], row["test"]) for row in only(result)["clients"]}


def quick(name):
    method = registry.load(name)
    rounds = {} if issubclass(method.config, OneRoundConfig) else {"method__rounds": 2}
    return {"method__name": name, **{f"method__{key}": value for key, value in method.quick.items()}, **rounds}


@pytest.mark.parametrize("name", METHODS)
def test_alone_is_a_federation_of_one_to_the_bit(small, name):
    settings = {"partition__clients": len(CLIENTS), **quick(name)}
    apart = only(run(small(**settings, run__alone=True)))
    for client in CLIENTS:
        one = only(run(small(**settings, run__without=[other for other in CLIENTS if other != client])))
        rows = [next(row for row in each["clients"] if row["client"] == client) for each in (one, apart)]
        assert rows[0]["test"] == rows[1]["test"]
        assert one["best_round"] == rows[1]["best_round"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedgcn", "fedpg", "scaffold"])
def test_however_it_is_carried_out(small, tmp_path, name):
    settings = {**quick(name), "run__alone": True}
    straight = run(small(**settings), out=tmp_path / "straight").tree
    for more in ({"run__workers": 2}, {"run__resident_clients": 1}):
        assert conformance.numbers(run(small(**settings, **more)).tree) == conformance.numbers(straight)


def test_stopped_and_resumed(small, tmp_path):
    settings = {"method__name": "scaffold", "method__rounds": 4, "run__alone": True, "run__checkpoint_every": 1}
    straight = run(small(**settings)).tree
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        run(small(**settings), out=folder, observer=StopAfter(0, 2))
    assert conformance.numbers(run(small(**settings), out=folder, resume=True).tree) == conformance.numbers(straight)


def test_the_row_is_a_run_of_its_own(small, tmp_path):
    settings = {"method__name": "fedprox", "method__mu": 0.3, "method__rounds": 2}
    beside = run(small(**settings, method__participation=0.5, run__references=["alone"]), out=tmp_path / "run")
    apart = run(small(**settings, run__alone=True))
    row = beside.tree["references"]["alone"]
    row.pop("spent")
    assert row == apart.tree["summary"]["test"]
    again = run(small(**settings, run__references=["alone"]), out=tmp_path / "two")
    assert again.tree["references"]["alone"]["accuracy"] == row["accuracy"]


def test_what_does_not_leave_needs_no_noise(small):
    config = small(method__name="fedridge", method__epsilon=8.0, method__balance=[0.0, 1.0], data__scale="none")
    alone = reference_config(config, "alone")
    assert alone.method_config().epsilon is None
    assert alone.method_config().balance == (0.0, 1.0)
    assert alone.run.alone
    assert method_of(alone).title == "FedRidge alone"


@pytest.mark.parametrize("said", [{"run__alone": True}, {}], ids=["alone", "without all others"])
def test_more_answers_than_clients_are_wanted_from_nobody(small, said):
    """One rule: so many of the silos that take part must answer, by themselves or together."""
    one = {**said, "run__without": list(range(1, small().partition.clients))}
    with pytest.raises(ConfigError, match=r"wants 2 answers, but only 1 of 1 clients are asked .*run\.without leaves"):
        run(small(**one, method__min_clients=2))


def test_nothing_of_the_method_is_sent(small, tmp_path):
    result = run(small(run__alone=True, method__rounds=2), out=tmp_path / "run")
    ledger = pq.read_table(tmp_path / "run" / "ledger.parquet").to_pydict()
    assert set(ledger["phase"]) == {"evaluation"}
    assert (result.record.summary.upload_bytes, result.record.summary.download_bytes) == (0, 0)
    assert plan(small(run__alone=True, method__rounds=2), seconds=1).seed.up == 0
    assert result.record.method.alone


def test_by_itself_a_silo_stops_by_itself(small):
    """Early stopping ends each silo's own run, as it would end a federation of that silo."""
    settings = {"partition__clients": len(CLIENTS), "method__rounds": 12, "method__lr": 0.3, "run__early_stopping": 2}
    apart = scores(run(small(**settings, run__alone=True)))
    for client in CLIENTS:
        one = only(run(small(**settings, run__without=[other for other in CLIENTS if other != client])))
        assert one["best_round"] == apart[client][0]


@pytest.mark.parametrize("said", [{"run.alone": True}, {"run.references": ["alone"]}], ids=str)
def test_what_has_all_data_in_one_place_is_nobodys_alone(said):
    with pytest.raises(UnsupportedError, match="no silo can carry it out by itself"):
        run(load_config(overrides={"data.name": "citation-sbm", "method.name": "global", **said}))


def test_alone_there_is_no_noise():
    """Nothing leaves that it would hide: it is refused where the call says it, and left out where a file does."""
    said = {"data.name": "citation-sbm", "data.nodes": 120, "method.name": "fedridge", "method.epsilon": 1.0}
    with pytest.raises(ConfigError, match=r"method\.epsilon would have no effect: with run\.alone nothing of training"):
        run(load_config(overrides={**said, "run.alone": True}))
    tree = run(load_config({**said, "run.alone": True})).tree
    assert not any(text.startswith("Differential privacy") for text in tree["warnings"])
