"""A class that is looked for by silos at machines of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import open_member, predict
from graphsilo.experiments.service.run_over import run_over
from kit.here import Here, Straight


@pytest.mark.slow
def test_a_silo_keeps_how_scores_are_read(tmp_path: Path) -> None:
    """The rarer class is that of all silos, also where it is the common one; and a later table needs no labels."""
    for number, name in enumerate(("north", "south")):
        draw, place = np.random.default_rng(number), tmp_path / name
        place.mkdir()
        labels = draw.random(200) < (0.08, 0.6)[number]
        rows = [f"k{k},{2 * label + draw.normal():.3f},{'fraud' if label else 'ok'}" for k, label in enumerate(labels)]
        if number:
            rows = rows[:100]
        (place / "n.csv").write_text("id,a,y\n" + "\n".join(rows) + "\n")
        (place / "e.csv").write_text("a,b\n" + "\n".join(f"k{k},k{k + 1}" for k in range(len(rows) - 1)) + "\n")
        tables = f"name: {name}\nnodes: {{path: n.csv, id: id, label: y}}\nclasses: [ok, fraud]\n"
        tables += "edges: {path: e.csv, source: a, target: b}\n"
        (place / "tables.yaml").write_text(tables)
        (place / "silo.yaml").write_text(f"{tables}split: {{ratios: [0.3, 0.4, 0.3], seed: 2}}\n")
    site = Here("one", [(number, tmp_path / name / "silo.yaml") for number, name in enumerate(("north", "south"))],
                tmp_path / "one")  # fmt: skip
    site.start()
    said = {"method.name": "fedavg", "method.rounds": 3, "method.lr": 0.1, "run.references": []}
    run_over(
        Straight({"one": site}), load_config(overrides=said), name="found", clients={"one": [0, 1]},
        out=tmp_path / "apart", names={0: "north", 1: "south"}, wait=30,
    )  # fmt: skip
    (kept,) = tmp_path.glob("one/results/*/south")
    numbers = open_member(kept, client=1).kept.decisions
    found = predict(kept, client=1)
    assert (found.positive, len(numbers)) == (1, 1)
    table = tmp_path / "south" / "n.csv"
    later = table.read_text().replace(",fraud", ",").replace(",ok", ",")
    table.write_text(later)
    asked = predict(kept, client=1, graph=tmp_path / "south" / "tables.yaml")
    assert asked.decided == found.decided
    assert np.array_equal(asked.decisions, found.decisions)
    assert asked.labels is None
