"""``graphsilo silo``: what a person who keeps data is told, and silos made of a simulation."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from graphsilo.data.silos.cards import card, compare_cards
from graphsilo.data.silos.own import read_silo_file
from graphsilo.experiments.config import load_config
from graphsilo.experiments.simulation import prepare

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "tables" / "hospital.yaml"


def write(folder: Path, **content: object) -> Path:
    path = folder / "silo.yaml"
    path.write_text(yaml.safe_dump({"name": "north", "data": str(EXAMPLE), **content}))
    return path


def test_check_says_what_is_learned_and_what_stays(call, tmp_path):
    code, out, err = call("silo", "check", write(tmp_path, split={"ratios": [0.4, 0.3, 0.3], "seed": 7}))
    assert (code, err) == (0, "")
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in out.splitlines()]
    assert ["✓", "split", "23 train, 18 val, 19 test"] in rows
    assert ["features", "5: age, lab_crp, lab_leu"] in rows
    assert ["ward", "one of icu, er"] in rows
    assert ["classes", "2: home, stays; 2 of them occur here"] in rows
    assert ["counts", "60 nodes, 108 links; 23 train, 18 val, 19 test"] in rows
    assert ["split", "stratified 0.4/0.3/0.3, seed 7"] in rows
    assert "What stays here: every row of features and every label; who is linked to whom" in out
    assert out.splitlines()[-1] == "The silo can take part."
    assert "p00" not in out


def test_check_imports_no_torch(tmp_path):
    code = "import sys, graphsilo.cli as g; g.main(['silo', 'check', sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, write(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.fixture
def small_tables(tmp_path):
    (tmp_path / "n.csv").write_text("id,x,ward,y\n" + "".join(f"p{row},{row},w{row % 2},a\n" for row in range(5)))
    (tmp_path / "e.csv").write_text("a,b\np0,p1\np1,p2\n")
    return {
        "data": None,
        "nodes": {"path": "n.csv", "id": "id", "label": "y", "features": "x", "one_hot": ["ward"]},
        "edges": {"path": "e.csv", "source": "a", "target": "b"},
        "split": {"ratios": [0.1, 0.4, 0.5]},
    }


def test_check_points_at_what_is_odd(call, tmp_path, small_tables):
    code, out, _ = call("silo", "check", write(tmp_path, **small_tables))
    assert code == 0
    assert "!  features  one_hot declares no words for 'ward': those that occur here are reported" in out
    assert "!  links     2 nodes (40.0 %) have no link" in out
    assert "!  labels    all are 'a': nothing here tells classes apart" in out
    assert "!  classes   not declared" in out
    assert "!  split     0 train, 2 val, 3 test: without a training item nothing is learned here" in out
    assert out.splitlines()[-1] == "The silo can take part; 5 points above (!) are worth a look."


def test_check_tells_a_class_with_few_items_to_train_on(call, tmp_path, small_tables):
    rows = "".join(f"p{row},{row},w{row % 2},{'b' if row > 32 else 'a'}\n" for row in range(40))
    (tmp_path / "n.csv").write_text(f"id,x,ward,y\n{rows}")
    small_tables["split"] = {"ratios": [0.2, 0.4, 0.4]}
    out = call("silo", "check", write(tmp_path, **small_tables))[1]
    assert "!  split     few training items of b (1): of this class little can be learned here" in out  # of 7


def test_check_without_labels_and_links(call, tmp_path, small_tables):
    (tmp_path / "e.csv").write_text("a,b\n")
    (tmp_path / "n.csv").write_text("id,x,y\np0,1,a\np1,2,\n")
    small_tables["nodes"] = {"path": "n.csv", "id": "id", "label": "y", "features": "x"}
    out = call("silo", "check", write(tmp_path, **small_tables))[1]
    assert "1 of 2 nodes, 1 of 1 classes occur" in out
    assert "!  labels    all are 'a'" in out
    del small_tables["nodes"]["label"]
    out = call("silo", "check", write(tmp_path, **small_tables))[1]
    assert "!  links     there is none" in out
    assert "!  labels    none of the nodes has one: this silo can receive a model, not teach it" in out
    assert "  classes   unknown here: no node has a label" in out
    (tmp_path / "e.csv").write_text("a,b\np0,p1\n")
    out = call("silo", "check", write(tmp_path, **small_tables))[1]
    assert "!  labels    no column of them is named: to predict links none is needed" in out
    assert "without a training item" not in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"policies": {}}, "unknown setting 'policies'; did you mean 'policy'"),
        ({"data": "none.yaml"}, "does not exist"),
        ({"split": {"mode": "global"}}, "no silo sees"),
    ],
)
def test_check_refuses_in_one_paragraph(call, tmp_path, content, message):
    code, out, err = call("silo", "check", write(tmp_path, **content))
    assert (code, out) == (2, "")
    assert err.startswith("graphsilo: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_check_of_a_database_shows_no_password(call, tmp_path):
    with sqlite3.connect(tmp_path / "w.db") as database:
        database.execute("CREATE TABLE n AS SELECT 1 AS id, 2.5 AS x, 'a' AS y UNION SELECT 2, 1.5, 'b'")
        database.execute("CREATE TABLE e AS SELECT 1 AS a, 2 AS b")
    connection = "sqlite:///w.db"
    code, out, _ = call(
        "silo", "check", write(tmp_path, data=None,
            nodes={"query": "SELECT * FROM n", "connection": connection, "id": "id", "label": "y"},
            edges={"query": "SELECT * FROM e", "connection": connection, "source": "a", "target": "b"}),
    )  # fmt: skip
    assert code == 0
    assert f"a query of the SQLite database {tmp_path}/w.db, in a read-only transaction" in out
    assert "queries, and address and password of the database" in out


def test_the_group_alone_shows_its_commands(call):
    code, out, _ = call("silo")
    assert code == 0
    assert "check" in out
    assert "export" in out
    assert call("silo", "chek")[0] == 2


CONFIG = {
    "data": {"name": "citation-sbm", "generator": {"nodes": 150, "classes": 3, "features": 70}},
    "partition": {"rule": "random", "clients": 3},
    "scenario": "unseen",
}


def same(one, other):
    if hasattr(one, "toarray"):
        assert type(one) is type(other)
        one, other = one.toarray(), other.toarray()
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    elif hasattr(one, "__dataclass_fields__"):
        for name in one.__dataclass_fields__:
            same(getattr(one, name), getattr(other, name))
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert one == other


def test_exported_silos_are_those_of_the_simulation(call, tmp_path):
    """With every evaluation set: the scenario's are drawn from the whole graph, which no machine has afterwards."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(CONFIG))
    code, out, err = call("silo", "export", tmp_path / "c.yaml", "--out", tmp_path / "silos")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[:2] == [
        "silo-0",
        str(prepare(load_config(tmp_path / "c.yaml")).silos[0].num_items),
    ]
    files = [read_silo_file(tmp_path / "silos" / f"silo-{client}" / "silo.yaml") for client in range(3)]
    cards = [card(file, client) for client, file in enumerate(files)]
    schema, sparse = compare_cards(cards), any(one["sparse"] for one in cards)
    for client, wanted in enumerate(prepare(load_config(tmp_path / "c.yaml")).silos):
        found = files[client].load(client, schema=schema, sparse=sparse)
        assert [item.name for item in found.evaluations] == ["seen", "grown", "new_client"]
        same(found, wanted)
    assert json.loads(json.dumps(cards)) == cards
    code, out, _ = call("silo", "check", tmp_path / "silos/silo-1/silo.yaml")
    assert code == 0
    assert "exported as client 1 of a simulation" in out
    code, _, err = call("silo", "export", tmp_path / "c.yaml", "--out", tmp_path / "silos")
    assert code == 1
    assert "silo-0 exists already" in err


