"""Silos with types of nodes and tables of links, at machines of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphsilo.data.silos.own import read_silo_file
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import run_over
from kit.here import Here, Straight
from kit.site_tables import assert_same

ACCOUNT = "account: {path: accounts.csv, id: account, label: flag, time: seen, features: [balance], one_hot: [segment]}"
SHOP = "shop: {path: shops.csv, id: shop, features: [founded]}"
TRANSFER = (
    "transfer: {path: transfers.csv, source: a, target: b, from: account, to: account, features: [amount], time: day}"
)
PAYMENT = "payment: {path: payments.csv, source: a, target: b, from: account, to: shop, features: [amount], time: day}"


def write(folder: Path, name: str, number: int, *, shops: bool) -> Path:
    draw = np.random.default_rng(number)
    place = folder / name
    place.mkdir()
    flags = draw.integers(2, size=40)
    rows = [
        f"{k},{flags[k] + draw.normal():.3f},{'ab'[k % 2] + name[:1]},c{flags[k]},2025-0{k % 9 + 1}-01"
        for k in range(40)
    ]
    (place / "accounts.csv").write_text("account,balance,segment,flag,seen\n" + "\n".join(rows) + "\n")
    (place / "shops.csv").write_text("shop,founded\n0,1990\n1,2000\n2,2010\n")
    for table, others in (("transfers", 40), ("payments", 3)):
        lines = [
            f"{draw.integers(40)},{draw.integers(others)},{draw.random():.3f},2025-0{draw.integers(1, 10)}-05"
            for _ in range(120)
        ]
        (place / f"{table}.csv").write_text("a,b,amount,day\n" + "\n".join(lines) + "\n")
    nodes, edges = (f"{ACCOUNT}, {SHOP}", f"{TRANSFER}, {PAYMENT}") if shops else (ACCOUNT, TRANSFER)
    tables = f"name: {name}\nnodes: {{{nodes}}}\nedges: {{{edges}}}\nsums: {{windows: [60]}}\n"
    (place / "tables.yaml").write_text(tables)
    (place / "silo.yaml").write_text(f"{tables}split: {{ratios: [0.4, 0.3, 0.3], seed: 2}}\n")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedridge"])
def test_apart_as_in_one_process(method: str, tmp_path: Path) -> None:
    names = ("north", "south")
    places = [write(tmp_path, name, number, shops=not number) for number, name in enumerate(names)]
    said = {"method.name": method, "method.rounds": 2 if method == "fedavg" else 1, "run.references": []}
    here = {
        "data.name": [str(place / "tables.yaml") for place in places], "partition.ratios": [0.4, 0.3, 0.3],
        "partition.seed": 2, "partition.split": "stratified",
    }  # fmt: skip
    whole = run(load_config(overrides={**said, **here}), out=tmp_path / "whole").tree
    site = Here("one", [(number, place / "silo.yaml") for number, place in enumerate(places)], tmp_path / "one")
    site.start()
    apart = run_over(
        Straight({"one": site}), load_config(overrides=said), name="typed", clients={"one": [0, 1]},
        out=tmp_path / "apart", names=dict(enumerate(names)), wait=30,
    ).tree  # fmt: skip
    assert_same(whole, apart)
    assert whole["data"]["edges"] == apart["data"]["edges"] < 2 * 2 * 240  # no date lets a link pass both ways
    (kept,) = tmp_path.glob(f"one/results/*/{names[1]}")
    alone, together = (predict(folder, client=1) for folder in (kept, tmp_path / "whole"))
    assert alone.probabilities.tobytes() == together.probabilities.tobytes()
    assert alone.node_ids.tolist() == [str(row) for row in range(40)]
    if method == "fedridge":  # which uses labels on its own graph alone
        return
    later = predict(kept, client=1, graph=places[1] / "tables.yaml")
    assert later.probabilities.tobytes() == alone.probabilities.tobytes()


@pytest.mark.slow
def test_a_silo_without_dates_has_empty_windows_and_says_so(tmp_path: Path) -> None:
    """It has no table of transfers, whose dates others' windows are of; windows of its own links are empty, too."""
    places = [write(tmp_path, name, number, shops=True) for number, name in enumerate(("north", "south", "west"))]
    west = places[2]
    (west / "accounts.csv").write_text((west / "accounts.csv").read_text().replace(",seen", ",since"))
    said = (
        f"name: west\nnodes: {{{ACCOUNT.replace('time: seen, ', '')}, {SHOP}}}\nsums: {{windows: [60]}}\n"
        "edges: {owns: {path: payments.csv, source: a, target: b, from: account, to: shop, features: [amount]}}\n"
    )
    (west / "tables.yaml").write_text(said)
    (west / "silo.yaml").write_text(f"{said}split: {{ratios: [0.4, 0.3, 0.3], seed: 2}}\n")
    for place in places[:2]:  # else the tables of accounts are not alike
        for file in ("tables.yaml", "silo.yaml"):
            (place / file).write_text((place / file).read_text().replace("time: seen, ", ""))
    config = {"method.name": "fedridge", "run.references": []}
    here = {
        "data.name": [str(place / "tables.yaml") for place in places], "partition.ratios": [0.4, 0.3, 0.3],
        "partition.seed": 2, "partition.split": "stratified",
    }  # fmt: skip
    whole = run(load_config(overrides={**config, **here}), out=tmp_path / "whole").tree
    site = Here("one", [(number, place / "silo.yaml") for number, place in enumerate(places)], tmp_path / "one")
    site.start()
    apart = run_over(
        Straight({"one": site}), load_config(overrides=config), name="typed", clients={"one": [0, 1, 2]},
        out=tmp_path / "apart", wait=30,
    ).tree  # fmt: skip
    assert_same(whole, apart)
    said_aloud = "no table of links has dates here: what is added up over the last 60 days is 0 at every node"
    assert said_aloud in str(whole["warnings"])
    assert said_aloud in (tmp_path / "one" / "sent" / "west.jsonl").read_text()
    silo = read_silo_file(west / "silo.yaml").load(2)
    names, features = silo.schema.feature_names or (), silo.graph.union.features
    sums = [place for place, name in enumerate(names) if name.endswith(", 60 days")]
    assert sums
    assert not features[:, sums].any()
    alone = load_config(overrides={**config, "data.name": str(west / "tables.yaml"), "partition.clients": 2})
    with pytest.raises(ConfigError, match="need links with dates"):
        run(alone)
