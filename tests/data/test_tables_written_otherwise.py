"""The same accounts with other names, words and units give the same graph, card, run and predictions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import yaml

import graphsilo
from graphsilo.data import load
from graphsilo.data.graph import Graph
from graphsilo.data.silos.cards import card
from graphsilo.data.silos.own import read_silo_file
from graphsilo.data.silos.scaling import find_lost_values
from graphsilo.errors import ConfigError, DataError
from graphsilo.experiments.config import load_config
from graphsilo.experiments.predict import predict
from graphsilo.experiments.runner import run

ROWS = 40
PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"
NODES: dict[str, Any] = {
    "id": "account", "label": "flag", "features": ["balance"], "one_hot": {"segment": ["retail", "sme"]},
    "boolean": ["online"], "empty": ["-99"],
}  # fmt: skip
OTHERWISE: dict[str, Any] = {
    "rename": {"account": "iban", "flag": "label", "segment": "seg"},
    "words": {"flag": {"fraud": "mule", "clean": "ok"}, "segment": {"R": "retail"}, "online": {"ja": "yes"}},
    "units": {"balance": 0.01},
}
REST: dict[str, Any] = {
    "edges": {"path": "e.csv", "source": "a", "target": "b"},
    "classes": ["ok", "mule"],
    "features": {"missing": {"balance": "median"}},
}


def columns(number: int) -> dict[str, list[Any]]:
    draw = np.random.default_rng(number)
    balance: list[Any] = [float(100 * value) for value in draw.integers(1, 900, ROWS)]
    balance[3] = -99.0
    return {
        "account": [f"{number}-{row}" for row in range(ROWS)],
        "balance": balance,
        "segment": [("retail", "sme")[row] for row in draw.integers(0, 2, ROWS)],
        "online": [("no", "yes")[row] for row in draw.integers(0, 2, ROWS)],
        "flag": [(None, "ok", "mule")[row] for row in draw.integers(0, 3, ROWS)],
    }


def otherwise(table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """As another bank exports it: in cents, with names and words of its own."""
    words = {"mule": "fraud", "ok": "clean", "retail": "R"}
    return {
        "iban": table["account"],
        "balance": [value if value == -99 else 100 * value for value in table["balance"]],
        "seg": [words.get(word, word) for word in table["segment"]],
        "online": ["ja" if word == "yes" else word for word in table["online"]],
        "label": [words.get(word, "unknown") for word in table["flag"]],
    }


def write(folder: Path, number: int, form: str = "csv", *, other: bool = False, name: str = "bank") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(otherwise(columns(number)) if other else columns(number))
    where: dict[str, Any] = {"path": f"{name}.{form}"}
    if form == "parquet":
        pa.parquet.write_table(table, folder / f"{name}.parquet")
    elif form == "csv":
        pa.csv.write_csv(table, folder / f"{name}.csv")
    else:
        where = {"query": "SELECT * FROM t", "connection": f"sqlite:///{name}.db"}
        with sqlite3.connect(folder / f"{name}.db") as database:
            database.execute(f"CREATE TABLE t ({', '.join(table.column_names)})")
            rows = zip(*table.to_pydict().values(), strict=True)
            database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * table.num_columns)})", rows)
    pairs = np.random.default_rng(number).integers(0, ROWS, (60, 2))
    (folder / "e.csv").write_text("a,b\n" + "".join(f"{number}-{a},{number}-{b}\n" for a, b in pairs))
    content = {"nodes": {**where, **NODES, **(OTHERWISE if other else {})}, **REST, "name": name}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder / f"{name}.yaml"


def same(one: Graph, other: Graph) -> None:
    rows = other.rows_of(np.argsort(other.external_ids)[np.argsort(np.argsort(one.external_ids))])
    assert one.external_ids.tolist() == other.external_ids[rows].tolist()
    assert one.feature_names == other.feature_names
    assert np.array_equal(one.features, other.features[rows])
    assert one.labels.tolist() == other.labels[rows].tolist()
    assert one.fills == other.fills


@pytest.mark.parametrize("form", ["csv", "parquet", "sql"])
def test_the_same_graph(tmp_path: Path, form: str) -> None:
    found = load(write(tmp_path / "b", 0, form, other=True))
    assert isinstance(found, Graph)
    plain = load(write(tmp_path / "a", 0))
    assert isinstance(plain, Graph)
    same(plain, found)
    assert found.fills == {"balance": float(np.median([v for v in columns(0)["balance"] if v != -99]))}
    (note,) = found.notes
    assert "column 'flag' (nodes.label): nodes with 'unknown' (" in note
    assert plain.notes == ()


def test_the_same_card_run_and_predictions(tmp_path: Path) -> None:
    results = []
    for other in (False, True):
        folder = tmp_path / str(other)
        paths = [write(folder / str(number), number, other=other) for number in range(2)]
        (folder / "0" / "silo.yaml").write_text("name: bank\ndata: bank.yaml\n")
        config = load_config(
            overrides={"data.name": [str(path) for path in paths], "method.rounds": 2, "run.seeds": [0]}
        )
        record = run(config, out=folder / "run")
        told = predict(folder / "run", client=0, graph=write(folder / "later", 7, "parquet", other=not other))
        reported = card(read_silo_file(folder / "0" / "silo.yaml"), 0)
        results.append((record.tree["summary"]["test"], told.probabilities.tolist(), reported))
        assert any("count as unlabelled" in text for text in record.tree["warnings"]) == other
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        (
            {"rename": {"account": "ibann"}},
            DataError,
            r"no column 'ibann' \(nodes\.rename\.account\); did you mean 'ib",
        ),
        ({"rename": {"account": "iban", "flag": "iban"}}, ConfigError, r"names of columns, each once \('iban' stands"),
        ({"rename": {"balance": "online"}}, DataError, r"has a column 'balance' already: call 'online' otherwise"),
        (
            {"words": {"flagg": {"fraud": "mule"}}},
            DataError,
            r"no column 'flagg' \(nodes\.words\); did you mean 'flag'",
        ),
        ({"words": {"flag": {"fraud": "mulle"}}}, DataError, r"Did you mean 'mule' where it says 'mulle'"),
        ({"words": {"online": {"ja": True}}}, ConfigError, r"nodes\.words\.online .*quote such words"),
        ({"words": {"flag": ["fraud"]}}, ConfigError, r"nodes\.words\.flag must be a table"),
        ({"units": {"balanc": 0.01}}, ConfigError, r"'balanc' is no column of numbers .*did you mean 'balance'"),
        ({"units": {"segment": 0.01}}, ConfigError, r"'segment' is no column of numbers"),
        ({"units": {"balance": 0}}, ConfigError, r"nodes\.units\.balance must be above 0"),
        ({"units": {"balance": "1/100"}}, ConfigError, r"nodes\.units\.balance must be a number"),
        ({"unit": {"balance": 1}}, ConfigError, r"unknown setting 'nodes\.unit'; did you mean 'nodes\.units'"),
    ],
)
def test_what_is_told_wrong_is_refused(tmp_path: Path, keys: dict, kind: type, message: str) -> None:
    path = write(tmp_path, 0, other=True)
    content = yaml.safe_load(path.read_text())
    content["nodes"] |= {key: {**OTHERWISE.get(key, {}), **value} if key == "rename" and len(value) == 1
                         else value for key, value in keys.items()}  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        load(path)
    assert isinstance(caught.value, kind)


def test_weights_in_another_unit(tmp_path: Path) -> None:
    path = write(tmp_path, 0)
    (tmp_path / "e.csv").write_text("a,b,amount\n0-1,0-2,250\n")
    path.write_text(path.read_text().replace("target: b", "target: b\n  weight: amount\n  unit: 0.01"))
    graph = load(path)
    assert isinstance(graph, Graph)
    assert graph.edge_weights is not None
    assert graph.edge_weights.tolist() == [2.5, 2.5]


@pytest.mark.parametrize(
    ("name", "types", "relations", "column"),
    [
        ("bank", ("account", "merchant"), ("payment", "transfer"), "transfer out: amount, sum, 30 days"),
        ("stays", ("drug", "patient", "stay"), ("dose", "stay.patient"), "stay.crp:missing"),
    ],
)
def test_the_exports_of_the_page(name: str, types: tuple[str, ...], relations: tuple[str, ...], column: str) -> None:
    graph = load(Path(__file__).parents[2] / "examples" / "tables" / f"{name}.yaml")
    assert graph.types.names == types
    assert graph.links.relations == relations
    assert column in graph.feature_names
    assert set(graph.labels.tolist()) == {-1, 0, 1}


@pytest.fixture
def elliptic(tmp_path: Path) -> Callable[..., Path]:
    """Three files as they are published: features without a header, classes apart, most of them unknown."""
    (tmp_path / "f.csv").write_text("".join(f"{230 + row},{1 + row % 3},{row / 8}\n" for row in range(6)))
    (tmp_path / "e.csv").write_text("txId1,txId2\n230,231\n231,235\n")

    def described(classes: str = "232,unknown\n230,1\n231,2\n233,unknown\n235,1\n", more: str = "") -> Path:
        (tmp_path / "c.csv").write_text(f"txId,class\n{classes}")
        (tmp_path / "t.yaml").write_text(
            "nodes: {path: f.csv, header: false, id: 1}\nlabels: {path: c.csv, id: txId, label: class}\n"
            f"edges: {{path: e.csv, source: txId1, target: txId2}}\n{more}"
        )
        return tmp_path / "t.yaml"

    return described


@pytest.mark.parametrize("more", ["", "classes: ['1', '2']\n"])
def test_labels_apart_and_columns_without_names(elliptic: Callable, more: str) -> None:
    graph = load(elliptic(more=more))
    assert (graph.class_names, graph.feature_names) == (("1", "2"), ("2", "3"))
    assert graph.labels.tolist() == [0, 1, -1, -1, -1, 0]
    assert graph.features[:, 1].tolist() == [row / 8 for row in range(6)]
    assert graph.notes == (
        "column 'class' (labels.label): nodes with 'unknown' (2) count as unlabelled; where such a word is a class, "
        "list it in classes",
    )


def test_steps_of_time_are_numbers(elliptic: Callable) -> None:
    path = elliptic()
    path.write_text(path.read_text().replace("id: 1}", "id: 1, time: {column: 2, steps: true}}"))
    graph = load(path)
    assert graph.time.tolist() == [1, 2, 3, 1, 2, 3]
    assert graph.feature_names == ("3",)
    # 230 - 231 are of the steps 1 and 2, 231 - 235 of 2 and 3: what came later tells nothing of what came before.
    assert graph.edges.T.tolist() == [[0, 1], [1, 5]]


@pytest.mark.slow
def test_published_files_go_through_a_run(tmp_path: Path) -> None:
    """Named and written as they are published: 49 steps, links within one, two of three transactions unknown."""
    draw = np.random.default_rng(0)
    ids, steps = 230_000_000 + draw.permutation(490), np.repeat(np.arange(1, 50), 10)
    words = draw.choice(["1", "2", "unknown"], len(ids), p=[0.1, 0.3, 0.6])
    values = draw.normal(size=(len(ids), 4)) + 2.0 * (words == "1")[:, None]
    ends = 10 * draw.integers(49, size=(900, 1)) + draw.integers(10, size=(900, 2))
    files = {
        "features.csv": [
            f"{key},{step},{','.join(map(str, row))}" for key, step, row in zip(ids, steps, values, strict=True)
        ],
        "classes.csv": ["txId,class", *(f"{key},{word}" for key, word in zip(ids, words, strict=True))],
        "edgelist.csv": ["txId1,txId2", *(f"{one},{other}" for one, other in ids[ends])],
    }
    for name, lines in files.items():
        (tmp_path / f"elliptic_txs_{name}").write_text("\n".join([*lines, ""]))
    (page,) = re.findall(r"```yaml\n(nodes: \{path: elliptic.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "elliptic.yaml").write_text(page)
    settings = {"partition": "metis", "clients": 2, "partition.split": "time", "evaluation.select_by": "ap"}
    made = graphsilo.run(data=str(tmp_path / "elliptic.yaml"), method="fedridge", **settings, out=tmp_path / "run")
    assert made.tree["seeds"][0]["test"]["ap"] > 0.8  # of 1, the rarer class
    found = predict(tmp_path / "run", client=0)
    assert len(found.classes) == made.tree["partition"]["per_client"][0]["nodes"]


@pytest.mark.parametrize(
    ("classes", "more", "message"),
    [
        ("999,1\n", "", r"'txId' has one value where the label is of an unknown node: row 1 \(line 2\): '999'"),
        ("230,1\n230,2\n", "", r"the node occurred before: row 2 \(line 3\): '230'. A node has one label"),
        ("230,3\n", "classes: ['1']\n", r"c\.csv: column 'class' has one value where the label is not among classes"),
    ],
)
def test_labels_apart_that_do_not_fit(elliptic: Callable, classes: str, more: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(elliptic(classes, more))


def test_lines_of_a_table_without_a_header(elliptic: Callable, tmp_path: Path) -> None:
    path = elliptic()
    text = (tmp_path / "f.csv").read_text()
    (tmp_path / "f.csv").write_text(text.replace("0.125", "x"))
    with pytest.raises(
        DataError, match=r"column '3' has one value where the feature is not a number: row 2 \(line 2\)"
    ):
        load(path)
    (tmp_path / "f.csv").write_text(text + "1,2\n")
    with pytest.raises(DataError, match=r"row 7 \(line 7\) has too few cells, 2 where the first row has 3"):
        load(path)


def test_labels_in_two_tables_are_refused(elliptic: Callable) -> None:
    path = elliptic()
    path.write_text(path.read_text().replace("id: 1", "id: 1, label: 2"))
    with pytest.raises(ConfigError, match=r"nodes\.label and labels name two; leave one out"):
        load(path)


@pytest.mark.parametrize("form", ["csv", "parquet", "sql", "xlsx"])
def test_times_of_every_kind_of_table(tmp_path: Path, form: str) -> None:
    """Moments written as yyyymmddHHMM, a minute apart."""
    path = write(tmp_path, 0, "sql" if form == "sql" else "csv")
    when = (202_401_010_000 + np.random.default_rng(0).permutation(ROWS)).tolist()
    names = columns(0)["account"]
    if form == "sql":
        with sqlite3.connect(tmp_path / "bank.db") as database:
            database.execute("DROP TABLE t")
            database.execute("CREATE TABLE t (account, when_ INTEGER)")
            database.executemany("INSERT INTO t VALUES (?, ?)", zip(names, when, strict=True))
    elif form == "xlsx":
        sheet = pytest.importorskip("openpyxl").Workbook()
        for row in [("account", "when_"), *zip(names, when, strict=True)]:
            sheet.active.append(row)
        sheet.save(tmp_path / "bank.xlsx")
    else:
        table = pa.table({"account": names, "when_": when})
        (pa.csv.write_csv if form == "csv" else pa.parquet.write_table)(table, tmp_path / f"bank.{form}")
    content = yaml.safe_load(path.read_text())
    where = {key: content["nodes"][key] for key in ("query", "connection") if form == "sql"}
    content["nodes"] = {**(where or {"path": f"bank.{form}"}), "id": "account", "features": ["when_"]}
    path.write_text(yaml.safe_dump({key: content[key] for key in ("nodes", "edges", "name")}))
    graph = load(path)
    assert isinstance(graph, Graph)
    assert graph.features.dtype == np.float64
    assert dict(zip(graph.external_ids.tolist(), graph.features[:, 0].tolist(), strict=True)) == dict(
        zip(names, map(float, when), strict=True)
    )
    assert find_lost_values(graph, "standard") == []