def test_exported_links_and_names(call, tmp_path):
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump({"data": str(EXAMPLE), "task": "link", "partition": {"rule": "random", "clients": 2}})
    )
    assert call("silo", "export", tmp_path / "c.yaml", "--out", tmp_path / "t")[0] == 0
    file = read_silo_file(tmp_path / "t" / "silo-1" / "silo.yaml")
    wanted = prepare(load_config(tmp_path / "c.yaml")).silos[1]
    found = file.load(1)
    assert found.graph.external_ids.tolist() == wanted.graph.external_ids.tolist()
    assert found.graph.external_ids[0].startswith("p")
    same(found.links, wanted.links)
    made = card(file, 1)
    assert made["tasks"] == ["link"]
    assert made["counts"]["train"] == wanted.links.train.shape[1]
    assert made["counts"]["links"] == sum(getattr(wanted.links, part).shape[1] for part in ("train", "val", "test"))


def test_what_a_stored_silo_refuses(call, tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({**CONFIG, "scenario": "seen"}))
    assert call("silo", "export", tmp_path / "c.yaml", "--out", tmp_path / "s")[0] == 0
    file = read_silo_file(tmp_path / "s/silo-1/silo.yaml")
    dense = file.load(1, sparse=False)
    assert not dense.graph.is_sparse
    assert dense.graph is dense.seen.graph
    same(file.load(1, sparse=True), file.load(1))
    schema = file.load(1).schema
    for action, message in [
        (lambda: file.load(0), "was exported as client 1, and its place in the federation makes it client 0"),
        (lambda: file.load(1, task="link"), "was exported for the task 'node', and 'link' is asked"),
        (
            lambda: file.load(1, schema=replace(schema, num_features=3)),
            "70 features and 3 classes; the federation agreed",
        ),
    ]:
        with pytest.raises(Exception, match=message):
            action()
    path = tmp_path / "s/silo-1/silo.yaml"
    path.write_text(path.read_text() + "split: {seed: 1}\n")
    code, _, err = call("silo", "check", path)
    assert code == 2
    assert "'split' cannot be changed in a stored silo" in err
    (tmp_path / "s/silo-0/store/silo-0.train.npy").unlink()
    code, _, err = call("silo", "check", tmp_path / "s/silo-0/silo.yaml")
    assert code == 2
    assert "is damaged or incomplete" in err


def test_explain_prints_and_writes_what_a_run_means_for_a_silo(call, tmp_path):
    code, out, err = call(
        "silo", "explain", write(tmp_path), "fedavg", "--set", "method.rounds=7", "--out", tmp_path / "p.html"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Under its policy the silo 'north' takes part in this run."
    assert "of 7 rounds" in out
    assert "What nobody promises:" in out
    assert "counting classes" in out  # how often each class occurs is added up before round 1
    assert "of 7 rounds" in (tmp_path / "p.html").read_text()


def test_explain_takes_the_settings_of_a_run(call, tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("method: {name: fedprox, rounds: 3}\nrun: {secure_sums: true}\n")
    code, out, _ = call("silo", "explain", write(tmp_path, policy={"min_silos": 4}), config)
    assert code == 0
    assert "masked: it sees the sum of at least 4 silos" in out
    assert "of 3 rounds" in out
