"""Every choice that a method makes by validation follows ``evaluation.select_by``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation import registry


def _noted(asked, name, compute, *values):
    asked.append(name)
    return compute(*values)


CHOOSING = {
    "auto": {}, "fedlog": {"pretrain_epochs": 1}, "fedridge": {}, "fedtrees": {"min_child": 1},
    "opfgl": {"stage1_epochs": 2, "stage2_epochs": 2},
}  # fmt: skip


def test_these_are_all_that_choose():
    chosen = {name for name in registry.names() if registry.load(name).config().chooses_by_validation}
    assert chosen | {"fedlog"} == CHOOSING.keys()


@pytest.mark.parametrize("metric", ["macro_f1", "auc"])
@pytest.mark.parametrize("method", CHOOSING)
def test_the_runs_metric_is_asked_and_no_other(method, metric, kit, monkeypatch):
    asked = []
    for name, each in METRICS.items():
        way = "counts" if each.counts else "ranking"
        noted = partial(_noted, asked, name, getattr(each, way))
        monkeypatch.setitem(METRICS, name, replace(each, **{way: noted}))
    silos = [kit.tiny_silo(client, nodes=12, train=range(6)) for client in range(2)]
    kit.rounds(*kit.build(method, silos, select_by=metric, **CHOOSING[method]))
    # Whether trees may catch up is said by AUC, whatever is chosen by.
    assert set(asked) - ({"auc"} if method == "auto" else set()) == {metric} - ({"auc"} if method == "auto" else set())
