"""Numbers that are estimated by silos at machines of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import run_over
from kit.here import Here, Straight
from kit.site_tables import assert_same


def write(folder: Path, name: str, number: int) -> Path:
    draw, place = np.random.default_rng(number), folder / name
    place.mkdir()
    ages = draw.integers(20, 70, 40)
    rows = [f"{k},{age},{1000 + 30 * age + draw.normal():.1f}" for k, age in enumerate(ages)]
    rows[::9] = [row.rpartition(",")[0] + "," for row in rows[::9]]
    (place / "people.csv").write_text("person,age,income\n" + "\n".join(rows) + "\n")
    (place / "links.csv").write_text("a,b\n" + "\n".join(f"{k},{(k + 1) % 40}" for k in range(40)) + "\n")
    nodes, edges = (
        "path: people.csv, id: person, targets: [income], features: [age]", "path: links.csv, source: a, target: b"
    )  # fmt: skip
    tables = f"name: {name}\nnodes: {{{nodes}}}\nedges: {{{edges}}}\n"
    (place / "tables.yaml").write_text(tables)
    (place / "silo.yaml").write_text(f"{tables}split: {{ratios: [0.4, 0.3, 0.3], seed: 2}}\n")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedridge"])
def test_apart_as_in_one_process(method: str, tmp_path: Path) -> None:
    names = ("north", "south")
    places = [write(tmp_path, name, number) for number, name in enumerate(names)]
    said = {"method.name": method, "method.rounds": 2 if method == "fedavg" else 1, "run.references": []}
    here = {
        "data.name": [str(place / "tables.yaml") for place in places], "partition.ratios": [0.4, 0.3, 0.3],
        "partition.seed": 2, "partition.split": "stratified",
    }  # fmt: skip
    whole = run(load_config(overrides={**said, **here}), out=tmp_path / "whole").tree
    site = Here("one", [(number, place / "silo.yaml") for number, place in enumerate(places)], tmp_path / "one")
    site.start()
    apart = run_over(
        Straight({"one": site}), load_config(overrides=said), name="measured", clients={"one": [0, 1]},
        out=tmp_path / "apart", names=dict(enumerate(names)), wait=30,
    ).tree  # fmt: skip
    assert apart["task"] == "regression"
    assert_same(whole, apart)
    (kept,) = tmp_path.glob(f"one/results/*/{names[1]}")
    alone, together = (predict(folder, client=1) for folder in (kept, tmp_path / "whole"))
    assert alone.values.tobytes() == together.values.tobytes()
    assert 1000 < alone.values.mean() < 4000
