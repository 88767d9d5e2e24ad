"""Settings drawn at random: own tables at silos apart give the numbers of one process.

A few draws by default; ``GRAPHSILO_DRAWS=1000`` asks for more, and ``GRAPHSILO_DRAWS=813:814`` for one by its number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from graphsilo.errors import GraphsiloError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.runner import run
from graphsilo.experiments.service.run_over import run_over
from graphsilo.federation import registry
from kit.here import Here, Straight
from kit.site_tables import assert_same, numbers

_FIRST, _, _LAST = os.environ.get("GRAPHSILO_DRAWS", "16").rpartition(":")
DRAWS = range(int(_FIRST or 0), int(_LAST))
"""The first five are quick tests."""

METHODS = (
    "fedavg", "fedprox", "scaffold", "fedproto", "fedgta", "fedridge", "moon", "fedpg", "fedtgp", "gcfl", "feddc",
    "fedntd", "opfgl", "fairfgl", "local", "majority", "fedkd", "fednh", "renode", "focal", "fedsage", "fpl",
    "feddistill", "gcfl_plus", "feded",
)  # fmt: skip
SETTINGS: dict[str, list[Any]] = {
    "model.name": ["gcn", "sage", "gat", "gin", "mlp", "sgc", "gamlp", "appnp"],
    "model.dropout": [0.0, 0.3],
    "method.participation": [0.5, 0.7],
    "method.min_clients": [1, 2],
    "method.local_epochs": [1, 2],
    "method.batch_size": [7],
    "method.optimizer": ["sgd"],
    "method.lr": [0.05],
    "method.reset_optimizer": [True],
    "method.fan_out": [3],
    "evaluation.every": [2],
    "evaluation.share": [0.5],
    "evaluation.select_by": ["macro_f1"],
    "evaluation.report": ["federation"],
    "evaluation.auc": [True],
    "evaluation.modes": [["aggregate_local"], ["own_local"], ["aggregate_local", "own_local"]],
    "evaluation.models": [False],
    "run.seeds": [[3], [0, 1]],
    "run.early_stopping": [1],
    "run.compression": ["int8", "topk"],
    "run.precision": ["bfloat16"],
    "run.references": [["local"], ["majority"], ["fedridge", "local"], []],
    "run.without": [[1]],
}
TABLES: dict[str, list[Any]] = {
    "data.missing": ["mean", "median", "indicator"],
    "data.scale": ["none", "unit_rows", "robust"],
    "data.scale_by": ["silo"],
    "data.undirected": [True],
}
"""What a run says under ``data:`` in one process, and each ``silo.yaml`` between machines."""


def tables(folder: Path, name: str, draw: random.Random, shape: dict[str, Any]) -> dict[str, Any]:
    """Two tables of one silo and what describes them; ``shape`` is what all silos have in common."""
    made = np.random.default_rng(draw.getrandbits(32))
    nodes = draw.randint(18, 40)
    labels = made.permutation(np.arange(nodes) % shape["classes"])
    # Units of their own, one of them a date and hour as a number; signal in all.
    units = np.array([1.0, 30.0, 250_000.0, 1e-3])[: shape["features"]]
    values = np.round((labels[:, None] + made.normal(size=(nodes, len(units)))) * units, 6)
    head = ["id", "outcome", *(f"f{place}" for place in range(len(units)))]
    rows = [[f"{name}-{row}", f"c{labels[row]}", *map(repr, values[row].tolist())] for row in range(nodes)]
    for row in rows if shape["empty"] else []:
        if made.random() < 0.1:
            row[2] = ""
    described: dict[str, Any] = {"path": "nodes.csv", "id": "id", "label": "outcome", "features": ["f*"]}
    if shape["words"] is not None:
        head.append("ward")
        rows = [[*row, ("icu", "er", "ward b")[int(made.integers(3))]] for row in rows]
        described["one_hot"] = ["ward"] if shape["words"] == "found" else {"ward": ["ward b", "icu", "er"]}
    if shape["truth"]:
        head.append("online")
        words = draw.choice([("no", "yes"), ("nein", "ja")])
        rows = [[*row, words[int(made.integers(2))]] for row in rows]
        described["boolean"] = {"online": list(words)}
    if shape["split"]:
        head.append("part")
        rows = [[*row, ("train", "val", "test")[place % 3]] for place, row in enumerate(rows)]
        described["split"] = "part"
    ends = made.integers(0, nodes, (3 * nodes, 2)).tolist()
    pairs = sorted({(a, b) if shape["directed"] else (min(a, b), max(a, b)) for a, b in ends if a != b})
    edges: dict[str, Any] = {"path": "edges.csv", "source": "a", "target": "b"}
    links = [[f"{name}-{a}", f"{name}-{b}"] for a, b in pairs]
    if shape["weighted"]:
        edges["weight"] = "days"
        links = [[*link, str(1 + int(made.integers(5)))] for link in links]
    folder.mkdir(parents=True)
    for file, lines in (("nodes.csv", [head, *rows]), ("edges.csv", [["a", "b", "days"][: len(links[0])], *links])):
        (folder / file).write_text("\n".join(",".join(line) for line in lines) + "\n")
    tree = {"nodes": described, "edges": edges, "directed": shape["directed"]}
    if shape["declared"]:
        tree["classes"] = [f"c{label}" for label in range(shape["classes"])]
    (folder / "tables.yaml").write_text(yaml.safe_dump({"name": name, **tree}))
    return tree


def settings(draw: random.Random) -> dict[str, Any]:
    """Of a short run; what its method does not know is left out, what makes no sense is for the run to refuse."""
    method = registry.load(draw.choice(METHODS))
    said = {name: draw.choice(SETTINGS[name]) for name in draw.sample(list(SETTINGS), draw.randint(2, 5))}
    said |= {"method.name": method.name, "method.rounds": draw.randint(1, 3), "model.hidden": [8]}
    if draw.random() < 0.15 and not method.alone:  # which exchanges only counts of classes, and those between machines
        said["run.secure_sums"] = True
        for name in ("method.participation", "evaluation.share"):  # tried in one process, refused between machines
            said.pop(name, None)
    known = {f"method.{name}" for name in (*method.config.model_fields, "name")}
    return {
        name: value for name, value in said.items()
        if (name in known or not name.startswith("method.")) and (method.backbone or not name.startswith("model."))
    }  # fmt: skip


def outcome(call: Callable[[], Any]) -> tuple[Any, str]:
    """What came, and the refusal where one came."""
    try:
        return call(), ""
    except GraphsiloError as error:
        return None, str(error)


def models(folder: Path, pattern: str) -> dict[str, bytes]:
    """Every client's, by file name."""
    return {path.name: path.read_bytes() for path in folder.glob(pattern)}


