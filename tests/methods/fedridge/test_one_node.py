"""One node more or less, all the way from a table to what is released: no table and no setting moves it further than
the noise is made for, or the setting is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.silo import Silo
from graphsilo.errors import ConfigError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.federation.client import ClientContext, ModelSpec
from graphsilo.methods import fedridge
from graphsilo.methods.fedridge import private as sums
from graphsilo.methods.opfgl import private as totals

FIXED: list[dict[str, Any]] = [{"missing": {"a": 0, "b": -7.5}}, {"missing": {"a": 1e6, "b": 3}}, {}]
ESTIMATED: list[dict[str, Any]] = [
    {"missing": "mean"}, {"missing": "indicator"},
    {"missing": {"a": "median", "b": 0}}, {"missing": {"a": 0, "*": "mean"}},
]  # fmt: skip
"""What else than a fixed number may stand in empty cells."""


def silo(folder: Path, draw: random.Random, features: dict[str, Any], *, more: bool) -> Silo:
    """Tables of random size and sparseness; with ``more`` a node of extreme values and many links beside."""
    folder.mkdir()
    gaps, count = "missing" in features, draw.randint(5, 60)
    rows = []
    for node in range(count):
        cells = [
            "" if gaps and draw.random() < 0.4 else f"{draw.gauss(0, 10 ** draw.randint(-3, 3)):.6g}" for _ in "ab"
        ]
        word, truth, day = draw.choice(["icu", "er"]), draw.choice(["no", "yes"]), f"20{draw.randint(10, 25)}-01-01"
        rows.append(
            [str(node), *cells, word, truth, day, f"c{draw.randint(0, 1)}", "val" if node % 5 == 1 else "train"]
        )
    links = [[str(draw.randrange(count)), str(node)] for node in range(1, count)]
    if more:
        size = draw.choice([1e-9, 1.0, 1e6, 3e38])
        cells = ["" if gaps and draw.random() < 0.5 else repr(draw.choice([-size, size])) for _ in "ab"]
        rows.append(["new", *cells, draw.choice(["icu", "er"]), "yes", "1900-01-01", f"c{draw.randint(0, 1)}", "train"])
        links += [["new", str(node)] for node in range(count)]
    for name, head, body in (("nodes", "id,a,b,ward,online,since,y,part", rows), ("links", "s,t", links)):
        (folder / f"{name}.csv").write_text("\n".join([head, *map(",".join, body)]) + "\n")
    nodes = {
        "path": "nodes.csv", "id": "id", "label": "y", "split": "part",
        "features": ["a", "b", "since", "online", "ward"], "one_hot": {"ward": ["icu", "er"]},
        "boolean": {"online": ["no", "yes"]}, "dates": {"since": {"days_since": "2000-01-01"}},
    }  # fmt: skip
    edges = {"path": "links.csv", "source": "s", "target": "t"}
    described = {
        "name": "x",
        "nodes": nodes,
        "edges": edges,
        "classes": ["c0", "c1"],
        "features": {"scale": "none", **features},
    }
    (folder / "silo.yaml").write_text(yaml.safe_dump(described))
    return read_silo_file(folder / "silo.yaml").load(0)


def released(held: Silo, columns: int) -> dict[str, torch.Tensor]:
    """What training would send of it, but for the noise; FedRidge's of so many columns at most."""
    spec = ModelSpec("gcn", {})
    settings = {"epsilon": 8.0, "private_dim": columns}
    ridge = fedridge.METHOD.client(ClientContext(0, held, fedridge.METHOD.config.of(settings), spec, 0))
    labels = held.labels
    return {
        "fedridge": sums.weighted_sums(ridge._own_rows(), held.train, labels, 2) / sums.SENSITIVITY,
        "opfgl": totals.class_totals(held.graph.features, held.train, labels, 2) / totals.SENSITIVITY,
    }


@pytest.mark.parametrize("number", range(24))
def test_moves_what_is_released_as_far_as_the_noise_hides(number: int, tmp_path: Path) -> None:
    features = FIXED[number % len(FIXED)]
    without, with_it = (
        silo(tmp_path / str(more), random.Random(number), features, more=more) for more in (False, True)
    )
    assert not with_it.estimated
    columns = 3 if number % 2 else 1024
    before, after = released(without, columns), released(with_it, columns)
    for method, value in after.items():
        assert float((value - before[method]).norm()) <= 1 + 1e-6, method


@pytest.mark.parametrize("features", ESTIMATED, ids=str)
def test_what_other_nodes_decide_is_refused(features: dict[str, Any], tmp_path: Path) -> None:
    held = silo(tmp_path / "x", random.Random(1), features, more=True)
    assert held.estimated
    settings = fedridge.METHOD.config.of({"epsilon": 8.0})
    with pytest.raises(ConfigError, match=r"what other nodes decide \((a|b|a, b).*\) moves with every node"):
        settings.check_features(read_silo_file(tmp_path / "x" / "silo.yaml").scaling, held.estimated)
    fedridge.METHOD.config.of({}).check_features(read_silo_file(tmp_path / "x" / "silo.yaml").scaling, held.estimated)


@pytest.mark.parametrize(("option", "called"), [("degree_features", "degree"), ("largest_component",) * 2])
@pytest.mark.parametrize("method", ["fedridge", "opfgl"])
def test_options_that_move_rows_with_links_are_refused(method: str, option: str, called: str) -> None:
    said = {"data.name": "citation-sbm", "data.nodes": 120, f"data.{option}": True, "partition.clients": 3}
    with pytest.raises(ConfigError, match=rf"what other nodes decide \({called}\)"):
        run(load_config(overrides={**said, "method.name": method, "method.epsilon": 8.0}))
