"""Shares of a node's score add up to it, and a run's nodes are found by their names."""

from __future__ import annotations

import numpy as np
import pytest

import graphsilo
from graphsilo.data import with_targets
from graphsilo.errors import ConfigError, UnsupportedError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.why import explain_items, open_member, why
from kit.silos import write_bank

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    settings = {
        "fedridge": {}, "fedtrees": {"rounds": 3}, "auto": {"rounds": 6}, "fedavg": {"rounds": 2},
        "majority": {},
    }  # fmt: skip
    for name, own in settings.items():
        method = {"name": name, **own}
        run(load_config(overrides={**BASE, "method": method}), out=folder / name)
    return folder


@pytest.mark.parametrize("name", ["fedridge", "fedtrees", "auto", "fedavg"])
def test_shares_of_columns_and_of_nodes_add_up(runs, name):
    asked = open_member(runs / name, client=1)
    found = explain_items(asked, np.asarray(asked.silo.seen.items["test"][:5]))
    chances = predict(runs / name, client=1)
    for each in found:
        off = each.score - each.base - each.gap
        assert sum(reason.share for reason in each.reasons) == pytest.approx(off, abs=2e-5)
        assert sum(node.share for node in each.nodes) == pytest.approx(off, abs=2e-5)
        assert each.is_exact is (name != "fedavg")
        assert abs(each.gap) < 0.1 * max(1.0, abs(each.score))
        row = chances.places([each.node])[0]
        assert each.probability == pytest.approx(chances.probabilities[row, int(each.of)], abs=1e-5)


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_shares_of_a_target_are_in_its_own_unit(tmp_path, task):
    graph = graphsilo.load("citation-sbm", **BASE["data.generator"])
    values = np.stack([graph.labels, graph.labels > 0], axis=1) * (1 if task == "multilabel" else 1000.0)
    graph = with_targets(graph, np.minimum(values, 1) if task == "multilabel" else values + 5000, ["age", "rent"])
    small = {key: value for key, value in BASE.items() if key.startswith("partition")}
    graphsilo.run(data=graph, method="fedridge", out=tmp_path / "run", report=False, **small)
    found = why(tmp_path / "run", 3, of="rent")
    said = predict(tmp_path / "run", client=open_member(tmp_path / "run", node="3").silo.client)
    value = said.values[said.places(["3"])[0], 1]
    assert (found.score if task == "regression" else found.probability) == pytest.approx(value, rel=1e-4)
    off = found.score - found.base
    for shares in (found.reasons, found.nodes):
        assert sum(each.share for each in shares) == pytest.approx(off, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("method", [
    {"name": "fedridge"}, {"name": "fedridge", "features": "columns"}, {"name": "fedtrees", "rounds": 2},
])  # fmt: skip
def test_a_silo_without_training_nodes_has_the_mean_of_all_to_hold_against(tmp_path, method):
    rows = [(float(k % 7), "xy"[k % 2], ("ok", "mule")[k % 3 == 0], k % 4) for k in range(24)]
    unknown = [(balance + 1, word, "", paid) for balance, word, _, paid in rows[:9]]
    banks = [write_bank(tmp_path, name, each, 9) for name, each in (("a", rows), ("b", rows), ("c", unknown))]
    config = {"data.name": list(map(str, banks)), "method": method, "run.references": []}
    run(load_config(overrides=config), out=tmp_path / "run")
    asked = open_member(tmp_path / "run", client="c")
    found = explain_items(asked, np.arange(9))  # its accounts, which come first
    assert found[0].against == "the mean of the silo's nodes, none of which is trained on"
    assert found[0].base == pytest.approx(np.mean([each.score for each in found]), abs=1e-5)
    known = explain_items(open_member(tmp_path / "run", client="a"), np.arange(1))[0]
    assert known.against == "the mean of the silo's training nodes"


def test_who_is_asked(runs):
    found = why(runs / "fedridge", 3)
    assert found.node == "3"
    assert found.nodes
    assert why(runs / "fedridge", "3", of=1).of == "1"
    with pytest.raises(ConfigError, match="no client of the run has a node 9999"):
        why(runs / "fedridge", 9999)
    with pytest.raises(ConfigError, match=r"a score is asked of 'mule'.*0 to 2"):
        why(runs / "fedridge", 3, of="mule")
    with pytest.raises(UnsupportedError, match="'majority'"):
        why(runs / "majority", 3)


def test_what_is_usual_is_the_median_of_nodes_that_are_classified(tmp_path):
    """A shop has no balance and pays nobody: its zeros are none of an account's, and no mean stands in for a median."""
    accounts = [  # the last one has no label; medians are 30, 2 payments, and not y
        (10.0, "x", "ok", 0), (20.0, "x", "mule", 1), (30.0, "x", "ok", 1), (40.0, "y", "mule", 2),
        (900.0, "y", "ok", 2), (1000.0, "y", "mule", 3), (25.0, "x", "", 5),
    ]  # fmt: skip
    bank = write_bank(tmp_path, "a", accounts, 30)
    overrides = {
        "data.name": str(bank), "partition": {"rule": "random", "clients": 1},
        "partition.ratios": [0.6, 0.2, 0.2], "method": {"name": "fedridge", "features": "columns"},
    }  # fmt: skip
    run(load_config(overrides=overrides), out=tmp_path / "run")
    found = {each.column: (each.value, each.usual) for each in why(tmp_path / "run", "a5").reasons}
    assert found["account.balance"] == pytest.approx((1000.0, 30.0), rel=1e-5)
    assert found["payment out: count"] == pytest.approx((3.0, 2.0), rel=1e-5)
    assert found["account.word=y"] == pytest.approx((1.0, 0.0), abs=1e-5)
    assert found["number of links"] == pytest.approx((3.0, 2.0), rel=1e-5)