@pytest.mark.parametrize("number", [pytest.param(one, marks=[] if one < 5 else [pytest.mark.slow]) for one in DRAWS])
def test_apart_as_in_one_process(number: int, tmp_path: Path) -> None:
    draw = random.Random(number)
    names = ["north", "south", "west", "east"][: draw.randint(3, 4)]
    shape = {
        "classes": draw.randint(2, 4), "features": draw.randint(1, 4), "words": draw.choice([None, "found", "said"]),
        **{key: draw.random() < 0.3 for key in ("empty", "truth", "split", "directed", "weighted")},
        "declared": draw.random() < 0.6,
    }  # fmt: skip
    of_data = {name: draw.choice(TABLES[name]) for name in draw.sample(list(TABLES), draw.randint(0, 2))}
    if shape["empty"]:
        of_data.setdefault("data.missing", "mean")
    said = settings(draw)
    split = {} if shape["split"] else {"ratios": [0.4, 0.3, 0.3], "seed": draw.randint(0, 9)}
    places, files = {}, []
    for client, name in enumerate(names):
        folder = tmp_path / name
        tables(folder, name, draw, shape)
        files.append(folder / "silo.yaml")
        features = {key: of_data[f"data.{key}"] for key in ("missing", "scale", "scale_by") if f"data.{key}" in of_data}
        options = {key: of_data[f"data.{key}"] for key in ("undirected",) if f"data.{key}" in of_data}
        silo = {"name": name, "data": "tables.yaml", "features": features, "options": options, "split": split}
        files[-1].write_text(yaml.safe_dump({key: value for key, value in silo.items() if value}))
        places.setdefault(draw.choice(["one", "two"]), []).append(client)
    cut = {f"partition.{key}": value for key, value in split.items()}
    here = {"data.name": [str(tmp_path / name / "tables.yaml") for name in names], **of_data, **cut}

    def whole() -> Any:
        rows = {"run.references": said.get("run.references", [])}  # tables here have one that nobody asked for
        return run(load_config(overrides={**said, **rows, **here}), out=tmp_path / "whole").tree

    def apart() -> Any:
        sites = {site: Here(site, [(client, files[client]) for client in held], tmp_path / site)
                 for site, held in places.items()}  # fmt: skip
        for site in sites.values():
            site.start()
        config = load_config(overrides=said)
        called = dict(enumerate(names))
        return run_over(
            Straight(sites), config, name="drawn", clients=places, out=tmp_path / "apart", names=called, wait=30
        ).tree

    (one, refusal), (other, also) = outcome(whole), outcome(apart)
    assert bool(refusal) == bool(also), f"{said} {of_data} {shape}: in one process '{refusal}', apart '{also}'"
    if one is None:
        return
    assert_same(one, other)
    assert numbers(one.get("references")) == numbers(other.get("references"))
    assert models(tmp_path / "whole", "models/*client?-[bl]*") == models(
        tmp_path, "*/results/*/*/models/*client?-[bl]*"
    )
