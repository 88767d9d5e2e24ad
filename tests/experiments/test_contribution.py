"""Runs without a silo, and of one alone, are made once and compared in words, by the numbers of the result."""

from __future__ import annotations

import pytest

from graphsilo.cli import main
from graphsilo.experiments.config import load_config
from graphsilo.experiments.contribution import contribution
from graphsilo.experiments.runner import run

BASE = {
    "data.name": "citation-sbm", "data.generator": {"nodes": 150, "classes": 3, "features": 40},
    "partition.rule": "random", "partition.clients": 3,
}  # fmt: skip


def test_what_a_silo_contributed(tmp_path, capsys):
    place = tmp_path / "run"
    run(load_config(overrides={**BASE, "method": {"name": "fedridge"}}), out=place)
    assert main(["contribution", "--run", str(place), "--clients", "2"]) == 0
    assert "client-2 ..." in capsys.readouterr().out
    assert main(["contribution", "--run", str(place), "--clients", "2"]) == 0
    said = capsys.readouterr().out
    assert "..." not in said
    assert "Silo 2: " in said


def test_the_means_are_those_of_the_result(tmp_path):
    """Its metric and weights (n_k), though tested items are not in proportion to the silos' nodes."""
    names = []
    for name, rows, known in (("all", 60, 1), ("half", 90, 2), ("third", 120, 3)):
        cells = [f"{k},{k % 5},{'ab'[k % 11 < 2] if k % known == 0 else ''}\n" for k in range(rows)]
        (tmp_path / f"{name}.csv").write_text("id,x,y\n" + "".join(cells))
        (tmp_path / f"{name}-links.csv").write_text("a,b\n" + "".join(f"{k},{k + 1}\n" for k in range(rows - 1)))
        nodes = f"{{path: {name}.csv, id: id, label: y, features: [x]}}"
        edges = f"{{path: {name}-links.csv, source: a, target: b}}"
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"name: {name}\nnodes: {nodes}\nedges: {edges}\nclasses: [a, b]\n")
        names.append(str(file))
    config = {"data.name": names, "method.name": "fedridge", "run.references": [], "partition.ratios": [0.5, 0.2, 0.3]}
    whole = run(load_config(overrides=config), out=tmp_path / "run").record
    (found,) = contribution(tmp_path / "run", clients=["all"])
    assert found.metric == "macro_f1"  # as one class is much more frequent
    rows = whole.seeds[0].clients
    assert rows[1].weight * rows[2].test_items != rows[2].weight * rows[1].test_items
    mean = (rows[0].weight * found.own + (rows[1].weight + rows[2].weight) * found.others) / 270
    assert mean == pytest.approx(whole.summary.test.tree()["macro_f1"]["mean"], abs=1e-12)
