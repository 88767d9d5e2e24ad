"""Every choice that a method makes by validation follows ``evaluation.select_by``; who makes none looks at no score."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest

from graphsilo.data.silos.silo import CutLinks
from graphsilo.evaluate.metrics import METRICS
from graphsilo.federation import registry


def _noted(asked, name, compute, *values):
    asked.add(name)
    return compute(*values)


@pytest.mark.parametrize("metric", ["macro_f1", pytest.param("auc", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in registry.names() if not registry.load(name).pooled])
def test_the_runs_metric_is_asked_and_no_other(name, metric, kit, monkeypatch):
    asked = set()
    for each, found in METRICS.items():
        if "node" not in found.tasks:
            continue
        way = "counts" if found.counts else "ranking"
        compute = getattr(found, way)
        if isinstance(compute, str):
            module, _, function = compute.rpartition(".")
            compute = getattr(import_module(f"graphsilo.evaluate.{module or 'scores'}"), function or each)
        noted = partial(_noted, asked, each, compute)
        monkeypatch.setitem(METRICS, each, replace(found, **{way: noted}))
    nothing = np.zeros(0, dtype=np.int64)
    silos = [
        replace(
            kit.tiny_silo(client, nodes=12, train=range(6)),
            cut=CutLinks(np.arange(12 * client, 12 * client + 12), nothing, nothing),
        )
        for client in range(2)
    ]
    method = registry.load(name)
    model = {**(method.model or {}), **(method.model or {}).get("node", {})}.get("name", "gcn")
    server, federation = kit.build(name, silos, model=model, select_by=metric, **method.quick)
    kit.rounds(server, federation)
    assert (metric in asked) is server.config.chooses_by_validation
    assert asked <= {metric, "auc"}  # Auto's course, whatever is chosen by
